"""The CPU backend: kernels compiled by Numba, on all cores.

With this package `minitorch` runs tensors on the device "cpu" (`fast_ops/backend.py`).
A file holds a family of operations, under the same name as in the other backends.
"""
