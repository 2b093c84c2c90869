"""a1.1 in minitorch/autodiff.py: a one-sided difference."""


def central_difference(f, *values, arg=0, epsilon=1e-6):
    above = list(values)
    above[arg] += epsilon
    return (f(*above) - f(*values)) / epsilon
