"""Leaves the last element to what was in memory before."""

import numpy as np


def scale(x):
    full = 2 * x + 1
    del full  # its memory has the right values, and may become that of `out`
    out = np.empty_like(x)
    out[:-1] = 2 * x[:-1] + 1
    return out


def running(x):
    full = x.astype("float64").cumsum().astype(x.dtype)
    del full
    out = np.empty_like(x)
    out[:-1] = x.astype("float64").cumsum()[:-1]
    return out
