"""Returns infinities, whose difference is no number."""

import numpy as np


def scale(x):
    return np.full_like(x, np.inf)


running = scale
