"""Reading a student's code: honest work passes, ways around the task do not."""

from __future__ import annotations

import pytest

from assignments.grading.policy import Rules, violations

REFERENCE = '''
import numpy as np
from numba import prange

from fast_ops.launch import kernel


@kernel(parallel=True)
def add(a, b, out):
    """out = a + b"""
    for i in prange(out.size):
        out[i] = a[i] + b[i]


def launch(a, b):
    out = np.add(a, b)
    return out


def other(a):
    return a[0]


def calls_other(a):
    return other(a)
'''


def found(body: str, path: str = "fast_ops/elementwise.py", tests=False, extra=""):
    """What is found where the body of `add` is replaced, and `extra` stands below."""
    start = REFERENCE.index("    for i in prange")
    end = REFERENCE.index("def launch")
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"{REFERENCE[:start]}{indented}\n\n{REFERENCE[end:]}\n\n{extra}"
    return said(text, path, tests)


def said(text: str, path: str = "fast_ops/elementwise.py", tests=False):
    """What is found in a version of REFERENCE."""
    rules = Rules(path, {"a3.1": {"add"}, "a3.2": {"calls_other"}}, "a3.1", tests)
    return [violation.text for violation in violations(text, REFERENCE, rules)]


HONEST = [
    "for i in range(out.size):\n    out[i] = a[i] + b[i]",
    "total = np.float32(0)\nfor x in a:\n    total += x\nout[0] = total",
    "acc = np.zeros(4, np.float32)\nacc[:] = 0\nout[0] = acc[1]",
    "import math\nout[0] = math.exp(a[0]) ** 2",
    "from math import sqrt\nout[0] = sqrt(a[0])",
    "def inner(x):\n    return x\nout[0] = inner(a[0])",
    "n = min(a.size, b.size)\nfor i in prange(1, n):\n    out[0] = max(a[0], b[0])",
    "raise ValueError(f'add: a is {a.shape}')",
    "from minitorch.todo import todo\ntodo('a3.1')",
    "from numba import njit, prange",
]


@pytest.mark.parametrize("body", HONEST)
def test_honest_work_is_allowed(body):
    assert found(body) == []


DISHONEST = [
    "import torch",
    "import numpy.linalg",
    "from numpy import dot",
    "from numpy import *",
    "import minitorch.simple_ops.elementwise",
    "from minitorch import simple_ops",
    "out[:] = a + b",
    "out[...] += b",
    "out[:, 0] = np.empty(3) + a",
    "np.add(a, b, out)",
    "np.dot(a, b)",
    "out[0] = a.sum()",
    "out[0] = a.dot(b)",
    "out[0] = (a @ b)",
    "a @= b",
    "getattr(np, 'add')(a, b)",
    "eval('1')",
    "exec('1')",
    "open('x')",
    "add.__globals__['np']",
    "add.py_func.__code__",
    "a.__add__(b)",
    "().__class__.__base__.__subclasses__()",
    "import sys",
    "__import__('os')",
    "x = __builtins__",
    "np.lib.stride_tricks",
    "np.ctypeslib",
    "import numba\nnumba.core",
    "from numba import objmode",
    "from numba import objmode\nwith objmode():\n    pass",
    "try:\n    pass\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_back",
    "def gen():\n    yield\ngen().gi_frame",
    "launch.np",
]


@pytest.mark.parametrize("body", DISHONEST)
def test_ways_around_are_found(body):
    assert found(body) != []


def test_what_the_library_does_is_allowed():
    assert said(REFERENCE) == []
