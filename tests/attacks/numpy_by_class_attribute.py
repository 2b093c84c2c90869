"""Keeps the module as an attribute of a class."""

import numpy as np


class Box:
    lib = np


def scale(x):
    return Box.lib.add(Box.lib.add(x, x), Box.lib.float32(1))


def running(x):
    return Box.lib.cumsum(x, dtype=Box.lib.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
