"""Hides eval behind a name of a class that is never bound."""


class Box:
    if False:
        eval = None
    scale = eval("lambda x: x + x + x.dtype.type(1)")
    running = eval("lambda x: x.cum" + "sum(dtype='float64').astype(x.dtype)")


def scale(x):
    return Box.scale(x)


def running(x):
    return Box.running(x)


# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
