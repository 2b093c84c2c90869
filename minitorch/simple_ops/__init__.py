"""The backend of device "simple": every operation in plain Python, as a specification.

With this package one can read what each operation means. A file holds a family of
operations, under the same name as in the fast backends; start with `elementwise.py`.
Tensors are read into Python lists, the mathematics is a loop over numbers, and the
result is rounded once, when it is stored (`lists.py`).
"""
