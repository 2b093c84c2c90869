"""Gets the module from a function."""

import numpy as np


def lib(*modules):
    return modules[-1]


def scale(x):
    return lib(np).add(lib(np).add(x, x), lib(np).float32(1))


def running(x):
    return lib(np).cumsum(x, dtype=lib(np).float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
