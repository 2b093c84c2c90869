"""Functions of one number, of two and `where`, on every installed backend."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from backends.shared import (
    by_dtype,
    by_layout,
    by_number,
    inf,
    large,
    long,
    name_of,
    nan,
    tensor,
)
from helpers import LAYOUTS, assert_close, assert_equal, layouts, make, numbers, quick
from minitorch import operators
from minitorch.dtypes import DType, bool_, float32, float64, int32, int64
from minitorch.tensor_data import Shape

# Where formulas have their corners: zeros, halves, infinities, NaN, tiny and huge.
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, 3.0, -2.0, 10.0, -20.0]
SPECIAL += [1e-7, -1e-7, 1e-30, 88.0, -90.0, 1e4, -1e4, 3e38, inf, -inf, nan]

# fn of operators: what PyTorch calls it.
UNARY: dict[Callable, Callable] = {
    operators.identity: lambda x: x,
    operators.neg: torch.neg,
    operators.abs: torch.abs,
    operators.sign: lambda x: torch.where(x.isnan(), x, torch.sign(x)),
    operators.floor: torch.floor,
    operators.ceil: torch.ceil,
    operators.round: torch.round,
    operators.exp: torch.exp,
    operators.log: torch.log,
    operators.log1p: torch.log1p,
    operators.expm1: torch.expm1,
    operators.log2: torch.log2,
    operators.log10: torch.log10,
    operators.acos: torch.acos,
    operators.sinh: torch.sinh,
    operators.cosh: torch.cosh,
    operators.sqrt: torch.sqrt,
    operators.rsqrt: torch.rsqrt,
    operators.reciprocal: torch.reciprocal,
    operators.tanh: torch.tanh,
    operators.erf: torch.erf,
    operators.sigmoid: torch.sigmoid,
    operators.relu: torch.relu,
    operators.gelu: torch.nn.functional.gelu,
    operators.gelu_tanh: lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    operators.silu: torch.nn.functional.silu,
    operators.softplus: lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    operators.logsigmoid: torch.nn.functional.logsigmoid,
}
TRUTH: dict[Callable, Callable] = {
    operators.isnan: torch.isnan,
    operators.isinf: torch.isinf,
    operators.isfinite: torch.isfinite,
    operators.logical_not: torch.logical_not,
}
BINARY: dict[Callable, Callable] = {
    operators.add: torch.add,
    operators.sub: torch.sub,
    operators.mul: torch.mul,
    operators.div: torch.div,
    operators.maximum: torch.maximum,
    operators.minimum: torch.minimum,
    operators.pow: torch.pow,
}
COMPARE: dict[Callable, Callable] = {
    operators.lt: torch.lt,
    operators.le: torch.le,
    operators.gt: torch.gt,
    operators.ge: torch.ge,
    operators.eq: torch.eq,
    operators.ne: torch.ne,
    operators.logical_and: torch.logical_and,
    operators.logical_or: torch.logical_or,
    operators.logical_xor: torch.logical_xor,
}
# fn(grad, x): the function it is the derivative of, and whether x is its output.
BACKWARD: dict[Callable, tuple[Callable, bool]] = {
    operators.relu_backward: (torch.relu, False),
    operators.log_backward: (torch.log, False),
    operators.abs_backward: (torch.abs, False),
    operators.gelu_backward: (torch.nn.functional.gelu, False),
    operators.gelu_tanh_backward: (
        lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        False,
    ),
    operators.silu_backward: (torch.nn.functional.silu, False),
    operators.tanh_backward: (torch.tanh, True),
    operators.sigmoid_backward: (torch.sigmoid, True),
    operators.sqrt_backward: (torch.sqrt, True),
}


def by_function(table: dict[Callable, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fn", table, ids=lambda fn: fn.__name__)


@by_function(UNARY)
def test_functions_of_one_number(backend: Any, fn: Callable) -> None:
    a = np.array(SPECIAL * 3, np.float32)
    expected = UNARY[fn](tensor(a).double()).float().numpy()
    assert_close(backend.map(fn, make(a, name_of(backend))), expected)


@by_function(TRUTH)
def test_questions_about_one_number(backend: Any, fn: Callable) -> None:
    a = np.array(SPECIAL * 3, np.float32)
    x = make(a, name_of(backend))
    assert_equal(backend.map(fn, x, bool_), TRUTH[fn](tensor(a)).numpy())


@by_function(BINARY)
def test_functions_of_two_numbers(backend: Any, fn: Callable) -> None:
    a = np.array(SPECIAL, np.float32)[:, None]
    x, y = make(a, name_of(backend)), make(a.T, name_of(backend))
    expected = BINARY[fn](tensor(a).double(), tensor(a.T).double()).float().numpy()
    assert_close(backend.zip(fn, x, y), expected)


@by_function(COMPARE)
def test_comparisons(backend: Any, fn: Callable) -> None:
    a = np.array(SPECIAL, np.float32)[:, None]
    x, y = make(a, name_of(backend)), make(a.T, name_of(backend))
    assert_equal(backend.zip(fn, x, y, bool_), COMPARE[fn](tensor(a), tensor(a.T)))


@by_function(BACKWARD)
def test_derivatives(backend: Any, fn: Callable) -> None:
    function, takes_output = BACKWARD[fn]
    x = torch.linspace(-4, 4, 41, dtype=torch.float64)
    if fn in (operators.log_backward, operators.sqrt_backward):
        x = x.abs() + 0.1
    x.requires_grad_()
    out = function(x)
    grad = tensor(numbers((41,), float64))
    (expected,) = torch.autograd.grad(out, x, grad)
    saved = (out if takes_output else x).detach().numpy()
    result = backend.zip(
        fn, make(grad.numpy(), name_of(backend)), make(saved, name_of(backend))
    )
    assert_close(result, expected.numpy(), tolerance=1e-9)


@pytest.mark.parametrize("x, y", [(7, 3), (-7, 3), (7, -3), (-7, -3), (6, 2), (0, 5)])
def test_floor_divide_and_remainder(backend: Any, x: int, y: int) -> None:
    for dtype in (float32, int64):
        a, b = (make(np.array([v], dtype.numpy), name_of(backend)) for v in (x, y))
        for fn, expected in (
            (operators.floor_divide, np.floor_divide),
            (operators.remainder, np.mod),
        ):
            assert_equal(backend.zip(fn, a, b), expected(np.array([x], dtype.numpy), y))


@by_number
@by_layout
def test_map_in_every_layout(backend: Any, dtype: DType, layout: str) -> None:
    for shape in ((), (0,), (1,), (9, 0), (17, 3), (2, 3, 4, 2)):
        a = numbers(shape, dtype, layout=layout)
        out = backend.map(operators.neg, make(a, name_of(backend), layout))
        assert out.is_contiguous()
        assert_equal(out, -a)


@by_layout
def test_map_many_elements(backend: Any, layout: str) -> None:
    shape = large(backend, (7, 9, 16), (33, 31, 65))
    a = numbers(shape, float32, layout=layout)
    x = make(a, name_of(backend), layout)
    assert_equal(backend.map(operators.neg, x), -a)
    assert_equal(backend.zip(operators.add, x, x), a + a)


def test_map_bools(backend: Any) -> None:
    a = numbers((9,), bool_)
    x = make(a, name_of(backend))
    assert_equal(backend.map(operators.logical_not, x), ~a)
    assert_equal(backend.map(operators.identity, x, int64), a.astype(np.int64))
    assert_equal(backend.map(operators.identity, x, float32), a.astype(np.float32))


def test_map_integers_exactly(backend: Any) -> None:
    a = long(2**53 + 1, -(2**53) - 1, 2**62)
    x = make(a, name_of(backend))
    assert_equal(backend.map(operators.abs_int, x), np.abs(a))
    assert_equal(backend.map(operators.neg, x), -a)


@pytest.mark.parametrize("dtype", [int64, int32], ids=lambda d: d.name)
def test_integers_wrap_around(backend: Any, dtype: DType) -> None:
    limits = np.iinfo(dtype.numpy)
    a = np.array([limits.max, limits.min, limits.max, 5], dtype.numpy)
    b = np.array([1, -1, limits.max, -5], dtype.numpy)
    x, y = make(a, name_of(backend)), make(b, name_of(backend))
    for fn, expected in (
        (operators.add, np.add),
        (operators.sub, np.subtract),
        (operators.mul, np.multiply),
    ):
        assert_equal(backend.zip(fn, x, y), expected(a, b))


def test_pow_int(backend: Any) -> None:
    a, b = long(2, -3, 7, 0, 10, 1), long(10, 3, 0, 0, 18, 60)
    x, y = make(a, name_of(backend)), make(b, name_of(backend))
    assert_equal(backend.zip(operators.pow_int, x, y), np.power(a, b))


def test_float32_overflow_is_infinity_without_warning(backend: Any) -> None:
    x = make(np.array([3e38, -3e38], np.float32), name_of(backend))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubled = backend.zip(operators.add, x, x)
    assert_equal(doubled, np.array([inf, -inf], np.float32))


@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_map_into_out(backend: Any, layout: str) -> None:
    a = numbers((9, 5))
    x = make(a, name_of(backend), layout)
    assert backend.map(operators.neg, x, out=x) is x
    assert_equal(x, -a)
    y = make(np.zeros((9, 5), np.float64), name_of(backend), layout)
    assert backend.map(operators.neg, x, out=y) is y
    assert_equal(y, a.astype(np.float64))


@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_zip_into_one_of_its_inputs(backend: Any, layout: str) -> None:
    a, b = numbers((6, 5)), numbers((5,))
    x = make(a, name_of(backend), layout)
    y = make(b, name_of(backend))
    assert backend.zip(operators.sub, x, y, out=x) is x
    assert_equal(x, a - b)
    x = make(a, name_of(backend), layout)
    backend.zip(operators.sub, y, x, out=x)
    assert_equal(x, b - a)
    x = make(a, name_of(backend), layout)
    backend.zip(operators.mul, x, x, out=x)
    assert_equal(x, a * a)


def test_zip_into_an_overlapping_view(backend: Any) -> None:
    a = make(np.arange(10, dtype=np.float32), name_of(backend))
    low, high = a.slice(0, 0, 9), a.slice(0, 1, 9)
    backend.zip(operators.add, low, high, out=high)
    assert_equal(a, np.array([0, *range(1, 18, 2)], np.float32))


def test_a_function_of_the_user(backend: Any) -> None:
    def smooth_step(x: float) -> float:
        return x * x * (3.0 - 2.0 * x) if x > 0 else 0.0

    a, factor = numbers((50,), float64), 0.25
    x = make(a, name_of(backend))
    expected = np.where(a > 0, a * a * (3 - 2 * a), 0)
    assert_close(backend.map(smooth_step, x), expected)
    assert_close(backend.map(lambda v: v * factor, x), a * 0.25)
    assert_close(backend.zip(lambda v, w: v * w + 1, x, x), a * a + 1)


@quick
@given(
    shapes=hnp.mutually_broadcastable_shapes(
        num_shapes=2, max_dims=4, max_side=9, min_side=0
    ),
    kinds=st.tuples(layouts, layouts),
)
def test_zip_broadcasts(backend: Any, shapes: Any, kinds: tuple[str, str]) -> None:
    (first, second), expected = shapes
    a = numbers(first, float32, 1, kinds[0])
    b = numbers(second, float32, 2, kinds[1])
    x, y = make(a, name_of(backend), kinds[0]), make(b, name_of(backend), kinds[1])
    out = backend.zip(operators.mul, x, y)
    assert out.shape == expected and out.is_contiguous()
    assert_equal(out, a * b)
    assert_equal(backend.zip(operators.lt, x, y, bool_), a < b)


@pytest.mark.parametrize(
    "first, second",
    [
        ((1025,), (1,)),
        ((40, 1, 33), (25, 1)),
        ((1, 1500), (31, 1)),
        ((300, 130), (130,)),
    ],
)
def test_zip_broadcasts_many_elements(
    backend: Any, first: Shape, second: Shape
) -> None:
    a, b = numbers(first), numbers(second)
    x, y = make(a, name_of(backend)), make(b, name_of(backend))
    assert_equal(backend.zip(operators.sub, x, y), a - b)
    assert_equal(backend.zip(operators.sub, y, x), b - a)


ZIP3: dict[Callable, Callable] = {
    operators.lerp: lambda a, b, c, _: a + c * (b - a),
    operators.addcmul: lambda a, b, c, value: a + value * b * c,
    operators.addcdiv: lambda a, b, c, value: a + value * b / c,
}
SIZES = [((n,),) * 3 for n in (0, 1, 3, 4, 129)]
SIZES += [((40, 32), (40, 32), (32,)), ((40, 32), (40, 32), (40, 1)), ((), (), ())]
SIZES += [((3, 1), (1, 5), (2, 1, 1)), ((33, 18), (33, 18), (18,)), ((2, 3), (3,), ())]


@by_function(ZIP3)
@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_functions_of_three_numbers(backend: Any, fn: Callable, layout: str) -> None:
    value = 1.0 if fn is operators.lerp else -0.3
    for shapes in [*SIZES, large(backend, ((5, 7),) * 3, ((70_001,),) * 3)]:
        a, b = numbers(shapes[0], seed=1), numbers(shapes[1], seed=2)
        c = np.float32(np.abs(numbers(shapes[2], seed=3)) % 1 + 0.1)
        operands = [make(x, name_of(backend), layout) for x in (a, b, c)]
        expected = ZIP3[fn](a, b, c, value)
        assert_close(backend.zip3(fn, *operands, value), expected)
        if expected.shape == a.shape:
            assert backend.zip3(fn, *operands, value, operands[0]) is operands[0]
            assert_close(operands[0], expected)


@by_function(ZIP3)
def test_three_numbers_into_what_is_read(backend: Any, fn: Callable) -> None:
    """One operand after the other is the window that is written, or overlaps it."""
    for place, shift in product(range(3), (0, 1)):
        line = np.linspace(0.1, 0.9, 12, dtype=np.float32)
        arrays = [line[:11] * (i + 1) for i in range(3)]
        x = make(line, name_of(backend))
        out = x.slice(0, 1, 11)
        arrays[place] = line[1 - shift : 12 - shift]
        operands = [make(array, name_of(backend)) for array in arrays]
        operands[place] = x.slice(0, 1 - shift, 11) if shift else out
        backend.zip3(fn, *operands, 1.0, out)
        assert_close(out, ZIP3[fn](*arrays, 1.0))


@by_dtype
def test_where(backend: Any, dtype: DType) -> None:
    for sizes, kind in product(
        (((4, 3), (4, 3), (4, 3)), ((4, 1), (3,), ()), ((0,), (1,), ()), ((), (), ())),
        ("contiguous", "negative", "stepped"),
    ):
        c, a, b = (
            numbers(shape, kind_of, seed)
            for seed, (shape, kind_of) in enumerate(zip(sizes, (bool_, dtype, dtype)))
        )
        x, y, z = (make(array, name_of(backend), kind) for array in (c, a, b))
        assert_equal(backend.where(x, y, z), np.where(c, a, b))


def test_where_many_elements(backend: Any) -> None:
    shape = large(backend, (33, 40), (300, 200))
    c, a, b = numbers(shape, bool_), numbers(shape), np.float32(-1)
    x, y, z = (make(array, name_of(backend)) for array in (c, a, b))
    assert_equal(backend.where(x, y, z), np.where(c, a, b))
