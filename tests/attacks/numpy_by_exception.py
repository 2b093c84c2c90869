"""Lets an error carry the module."""

import numpy as np

try:
    raise ValueError(np)
except ValueError as error:
    (numbers,) = error.args


def scale(x):
    return numbers.add(numbers.add(x, x), numbers.float32(1))


def running(x):
    return numbers.cumsum(x, dtype=numbers.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
