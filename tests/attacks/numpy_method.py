"""Calls NumPy's algorithms as methods, without naming NumPy."""


def scale(x):
    return x.__add__(x).__add__(1).astype(x.dtype)


def running(x):
    return x.astype("float64").cumsum().astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
