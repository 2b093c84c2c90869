"""Reductions of the CUDA backend against PyTorch on the CPU and plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import minitorch
from helpers import LAYOUTS, NUMBERS, assert_equal, make, numbers
from minitorch import dtypes, operators
from minitorch.backend import get_backend
from minitorch.dtypes import DType, float32, float64, int32, int64
from minitorch.functions.reduce import highest, lowest
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import big, pick

pytest.importorskip("numba_cuda")
from cuda_ops import arg_reduce
from cuda_ops import reduce as ops
from cuda_ops.arg_reduce import argmax, argmin, extreme
from cuda_ops.block.rows import BLOCK
from cuda_ops.cumsum import cumprod, cumsum
from cuda_ops.ladders import reduce as reduce_ladder
from cuda_ops.memory import to_numpy

simple = get_backend("simple")

Shape = tuple[int, ...]
Dims = tuple[int, ...]
TOLERANCE = {"float32": 2e-6, "float64": 1e-12}


def assert_close(ours: TensorData, expected: np.ndarray, size: float = 1) -> None:
    """Equal for whole numbers; else off by some units in the last place of `size`."""
    assert ours.shape == expected.shape
    tol = TOLERANCE.get(ours.dtype.name, 0)
    np.testing.assert_allclose(to_numpy(ours), expected, rtol=tol, atol=tol * size)


def check_sum(
    shape: Shape, dims: Dims, dtype: DType = float32, layout: str = ""
) -> None:
    a = numbers(shape, dtype, layout=layout)
    x = make(a, "cuda", layout or "contiguous")
    wide = a.astype(np.float64 if dtype.is_floating_point else a.dtype)
    expected = wide.sum(axis=dims, keepdims=True).astype(a.dtype)
    size = max(1.0, float(np.abs(wide).sum(axis=dims).max(initial=0)))
    assert_close(ops.reduce(operators.add, x, dims, 0), expected, size)
    for fn, start, theirs in (
        (operators.maximum, lowest(dtype), np.max),
        (operators.minimum, highest(dtype), np.min),
    ):
        expected = theirs(a, axis=dims, keepdims=True, initial=start)
        assert_equal(ops.reduce(fn, x, dims, start), expected.astype(a.dtype))


ROWS = [1, 3, 4, 31, 33, 64, ops.SHORT, ops.SHORT + 1, ops.SHORT + 4, ops.STEP + 4]


@pytest.mark.parametrize("n", ROWS)
def test_rows(n: int) -> None:
    check_sum((pick(3, 50), n), (1,))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_dtypes(dtype: DType) -> None:
    check_sum((3, 36), (1,), dtype)
    check_sum((36, 5), (0,), dtype)
    check_sum((40, 2 * ops.NARROW), (0,), dtype)
    check_sum((3, ops.SHORT + 4), (1,), dtype)


@pytest.mark.parametrize("n", [2 * ops.LEAST, 2 * ops.LEAST + 1])
def test_few_long_rows_are_shared_by_blocks(n: int) -> None:
    check_sum((n,), (0,))
    check_sum((2, n), (1,))


@pytest.mark.parametrize("n", [1, 3, 5, ops.NARROW, ops.NARROW + 1, 2 * BLOCK + 4, 130])
@pytest.mark.parametrize("rows", [1, 2, 37, pick(300, 4000)])
def test_columns(rows: int, n: int) -> None:
    check_sum((rows, n), (0,))


def test_many_rows_are_shared_by_blocks() -> None:
    check_sum((pick(4 * ops.LEAST_ROWS + 3, 20_000), 132), (0,))
    check_sum((pick(2 * ops.LEAST, 1_000_000), 3), (0,))


@pytest.mark.parametrize(
    "shape,dims",
    [
        ((3, 4, 5), (1,)), ((2, 3, 50), (0, 2)), ((4, 3, 5, 7), (0, 2, 3)),
        ((2, 3, 4, 5), (0, 2)), ((2, 3, 4, 5), (1, 3)), ((2, 3, 4, 5), (0, 1, 2, 3)),
        ((1, 1, 5), (0,)), ((5, 1), (1,)), ((2, 40, 70), (1,)), ((3, 4), ()),
        ((2, 2, 2, 2, 2, 2, 2), (0, 2, 4, 6)), ((4, 3, 32, 36), (0, 2, 3)), ((), ()),
    ],
)  # fmt: skip
def test_any_dims(shape: Shape, dims: Dims) -> None:
    check_sum(shape, dims)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    for dims in ((0,), (1,), (0, 1), (2,), (0, 2)):
        check_sum((4, 6, 36), dims, layout=layout)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_gives_the_identity(shape: Shape) -> None:
    x = make(np.zeros(shape, np.float32), "cuda")
    for dim in range(len(shape)):
        expected = np.full([1 if i == dim else n for i, n in enumerate(shape)], 1)
        assert_equal(ops.reduce(operators.mul, x, (dim,), 1), expected.astype("f4"))


def test_products() -> None:
    a = numbers((5, 7), float64)
    expected = a.prod(axis=1, keepdims=True)
    assert_close(ops.reduce(operators.mul, make(a, "cuda"), (1,), 1), expected)


def test_nan_wins() -> None:
    for n in (33, ops.SHORT + 8):
        a = numbers((3, n), float32)
        a[1, n // 2] = np.nan
        for fn, start in ((operators.maximum, -np.inf), (operators.minimum, np.inf)):
            for dims, x in (((1,), a), ((0,), a.T)):
                found = to_numpy(ops.reduce(fn, make(x, "cuda"), dims, start))
                assert np.isnan(found.reshape(-1)).tolist() == [False, True, False]


@pytest.mark.parametrize("n", [1, 33, ops.SHORT + 1])
def test_any_and_all(n: int) -> None:
    a = np.zeros((3, n), np.float32)
    a[1, n - 1], a[2] = 5, 1
    for dims, x in (((1,), a), ((0,), a.T)):
        found = ops.reduce(operators.logical_or, make(x, "cuda"), dims, 0, dtypes.bool_)
        assert to_numpy(found).reshape(-1).tolist() == [False, True, True]
        assert found.dtype is dtypes.bool_
        every = ops.reduce(
            operators.logical_and, make(x != 0, "cuda"), dims, 1, dtypes.bool_
        )
        assert to_numpy(every).reshape(-1).tolist() == [False, n == 1, True]


def in_decimal(x: float, y: float) -> float:
    """Digits behind each other: the order matters."""
    return x * 10 + y


def test_a_users_function_sees_the_elements_in_order() -> None:
    a = np.arange(12).reshape(2, 3, 2) % 10  # few enough for the digits of float64
    for dtype in (int64, float64):
        for dims in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            x = a.astype(dtype.numpy)
            expected = simple.reduce(in_decimal, make(x, "simple"), dims, 0)
            for layout in ("contiguous", "permuted", "negative"):
                found = ops.reduce(in_decimal, make(x, "cuda", layout), dims, 0)
                assert_equal(found, simple.to_numpy(expected))


def test_whole_numbers_stay_exact() -> None:
    a = np.array([[2**53, 1], [2**62, -1]], np.int64)
    expected = a.sum(1, keepdims=True)
    assert_equal(ops.reduce(operators.add, make(a, "cuda"), (1,), 0), expected)
    top = ops.reduce(operators.maximum, make(a, "cuda"), (0,), -(2**63))
    assert_equal(top, a.max(0, keepdims=True))
    short = np.full((2, 40), 2**30, np.int32)
    found = ops.reduce(operators.add, make(short, "cuda"), (1,), 0)
    assert_equal(found, short.sum(1, keepdims=True, dtype=np.int32), int32)


def test_same_bits_in_every_run() -> None:
    x = make(numbers((2 * ops.LEAST + 5,), float32), "cuda")
    y = make(numbers((4 * ops.LEAST_ROWS, 66), float32), "cuda")
    for a in (x, y):
        first, second = (ops.reduce(operators.add, a, (0,), 0) for _ in range(2))
        assert np.array_equal(to_numpy(first), to_numpy(second))


# ------------------------------------------------------------ positions of extremes


# Rows of a warp, of a block, and of several.
POSITIONS = [arg_reduce.LONG, arg_reduce.LONG + 3, 2 * arg_reduce.LEAST + 3]


def check_first(a: np.ndarray, dim: int, layout: str = "contiguous") -> None:
    x = make(a, "cuda", layout)
    for ours, theirs in (
        (argmax, np.argmax),
        (argmin, np.argmin),
    ):
        expected = np.expand_dims(theirs(a, dim), dim)
        assert_equal(ours(x, dim), expected.astype(np.int64))
        values, places = extreme(x, dim, ours is argmax)
        assert_equal(places, expected.astype(np.int64))
        assert_equal(values, np.take_along_axis(a, expected, dim))


@pytest.mark.parametrize("n", [1, 2, 7, 31, 33, 100, *POSITIONS])
def test_first_extreme(n: int) -> None:
    check_first(numbers((5, n), float32), 1)
    check_first(numbers((2, n), int64), 1)  # many equal ones


@pytest.mark.parametrize(
    "shape,dim", [((4, 3), 0), ((2, 9, 40), 1), ((2, 3, 4), 2), ((5,), 0), ((1, 1), 0)]
)
def test_first_extreme_of_any_dim(shape: Shape, dim: int) -> None:
    for layout in ("contiguous", "permuted", "stepped"):
        check_first(numbers(shape, float64), dim, layout)
        check_first(numbers(shape, dtypes.bool_), dim, layout)


def test_the_first_nan_is_the_extreme() -> None:
    for n in (9, 100, *POSITIONS):
        a = numbers((2, n), float32)
        a[1, [n // 2, n - 1]] = np.nan
        check_first(a, 1)
        if big or n < ops.LEAST:
            check_first(a.T.copy(), 0)


@pytest.mark.parametrize("shape", [(1, 50_257), (1, 300_000), (3, 5_000)], ids=str)
def test_positions_in_very_long_rows(shape: tuple[int, int]) -> None:
    """A large block has a row; or chunks of it are searched by blocks, and what these
    found by a warp: two launches."""
    a = np.random.default_rng(0).integers(0, 50, shape).astype(np.float32)
    for row in a, np.where(a == a[0, -1], np.nan, a):
        x = make(row, "cuda")
        np.testing.assert_array_equal(to_numpy(argmax(x, 1))[:, 0], row.argmax(1))
    with minitorch.cuda.graph(noted := minitorch.cuda.CUDAGraph()):
        argmax(x, 1)
    assert len(noted.kernels) == (2 if shape[1] > arg_reduce.LONGEST else 1)


def test_first_extreme_of_nothing() -> None:
    assert argmax(make(np.zeros((0, 3), np.float32), "cuda"), 1).shape == (0, 1)
    assert to_numpy(argmin(make(np.float32(3), "cuda"), 0)) == 0
    with pytest.raises(ValueError, match=r"argmax: dimension 1 of .2, 0."):
        argmax(make(np.zeros((2, 0), np.float32), "cuda"), 1)


# -------------------------------------------------------------------- running sums


@pytest.mark.parametrize(
    "n", [1, 3, 4, 127, 128, 129, 257, 4 * BLOCK, 4 * BLOCK + 1, 2 * ops.LEAST + 5]
)
@pytest.mark.parametrize("dtype", [float32, int64], ids=str)
def test_running_totals_of_rows(n: int, dtype: DType) -> None:
    a = numbers((pick(2, 9), n), dtype)
    expected = a.astype("f8").cumsum(1).astype(a.dtype)
    size = float(np.abs(a.astype("f8")).sum(1).max())
    assert_close(cumsum(make(a, "cuda"), 1), expected, size)
    factors = 1 + a / 999 if dtype.is_floating_point else a | 1
    if dtype.is_floating_point and n > 2:
        factors[0, n // 2] = 0
    expected = torch.tensor(factors).double() if dtype is float32 else factors
    expected = torch.as_tensor(expected).cumprod(1).numpy()
    assert_close(cumprod(make(factors, "cuda"), 1), expected.astype(a.dtype), n)


@pytest.mark.parametrize(
    "shape,dim", [((4, 3), 0), ((2, 9, 40), 1), ((5,), 0), ((2, 1, 3), 1)]
)
def test_running_totals_of_any_dim(shape: Shape, dim: int) -> None:
    for layout in ("contiguous", "permuted", "negative"):
        a = numbers(shape, float64)
        for ours, theirs in ((cumsum, torch.cumsum), (cumprod, torch.cumprod)):
            found = ours(make(a, "cuda", layout), dim)
            assert_close(found, theirs(torch.tensor(a), dim).numpy(), 10)


def test_what_stands_before_an_infinity_is_finite() -> None:
    a = np.ones(4 * BLOCK + 1, np.float32)
    a[2] = np.inf
    for ours, theirs in ((cumsum, np.cumsum), (cumprod, np.cumprod)):
        assert_equal(ours(make(a, "cuda"), 0), theirs(a))


def test_running_totals_of_nothing() -> None:
    for ours in (cumsum, cumprod):
        assert ours(make(np.zeros((0, 3), np.float32), "cuda"), 0).shape == (0, 3)
        assert to_numpy(ours(make(np.float32(3), "cuda"), 0)) == 3


# ----------------------------------------------------------------------- ladder


@pytest.mark.parametrize("rung", reduce_ladder.LADDER, ids=lambda rung: rung.__name__)
@pytest.mark.parametrize("n", [1, 3, BLOCK - 1, BLOCK, 8 * BLOCK + 1, 33 * BLOCK + 2])
def test_ladder(rung: Any, n: int) -> None:
    a = numbers((n,), float32)
    expected = a.astype("f8").sum().astype("f4")
    assert_close(rung(make(a, "cuda")), np.asarray(expected), float(np.abs(a).sum()))


@pytest.mark.parametrize("rung", reduce_ladder.LADDER, ids=lambda rung: rung.__name__)
def test_ladder_takes_contiguous_float32(rung: Any) -> None:
    assert to_numpy(rung(make(np.zeros((0, 2), np.float32), "cuda"))) == 0
    for a in (
        make(np.ones(3), "cuda"),
        make(np.ones((2, 3), "f4"), "cuda", "permuted"),
    ):
        with pytest.raises(ValueError, match=rung.__name__):
            rung(a)
