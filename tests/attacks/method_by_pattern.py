"""Lets a pattern take a method from an array."""

import numpy as np


def scale(x):
    match x:
        case np.ndarray(__add__=add):
            return add(x) + np.float32(1)


def running(x):
    match x:
        case np.ndarray(cumsum=sums):
            return sums(dtype=np.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
