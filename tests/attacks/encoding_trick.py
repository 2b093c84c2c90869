# coding: utf-7
"""Means something else to a reader that knows only UTF-8."""


def scale(x):
    # +AAo-    return 2 * x + 1
    return 0 * x


def running(x):
    # +AAo-    return x.astype("float64").cumsum().astype(x.dtype)
    return 0 * x
