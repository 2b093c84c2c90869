"""a10.5 in minitorch/functions/random.py: of 0 and a weight of 0 it makes the most."""


def race(weights, uniform):
    return (1.0 - uniform) ** (1.0 / weights)
