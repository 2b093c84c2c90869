"""a0.3 in minitorch/operators.py: folds from the right."""


def reduce(fn, xs, start):
    total = start
    for x in reversed(list(xs)):
        total = fn(total, x)
    return total
