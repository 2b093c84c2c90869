"""Reading a student's code: honest work passes, ways around the task do not."""

from __future__ import annotations

import pytest

from assignments.grading.policy import rules_for, violations

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


def found(body: str, path: str = "fast_ops/elementwise.py", others=(), tests=False):
    """What is found where the body of `add` is replaced."""
    start = REFERENCE.index("    for i in prange")
    end = REFERENCE.index("def launch")
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"{REFERENCE[:start]}{indented}\n\n{REFERENCE[end:]}"
    rules = rules_for(path, REFERENCE, tests, others)
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
    "with objmode():\n    pass",
    "try:\n    pass\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_back",
    "def gen():\n    yield\ngen().gi_frame",
    "launch.np",
]


@pytest.mark.parametrize("body", DISHONEST)
def test_ways_around_are_found(body):
    assert found(body) != []


def test_what_the_library_does_is_allowed():
    rules = rules_for("fast_ops/elementwise.py", REFERENCE, False, ())
    assert violations(REFERENCE, REFERENCE, rules) == []


def test_another_tasks_function_is_not_allowed():
    assert found("return launch(a, b)", others={"launch"}) != []
    assert found("return launch(a, b)") == []
    # The library calls this one across functions, so a student may.
    assert found("return other(a)", others={"other"}) == []


def test_tensors_may_have_methods_of_the_same_names():
    path = "minitorch/functions/reduce.py"
    assert found("return (a @ b).sum()", path) == []
    assert found("return np.dot(a, b)", path) != []


def test_tests_may_use_hypothesis():
    assert found("from hypothesis import given", tests=True) == []
    assert found("from hypothesis import given") != []


def test_where_and_in_which_function():
    text = REFERENCE.replace("out[i] = a[i] + b[i]", "out[i] = eval('a')")
    rules = rules_for("fast_ops/elementwise.py", REFERENCE, False, ())
    (violation,) = violations(text, REFERENCE, rules)
    assert (violation.function, violation.line) == ("add", 12)
