"""Two tasks that are quick to grade: the library's file of a miniature assignment."""

from __future__ import annotations

import numpy as np


def scale(x):
    """2 x + 1, element by element."""
    # BEGIN SOLUTION a99.1
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = 2 * x[i] + 1
    return out
    # END SOLUTION a99.1


def running(x):
    """Sums of the first elements: out[i] = x[0] + ... + x[i]."""
    # BEGIN SOLUTION a99.2
    out = np.empty_like(x)
    total = 0.0
    for i, value in enumerate(x.tolist()):
        total += value
        out[i] = total
    return out
    # END SOLUTION a99.2


def scale_at_once(x):
    """`scale` by NumPy, which is given, to compare with."""
    return np.add(np.add(x, x), np.float32(1))


def running_at_once(x):
    """`running` by NumPy, which is given, to compare with."""
    return np.cumsum(x, dtype=np.float64).astype(x.dtype)


LADDER = {"scale": scale_at_once, "running": running_at_once}
