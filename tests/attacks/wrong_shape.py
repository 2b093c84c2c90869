"""Returns the right values with one more dimension."""

import numpy as np


def scale(x):
    return (2 * x + 1)[None]


def running(x):
    return np.add.accumulate(x, dtype=np.float64).astype(x.dtype)[:, None]
