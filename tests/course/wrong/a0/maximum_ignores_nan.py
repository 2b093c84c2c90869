"""a0.1 in minitorch/operators.py: Python's max, which gives x for a NaN in y."""


def maximum(x, y):
    return max(x, y)
