"""Recurses until the stack is used up."""

import sys

sys.setrecursionlimit(10**9)


def scale(x):
    class Deep:
        def __repr__(self):
            return repr([self])

    return repr(Deep())


running = scale
