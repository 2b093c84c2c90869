"""Has code in a comment, after a character that ends lines for some."""


def scale(x):
    # a comment    return 2 * x + 1
    return 0 * x


running = scale
