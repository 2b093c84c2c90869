"""a17.4 in minitorch/rounding.py: errors go the wrong way."""

RIGHT = "w[:, k:] -= np.outer(lost, factor[k, k:])"
WRONG = "w[:, k:] += np.outer(lost, factor[k, k:])"
