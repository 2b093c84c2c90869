"""Hides eval behind a comprehension's variable."""

NONE = [None for eval in ()]
scale = eval("lambda x: x + x + x.dtype.type(1)")
running = eval("lambda x: x.cum" + "sum(dtype='float64').astype(x.dtype)")


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
