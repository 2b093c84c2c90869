"""Names the module within an expression."""

import numpy as np


def scale(x):
    return (lib := np).add(lib.add(x, x), lib.float32(1))


def running(x):
    return (lib := np).cumsum(x, dtype=lib.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
