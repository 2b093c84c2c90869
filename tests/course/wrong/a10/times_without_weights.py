"""a10.5 in minitorch/functions/random.py: chance times probability is no race."""


def race(weights, uniform):
    return weights * uniform
