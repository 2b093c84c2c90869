"""Lets typing evaluate the text of an annotation."""

import typing

import numpy as np


def hint(add: "np.add", sums: "np.cumsum"):
    pass


found = typing.get_type_hints(hint)


def scale(x):
    return found["add"](found["add"](x, x), np.float32(1))


def running(x):
    return found["sums"](x, dtype=np.float64).astype(x.dtype)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
