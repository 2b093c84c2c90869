"""Every function of the protocol, on every installed backend, against NumPy and torch.

The tests speak to backends directly, with `TensorData`. They know nothing of a backend
but its protocol, so a new backend is held to all of them by being installed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from helpers import (
    DEVICES,
    FLOATS,
    LAYOUTS,
    NUMBERS,
    SIMULATED,
    array_of,
    assert_close,
    assert_equal,
    layouts,
    loaded,
    make,
    numbers,
    quick,
    shapes,
)
from minitorch import dtypes, operators
from minitorch.backend import get_backend
from minitorch.dtypes import DType, bool_, float32, float64, int32, int64
from minitorch.tensor_data import Shape, TensorData

inf, nan = math.inf, math.nan
SIMPLE = loaded("simple")


@pytest.fixture(params=DEVICES, scope="module")
def backend(request: pytest.FixtureRequest) -> Any:
    return loaded(request.param)


def name_of(backend: Any) -> str:
    return backend.empty((), float32).device


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def long(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def large(backend: Any, slow: Shape, fast: Shape) -> Shape:
    """The larger shape for compiled backends, the smaller one for plain Python."""
    plain = name_of(backend) == "simple" or (name_of(backend) == "cuda" and SIMULATED)
    return slow if plain else fast


by_dtype = pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
by_number = pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
by_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
by_layout = pytest.mark.parametrize("layout", LAYOUTS)


# ------------------------------------------------------------------------- memory


@by_dtype
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
def test_empty_and_full(backend: Any, dtype: DType, shape: Shape) -> None:
    a = backend.empty(shape, dtype)
    assert (a.shape, a.dtype, a.is_contiguous()) == (shape, dtype, True)
    assert array_of(a).shape == shape
    assert_equal(backend.full(shape, 1, dtype), np.ones(shape, dtype.numpy))


@by_float
@pytest.mark.parametrize("value", [0.1, -0.0, inf, -inf, nan])
def test_full_with_special_values(backend: Any, dtype: DType, value: float) -> None:
    expected = np.full((2, 3), value, dtype.numpy)
    a = backend.full((2, 3), value, dtype)
    assert_equal(a, expected)
    np.testing.assert_array_equal(np.signbit(array_of(a)), np.signbit(expected))


def test_full_keeps_large_integers_exact(backend: Any) -> None:
    assert_equal(backend.full((2,), 2**62 + 1, int64), long(2**62 + 1, 2**62 + 1))


@by_dtype
@by_layout
def test_to_numpy_reads_any_layout(backend: Any, dtype: DType, layout: str) -> None:
    for shape in ((), (1,), (0, 3), (4, 3), (2, 3, 5)):
        a = numbers(shape, dtype, layout=layout)
        assert_equal(make(a, name_of(backend), layout), a)


@by_dtype
def test_from_numpy(backend: Any, dtype: DType) -> None:
    a = numbers((4, 6), dtype)
    frozen = a.copy()
    frozen.flags.writeable = False
    for array in (a, a.T, a[::2, 1::2], a[::-1, ::-2], a[:0], a[0, 0, ...], frozen):
        array = np.asarray(array)
        assert_equal(backend.from_numpy(array), array)


def test_from_numpy_does_not_write_to_a_read_only_array(backend: Any) -> None:
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    a = backend.from_numpy(frozen)
    backend.map(operators.exp, a, out=a)
    assert_equal(a, np.ones(4, np.float32))
    assert not frozen.any()


def test_from_numpy_names_the_types_it_takes(backend: Any) -> None:
    for dtype in ("complex64", "uint8", ">f4"):
        with pytest.raises(TypeError, match="float32"):
            backend.from_numpy(np.zeros(3, dtype))


@pytest.mark.parametrize("source", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("target", dtypes.ALL, ids=lambda d: d.name)
def test_copy_converts(backend: Any, source: DType, target: DType) -> None:
    for layout in LAYOUTS:
        for shape in ((), (0, 2), (5, 3), (2, 3, 4, 5)):
            a = numbers(shape, source, layout=layout)
            x = make(a, name_of(backend), layout)
            copied = backend.copy(x, target)
            assert copied.is_contiguous() and copied.storage is not x.storage
            assert_equal(copied, a.astype(target.numpy))


def test_copy_of_floats_that_are_no_integers(backend: Any) -> None:
    a = np.array([1.9, -1.9, 0.5, -0.5], np.float32)
    assert_equal(backend.copy(make(a, name_of(backend)), int64), long(1, -1, 0, 0))
    a = np.array([nan, inf, 0.0, -0.0, 0.1], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.copy(make(a, name_of(backend)), int32)
        truth = backend.copy(make(a, name_of(backend)), bool_)
        rounded = backend.copy(make([1e300, -1e300, 0.1], name_of(backend)), float32)
    assert_equal(truth, np.array([True, True, False, False, True]))
    assert_equal(rounded, np.array([inf, -inf, 0.1], np.float32))


def test_copy_of_many_elements(backend: Any) -> None:
    shape = large(backend, (33, 31), (257, 1025))
    a = numbers(shape)
    for layout in ("contiguous", "permuted", "stepped"):
        x = make(a, name_of(backend), layout)
        assert_equal(backend.copy(x, float32), a)
        assert_equal(backend.copy(x, float64), a.astype(np.float64))


def test_copy_of_many_dimensions(backend: Any) -> None:
    a = numbers((2, 3, 2, 3, 2, 3), float32)
    for layout in LAYOUTS[:-1]:
        assert_equal(backend.copy(make(a, name_of(backend), layout), float32), a)


@by_dtype
@pytest.mark.parametrize("from_layout", LAYOUTS)
@pytest.mark.parametrize("to_layout", LAYOUTS[:-1])
def test_copy_into(
    backend: Any, dtype: DType, from_layout: str, to_layout: str
) -> None:
    for shape in ((), (0,), (5,), (4, 3), (2, 3, 4)):
        a = numbers(shape, dtype, layout=from_layout)
        out = make(np.zeros(shape, dtype.numpy), name_of(backend), to_layout)
        assert backend.copy_into(out, make(a, name_of(backend), from_layout)) is None
        assert_equal(out, a)


def test_copy_into_leaves_the_rest_of_the_storage_alone(backend: Any) -> None:
    whole = make(np.zeros((4, 6), np.float32), name_of(backend))
    window = whole.slice(1, 1, 2, step=3)  # columns 1 and 4
    backend.copy_into(window, make(numbers((4, 2)), name_of(backend)))
    expected = np.zeros((4, 6), np.float32)
    expected[:, 1::3] = numbers((4, 2))
    assert_equal(whole, expected)


@pytest.mark.parametrize("shift", [1, 2, 7])
def test_copy_into_where_both_overlap(backend: Any, shift: int) -> None:
    n = large(backend, (100,), (40_000,))[0]
    expected = np.arange(n, dtype=np.float32)
    for forward in (True, False):
        a = make(np.arange(n, dtype=np.float32), name_of(backend))
        low, high = a.slice(0, 0, n - shift), a.slice(0, shift, n - shift)
        out, source = (high, low) if forward else (low, high)
        backend.copy_into(out, source)
        assert_equal(out, expected[:-shift] if forward else expected[shift:])


def test_copy_into_reversed_self(backend: Any) -> None:
    a = make(np.arange(9, dtype=np.float32), name_of(backend))
    backend.copy_into(a, a.slice(0, 8, 9, step=-1))
    assert_equal(a, np.arange(9, dtype=np.float32)[::-1])


def test_synchronize(backend: Any) -> None:
    assert backend.synchronize() is None


# -------------------------------------------------------------------- elementwise

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


# --------------------------------------------------------------------- reductions

FOLDS: dict[Callable, tuple[float, Callable]] = {
    operators.add: (0, np.sum),
    operators.mul: (1, np.prod),
    operators.maximum: (-inf, np.max),
    operators.minimum: (inf, np.min),
}


@quick
@given(data=st.data(), shape=shapes(), layout=layouts)
def test_reduce(backend: Any, data: Any, shape: Shape, layout: str) -> None:
    dims = data.draw(st.sets(st.integers(0, len(shape) - 1)) if shape else st.just(()))
    a = numbers(shape, float32, layout=layout)
    x = make(a, name_of(backend), layout)
    for fn, (start, fold) in FOLDS.items():
        expected = fold(
            a.astype(np.float64), axis=tuple(dims), keepdims=True, initial=start
        ).astype(np.float32)
        out = backend.reduce(fn, x, tuple(dims), start)
        assert out.is_contiguous()
        assert_close(out, expected, tolerance=1e-5)


@by_number
@pytest.mark.parametrize(
    "dims", [(), (0,), (1,), (2,), (0, 2), (0, 1), (1, 2), (0, 1, 2)]
)
def test_reduce_every_dtype(backend: Any, dtype: DType, dims: tuple[int, ...]) -> None:
    a = numbers((4, 3, 5), dtype)
    x = make(a, name_of(backend))
    total = backend.reduce(operators.add, x, dims, 0)
    assert_close(total, a.sum(dims, keepdims=True, dtype=dtype.numpy))
    if dtype.is_floating_point:
        start = -inf
    else:
        start = np.iinfo(dtype.numpy).min
    top = backend.reduce(operators.maximum, x, dims, start)
    assert_equal(top, a.max(dims, keepdims=True))


def test_reduce_to_another_dtype(backend: Any) -> None:
    a = numbers((7, 9), bool_)
    x = make(a, name_of(backend))
    counts = backend.reduce(operators.add, x, (1,), 0, int64)
    assert_equal(counts, a.sum(1, keepdims=True))
    assert_equal(backend.reduce(operators.logical_and, x, (0,), True), a.all(0)[None])
    assert_equal(backend.reduce(operators.logical_or, x, (0,), False), a.any(0)[None])
    b = numbers((7, 9), int32)
    y = make(b, name_of(backend))
    assert_equal(
        backend.reduce(operators.add, y, (0, 1), 0, int64), b.sum(keepdims=True)
    )


def test_reduce_integers_exactly(backend: Any) -> None:
    x = make(long(2**53, 1, 2**60, 1), name_of(backend))
    total = 2**53 + 2**60 + 2
    for start in (0, 0.0):
        assert_equal(backend.reduce(operators.add, x, (0,), start), long(total))


def test_reduce_nothing_is_start(backend: Any) -> None:
    x = make(np.zeros((3, 0), np.float32), name_of(backend))
    for fn, (start, _) in FOLDS.items():
        assert_equal(backend.reduce(fn, x, (1,), start), np.full((3, 1), start, "f"))
        assert_equal(backend.reduce(fn, x, (0,), start), np.zeros((1, 0), np.float32))


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_reduce_keeps_nan(backend: Any, dims: tuple[int, ...]) -> None:
    a = numbers((40, 50))
    a[3, 7] = a[39, 49] = a[11, 0] = nan
    x = make(a, name_of(backend))
    for fn, (start, fold) in FOLDS.items():
        expected = np.isnan(fold(a, axis=dims, keepdims=True))
        np.testing.assert_array_equal(
            np.isnan(array_of(backend.reduce(fn, x, dims, start))), expected
        )


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_sums_are_accurate(backend: Any, dims: tuple[int, ...]) -> None:
    shape = large(backend, (70, 60), (700, 600))
    a = numbers(shape) + np.float32(10)
    for layout in ("contiguous", "permuted"):
        out = backend.reduce(operators.add, make(a, name_of(backend), layout), dims, 0)
        expected = a.sum(dims, keepdims=True, dtype=np.float64)
        np.testing.assert_allclose(array_of(out), expected, rtol=3e-6)


def test_reduce_with_a_function_of_the_user(backend: Any) -> None:
    a = numbers((6, 40), float64)
    x = make(a, name_of(backend))
    out = backend.reduce(
        lambda total, v: total if total > v * v else v * v, x, (1,), 0.0
    )
    assert_close(out, (a * a).max(1, keepdims=True))


def test_reduce_in_many_dimensions(backend: Any) -> None:
    a = numbers((2, 3, 2, 3, 2, 3), float64)
    x = make(a, name_of(backend), "permuted")
    for dims in ((0, 2, 4), (1, 3, 5), (5,), (0,), (1, 2), (0, 5)):
        out = backend.reduce(operators.add, x, dims, 0)
        assert_close(out, a.sum(dims, keepdims=True))


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts, low=st.booleans())
def test_argmax_and_argmin(
    backend: Any, data: Any, shape: Shape, layout: str, low: bool
) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    if shape[dim] == 0:
        return
    a = np.round(numbers(shape, float32, layout=layout))  # so that there are ties
    x = make(a, name_of(backend), layout)
    find, expected = (backend.argmin, np.argmin) if low else (backend.argmax, np.argmax)
    assert_equal(find(x, dim), expected(a, dim, keepdims=True), int64)


@by_dtype
def test_argmax_every_dtype(backend: Any, dtype: DType) -> None:
    a = numbers((6, 40), dtype)
    x = make(a, name_of(backend))
    for dim in (0, 1):
        assert_equal(backend.argmax(x, dim), a.argmax(dim, keepdims=True))
        assert_equal(backend.argmin(x, dim), a.argmin(dim, keepdims=True))
    single = make(a[0, 0], name_of(backend))
    assert_equal(backend.argmax(single, 0), np.array(0))


def test_nan_wins_argmax_and_argmin(backend: Any) -> None:
    a = np.array([[1, nan, inf, nan], [nan, 0, -inf, 1], [2, inf, -inf, inf]], "f")
    x = make(a, name_of(backend))
    assert_equal(backend.argmax(x, 1), long(1, 0, 1)[:, None])
    assert_equal(backend.argmin(x, 1), long(1, 0, 2)[:, None])


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts)
def test_cumsum(backend: Any, data: Any, shape: Shape, layout: str) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    a = numbers(shape, float32, layout=layout)
    out = backend.cumsum(make(a, name_of(backend), layout), dim)
    expected = np.cumsum(a, dim, np.float64).astype(np.float32)
    assert_close(out, expected, tolerance=1e-5)


@by_number
def test_cumsum_every_dtype(backend: Any, dtype: DType) -> None:
    for shape, dim in (((), 0), ((1500,), 0), ((7, 33), 1), ((33, 7), 0)):
        a = numbers(shape, dtype)
        expected = np.cumsum(a, dim if shape else None, dtype.numpy).reshape(shape)
        out = backend.cumsum(make(a, name_of(backend)), dim)
        assert_close(out, expected, tolerance=2e-5 if dtype is float32 else None)


# --------------------------------------------------------------------------- sort


def check_sort(backend: Any, a: np.ndarray, dim: int, down: bool, layout: str) -> None:
    values, index = backend.sort(make(a, name_of(backend), layout), dim, down)
    expected = torch.sort(tensor(a), dim=dim, descending=down, stable=True)
    assert_equal(values, expected.values.numpy())
    assert_equal(index, expected.indices.numpy())


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts, down=st.booleans())
def test_sort(backend: Any, data: Any, shape: Shape, layout: str, down: bool) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    a = np.round(2 * numbers(shape, float32, layout=layout))
    check_sort(backend, a, dim, down, layout)


@by_dtype
@pytest.mark.parametrize("down", [False, True])
def test_sort_every_dtype(backend: Any, dtype: DType, down: bool) -> None:
    for shape, dim in (((1100,), 0), ((6, 33), 0), ((6, 33), 1), ((), 0)):
        check_sort(backend, numbers(shape, dtype), dim, down, "contiguous")


@pytest.mark.parametrize("down", [False, True])
def test_sort_puts_nan_above_all(backend: Any, down: bool) -> None:
    a = np.array([1, nan, inf, -inf, nan, 0, -0.0, 2, nan], np.float32)
    check_sort(backend, a, 0, down, "contiguous")


# ------------------------------------------------------------------------- matmul


@by_layout
@pytest.mark.parametrize(
    "m, k, n",
    [
        (1, 1, 1),
        (2, 3, 4),
        (8, 8, 8),
        (7, 9, 5),
        (17, 16, 15),
        (33, 31, 32),
        (1, 40, 1),
    ],
)
def test_matmul(backend: Any, layout: str, m: int, k: int, n: int) -> None:
    for dtype in FLOATS:
        a = numbers((m, k), dtype, 1, layout)
        b = numbers((k, n), dtype, 2, layout)
        x, y = make(a, name_of(backend), layout), make(b, name_of(backend), layout)
        expected = (a.astype(np.float64) @ b).astype(dtype.numpy)
        out = backend.matmul(x, y)
        assert out.is_contiguous()
        assert_close(out, expected, tolerance=1e-5 if dtype is float32 else 1e-12)


@pytest.mark.parametrize(
    "first, second",
    [
        ((3, 4, 5), (3, 5, 2)),
        ((3, 4, 5), (5, 2)),
        ((4, 5), (3, 5, 2)),
        ((2, 1, 4, 5), (3, 5, 2)),
        ((1, 4, 5), (6, 5, 2)),
        ((2, 3, 9, 8), (2, 3, 8, 17)),
        ((0, 4, 5), (5, 2)),
        ((3, 0, 5), (3, 5, 2)),
        ((3, 4, 0), (3, 0, 2)),
        ((2, 4, 5), (2, 5, 0)),
    ],
)
def test_matmul_of_stacks(backend: Any, first: Shape, second: Shape) -> None:
    a, b = numbers(first, float64, 1), numbers(second, float64, 2)
    for kinds in product(("contiguous", "permuted", "negative"), repeat=2):
        x, y = (make(c, name_of(backend), kind) for c, kind in zip((a, b), kinds))
        assert_close(backend.matmul(x, y), a @ b)


@pytest.mark.parametrize("dtype", [int64, int32], ids=lambda d: d.name)
def test_matmul_of_integers(backend: Any, dtype: DType) -> None:
    a, b = numbers((5, 17), dtype, 1), numbers((17, 9), dtype, 2)
    a[0, 0], b[0, 0] = np.iinfo(dtype.numpy).max, 3  # wraps around
    x, y = make(a, name_of(backend)), make(b, name_of(backend))
    assert_equal(backend.matmul(x, y), a @ b)


def test_matmul_of_large_matrices(backend: Any) -> None:
    m, k, n = large(backend, (20, 33, 18), (257, 1030, 65))
    a, b = numbers((m, k), float32, 1), numbers((k, n), float32, 2)
    expected = (a.astype(np.float64) @ b).astype(np.float32)
    for kinds in product(("contiguous", "permuted"), repeat=2):
        x, y = (make(c, name_of(backend), kind) for c, kind in zip((a, b), kinds))
        assert_close(backend.matmul(x, y), expected, tolerance=5e-5)


def test_matmul_passes_on_nan_and_infinity(backend: Any) -> None:
    a, b = numbers((9, 9), float64, 1), numbers((9, 9), float64, 2)
    a[2, 3], b[3, 4], a[5, 5], b[5, 1] = nan, inf, inf, 0
    with np.errstate(invalid="ignore"):
        expected = a @ b
    x, y = make(a, name_of(backend)), make(b, name_of(backend))
    assert_close(backend.matmul(x, y), expected)


# ----------------------------------------------------------------------- indexing


def indices(shape: Shape, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, size, shape)


GATHERS = [  # shape of a, dim, shape of index
    ((6,), 0, (9,)),
    ((5, 7), 0, (3, 7)),
    ((5, 7), 1, (5, 12)),
    ((5, 7), 0, (11, 4)),  # fewer columns than a
    ((5, 7), 1, (2, 3)),
    ((3, 4, 5), 1, (3, 9, 5)),
    ((3, 4, 5), 2, (2, 3, 1)),
    ((3, 4), 1, (3, 0)),
    ((3, 4), 1, (0, 2)),
    ((), 0, ()),
    ((40, 60), 0, (35, 60)),
]


@by_layout
@pytest.mark.parametrize("shape, dim, index_shape", GATHERS)
def test_gather(
    backend: Any, layout: str, shape: Shape, dim: int, index_shape: Shape
) -> None:
    size = shape[dim] if shape else 1
    i = indices(index_shape, size)
    kind = layout if layout != "expanded" else "contiguous"
    for dtype in (float32, int64, bool_):
        a = numbers(shape, dtype, layout=layout)
        x, index = make(a, name_of(backend), layout), make(i, name_of(backend), kind)
        expected = torch.gather(tensor(a), dim, tensor(i)).numpy()
        assert_equal(backend.gather(x, dim, index), expected)


@by_layout
@pytest.mark.parametrize("shape, dim, index_shape", GATHERS)
def test_scatter_add(
    backend: Any, layout: str, shape: Shape, dim: int, index_shape: Shape
) -> None:
    size = shape[dim] if shape else 1
    i = indices(index_shape, size)
    src_shape = tuple(n + 1 for n in index_shape)  # src may be larger than index
    kind = layout if layout != "expanded" else "contiguous"
    for dtype in (float64, int64, bool_):
        a = numbers(shape, dtype, 1, layout)
        src = numbers(src_shape, dtype, 2, layout)
        x, index = make(a, name_of(backend), layout), make(i, name_of(backend), kind)
        added = make(src, name_of(backend), layout)
        expected = tensor(a).scatter_add(dim, tensor(i), tensor(src)).numpy()
        out = backend.scatter_add(x, dim, index, added)
        assert_close(out, expected)
        assert_equal(x, a)  # a copy was made


@by_layout
@pytest.mark.parametrize("shape, dim", [((6,), 0), ((5, 7), 0), ((5, 7), 1)])
def test_slices_by_index(backend: Any, layout: str, shape: Shape, dim: int) -> None:
    kind = layout if layout != "expanded" else "contiguous"
    for count in (0, 1, 4, 33):
        i = indices((count,), shape[dim], seed=count)
        src_shape = (*shape[:dim], count, *shape[dim + 1 :])
        for dtype in (float64, int32, bool_):
            a = numbers(shape, dtype, 1, layout)
            src = numbers(src_shape, dtype, 2, layout)
            x, y = (make(c, name_of(backend), layout) for c in (a, src))
            index = make(i, name_of(backend), kind)
            assert_equal(backend.index_select(x, dim, index), np.take(a, i, dim))
            expected = tensor(a).index_add(dim, tensor(i), tensor(src)).numpy()
            assert_close(backend.index_add(x, dim, index, y), expected)
            assert_equal(x, a)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices_of_three_dimensions(backend: Any, dim: int) -> None:
    a, i = numbers((9, 8, 17), float64), indices((40,), 8)
    src_shape = [9, 8, 17]
    src_shape[dim] = 40
    src = numbers(tuple(src_shape), float64, 2)
    x, y, index = (make(c, name_of(backend)) for c in (a, src, i))
    assert_equal(backend.index_select(x, dim, index), np.take(a, i, dim))
    expected = tensor(a).index_add(dim, tensor(i), tensor(src)).numpy()
    assert_close(backend.index_add(x, dim, index, y), expected)


@by_dtype
@pytest.mark.parametrize("layout", LAYOUTS[:-1])
@pytest.mark.parametrize("dim", [0, 1])
def test_index_copy_writes_in_place(
    backend: Any, dtype: DType, layout: str, dim: int
) -> None:
    a, i = numbers((5, 6), dtype, 1), long(3, 0, 3, 4, 0)
    src = numbers((5, 6) if dim == 0 else (5, 5), dtype, 2)
    out, y = (make(c, name_of(backend), layout) for c in (a, src))
    assert backend.index_copy_(out, dim, make(i, name_of(backend)), y) is None
    expected = a.copy()
    for k, row in enumerate(i):  # in order, so that the last one wins
        expected[(slice(None),) * dim + (row,)] = src[(slice(None),) * dim + (k,)]
    assert_equal(out, expected)


@pytest.mark.parametrize("src_shape", [(), (1,)], ids=str)
def test_indexing_without_dimensions(backend: Any, src_shape: Shape) -> None:
    """One element, in the middle of a storage: its offset must not be lost."""

    def place(value: Any, shape: Shape = ()) -> TensorData:
        return make(np.array(value).reshape(shape), name_of(backend), "offset")

    a, src, zero = place(3.0), place(5.0, src_shape), place(0, (1,))
    assert_equal(backend.gather(a, 0, place(0)), np.array(3.0))
    assert_equal(backend.scatter_add(a, 0, place(0), place(5.0)), np.array(8.0))
    assert_equal(backend.index_select(a, 0, zero).view((1,)), np.array([3.0]))
    assert_equal(backend.index_add(a, 0, zero, src), np.array(8.0))
    backend.index_copy_(a, 0, zero, src)
    assert_equal(a, np.array(5.0))
    storage = array_of(TensorData(a.storage, (6,)))
    assert np.isnan(storage[:3]).all() and np.isnan(storage[4:]).all()


def test_index_copy_with_overlapping_memory(backend: Any) -> None:
    a = make(np.arange(12, dtype=np.float32).reshape(4, 3), name_of(backend))
    backend.index_copy_(a, 0, make(long(1, 2, 3), name_of(backend)), a.slice(0, 0, 3))
    assert_equal(a, np.array([[0, 1, 2], [0, 1, 2], [3, 4, 5], [6, 7, 8]], np.float32))


@pytest.mark.parametrize("bad", [5, -1, 2**40])
def test_indices_out_of_range(backend: Any, bad: int) -> None:
    """At once, or on a GPU when one waits for it."""
    x = make(numbers((3, 5)), name_of(backend))
    i, grid = long(0, bad), np.array([[0, 4], [1, bad], [2, 2]])
    index, index_grid = make(i, name_of(backend)), make(grid, name_of(backend))
    src = make(numbers((3, 2)), name_of(backend))
    message = rf"{bad}\b.*1.*0 to 4"
    with pytest.raises(IndexError, match="gather.*" + message):
        backend.gather(x, 1, index_grid)
        backend.synchronize()
    with pytest.raises(IndexError, match="scatter_add.*" + message):
        backend.scatter_add(x, 1, index_grid, src)
        backend.synchronize()
    with pytest.raises(IndexError, match="index_select.*" + message):
        backend.index_select(x, 1, index)
        backend.synchronize()
    with pytest.raises(IndexError, match="index_add.*" + message):
        backend.index_add(x, 1, index, src)
        backend.synchronize()
    with pytest.raises(IndexError, match="index_copy_.*" + message):
        backend.index_copy_(x, 1, index, src)
        backend.synchronize()
    assert_equal(x, numbers((3, 5)))  # nothing was written


def test_indices_are_checked_where_slices_are_empty(backend: Any) -> None:
    x = make(np.zeros((3, 0), np.float32), name_of(backend))
    with pytest.raises(IndexError, match=r"5\b.*0.*0 to 2"):
        backend.index_select(x, 0, make(long(1, 5), name_of(backend)))
        backend.synchronize()
    none = make(np.zeros((0, 3), np.float32), name_of(backend))
    with pytest.raises(IndexError, match="index_select"):
        backend.index_select(none, 0, make(long(0), name_of(backend)))
        backend.synchronize()


# -------------------------------------------------------------------- convolution

CONVS = [  # x, weight, stride, padding, dilation, groups
    ((1, 1, 4, 4), (1, 1, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    ((2, 3, 7, 6), (4, 3, 3, 2), (1, 1), (1, 0), (1, 1), 1),
    ((2, 4, 8, 7), (6, 2, 3, 3), (2, 1), (1, 2), (1, 2), 2),
    ((1, 6, 5, 9), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 6),  # depthwise
    ((3, 2, 5, 5), (4, 2, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((1, 2, 9, 9), (3, 2, 2, 3), (3, 2), (0, 1), (2, 1), 1),
    ((2, 1, 1, 20), (3, 1, 1, 5), (1, 2), (0, 2), (1, 1), 1),  # one-dimensional
    ((1, 1, 3, 3), (2, 1, 5, 5), (1, 1), (2, 2), (1, 1), 1),  # kernel beyond image
    ((2, 3, 6, 6), (17, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((0, 2, 4, 4), (3, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1),
]


def by_convolution(test: Callable) -> Callable:
    names = "x_shape, w_shape, stride, padding, dilation, groups"
    return pytest.mark.parametrize(names, CONVS)(test)


def convolve(
    x_shape: Shape, w_shape: Shape, dtype: DType, layout: str, *how: Any
) -> tuple[np.ndarray, ...]:
    """x, weight, bias, out, grad, and the gradients for x and weight, from torch."""
    x, w = numbers(x_shape, dtype, 1, layout), numbers(w_shape, dtype, 2, layout)
    b = numbers(w_shape[:1], dtype, 3)
    tx, tw = (tensor(a).double().requires_grad_() for a in (x, w))
    out = torch.conv2d(tx, tw, tensor(b).double(), *how)
    grad = numbers(tuple(out.shape), dtype, 4)
    grads = torch.autograd.grad(out, (tx, tw), tensor(grad).double())
    results = (out.detach(), *grads)
    out_, dx, dw = (r.numpy().astype(dtype.numpy) for r in results)
    return x, w, b, out_, grad, dx, dw


@by_convolution
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
def test_conv2d(
    backend: Any,
    x_shape: Shape,
    w_shape: Shape,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    layout: str,
) -> None:
    for dtype in FLOATS if layout == "contiguous" else (float32,):
        how = (stride, padding, dilation, groups)
        x, w, b, out, grad, dx, dw = convolve(x_shape, w_shape, dtype, layout, *how)
        tx, tw, tb, tg = (make(a, name_of(backend), layout) for a in (x, w, b, grad))
        tolerance = 2e-5 if dtype is float32 else 1e-11
        assert_close(backend.conv2d(tx, tw, tb, *how), out, tolerance=tolerance)
        without = backend.conv2d(tx, tw, None, *how)
        assert_close(without, out - b[:, None, None], tolerance=tolerance)
        for_x = backend.conv2d_backward_input(tg, tw, x_shape, *how)
        assert_close(for_x, dx, tolerance=tolerance)
        for_w = backend.conv2d_backward_weight(tg, tx, w_shape, *how)
        assert_close(for_w, dw, tolerance=tolerance)


@pytest.mark.parametrize(
    "x_shape, w_shape",
    [((2, 16, 33, 31), (33, 16, 3, 3)), ((5, 3, 28, 28), (8, 3, 5, 5))],
)
def test_conv2d_of_large_images(backend: Any, x_shape: Shape, w_shape: Shape) -> None:
    if name_of(backend) == "simple":
        x_shape, w_shape = (1, 2, 12, 11), (3, 2, 3, 3)
    how = ((1, 1), (1, 1), (1, 1), 1)
    x, w, b, out, grad, dx, dw = convolve(x_shape, w_shape, float32, "", *how)
    tx, tw, tb, tg = (make(a, name_of(backend)) for a in (x, w, b, grad))
    assert_close(backend.conv2d(tx, tw, tb, *how), out, tolerance=1e-4)
    for_x = backend.conv2d_backward_input(tg, tw, x_shape, *how)
    assert_close(for_x, dx, tolerance=1e-4)
    for_w = backend.conv2d_backward_weight(tg, tx, w_shape, *how)
    assert_close(for_w, dw, tolerance=1e-3)


# What reaches over the edge: padding, strides, dilation, groups.
EDGES = [  # stride, padding, dilation, groups
    ((1, 1), (0, 0), (1, 1), 1),
    ((1, 1), (1, 1), (1, 1), 2),
    ((2, 1), (1, 2), (1, 2), 1),
    ((3, 2), (2, 0), (1, 1), 2),
]


def convolve_with(
    backend: Any, x: np.ndarray, w: np.ndarray, grad: np.ndarray, how: Any
) -> list[np.ndarray]:
    """The output of a backend and its gradients for x and the weight."""
    tx, tw, tg = (make(a, name_of(backend)) for a in (x, w, grad))
    made = (
        backend.conv2d(tx, tw, None, *how),
        backend.conv2d_backward_input(tg, tw, x.shape, *how),
        backend.conv2d_backward_weight(tg, tx, w.shape, *how),
    )
    return [array_of(each) for each in made]


def with_special(which: int, how: Any, place: Any, value: float) -> list[np.ndarray]:
    """x, weight, grad; one of them has an inf or a NaN in a plane, at `place`."""
    stride, padding, dilation, groups = how
    size = [
        (6 + 2 * p - 2 * d - 1) // s + 1 for s, p, d in zip(stride, padding, dilation)
    ]
    shapes = (2, 2, 6, 6), (4, 2 // groups, 3, 3), (2, 4, *size)
    arrays = [numbers(shape, float32, i) for i, shape in enumerate(shapes)]
    arrays[which][(1, 0, *place)] = value
    return arrays


@pytest.mark.parametrize("how", EDGES, ids=str)
@pytest.mark.parametrize("which", [0, 1, 2], ids=["x", "weight", "grad"])
def test_conv2d_has_no_products_with_padding(
    backend: Any, which: int, how: Any
) -> None:
    """0 * inf would be NaN where a window reaches over the edge."""
    if name_of(backend) == "cuda":
        pytest.xfail("the tiles of cuda_ops multiply zeros of the padding")
    for place, value in product([(0, 0), (0, -1), (-1, 0), (1, -1)], [inf, -inf, nan]):
        arrays = with_special(which, how, place, value)
        got = convolve_with(backend, *arrays, how)
        for made, expected in zip(got, convolve_with(SIMPLE, *arrays, how)):
            np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),
    reason="PyTorch unfolds x here, with the zeros of its padding",
)
@pytest.mark.parametrize("how", [how for how in EDGES if how[3] == 1], ids=str)
def test_conv2d_of_infinities_is_that_of_pytorch(how: Any) -> None:
    """For one group; for more, PyTorch itself multiplies zeros of the padding."""
    for which in range(3):
        arrays = with_special(which, how, (0, -1), inf)
        x, w, grad = (tensor(a).requires_grad_() for a in arrays)
        out = torch.conv2d(x, w, None, *how)
        expected = (out, *torch.autograd.grad(out, (x, w), grad))
        for made, theirs in zip(convolve_with(SIMPLE, *arrays, how), expected):
            np.testing.assert_allclose(
                made, theirs.detach().numpy(), rtol=1e-5, atol=1e-5
            )


# ------------------------------------------------------------------------ pooling

POOLS = [  # x, kernel, stride, padding, dilation
    ((1, 1, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((2, 3, 7, 9), (3, 2), (2, 1), (1, 1), (1, 1)),
    ((2, 1, 8, 8), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((1, 2, 9, 8), (2, 3), (2, 2), (1, 1), (2, 3)),
    ((3, 2, 5, 6), (5, 6), (5, 6), (0, 0), (1, 1)),
    ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((4, 5, 33, 17), (2, 2), (2, 2), (0, 0), (1, 1)),
]


@pytest.mark.parametrize("x_shape, kernel, stride, padding, dilation", POOLS)
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
def test_max_pool2d(
    backend: Any,
    x_shape: Shape,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str,
) -> None:
    for dtype in FLOATS:
        a = np.round(numbers(x_shape, dtype, 1))  # so that there are ties
        x = tensor(a).requires_grad_()
        out, where = torch.nn.functional.max_pool2d(
            x, kernel, stride, padding, dilation, return_indices=True
        )
        result, index = backend.max_pool2d(
            make(a, name_of(backend), layout), kernel, stride, padding, dilation
        )
        assert_equal(result, out.detach().numpy())
        assert_equal(index, where.numpy())
        grad = numbers(tuple(out.shape), dtype, 2)
        (expected,) = torch.autograd.grad(out, x, tensor(grad))
        back = backend.max_pool2d_backward(
            make(grad, name_of(backend), layout), index, x_shape
        )
        assert_close(back, expected.numpy())


def test_nan_is_the_largest_of_its_window(backend: Any) -> None:
    a = np.array([1, nan, 3, nan, 5, -inf, -inf, -inf], np.float32).reshape(1, 1, 1, 8)
    pair = ((1, 2), (1, 2), (0, 0), (1, 1))
    out, index = backend.max_pool2d(make(a, name_of(backend)), *pair)
    assert_equal(out, np.array([nan, nan, 5, -inf], np.float32).reshape(1, 1, 1, 4))
    assert_equal(index, long(1, 3, 4, 6).reshape(1, 1, 1, 4))


@pytest.mark.parametrize("x_shape, kernel, stride, padding, dilation", POOLS)
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
@pytest.mark.parametrize("include", [True, False])
def test_avg_pool2d(
    backend: Any,
    x_shape: Shape,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    include: bool,
) -> None:
    for dtype in FLOATS:
        a = numbers(x_shape, dtype, 1)
        x = tensor(a).requires_grad_()
        out = torch.nn.functional.avg_pool2d(
            x, kernel, stride, padding, count_include_pad=include
        )
        result = backend.avg_pool2d(
            make(a, name_of(backend), layout), kernel, stride, padding, include
        )
        assert_close(result, out.detach().numpy())
        grad = numbers(tuple(out.shape), dtype, 2)
        (expected,) = torch.autograd.grad(out, x, tensor(grad))
        back = backend.avg_pool2d_backward(
            make(grad, name_of(backend), layout),
            x_shape,
            kernel,
            stride,
            padding,
            include,
        )
        assert_close(back, expected.numpy())


# ------------------------------------------------------ softmax and cross-entropy


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts)
def test_softmax(backend: Any, data: Any, shape: Shape, layout: str) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from(FLOATS))
    check_softmax(backend, 3 * numbers(shape, dtype, 1, layout), dim, layout)


def check_softmax(backend: Any, a: np.ndarray, dim: int, layout: str) -> None:
    tolerance = 1e-5 if a.dtype == np.float32 else 1e-12
    grad = numbers(a.shape, dtypes.from_numpy_dtype(a.dtype), 2, layout)
    x, g = make(a, name_of(backend), layout), make(grad, name_of(backend), layout)
    for function, forward, backward in (
        (torch.softmax, backend.softmax, backend.softmax_backward),
        (torch.log_softmax, backend.log_softmax, backend.log_softmax_backward),
    ):
        tx = tensor(a).double().requires_grad_()
        expected = function(tx, dim)
        (dx,) = torch.autograd.grad(expected, tx, tensor(grad).double())
        out = forward(x, dim)
        assert out.is_contiguous()
        assert_close(out, expected.detach().numpy().astype(a.dtype), None, tolerance)
        back = backward(g, out, dim)
        assert_close(back, dx.numpy().astype(a.dtype), None, 4 * tolerance)


@by_float
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_of_large_tensors(backend: Any, dtype: DType, dim: int) -> None:
    shape = large(backend, (3, 20, 9), (13, 129, 33))
    check_softmax(backend, numbers(shape, dtype), dim, "contiguous")


def test_softmax_of_a_long_line(backend: Any) -> None:
    shape = large(backend, (2, 600), (2, 40_000))
    check_softmax(backend, numbers(shape, float64), 1, "contiguous")
    check_softmax(backend, numbers(shape, float32), 1, "contiguous")


def test_softmax_of_one_number(backend: Any) -> None:
    x = make(np.float32(3.5), name_of(backend))
    assert_equal(backend.softmax(x, 0), np.float32(1))
    assert_equal(backend.log_softmax(x, 0), np.float32(0))


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_extreme_numbers(backend: Any, dim: int) -> None:
    a = np.array([[1e4, -1e4, 3e38], [0, -inf, -inf], [1e4, 5, 1]], np.float32)
    a = a if dim == 1 else np.ascontiguousarray(a.T)
    x = make(a, name_of(backend))
    expected = torch.softmax(tensor(a), dim).numpy()
    assert_close(backend.softmax(x, dim), expected, tolerance=1e-6)
    expected = torch.log_softmax(tensor(a), dim).numpy()
    assert_close(backend.log_softmax(x, dim), expected, tolerance=1e-6)


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_passes_on_nan(backend: Any, dim: int) -> None:
    a = numbers((20, 20))
    a[3, 4] = nan
    a[7, 7] = inf
    x = make(a, name_of(backend))
    for fn, forward in (
        (torch.softmax, backend.softmax),
        (torch.log_softmax, backend.log_softmax),
    ):
        expected = torch.isnan(fn(tensor(a), dim)).numpy()
        np.testing.assert_array_equal(np.isnan(array_of(forward(x, dim))), expected)


@by_float
@by_layout
@pytest.mark.parametrize("rows, classes", [(1, 1), (5, 3), (0, 4), (33, 17), (3, 1030)])
def test_cross_entropy(
    backend: Any, dtype: DType, layout: str, rows: int, classes: int
) -> None:
    a = 4 * numbers((rows, classes), dtype, 1, layout)
    target = indices((rows,), classes)
    target[::3] = -100  # ignored
    x = make(a, name_of(backend), layout)
    kind = layout if layout != "expanded" else "contiguous"
    labels = make(target, name_of(backend), kind)
    tx = tensor(a).double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(tx, tensor(target), reduction="none")
    losses, total = backend.cross_entropy(x, labels, -100)
    tolerance = 2e-6 if dtype is float32 else 1e-12
    assert_close(losses, expected.detach().numpy().astype(a.dtype), None, 2 * tolerance)
    all_totals = torch.logsumexp(tx, 1).detach().numpy()[target != -100]
    np.testing.assert_allclose(array_of(total)[target != -100], all_totals, tolerance)
    grad = numbers((rows,), dtype, 2)
    (dx,) = torch.autograd.grad(expected, tx, tensor(grad).double())
    back = backend.cross_entropy_backward(
        make(grad, name_of(backend), kind), x, labels, total, -100
    )
    assert_close(back, dx.numpy().astype(a.dtype), None, 4 * tolerance)


@by_float
@pytest.mark.parametrize("rows", [0, 1, 5, 70, 1025])
def test_mean_loss_counts_on_the_device(backend: Any, dtype: DType, rows: int) -> None:
    a, target = numbers((rows,), dtype), indices((rows,), 9)
    target[::4] = 3
    x, labels = make(a, name_of(backend)), make(target, name_of(backend))
    mean, share = backend.mean_loss(x, labels, 3)
    kept = a[target != 3].astype(float)
    assert mean.shape == share.shape == ()
    if not kept.size:
        assert np.isnan(array_of(mean)) and np.isinf(array_of(share))
        return
    tolerance = 2e-6 if dtype is float32 else 1e-12
    np.testing.assert_allclose(array_of(mean), kept.mean(), tolerance, tolerance)
    np.testing.assert_allclose(array_of(share), 1 / kept.size, tolerance)


def test_all_rows_may_have_one_gradient(backend: Any) -> None:
    """As the losses of a mean have: [5], with a stride of 0."""
    x = make(numbers((5, 3)), name_of(backend))
    target = make(long(0, 1, 2, 1, 0), name_of(backend))
    _, total = backend.cross_entropy(x, target, -7)
    grad = numbers((5,), layout="expanded")
    assert len(set(grad.tolist())) == 1
    one = make(grad, name_of(backend), "expanded")
    each = make(grad, name_of(backend))
    outs = [
        array_of(backend.cross_entropy_backward(g, x, target, total, -7))
        for g in (one, each)
    ]
    assert np.array_equal(*outs)


@pytest.mark.parametrize("bad", [3, -1, -100])
def test_cross_entropy_names_a_target_out_of_range(backend: Any, bad: int) -> None:
    x = make(numbers((4, 3)), name_of(backend))
    target = make(long(0, 1, bad, 2), name_of(backend))
    with pytest.raises(IndexError, match=rf"cross_entropy.*{bad}\b.*0 to 2"):
        backend.cross_entropy(x, target, -7)
        backend.synchronize()


def test_cross_entropy_may_ignore_a_class(backend: Any) -> None:
    a, target = numbers((4, 3)), long(0, 1, 1, 2)
    losses, _ = backend.cross_entropy(
        make(a, name_of(backend)), make(target, name_of(backend)), 1
    )
    expected = torch.nn.functional.cross_entropy(
        tensor(a), tensor(target), ignore_index=1, reduction="none"
    )
    assert_close(losses, expected.numpy())


# ------------------------------------------------------------------ normalization


@by_float
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
@pytest.mark.parametrize("rows, size", [(1, 1), (4, 7), (0, 5), (33, 16), (3, 1030)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(
    backend: Any, dtype: DType, layout: str, rows: int, size: int, affine: bool
) -> None:
    grad, a = numbers((rows, size), dtype, 4), 2 + numbers((rows, size), dtype, 1)
    w, b = (numbers((size,), dtype, seed) for seed in (2, 3))
    if not affine:
        w, b = np.ones_like(w), np.zeros_like(b)
    wanted = [tensor(c).double().requires_grad_() for c in (a, w, b)]
    out = torch.nn.functional.layer_norm(wanted[0], (size,), *wanted[1:], 1e-5)
    grads = torch.autograd.grad(out, wanted, tensor(grad).double())
    mean = wanted[0].mean(1)
    variance = ((wanted[0] - mean[:, None]) ** 2).mean(1)

    x, weight, bias, g = (make(c, name_of(backend), layout) for c in (a, w, b, grad))
    weights = (weight, bias) if affine else (None, None)
    result = backend.layer_norm(x, *weights, 1e-5)
    back = backend.layer_norm_backward(g, x, *result[1:], weights[0])
    tolerance = 1e-5 if dtype is float32 else 1e-11
    check_all(result, (out, mean, (variance + 1e-5).rsqrt()), dtype, tolerance)
    check_all(back, grads, dtype, 10 * tolerance)


def check_all(
    results: Sequence[TensorData],
    expected: Sequence[torch.Tensor],
    dtype: DType,
    tolerance: float,
) -> None:
    assert len(results) == len(expected)
    for result, want in zip(results, expected):
        assert result.is_contiguous()
        assert_close(result, want.detach().numpy().astype(dtype.numpy), None, tolerance)


@by_float
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 2), (4, 3, 1), (2, 5, 9), (8, 16, 33), (3, 0, 4), (1, 2, 1030)]
)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(
    backend: Any, dtype: DType, layout: str, shape: Shape, affine: bool
) -> None:
    grad, a = numbers(shape, dtype, 4), 2 + numbers(shape, dtype, 1)
    w, b = (numbers(shape[1:2], dtype, seed) for seed in (2, 3))
    if not affine:
        w, b = np.ones_like(w), np.zeros_like(b)
    wanted = [tensor(c).double().requires_grad_() for c in (a, w, b)]
    mean = wanted[0].mean((0, 2))
    variance = ((wanted[0] - mean[:, None]) ** 2).mean((0, 2))
    normal = (wanted[0] - mean[:, None]) / torch.sqrt(variance + 1e-5)[:, None]
    out = normal * wanted[1][:, None] + wanted[2][:, None]
    grads = torch.autograd.grad(out, wanted, tensor(grad).double())

    x, weight, bias, g = (make(c, name_of(backend), layout) for c in (a, w, b, grad))
    weights = (weight, bias) if affine else (None, None)
    result = backend.batch_norm(x, *weights, 1e-5)
    back = backend.batch_norm_backward(g, x, *result[1:], weights[0], 1e-5)
    tolerance = 1e-5 if dtype is float32 else 1e-11
    check_all(result, (out, mean, variance), dtype, tolerance)
    check_all(back, grads, dtype, 10 * tolerance)


@pytest.mark.parametrize("shift", [1e3, 1e4])
def test_norms_are_accurate_far_from_zero(backend: Any, shift: float) -> None:
    """The variance is not a small difference of two large numbers."""
    a = numbers((4, 300)) + np.float32(shift)
    x = make(a, name_of(backend))
    variance = a.astype(np.float64).var(1)
    rstd = array_of(backend.layer_norm(x, None, None, 1e-5)[2])
    np.testing.assert_allclose(rstd, 1 / np.sqrt(variance + 1e-5), rtol=1e-4)
    stats = backend.batch_norm(x.view((1, 4, 300)), None, None, 1e-5)
    np.testing.assert_allclose(array_of(stats[2]), variance, rtol=1e-4)


# ------------------------------------------------------------------------- random

SEEDS = [(0, 0), (1234, 7), (2**63 + 5, 2**32 - 3), (2**32 + 1, 2**33 + 2)]


def philox_by_numpy(count: int, seed: int, offset: int) -> np.ndarray:
    """Words by whole-array arithmetic, straight from the paper's ten rounds."""
    blocks = np.array([offset + i for i in range((count + 3) // 4)], np.uint64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1 = blocks & low, blocks >> shift
    c2 = c3 = np.zeros_like(blocks)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0 = (p1 >> shift) ^ c1 ^ np.uint64(k0)
        c2 = (p0 >> shift) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & low, p0 & low
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3], 1).reshape(-1)[:count].astype(np.int64)


@pytest.mark.parametrize("seed, offset", SEEDS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4,), (3, 5), (1025,)])
def test_random_numbers_bit_for_bit(
    backend: Any, seed: int, offset: int, shape: Shape
) -> None:
    words = philox_by_numpy(math.prod(shape), seed, offset).reshape(shape)
    simple = get_backend("simple")
    for dtype in FLOATS:
        uniform = ((words >> 8) / 2**24).astype(dtype.numpy)
        assert_equal(backend.uniform(shape, dtype, seed, offset), uniform)
        normal = array_of(simple.normal(shape, dtype, seed, offset))
        if dtype is float32:
            assert_equal(backend.normal(shape, dtype, seed, offset), normal)
        else:  # the last bit of `log` and `cos` is up to the machine
            drawn = backend.normal(shape, dtype, seed, offset)
            assert_close(drawn, normal, tolerance=1e-14)
    for low, high in ((0, 2), (-5, 6), (10, 10 + 2**31)):
        integers = low + (words * (high - low) >> 32)
        assert_equal(backend.randint(low, high, shape, int64, seed, offset), integers)
    narrow = (-5 + (words * 11 >> 32)).astype(np.int32)
    assert_equal(backend.randint(-5, 6, shape, int32, seed, offset), narrow)


def test_known_words_of_philox() -> None:
    """The answer to zeros that the authors publish with their code (Random123)."""
    zeros = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert operators.philox(0, 0, 0, 0) == zeros
    assert tuple(philox_by_numpy(4, 0, 0)) == zeros


def test_random_numbers_of_many_elements(backend: Any) -> None:
    n = large(backend, (2003,), (70_003,))[0]
    words = philox_by_numpy(n, 9, 1)
    drawn = array_of(backend.uniform((n,), float32, 9, 1))
    np.testing.assert_array_equal(drawn, ((words >> 8) / 2**24).astype(np.float32))
    assert 0 <= drawn.min() and drawn.max() < 1
    normal = array_of(backend.normal((n,), float64, 9, 1))
    assert abs(normal.mean()) < 4 / math.sqrt(n) and abs(normal.var() - 1) < 0.2
    radius = np.sqrt(-2 * np.log((words[0] + 1) / 2**32))
    angle = 2 * np.pi * words[1] / 2**32
    expected = [radius * np.cos(angle), radius * np.sin(angle)]
    np.testing.assert_allclose(normal[:2], expected, rtol=1e-12)


def test_an_offset_continues_the_sequence(backend: Any) -> None:
    whole = array_of(backend.uniform((40,), float32, 5, 100))
    part = backend.uniform((28,), float32, 5, 103)
    assert_equal(part, whole[12:])


@by_float
@by_layout
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_dropout(backend: Any, dtype: DType, layout: str, p: float) -> None:
    for shape in ((), (0, 3), (7,), (33, 5), large(backend, (4, 9), (300, 130))):
        a = numbers(shape, dtype, layout=layout)
        out = backend.dropout(make(a, name_of(backend), layout), p, 77, 3)
        words = philox_by_numpy(a.size, 77, 3).reshape(shape)
        scale = dtype.numpy.type(1 / (1 - p) if p < 1 else 0)
        assert_equal(out, np.where(words >= p * 2**32, a * scale, 0).astype(a.dtype))


# --------------------------------------------------------------------- optimizers

SIZES = ((), (5,), (0,), (7, 9), (1025,))


def check_steps(
    backend: Any,
    dtype: DType,
    layout: str,
    make_rival: Callable,
    states: int,
    step: Callable,
) -> None:
    """Three steps of our optimizer and of torch's, on parameters of several sizes."""
    arrays = [numbers(shape, dtype, 1) for shape in SIZES]
    rivals = [tensor(a).double().requires_grad_() for a in arrays]
    rival = make_rival(rivals)
    ours = [make(a, name_of(backend), layout) for a in arrays]
    state = [
        [make(np.zeros_like(a), name_of(backend), layout) for a in arrays]
        for _ in range(states)
    ]
    for count in (1, 2, 3):
        grads = [numbers(shape, dtype, 10 + count) for shape in SIZES]
        for parameter, grad in zip(rivals, grads):
            parameter.grad = tensor(grad).double()
        rival.step()
        step(ours, [make(g, name_of(backend), layout) for g in grads], state, count)
    for a, b in zip(ours, rivals):
        assert_close(
            a,
            b.detach().numpy().astype(dtype.numpy),
            tolerance=2e-6 if dtype is float32 else 1e-11,
        )


@by_float
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped"])
@pytest.mark.parametrize(
    "momentum, dampening, weight_decay, nesterov",
    [
        (0, 0, 0, False),
        (0, 0, 0.1, False),
        (0.9, 0, 0, False),
        (0.9, 0.5, 0.1, False),
        (0.9, 0, 0.1, True),
    ],
)
def test_sgd(
    backend: Any,
    dtype: DType,
    layout: str,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    how = (momentum, dampening, weight_decay, nesterov)

    def step(params: Any, grads: Any, state: Any, count: int) -> None:
        buffers = state[0] if momentum else None
        backend.sgd_step(params, grads, buffers, 0.1, *how, count == 1)

    def rival(params: Any) -> Any:
        return torch.optim.SGD(params, 0.1, *how[:3], nesterov=nesterov)

    check_steps(backend, dtype, layout, rival, 1, step)


@by_float
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(
    backend: Any, dtype: DType, layout: str, weight_decay: float, decoupled: bool
) -> None:
    def step(params: Any, grads: Any, state: Any, count: int) -> None:
        numbers_of_adam = (0.01, 0.9, 0.999, 1e-8, weight_decay, decoupled)
        backend.adam_step(params, grads, *state, count, *numbers_of_adam)

    def rival(params: Any) -> Any:
        kind = torch.optim.AdamW if decoupled else torch.optim.Adam
        return kind(params, 0.01, weight_decay=weight_decay)

    check_steps(backend, dtype, layout, rival, 2, step)


def test_optimizers_without_parameters(backend: Any) -> None:
    backend.sgd_step([], [], None, 0.1, 0, 0, 0, False, True)
    backend.adam_step([], [], [], [], 1, 0.1, 0.9, 0.999, 1e-8, 0, False)
