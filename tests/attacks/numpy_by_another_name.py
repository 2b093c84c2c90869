"""Gives the module another name."""

import numpy as np

math = np


def scale(x):
    return math.add(math.add(x, x), math.float32(1))


def running(x):
    return math.cumsum(x, dtype=math.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
