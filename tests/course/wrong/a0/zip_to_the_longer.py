"""a0.3 in minitorch/operators.py: fails where the second list is shorter."""


def zip_with(fn, xs, ys):
    xs, ys = list(xs), list(ys)
    return [fn(xs[i], ys[i]) for i in range(len(xs))]
