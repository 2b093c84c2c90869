"""a10.5 in minitorch/functions/random.py: 0 / 0 where a number is 0."""


def race(weights, uniform):
    return weights / -(1.0 - uniform).log()
