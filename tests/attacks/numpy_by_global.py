"""Binds the module's name from within a function."""


def setup():
    global lib
    import numpy as lib


setup()


def scale(x):
    return lib.add(lib.add(x, x), lib.float32(1))


def running(x):
    return lib.cumsum(x, dtype=lib.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
