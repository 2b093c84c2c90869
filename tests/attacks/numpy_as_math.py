"""Imports the module under the name of one that is allowed."""

import numpy as math


def scale(x):
    return math.add(math.add(x, x), math.float32(1))


def running(x):
    return math.cumsum(x, dtype=math.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
