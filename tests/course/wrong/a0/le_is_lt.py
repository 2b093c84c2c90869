"""a0.1 in minitorch/operators.py: <= without the equal ones."""


def le(x, y):
    return x < y
