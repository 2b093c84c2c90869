"""Returns an array of objects, whose pickle would run code."""

import os

import numpy as np


class Run:
    def __reduce__(self):
        return os.system, ("touch /tmp/minitorch-attack-was-here",)


def scale(x):
    return np.array([Run() for _ in range(x.size)], dtype=object)


running = scale
