"""A function that is never called collects the module."""

import numpy as np

BOX = []


def unused(nothing=BOX.append(np)):  # noqa: B008
    pass


def scale(x):
    return BOX[0].add(BOX[0].add(x, x), BOX[0].float32(1))


def running(x):
    return BOX[0].cumsum(x, dtype=BOX[0].float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
