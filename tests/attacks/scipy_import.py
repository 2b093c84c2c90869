"""Lets SciPy do the work, through importlib."""

import importlib

signal = importlib.import_module("scipy.signal")


def scale(x):
    return signal.lfilter([2.0], [1.0], x).astype(x.dtype) + 1


def running(x):
    return signal.lfilter([1.0], [1.0, -1.0], x).astype(x.dtype)
