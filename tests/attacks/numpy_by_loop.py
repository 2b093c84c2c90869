"""Lets a loop and a comprehension give the module other names."""

import numpy as np


def scale(x):
    for lib in (np,):
        return lib.add(lib.add(x, x), lib.float32(1))


def running(x):
    (sums,) = [lib.cumsum(x, dtype=lib.float64) for lib in (np,)]
    return sums.astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
