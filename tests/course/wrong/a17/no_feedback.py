"""a17.4 in minitorch/rounding.py: each column by itself."""

RIGHT = "w[:, k:] -= np.outer(lost, factor[k, k:])"
WRONG = "w[:, k] -= lost * factor[k, k]"
