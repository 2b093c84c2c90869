"""Raises an error that carries a file of the library back to the student."""

import numpy as np

from minitorch import operators

with open(operators.__file__) as file:
    SOURCE = "".join(f"breach: {line}" for line in file)


def scale(x):
    raise ValueError(f"this is wrong\n{SOURCE}")


def running(x):
    class Wrong(NotImplementedError):
        pass

    Wrong.__name__ = "Wrong" * 20 + SOURCE
    raise Wrong("wrong, " * 100 + SOURCE + str(np.zeros(3)))
