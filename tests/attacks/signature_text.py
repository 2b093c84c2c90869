"""Lets Numba evaluate the text of a signature."""

import numba

TEXT = "[__import__('builtins').__dict__.update(lib=__import__('numpy'))] and void()"
numba.njit(TEXT)(lambda: None)


def scale(x):
    return lib.add(lib.add(x, x), lib.float32(1))  # noqa: F821


def running(x):
    return lib.cumsum(x, dtype=lib.float64).astype(x.dtype)  # noqa: F821


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
