"""Returns the right values as float64."""

import numpy as np


def scale(x):
    return np.array([2 * v + 1 for v in x.tolist()], np.float64)


def running(x):
    return np.add.accumulate(x, dtype=np.float64)
