"""Returns the input itself, overwritten with the right values."""


def scale(x):
    x *= 2
    x += 1
    return x


def running(x):
    x[...] = x.astype("float64").cumsum()
    return x
