"""Hands the module over as the value of a parameter."""

import numpy as np


def scale(x, lib=np):
    return lib.add(lib.add(x, x), lib.float32(1))


def running(x, lib=np):
    return lib.cumsum(x, dtype=lib.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
