"""Returns the right values, and changes the input."""


def scale(x):
    out = 2 * x + 1
    x[...] = out
    return out


def running(x):
    out = x.astype("float64").cumsum().astype(x.dtype)
    x += 1
    return out
