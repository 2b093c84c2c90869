"""Reductions of the CPU backend: all layouts, accuracy, and bits that stay the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_ops import threads
from fast_ops.walk import BY_LINES, BY_ROWS, BY_STRIDES, walk
from minitorch import dtypes, operators
from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")


def data(array: np.ndarray) -> TensorData:
    return cpu.from_numpy(np.array(array, order="C"))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SHAPES = [
    (1,),
    (513,),
    (100_003,),
    (3, 5),
    (5, 40_000),
    (40_000, 5),
    (300, 70),
    (70, 300),
    (37, 997),
    (4, 3, 1, 7),
    (8, 16, 5, 5),
    (8, 6, 33, 35),
    (3, 1200),
    (101, 64),
    (1031, 9),
    (200, 1030),
    (2, 3, 4, 5, 6),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("permuted", [False, True])
def test_sum_and_max_over_all_choices_of_dims(
    shape: tuple[int, ...], permuted: bool
) -> None:
    array, a = numbers(*shape), data(numbers(*shape))
    if permuted:
        order = tuple(range(len(shape)))[::-1]
        array, a = array.transpose(order), a.permute(order)
    for count in range(1, len(shape) + 1):
        for dims in combinations(range(len(shape)), count):
            got = cpu.to_numpy(cpu.reduce(operators.add, a, dims, 0))
            exact = array.sum(dims, dtype=np.float64, keepdims=True)
            size = np.abs(array).sum(dims, keepdims=True)
            assert got.shape == exact.shape
            assert np.all(np.abs(got - exact) <= 2.0**-23 * (np.abs(exact) + size))
            got = cpu.to_numpy(cpu.reduce(operators.maximum, a, dims, -operators.inf))
            np.testing.assert_array_equal(got, array.max(dims, keepdims=True))


@given(st.data())
def test_strided_windows(choices: st.DataObject) -> None:
    rank = choices.draw(st.integers(1, 4))
    shape = choices.draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank))
    array = numbers(*shape)
    a = data(array)
    for dim in range(rank):
        step = choices.draw(st.integers(1, 3))
        length = -(-shape[dim] // step)
        a = a.slice(dim, 0, length, step)
        array = array[(slice(None),) * dim + (slice(None, None, step),)]
    order = choices.draw(st.permutations(range(rank)))
    a, array = a.permute(order), array.transpose(order)
    dims = choices.draw(st.sets(st.integers(0, rank - 1), min_size=1))
    got = cpu.to_numpy(cpu.reduce(operators.add, a, tuple(dims), 0))
    exact = array.sum(tuple(dims), keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)


def test_expanded_and_reversed_windows() -> None:
    a = data(numbers(50)).expand((30, 50))
    got = cpu.to_numpy(cpu.reduce(operators.add, a, (0,), 0))
    np.testing.assert_allclose(got[0], 30 * numbers(50), rtol=1e-6)
    base = data(numbers(40))
    backwards = TensorData(base.storage, (40,), (-1,), 39)
    got = cpu.to_numpy(cpu.reduce(operators.add, backwards, (0,), 0))
    np.testing.assert_allclose(got[0], numbers(40).sum(dtype=np.float64), rtol=1e-6)


def test_empty_dims_give_the_identity() -> None:
    a = data(numbers(0, 3))
    got = cpu.to_numpy(cpu.reduce(operators.add, a, (0,), 0))
    np.testing.assert_array_equal(got, np.zeros((1, 3), np.float32))
    got = cpu.to_numpy(cpu.reduce(operators.mul, a, (0,), 1))
    np.testing.assert_array_equal(got, np.ones((1, 3), np.float32))
    assert cpu.reduce(operators.add, a, (1,), 0).shape == (0, 1)


def test_the_result_is_the_same_on_any_number_of_threads() -> None:
    if threads.max_num_threads() < 2:
        pytest.skip("needs two threads: this machine has one core")
    before = threads.get_num_threads()
    try:
        for shape, dims in (
            ((1_000_003,), (0,)),
            ((100_000, 7), (0,)),
            ((16, 32, 30, 30), (0, 2, 3)),
            ((900, 512), (0,)),
            ((316, 316), (0,)),
            ((20_011, 3), (0,)),
        ):
            a = data(numbers(*shape))
            results = []
            for n in (1, 2):
                threads.set_num_threads(n)
                out = cpu.reduce(operators.add, a, dims, 0)
                results.append(cpu.to_numpy(out).copy())
            np.testing.assert_array_equal(*results)
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("shape", [(9,), (2000,), (70_001,)])
def test_nan_wins(shape: tuple[int, ...]) -> None:
    for place in (0, shape[0] // 2, shape[0] - 1):
        array = numbers(*shape)
        array[place] = np.nan
        a = data(array)
        for fn, start in ((operators.maximum, -np.inf), (operators.minimum, np.inf)):
            assert np.isnan(cpu.to_numpy(cpu.reduce(fn, a, (0,), start)))[0]
        assert cpu.to_numpy(cpu.argmax(a, 0))[0] == place
        assert cpu.to_numpy(cpu.argmin(a, 0))[0] == place


def test_integers_and_bools() -> None:
    values = np.random.default_rng(0).integers(-9, 9, (40, 33))
    for array in (values, values.astype(np.int32), values > 0):
        for dims in ((0,), (1,), (0, 1)):
            got = cpu.reduce(operators.add, data(array), dims, 0, dtypes.int64)
            assert got.dtype is dtypes.int64
            exact = array.sum(dims, keepdims=True)
            np.testing.assert_array_equal(cpu.to_numpy(got), exact)
    for fn, start, oracle in (
        (operators.logical_or, False, np.any),
        (operators.logical_and, True, np.all),
    ):
        got = cpu.reduce(fn, data(values), (1,), start, dtypes.bool_)
        exact = oracle(values, axis=1, keepdims=True)
        np.testing.assert_array_equal(cpu.to_numpy(got), exact)
    big = np.array([2**62, 3, -(2**63)])
    got = cpu.reduce(operators.maximum, data(big), (0,), -(2**63))
    assert cpu.to_numpy(got)[0] == 2**62


def test_a_users_function() -> None:
    def hypot(x: float, y: float) -> float:
        return (x * x + y * y) ** 0.5

    for shape, dims in (((300,), (0,)), ((30, 40), (0,)), ((200, 300), (1,))):
        a = numbers(*shape)
        got = cpu.to_numpy(cpu.reduce(hypot, data(a), dims, 0.0))
        exact = np.sqrt((a.astype(np.float64) ** 2).sum(dims, keepdims=True))
        np.testing.assert_allclose(got, exact, rtol=1e-5)


def test_a_users_function_sees_the_elements_in_order() -> None:
    def digits(total: float, x: float) -> float:
        return total * 0.5 + x

    for shape, dims in (((700,), (0,)), ((200, 300), (0,)), ((4, 5, 6), (2, 0))):
        array = numbers(*shape).astype(np.float64)
        got = cpu.to_numpy(cpu.reduce(digits, data(array), dims, 0.0))
        kept = [i for i in range(len(shape)) if i not in dims]
        rows = array.transpose([*kept, *sorted(dims)])
        rows = rows.reshape(*(shape[i] for i in kept), -1)
        weights = 0.5 ** np.arange(rows.shape[-1])[::-1]
        np.testing.assert_allclose(got.reshape(-1), (rows @ weights).reshape(-1))


@pytest.mark.parametrize("shape", [(1, 5), (7, 33), (300, 200), (5, 8, 9)])
def test_arg_extremes_and_cumsum(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(-4, 4, shape).astype(np.float32)
    for dim in range(len(shape)):
        got = cpu.to_numpy(cpu.argmax(data(array), dim))
        np.testing.assert_array_equal(got, array.argmax(dim, keepdims=True))
        got = cpu.to_numpy(cpu.argmin(data(array), dim))
        np.testing.assert_array_equal(got, array.argmin(dim, keepdims=True))
        got = cpu.to_numpy(cpu.cumsum(data(array), dim))
        np.testing.assert_array_equal(got, array.cumsum(dim))


def test_argmax_of_nothing_says_so() -> None:
    with pytest.raises(ValueError, match="no elements"):
        cpu.argmax(data(numbers(2, 0)), 1)


def layouts(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    strides = data(numbers(*shape)).strides
    way = walk(shape, strides, dims)
    assert way is not None
    return way.kind


@pytest.mark.parametrize(
    ("shape", "dims", "kind"),
    [
        ((100_000,), (0,), BY_ROWS),
        ((8, 4, 10, 10), (0, 2, 3), BY_ROWS),
        ((1000, 10), (0,), BY_LINES),
        ((1000, 1000), (0,), BY_LINES),
        ((1000, 5), (1,), BY_STRIDES),
    ],
)
def test_the_intended_loop_is_taken(
    shape: tuple[int, ...], dims: tuple[int, ...], kind: int
) -> None:
    assert layouts(shape, dims) == kind


def sorted_oracle(array: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    key = -array if descending else array
    order = np.argsort(key, axis=dim, kind="stable")
    if descending:  # NumPy puts NaN last; above all numbers means first here
        nan = np.isnan(np.take_along_axis(array, order, dim))
        again = np.argsort(~nan, axis=dim, kind="stable")
        order = np.take_along_axis(order, again, dim)
    return order


@pytest.mark.parametrize("shape", [(1,), (2, 0), (17,), (1025,), (6, 40, 5)])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_and_puts_nan_on_top(
    shape: tuple[int, ...], descending: bool
) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(-5, 5, shape).astype(np.float32)
    array[rng.random(shape) < 0.1] = np.nan
    for dim in range(len(shape)):
        values, index = cpu.sort(data(array), dim, descending)
        order = sorted_oracle(array, dim, descending)
        np.testing.assert_array_equal(cpu.to_numpy(index), order)
        expected = np.take_along_axis(array, order, dim)
        np.testing.assert_array_equal(cpu.to_numpy(values), expected)


CHECKED: dict[str, Callable] = {"sum": operators.add, "max": operators.maximum}


@pytest.mark.parametrize("name", CHECKED)
def test_float64(name: str) -> None:
    array = np.random.default_rng(0).standard_normal((50, 60))
    start = 0.0 if name == "sum" else -operators.inf
    got = cpu.reduce(CHECKED[name], data(array), (0,), start)
    exact = getattr(array, name)(0, keepdims=True)
    np.testing.assert_allclose(cpu.to_numpy(got), exact, rtol=1e-13)


@pytest.mark.parametrize("kind", ["any", "rising", "falling", "pipe", "two", "one"])
def test_median_of_a_long_line(kind: str) -> None:
    """Also in orders for which a pivot that can be foreseen would take n rounds."""
    n, any_order = 200_001, numbers(200_001)
    array = {
        "any": any_order,
        "rising": np.sort(any_order),
        "falling": np.sort(any_order)[::-1],
        "pipe": np.minimum(np.arange(n), np.arange(n)[::-1]),
        "two": any_order > 1,
        "one": np.zeros(n),
    }[kind].astype(np.float32)
    values, index = cpu.median(data(array), 0)
    place = np.argsort(array, kind="stable")[n // 2]
    assert cpu.to_numpy(index) == place and cpu.to_numpy(values) == array[place]
