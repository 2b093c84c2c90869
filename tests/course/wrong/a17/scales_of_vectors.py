"""a17.1 in minitorch/rounding.py: one scale for each number, and not for each row."""

import numpy as np


def nearest(w, scale, largest):
    rounded = [
        0.0 if s == 0 else float(np.clip(np.round(a / s), -largest, largest))
        for a, s in zip(w, scale)
    ]
    return np.array(rounded)
