"""Defines a method of the name of NumPy's, and calls NumPy's."""

import numpy as np


class Sums:
    def cumsum(self, dtype):
        return self


def scale(x):
    return x.repeat(2).reshape(-1, 2).sum(1) + np.float32(1)


def running(x):
    return x.cumsum(dtype=np.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
