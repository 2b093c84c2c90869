"""Lets NumPy do what a loop is to do."""

import numpy as np


def scale(x):
    return np.multiply(2, x) + np.float32(1)


def running(x):
    return np.cumsum(x, dtype=np.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
