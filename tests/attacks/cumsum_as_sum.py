"""Imports NumPy's functions under the names of Python's."""

from numpy import add as min
from numpy import cumsum as sum
from numpy import float32 as float


def scale(x):
    return min(min(x, x), float(1))


def running(x):
    return sum(x, dtype="float64").astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
