"""The operators in Mojo are those of minitorch/operators.py: by name, and by value."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers import loaded
from minitorch import operators
from minitorch.dtypes import DType, bool_, float32, float64, int32, int64
from minitorch.tensor_data import TensorData

# What is not an operator on one or two numbers of tensors.
OTHERS = {"ieee", "compilable", "where", "philox", "box_muller"}
OTHERS |= {"lerp", "addcmul", "addcdiv"}
LISTS = {"map", "zip_with", "reduce"}
INTEGERS = {"abs_int", "pow_int"}

inf, nan = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-30, -1e-30, 1e30, inf, -inf]
SPECIAL += [nan, 0.1, -0.7, 88.0, -88.0, 100.0, -110.0, 1.5, 2.5, -2.5]


def functions() -> dict[str, Callable]:
    """All operators of minitorch/operators.py."""
    return {
        name: fn
        for name, fn in vars(operators).items()
        if inspect.isfunction(fn)
        and fn.__module__ == operators.__name__
        and name[0] != "_"
        and name not in OTHERS | LISTS
    }


ALL = functions()


def arity(fn: Callable) -> int:
    return len(inspect.signature(fn).parameters)


ONE = [name for name, fn in ALL.items() if arity(fn) == 1 and name not in INTEGERS]
TWO = [name for name, fn in ALL.items() if arity(fn) == 2 and name not in INTEGERS]


@pytest.fixture(scope="module")
def backend() -> Any:
    return loaded("mojo")


def test_all_are_known() -> None:
    assert {"add", "exp", "gelu_backward", "isnan"} <= set(ONE) | set(TWO)
    assert len(ONE) + len(TWO) + len(INTEGERS) == len(ALL) > 50


@pytest.mark.parametrize("name", ALL)
def test_an_operator_has_a_loop_in_mojo(backend: Any, name: str) -> None:
    from mojo_ops.elementwise import MAP, ZIP

    rows = MAP if arity(ALL[name]) == 1 else ZIP
    types = (int64, int32) if name in INTEGERS else (float32, float64)
    assert all(rows[ALL[name], dtype] for dtype in types)


def test_tests_are_those_that_return_a_bool(backend: Any) -> None:
    from mojo_ops.elementwise import TESTS

    says_bool = {f for f in ALL.values() if inspect.signature(f).return_annotation}
    assert {f for f in says_bool if f.__annotations__["return"] == "bool"} == TESTS


def test_no_other_function_is_taken_for_ours(backend: Any) -> None:
    from mojo_ops.elementwise import MAP

    def exp(x: float) -> float:
        return x + 1

    assert MAP[exp, float32] == 0
    out = backend.map(exp, backend.from_numpy(np.ones(3, np.float32)))
    np.testing.assert_array_equal(backend.to_numpy(out), [2, 2, 2])


def check(out: TensorData, expected: list[Any], dtype: DType, name: str) -> None:
    if out.dtype is bool_:
        np.testing.assert_array_equal(out.array(), np.array(expected, bool))
        return
    with np.errstate(over="ignore"):
        expected_array = np.array(expected, np.float64).astype(dtype.numpy)
    tolerance = 4e-6 if dtype is float32 else 1e-12
    tiny = 1.2e-38 if dtype is float32 else 1e-300
    if name.startswith("gelu"):
        tiny = tolerance  # far out the formulas cancel: the terms are near 1
    np.testing.assert_allclose(
        out.array(), expected_array, rtol=tolerance, atol=tiny, err_msg=name
    )


def rounded(numbers: list[float], dtype: DType) -> list[float]:
    return [float(dtype.numpy.type(x)) for x in numbers]


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", ONE)
def test_one_number(backend: Any, name: str, dtype: DType) -> None:
    fn = ALL[name]
    xs = rounded([*SPECIAL, *np.linspace(-12, 12, 97)], dtype)
    a = backend.from_numpy(np.array(xs, dtype.numpy))
    out = backend.map(fn, a, bool_ if name.startswith(("is", "logical")) else None)
    check(out, [fn(x) for x in xs], dtype, name)


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", TWO)
def test_two_numbers(backend: Any, name: str, dtype: DType) -> None:
    from mojo_ops.elementwise import TESTS

    fn = ALL[name]
    numbers = [0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 7.25, -0.75, 12.0, inf, -inf, nan]
    grid = rounded(numbers, dtype)
    pairs = [(x, y) for x in grid for y in grid if defined(name, x, y)]
    a, b = (backend.from_numpy(np.array(v, dtype.numpy)) for v in zip(*pairs))
    out = backend.zip(fn, a, b, bool_ if fn in TESTS else None)
    check(out, [fn(x, y) for x, y in pairs], dtype, name)


def defined(name: str, x: float, y: float) -> bool:
    """Whether the formula says what comes out; it does not for all infinities."""
    if name in ("floor_divide", "remainder"):
        return math.isfinite(x) and math.isfinite(y)
    return not name.endswith("_backward") or (math.isfinite(x) and math.isfinite(y))


@pytest.mark.parametrize("dtype", [int64, int32], ids=lambda d: d.name)
def test_integers(backend: Any, dtype: DType) -> None:
    low = int(np.iinfo(dtype.numpy).min)
    xs = [0, 1, -1, 7, -7, 5, low]
    pairs = [(x, y) for x in xs for y in xs if y != 0 and (x, y) != (low, -1)]
    a, b = (backend.from_numpy(np.array(v, dtype.numpy)) for v in zip(*pairs))
    for fn in (operators.floor_divide, operators.remainder, operators.maximum):
        out = backend.zip(fn, a, b)
        np.testing.assert_array_equal(out.array(), [fn(x, y) for x, y in pairs])


@pytest.mark.parametrize("dtype", [int64, int32], ids=lambda d: d.name)
def test_integer_division_that_processors_refuse(backend: Any, dtype: DType) -> None:
    low = np.iinfo(dtype.numpy).min
    a = backend.from_numpy(np.array([5, low, 0], dtype.numpy))
    b = backend.from_numpy(np.array([0, -1, 0], dtype.numpy))
    for fn, expected in (
        (operators.floor_divide, [0, low, 0]),
        (operators.remainder, [0, 0, 0]),
    ):
        np.testing.assert_array_equal(backend.zip(fn, a, b).array(), expected)


def test_a_value_does_not_depend_on_its_place(backend: Any) -> None:
    xs = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    for name in ("exp", "gelu", "tanh", "log"):
        whole = backend.map(ALL[name], backend.from_numpy(xs)).array()
        for i in range(40):
            one = backend.map(ALL[name], backend.from_numpy(xs[i : i + 1])).array()
            np.testing.assert_array_equal(one, whole[i : i + 1])
