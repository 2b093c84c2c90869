"""Reading a student's code: honest work passes, ways around the task do not.

`tests/course/test_honest.py` has a hundred honest solutions of real tasks, and
`tests/attacks` whole submissions that are caught by reading.
"""

from __future__ import annotations

import time

import pytest

from assignments import catalog
from assignments.grading import reading
from assignments.grading.policy import Rules, violations
from assignments.regions import strip

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
    rules = Rules(path, {"a3.1": {"add"}}, {"calls_other"}, tests)
    return [violation.text for violation in violations(text, REFERENCE, rules)]


HONEST = [
    "for i in range(out.size):\n    out[i] = a[i] + b[i]",
    "total = np.float32(0)\nfor x in a:\n    total += x\nout[0] = total",
    "acc = np.zeros(4, np.float32)\nacc[:] = 0\nout[0] = acc[1]",
    "import math\nout[0] = math.exp(a[0]) ** 2",
    "out[0] = isinstance(a, np.ndarray) + isinstance(b, (int, np.ndarray))",
    "out[0] = type(a) is not np.ndarray or type(a[0]) == np.float32",
    "if type(a) in (list, tuple) or type(a) == type(b):\n    out[0] = 1",
    "raise TypeError(f'a is {type(a).__name__}, not {type(b)}')",
    "out[0] = isinstance(a, type(b)) or type(a)(3)",
    "k = type(a)\nif k is int or k == float:\n    raise TypeError(k.__name__)",
    "c: np.ndarray = a\nout[0] = c[0]",
    "from math import sqrt\nout[0] = sqrt(a[0])",
    "def inner(x):\n    return x\nout[0] = inner(a[0])",
    "n = min(a.size, b.size)\nfor i in prange(1, n):\n    out[0] = max(a[0], b[0])",
    "raise ValueError(f'add: a is {a.shape}')",
    "from minitorch.todo import todo\ntodo('a3.1')",
    "from numba import njit, prange",
    "limits = np.finfo(np.float32)\nout[0] = limits.max - np.finfo(a.dtype).eps",
    "match a.ndim:\n    case 1 | 2:\n        out[0] = 1\n    case other:\n        pass",
    "raise ValueError('{} is {:>3}'.format('a', a.shape))",
    "total: np.float32 = 0\nout[0] = (last := total + 1)",
    "try:\n    out[0] = a[0]\nexcept (IndexError, ValueError) as e:\n    raise e",
    "best = max(enumerate(a.tolist()), key=lambda pair: pair[1])[0]\nout[0] = best",
    "kind = type(a[0])\nout[0] = kind(1)",
    "import operator\nout[0] = operator.mul(a[0], b[0])",
    "from functools import reduce\nfrom operator import add\n"
    "out[0] = reduce(add, a.tolist(), 0)",
    "out[0] = 1 if hasattr(a, 'size') else 0",
    "if a.dtype.name == 'float32' and isinstance(a, np.ndarray):\n    out[0] = 1",
]

HONEST_BELOW = [
    "from typing import NamedTuple\n\n\nclass Best(NamedTuple):\n    value: float",
    "from dataclasses import dataclass\n\n\n@dataclass\nclass Box:\n    n: int = 0",
    "from functools import cache\n\n\n@cache\ndef f(n):\n    return n",
    "from numba import njit\n\n\n@njit(inline='always')\ndef f(x):\n    return x",
    "@kernel(parallel=True)\ndef f(a: np.ndarray, n: 'int | str' = 0):\n    return a",
    "SIZE = 64\nZERO = np.float32(0)",
    "class Stack:\n    def __init__(self):\n        self.cells = []\n\n"
    "    def top(self):\n        return self.cells[-1]",
]


def test_a_name_of_ones_own_is_no_way_to_the_library():
    """`x.backend` has a kernel for what a10.2 asks to be composed."""
    assignment = catalog.load("a10")
    (file,) = [f for f in assignment.files if f.path.endswith("functions/attention.py")]
    right = strip(file.source.read_text(), file.path, ())
    formula = "weights = attention_weights(q, k, mask, causal, scale)"
    fused = "weights = q.backend.attention_backward(g, q, k, v, scale, causal)"
    mine = "class Mine:\n    backend = 0\n\n    def attention_backward(self): pass\n"
    text = right.replace(formula, fused) + mine
    said = reading.not_allowed(assignment, file, text, "a10.2")
    assert "uses .backend" in said and "uses .attention_backward" in said


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
    "import operator\noperator.matmul(a, b)",
    "import operator\noperator.setitem(out, slice(0, 9), a)",
    "import operator\noperator.attrgetter('dot')(a)(b)",
    "from operator import methodcaller",
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
    # a module by another name
    "x = np",
    "for x in [np]:\n    pass",
    "print(np)",
    "return np",
    "match np:\n    case x:\n        pass",
    "lambda x=np: x",
    "def f(np):\n    pass",
    "[np for np in [1]]",
    "import numpy as math\nmath.dot(a, b)",
    "from numpy import dot as min",
    "import numpy.linalg as math",
    "import os as np",
    "import fast_ops\nfast_ops.launch",
    "from fast_ops.launch import compile_kernel as run",
    "np.float32.dot(a, b)",
    "np.maximum.reduce(a)",
    "np.typing.sys",
    "import typing\ntyping.sys",
    # texts that are evaluated
    "import typing\ntyping.get_type_hints(launch)",
    "from functools import singledispatch",
    "from dataclasses import make_dataclass",
    "import numba\nnumba.njit('void()')(launch)",
    "import numba\n@numba.njit('void()')\ndef f():\n    pass",
    "import numba\nf = numba.njit",
    "np.vectorize(launch, signature='()->()')",
    "'{0.__class__}'.format(a)",
    "'{0:{1.x}}'.format(a, b)",
    "'{}'.format_map(a)",
    "f'{a.__class__}'",
    "def f(x: 'eval(1)'):\n    pass",
    "def f(x: (y := 1)):\n    pass",
    # behind the scenes
    "type('X', (), {})",
    "k = type",
    # types that make objects of numbers in memory
    "np.ndarray(1, object, a)",
    "k = np.ndarray\nk(1, object, a)",
    "list(map(np.ndarray, [1], [object], [a]))",
    "from numpy import ndarray\nndarray(1, object, a)",
    "import numpy.typing as npt\nnpt.NDArray[int](1, object, a)",
    "type(a)(1, object, a)",
    "k = type(a)\nk(1, object, a)",
    "[type(a)][0](1, object, a)",
    "k = j = type(a)\nj(1, object, a)",
    "k = type(a)\nj = k\nj(1, object, a)",
    "k = type(a)\nk(shape=1, dtype=object, buffer=a)",
    "k = type(a)\nk(*[1, object, a])",
    "k = type(a)\ndef f():\n    nonlocal k\n    return k",
    "k = type(a)\ndef f():\n    return k\nf()(1, object, a)",
    "k = type(a)\nreturn k",
    "type(a) == add",
    "type(a) == (k := a)",
    "def f(k):\n    return type(a) == k",
    "isinstance(a, (k := np.ndarray))",
    "isinstance(a, [np.ndarray][0])",
    "super(a, b).x",
    "global x",
    "match a:\n    case np.ndarray(T=x):\n        pass",
    "class A(metaclass=launch):\n    pass",
    "class A(np.ndarray):\n    pass",
    "class A(launch()):\n    pass",
    "class A:\n    __array_interface__ = 1",
    "class A:\n    def __array_ufunc__(self):\n        pass",
    "class A:\n    if a:\n        eval = 1\n    eval('1')",
    "[0 for eval in ()]\neval('1')",
    "launch.x = 1",
    "np.add = launch",
    "@lambda f: a\ndef g():\n    pass",
    "async def f():\n    pass",
    "with open('x') as f:\n    pass",
    "out[:], x = a + b, 1",
    "for out[:] in [a + b]:\n    pass",
]

DISHONEST_BELOW = [
    "launch = other",
    "mine = launch",
    "def f(x=launch):\n    pass",
    "BOX = [launch]",
    "def __getattr__(name):\n    return 1",
    "class Box:\n    f = launch",
    "x = __builtins__",
    "class Own:\n    def dot(self):\n        return self.dot()",
    "def launch(a, b):\n    return other(a)",
    "def f():\n    pass\n\n\nf.x = np",
    "class Own:\n    def __add__(self, x):\n        return launch(self, x)",
]


@pytest.mark.parametrize("body", DISHONEST)
def test_ways_around_are_found(body):
    assert found(body) != []


@pytest.mark.parametrize("extra", HONEST_BELOW)
def test_honest_helpers_are_allowed(extra):
    assert found("out[0] = a[0] + b[0]", extra=extra) == []


@pytest.mark.parametrize("extra", DISHONEST_BELOW)
def test_ways_around_below_are_found(extra):
    assert found("out[0] = a[0] + b[0]", extra=extra) != []


def test_what_the_library_does_is_allowed():
    assert said(REFERENCE) == []


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("from helpers import pairs", True),
        ("import helpers", True),
        ("from .helpers import pairs", True),
        ("from minitorch.helpers import pairs", True),
        ("from fast_ops.matmul import matmul", False),
        ("from minitorch import executor", False),
        ("import random", False),
        ("import torch", False),
    ],
)
def test_a_second_file_is_told_to_join_the_first(line, own):
    (why,) = said(f"{line}\n{REFERENCE}")
    assert why.startswith("imports ")
    assert ("only the assignment's files are handed in" in why) == own


def test_a_rung_that_is_given_is_not_allowed():
    (text,) = found("return launch(a, b)")
    assert text == "uses launch, which this task's solution does not need"
    # The library's own solution of that task calls this one.
    text = REFERENCE.replace("return other(a)", "x = other(a)\n    return x")
    rules = Rules("fast_ops/elementwise.py", {"a3.2": {"calls_other"}})
    assert violations(text, REFERENCE, rules) == []


def test_a_member_of_a_module_is_what_is_imported_from_it():
    reference = "import minitorch\nfrom minitorch import no_grad, randn\n\n\n"
    reference += "def f():\n    with no_grad():\n        return 1\n"
    for used in (set(), {("name", "minitorch.no_grad")}):
        rules = Rules("characters.py", {"a10.4": {"f"}}, used={"a10.4": used})
        text = reference.replace("with no_grad", "with minitorch.no_grad")
        assert violations(text, reference, rules) == []
        text = reference.replace("with no_grad", "with minitorch.randn")
        assert violations(text, reference, rules) != []


def test_new_tensors_open_nothing_else():
    """Nor are they for files with kernels, where their arithmetic would be the work."""
    tensors = "minitorch/functions/losses.py"
    for new in "minitorch.zeros(3)", "minitorch.creation.zeros(3)":
        assert found(f"import minitorch\nout[0] = {new}", tensors) == []
        assert len(found(f"import minitorch\nout[0] = {new}")) == 2
    for taken in "nn.functional.softmax(a, 0)", "nn.Linear(3, 4)", "operators.exp(1)":
        body = f"import minitorch\nout[0] = minitorch.{taken}"
        assert [text.split()[0] for text in found(body, tensors)] == ["uses"]
        assert "imports" in found(body)[0]
    refused = found("import minitorch")[0]
    assert "minitorch" not in refused.partition("allowed, too")[2]


def test_activations_and_losses_are_there_wherever_they_stand():
    reference = "import minitorch.nn.functional as F\n\n\ndef f(x):\n    return x\n"
    rules = Rules("characters.py", {"a10.4": {"f"}})
    for name, allowed in {"gelu": 1, "relu": 1, "mse_loss": 1, "layer_norm": 0}.items():
        text = reference.replace("return x", f"return F.{name}(x)")
        assert (violations(text, reference, rules) == []) == allowed


def test_fields_of_records_may_be_read():
    reference = f"from minitorch.backend.fusion import Program\n{REFERENCE}"
    rules = Rules("fast_ops/elementwise.py", {"a3.1": {"add"}})

    def said_of(value):
        body = f"out[0] = {value}"
        text = reference.replace("out[i] = a[i] + b[i]", body)
        return [violation.text for violation in violations(text, reference, rules)]

    assert said_of("a.steps[0].fold_start is None") == []  # of Program, and of Step
    assert said_of("a.fold_levels()") != []  # a method is no field
    assert said_of("a.storage") != []


def test_a_helper_may_use_what_its_own_task_may():
    helper = "def helper(a):\n    return other(a)\n"
    assert found("out[0] = 1", extra=helper) == []
    assert found("out[0] = helper(a)", extra=helper) != []
    # But what runs when the file is imported counts for all.
    default = "def helper(a, f=other):\n    return f(a)\n"
    assert found("out[0] = 1", extra=default) != []


def test_of_two_functions_with_one_name_both_are_read():
    """In the place of another task's function the library's comes, but of one alone."""
    again = "def calls_other(a, x=np.add(1, 2)):\n    return x\n"
    assert found("out[0] = 1", extra=again) != []


def test_a_given_function_that_was_changed_is_named_once():
    text = REFERENCE.replace("out = np.add(a, b)", "out = np.add(a, np.add(a, b))")
    assert said(text) == ["changes launch, which is given; put it back as it was"]
    assert said(REFERENCE.replace("out = np.add(a, b)", "print(a.shape)")) == []


def test_docstrings_may_change():
    assert said(REFERENCE.replace('"""out = a + b"""', '"""The sum."""')) == []


def test_tensors_may_have_methods_of_the_same_names():
    path = "minitorch/functions/reduce.py"
    assert found("return (a @ b).sum()", path) == []
    assert found("child.eval()", path) == []
    assert found("return np.dot(a, b)", path) != []
    assert found("return a.numpy() @ b.numpy()", path) != []


def test_tests_may_use_hypothesis():
    assert found("from hypothesis import given", tests=True) == []
    assert found("from hypothesis import given") != []


def test_where_and_in_which_function():
    text = REFERENCE.replace("out[i] = a[i] + b[i]", "out[i] = eval('a')")
    rules = Rules("fast_ops/elementwise.py", {"a3.1": {"add"}})
    (violation,) = violations(text, REFERENCE, rules)
    assert (violation.function, violation.line) == ("add", 12)


def deep(kind: str) -> str:
    """A text that is nested deep, or long."""
    ifs = "".join(f"{' ' * i}if x:\n{' ' * i} y = {i}\n" for i in range(96))
    return {
        "985 terms": "y = " + "+".join(["1"] * 985),
        "96 ifs": ifs,
        "96 functions": "".join(f"{' ' * i}def f(a):\n" for i in range(96))
        + f"{' ' * 96}return 1",
        "10,000 parentheses": f"y = {'(' * 10_000}1{')' * 10_000}",
        "20,000 signs": f"y = {'-' * 20_000}1",
        "20,000 attributes": f"y = x{'.T' * 20_000}",
        "3,000 lambdas": f"y = {'lambda: ' * 3_000}1",
        "2,500 branches": "if x:\n  y = 0\n"
        + "".join(f"elif x == {i}:\n  y = {i}\n" for i in range(2_500)),
        "300 KB": f"y = [{','.join(f'a{i}' for i in range(45_000))}]",
        "8,000 functions": "".join(
            f"def f{i}(a):\n    return a\n" for i in range(8_000)
        ),
        "a long number": f"y = 0x{'f' * 100_000}",
        "a long decorator": f"@(x{' + x' * 985})\ndef f():\n    pass",
        "a deep annotation": f"def f(x: '{'[' * 5_000}'):\n    pass",
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "985 terms",
        "96 ifs",
        "96 functions",
        "10,000 parentheses",
        "20,000 signs",
        "20,000 attributes",
        "3,000 lambdas",
        "2,500 branches",
        "300 KB",
        "8,000 functions",
        "a long number",
        "a long decorator",
        "a deep annotation",
    ],
)
def test_deep_and_long_files_are_read_or_refused(kind):
    start = time.process_time()
    try:
        said(f"{REFERENCE}\n\n{deep(kind)}\n")
    except SyntaxError as error:
        assert "nested" in str(error)
    # It was 44 seconds; this one is for slow machines, of their own time.
    assert time.process_time() - start < 20
