"""Matrix products on the GPU against torch, and every rung of the ladder.

Sizes lie around those of the tiles, which are as small as a warp in the simulator.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from helpers import array_of, loaded, make
from minitorch import precision
from minitorch.cuda import is_available
from minitorch.dtypes import DType, bfloat16, finfo, float16, float32, float64
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import met, pick

pytest.importorskip("numba_cuda")
from cuda_ops.ladders.matmul import matmul_coalesced, matmul_naive, matmul_tiled
from cuda_ops.matmul import choosing, plans, turning
from cuda_ops.matmul import matmul as family
from cuda_ops.matmul.kernels import ACROSS_K, ALONG_K, Config, Layout
from cuda_ops.matmul.matmul import Cut, matmul, plan_for
from cuda_ops.matmul.split import split
from cuda_ops.memory import from_numpy, to_numpy
from cuda_ops.runtime.launch import SIMULATED
from cuda_ops.simulator.sizes import real_sizes
from cuda_ops.simulator.watch import watching, wavefronts

TILE = pick(32, 128)
ROUNDING = {"float32": 1e-5, "float64": 1e-13, "int64": 0.0, "int32": 0.0}
TF32 = 2e-3
RUNGS = [
    pytest.param(
        rung,
        marks=pytest.mark.skipif(
            is_available() and not family.runs_here(rung),
            reason="needs compute capability 9.0",
        ),
        id=rung.__name__,
    )
    for rung in family.LADDER
]
TENSOR_CORES = (family.matmul_tensor_core, family.matmul_warpgroup)


def numbers(
    shape: tuple[int, ...], dtype: str = "float32", seed: int = 0
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return rng.integers(-9, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = torch.int64 if a.dtype.kind == "i" else torch.float64
    return (torch.from_numpy(a).to(wide) @ torch.from_numpy(b).to(wide)).numpy()


def near(out: np.ndarray, a: np.ndarray, b: np.ndarray, tolerance: float) -> None:
    expected = exact(a, b)
    assert out.shape == expected.shape
    assert out.dtype == a.dtype
    scale = max(1.0, float(np.sqrt(a.shape[-1])))
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance * scale)


def laid_out(array: np.ndarray, how: str) -> TensorData:
    """`array` on the device, in memory as it is, transposed, strided or reversed."""
    last = array.ndim - 1
    swap = (*range(last - 1), last, last - 1)
    if how == "transposed":
        return from_numpy(np.ascontiguousarray(array.transpose(swap))).permute(swap)
    if how == "strided":  # every second column of a wider matrix, from the third on
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 3), array.dtype)
        wide[..., 2 : 2 + 2 * array.shape[-1] : 2] = array
        return from_numpy(wide).slice(last, 2, array.shape[-1], 2)
    if how == "window":  # columns of a wider matrix, so that rows are not aligned
        wide = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
        wide[..., 1:-2] = array
        return from_numpy(wide).slice(last, 1, array.shape[-1], 1)
    if how == "reversed":
        data = from_numpy(np.ascontiguousarray(array[..., ::-1, :]))
        strides = (*data.strides[:-2], -data.strides[-2], data.strides[-1])
        start = (array.shape[-2] - 1) * data.strides[-2]
        return TensorData(data.storage, data.shape, strides, start)
    return from_numpy(array)


def product(
    a: np.ndarray, b: np.ndarray, a_how: str = "", b_how: str = "",
    fn: Callable = matmul,
) -> np.ndarray:  # fmt: skip
    return to_numpy(fn(laid_out(a, a_how), laid_out(b, b_how)))


EDGES = [
    (1, 1, 1),
    (TILE - 1, 5, TILE + 1),
    (TILE, 8, TILE),
    (TILE + 1, 9, TILE - 1),
    (2 * TILE + 4, 36, TILE + 4),
    (3, 40, 2),
]


@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_around_the_size_of_a_tile(shape: tuple[int, int, int]) -> None:
    M, K, N = shape
    a, b = numbers((M, K)), numbers((K, N), seed=1)
    near(product(a, b), a, b, ROUNDING["float32"])


@pytest.mark.parametrize("dtype", list(ROUNDING))
def test_every_dtype(dtype: str) -> None:
    a, b = numbers((TILE + 1, 10), dtype), numbers((10, TILE + 2), dtype, 1)
    near(product(a, b), a, b, ROUNDING[dtype])


def test_whole_numbers_wrap_around_as_in_torch() -> None:
    a = np.full((2, 2), 2**30, np.int32)
    out = product(a, a)
    expected = (torch.from_numpy(a) @ torch.from_numpy(a)).numpy()
    np.testing.assert_array_equal(out, expected)


LAYOUTS = ["", "transposed", "strided", "window", "reversed"]


@pytest.mark.parametrize("a_how", LAYOUTS)
@pytest.mark.parametrize("b_how", LAYOUTS)
def test_any_strides(a_how: str, b_how: str) -> None:
    a, b = numbers((TILE + 4, 12)), numbers((12, TILE + 8), seed=1)
    near(product(a, b, a_how, b_how), a, b, ROUNDING["float32"])


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("a_how", LAYOUTS)
@pytest.mark.parametrize("b_how", LAYOUTS)
def test_large_operands_are_turned_around(
    a_how: str, b_how: str, high: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "TURN_LEAST", 8)
    monkeypatch.setattr(turning, "GAINS", (1e9, 1e9))
    monkeypatch.setattr(precision.state, "allow_tf32", high)
    a, b = numbers((TILE + 3, 37)), numbers((37, TILE - 3), seed=1)
    near(product(a, b, a_how, b_how), a, b, TF32 if high else 1e-5)


# All pairs of layouts on a GPU; for other types each layout of either operand twice. In
# the simulator, half of that.
VECTOR_CASES = [
    (dtype, how, LAYOUTS[(at + step) % len(LAYOUTS)])
    for dtype, steps in (("float32", range(5)), ("float64", (1, 4)), ("int64", (2, 3)))
    for step in list(steps)[: pick(2 if dtype == "float32" else 1, None)]
    for at, how in enumerate(LAYOUTS)
]


@pytest.mark.parametrize(("dtype", "a_how", "b_how"), VECTOR_CASES)
def test_a_matrix_times_a_vector(dtype: str, a_how: str, b_how: str) -> None:
    """Rows by lanes, warps and blocks, with k in parts; columns by 1 and by 4.

    The K are as small as they can be for a block a row, and for two, on a GPU.
    """
    for M, N, K in ((1, 1, 4099), (5, 1, 7), (33, 1, 132), (132, 1, 12), (2, 1, 1028)):
        a, b = numbers((M, K), dtype), numbers((K, N), dtype, 1)
        near(product(a, b, a_how, b_how), a, b, ROUNDING[dtype])
        a, b = numbers((N, K), dtype), numbers((K, M), dtype, 1)
        near(product(a, b, a_how, b_how), a, b, ROUNDING[dtype])


def test_many_matrices_times_vectors() -> None:
    """As in attention, one token at a time: scores, and the mean of the values."""
    q, k = numbers((3, 2, 1, 8)), numbers((3, 2, 5, 8), seed=1)
    scores = product(q, k.swapaxes(2, 3), "", "")
    near(scores, q, k.swapaxes(2, 3), ROUNDING["float32"])
    near(product(scores, k), scores, k, ROUNDING["float32"])


def test_repeated_rows() -> None:
    a, b = numbers((1, 6)), numbers((6, 5), seed=1)
    row = from_numpy(a).expand((4, 6))
    near(to_numpy(matmul(row, from_numpy(b))), np.repeat(a, 4, 0), b, 1e-5)


BATCHES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((2, 1, 3), (1, 2, 1)),
    ((4,), ()),
    ((), (3,)),
    ((2, 3, 1, 2), (1, 1, 2, 1)),
    ((0,), (1,)),
]


@pytest.mark.parametrize("batches", BATCHES, ids=str)
def test_batches_broadcast(batches: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = numbers((*batches[0], 3, 5)), numbers((*batches[1], 5, 4), seed=1)
    near(product(a, b), a, b, ROUNDING["float32"])
    near(product(a, b, "transposed", "transposed"), a, b, ROUNDING["float32"])


def test_more_matrices_than_a_grid_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = numbers((3, 5, 2, 3)), numbers((5, 3, 2), seed=1)
    for most in (4, 7):
        monkeypatch.setattr(plans, "MOST_BATCHES", most)
        family._plan.cache_clear()
        near(product(a, b), a, b, ROUNDING["float32"])
    family._plan.cache_clear()


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)], ids=str)
def test_empty(shape: tuple[int, int, int]) -> None:
    M, K, N = shape
    out = product(numbers((M, K)), numbers((K, N)))
    assert out.shape == (M, N)
    assert not out.any()


@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("K", [16, 39, pick(70, 5000)])
def test_split_over_k(parts: int, K: int) -> None:
    a, b = numbers((2, 5, K)), numbers((2, K, 6), seed=1)
    left, right = from_numpy(a), from_numpy(b)
    sides = family.fold((2,), left.shape, left.strides, right.shape, right.strides)
    for config in family.CONFIGS_4:
        cut = Cut(config, parts)
        plan = plan_for((2, 5, 6), sides, cut, (False, False), left.dtype)
        near(to_numpy(family.launch(plan, left, right)), a, b, ROUNDING["float32"])


@pytest.mark.parametrize("asynchronous", [True, False])
def test_all_cuts(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chips without `cp.async` load and store instead."""
    if not asynchronous:
        monkeypatch.setattr(family, "compute_capability", lambda: (7, 5))
    a, b = numbers((TILE + 1, 21)), numbers((21, TILE + 4), seed=1)
    left, right = from_numpy(a), laid_out(b, "transposed")
    sides = family.fold((), left.shape, left.strides, right.shape, right.strides)
    shape = (TILE + 1, TILE + 4)
    for config in family.CONFIGS_4:
        plan = plan_for(shape, sides, Cut(config, 1), (True, True), left.dtype)
        near(to_numpy(family.launch(plan, left, right)), a, b, ROUNDING["float32"])


def test_the_fastest_units_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warpgroups on a Hopper, mma.sync elsewhere."""
    monkeypatch.setattr(family, "FMA_RATE", 1e-6)
    monkeypatch.setattr(family, "TENSOR_RATE", 1e-3)
    monkeypatch.setattr(family, "GROUP_RATE", 1.0)
    monkeypatch.setattr(family, "compute_capability", lambda: (9, 0))
    family.choose.cache_clear()
    pays, n = family._pays_on_tensor_cores, 4096
    pays.cache_clear()
    square, dtype = (n, n), minitorch.float32
    for allow_tf32 in (True, False):
        assert pays((9, 0), square, square, dtype, allow_tf32)
        assert not pays((9, 0), (8, 8), (8, 8), dtype, allow_tf32)
    sides = family.Sides(n, n, n, (n, 1), (1, n), ())
    assert isinstance(family._cut(sides, dtype, True).config, family.TensorConfig)
    assert isinstance(family._cut(sides, dtype, False).config, family.Config)
    pays.cache_clear()
    monkeypatch.setattr(family, "compute_capability", lambda: (8, 0))
    assert not pays((8, 0), square, square, dtype, True)
    pays.cache_clear()
    family.choose.cache_clear()


def test_the_same_numbers_each_time() -> None:
    a, b = numbers((5, pick(90, 9000))), numbers((pick(90, 9000), 7), seed=1)
    first = product(a, b)
    for _ in range(pick(1, 10)):
        np.testing.assert_array_equal(product(a, b), first)


def test_what_is_outside_does_not_leak_in() -> None:
    """NaN around a window of the operands stays out of the result."""
    wide = np.full((TILE + 6, 20), np.nan, np.float32)
    wide[2:5, 4:11] = numbers((3, 7))
    a = from_numpy(wide).slice(0, 2, 3, 1).slice(1, 4, 7, 1)
    b = a.permute((1, 0))
    near(to_numpy(matmul(a, b)), wide[2:5, 4:11], wide[2:5, 4:11].T, 1e-5)


def test_nan_and_infinity_go_through() -> None:
    a, b = numbers((4, 9)), numbers((9, 4), seed=1)
    a[1, 2], a[2, 3] = np.nan, np.inf
    expected = torch.from_numpy(a) @ torch.from_numpy(b)
    for rung in filter(family.runs_here, family.LADDER):
        out = product(a, b, fn=rung)
        assert np.isnan(out[1]).all(), rung.__name__
        np.testing.assert_array_equal(out[2], expected[2].numpy())


# ----------------------------------------------------------------------- the ladder


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (TILE + 1, 17, TILE - 1), (5, 33, 6)], ids=str
)
def test_rungs(rung: Callable, shape: tuple[int, int, int]) -> None:
    M, K, N = shape
    a, b = numbers((M, K)), numbers((K, N), seed=1)
    tolerance = TF32 if rung in TENSOR_CORES else ROUNDING["float32"]
    near(product(a, b, fn=rung), a, b, tolerance)


@pytest.mark.parametrize("rung", RUNGS[:-3])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_rungs_of_other_dtypes(rung: Callable, dtype: str) -> None:
    a, b = numbers((6, 9), dtype), numbers((9, 5), dtype, 1)
    near(product(a, b, fn=rung), a, b, ROUNDING[dtype])


@pytest.mark.parametrize("rung", RUNGS)
def test_rungs_take_matrices_only(rung: Callable) -> None:
    with pytest.raises(ValueError, match=rung.__name__):
        rung(from_numpy(numbers((2, 3))), from_numpy(numbers((2, 3))))
    with pytest.raises(ValueError, match="expected"):
        rung(from_numpy(numbers((2, 2, 3))), from_numpy(numbers((2, 3, 2))))


@pytest.mark.parametrize("rung", RUNGS[:4])
def test_first_rungs_without_steps(rung: Callable) -> None:
    out = product(numbers((3, 0)), numbers((0, 2)), fn=rung)
    np.testing.assert_array_equal(out, np.zeros((3, 2), np.float32))


# ------------------------------------------------------------------- tensor cores


@pytest.mark.parametrize("rung", RUNGS[-3:-1])
@pytest.mark.parametrize("a_how", LAYOUTS)
@pytest.mark.parametrize("b_how", LAYOUTS)
def test_tensor_cores_with_any_strides(a_how: str, b_how: str, rung: Callable) -> None:
    a, b = numbers((TILE + 4, 12)), numbers((12, TILE + 8), seed=1)
    near(product(a, b, a_how, b_how, rung), a, b, TF32)


@pytest.mark.parametrize("rung", RUNGS[-3:-1])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 0, 4), (0, 3, 4)], ids=str)
def test_tensor_cores_with_little_to_do(
    rung: Callable, shape: tuple[int, int, int]
) -> None:
    a, b = numbers((shape[0], shape[1])), numbers(shape[1:], seed=1)
    near(product(a, b, fn=rung), a, b, TF32)


@pytest.mark.parametrize("rung", RUNGS[-3:-1])
@pytest.mark.parametrize("how", LAYOUTS)
def test_tensor_cores_round_factors_to_nearest(how: str, rung: Callable) -> None:
    """1 + 2^-11 is between two TF32 numbers, and goes to the larger one; the copy
    engine may take the even one, so it is asked about a little more."""
    more = 2.0**-20 if rung is family.matmul_warpgroup else 0.0
    between = np.full((8, 8), 1 + 2.0**-11 + more, np.float32)
    eye = np.eye(8, dtype=np.float32)
    larger = np.full((8, 8), 1 + 2.0**-10, np.float32)
    np.testing.assert_array_equal(product(between, eye, how, how, rung), larger)
    np.testing.assert_array_equal(product(eye, between, how, how, rung), larger)


@pytest.mark.parametrize("rung", RUNGS[-3:-1])
def test_tensor_cores_multiply_float32_only(rung: Callable) -> None:
    a = from_numpy(numbers((4, 4), "float64"))
    with pytest.raises(TypeError, match="float64"):
        rung(a, a)


def test_highest_precision_uses_no_tensor_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(family, "TENSOR_LEAST", 0)
    monkeypatch.setattr(family, "FMA_RATE", 1e-6)  # the tensor cores are faster
    family._plan.cache_clear()
    n = pick(16, 512)
    a = np.full((n, 8), 1 + 2.0**-12, np.float32)
    b = np.full((8, n), 1.0, np.float32)
    try:
        assert minitorch.get_float32_matmul_precision() == "highest"
        np.testing.assert_array_equal(product(a, b)[0, 0], np.float32(8 + 2.0**-9))
        minitorch.set_float32_matmul_precision("high")
        np.testing.assert_array_equal(product(a, b)[0, 0], np.float32(8))
    finally:
        minitorch.set_float32_matmul_precision("highest")
        family._plan.cache_clear()


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_other_dtypes_use_no_tensor_cores(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "TENSOR_LEAST", 0)
    monkeypatch.setattr(family, "FMA_RATE", 1e-6)  # the tensor cores are faster
    monkeypatch.setattr(precision.state, "allow_tf32", True)
    family._plan.cache_clear()
    a, b = numbers((TILE, 40), dtype), numbers((40, TILE), dtype, 1)
    near(product(a, b), a, b, ROUNDING[dtype])
    family._plan.cache_clear()


def test_what_repeats_is_copied_once() -> None:
    a = numbers((2, 5, 8))
    data = TensorData(from_numpy(a).storage, (3, 2, 5, 8), (0, 40, 8, 1))
    copied = family._in_longer_lines(data)
    assert copied.storage.array.size == a.size
    np.testing.assert_array_equal(to_numpy(copied), np.broadcast_to(a, data.shape))


def test_what_a_warpgroup_needs_copied() -> None:
    """Lines without vectors, and of float32 the smaller one, if none lies along k."""
    large, small = from_numpy(numbers((16, 8))), from_numpy(numbers((16, 4)))
    a, b = large.permute((1, 0)), small.permute((1, 0))
    assert family._copied(a, small) == (False, True)
    assert family._copied(b, large) == (True, False)
    assert family._copied(large, large) == family._copied(a, a) == (False, False)
    assert family._copied(a.slice(0, 1, 5), a) == (True, False)
    assert family._copied(large.slice(1, 4, 4), b) == (False, False)
    assert family._copied(large.slice(1, 1, 4), b) == (True, False)  # not at 16 bytes


def test_precision_names() -> None:
    try:
        for name in precision.PRECISIONS:
            minitorch.set_float32_matmul_precision(name)
            assert minitorch.get_float32_matmul_precision() == name
            assert precision.state.allow_tf32 == (name != "highest")
        with pytest.raises(ValueError, match="'low'"):
            minitorch.set_float32_matmul_precision("low")
    finally:
        minitorch.set_float32_matmul_precision("highest")


# ---------------------------------------------------- float32 as sums of bfloat16

ONLY_HOPPER = pytest.mark.skipif(
    is_available() and not family.runs_here(family.matmul_split),
    reason="this GPU has no wgmma: its compute capability is not 9.0",
)


def planes(array: np.ndarray) -> list[np.ndarray]:
    """What `split` makes of a matrix, as float64."""
    first = split(from_numpy(array))
    size = family.planes_of(array.shape, (array.shape[1], 1)).apart
    return [
        array_of(TensorData(first.storage, first.shape, first.strides, i * size))
        .astype(float)
        for i in range(3)
    ]  # fmt: skip


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_a_split_loses_nothing(given_numbers: list[float]) -> None:
    """But of numbers that have less than 24 bits above the smallest bfloat16."""
    x = np.array([given_numbers], np.float32)
    high, middle, low = planes(x)
    finite = np.isfinite(x)
    some = finite & (np.abs(x) > 2.0**-110)
    np.testing.assert_array_equal((high + middle + low)[some], x[some])
    lost = np.abs((high + middle + low)[finite] - x[finite])
    assert (lost < 2.0**-133).all()
    assert (np.abs(middle) <= 2.0**-8 * np.abs(high))[
        some & (np.abs(x) < 2.0**127)
    ].all()
    np.testing.assert_array_equal(low[~finite], x[~finite])


@pytest.mark.parametrize("start, n", [(3, 13), (4, 12), (0, 13), (0, 16)])
def test_a_window_is_split_where_it_lies(start: int, n: int) -> None:
    """Up to the end of its memory; what its lines are filled up with is 0."""
    wide = numbers((5, 16))
    x = from_numpy(wide).slice(1, start, n)
    first = split(x)
    got = array_of(TensorData(first.storage, (3, 5, 16), (80, 16, 1))).astype(float)
    np.testing.assert_array_equal(got[..., :n].sum(0), wide[:, start : start + n])
    assert not got[..., n:].any()


def test_every_nan_stays_one() -> None:
    x = np.array([[0x7F800001, 0xFFC00000, 0x7FFFFFFF]], np.uint32).view(np.float32)
    assert np.isnan(planes(x)[2]).all()


@ONLY_HOPPER
@met(
    "lay, batch, more",
    ["nn", "nt", "tn", "tt"],
    [((), ()), ((3,), (3,)), ((3,), ()), ((), (2,)), ((2, 3), (2, 3)), ((2, 3), (3,))],
    [-1, 0, 1],
)
def test_split_products(
    lay: str, batch: tuple[tuple[int, ...], ...], more: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Around the size of a tile; of two batch dims where they are as good as one."""
    monkeypatch.setattr(family, "_pays_on_tensor_cores", lambda *_: True)
    (config,) = family.SPLITS
    M, N, K = config.rows + more, 2 * config.cols + more, 3 * config.depth + more
    a, b = numbers((*batch[0], M, K)), numbers((*batch[1], K, N), seed=1)
    x, y = (
        laid_out(array, "transposed" if how == "t" else "")
        for array, how in zip((a, b), lay)
    )
    assert family._splits(x, y) == (len(batch[0]) == len(batch[1]) or not all(batch))
    near(to_numpy(matmul(x, y)), a, b, ROUNDING["float32"])


@ONLY_HOPPER
@pytest.mark.parametrize("parts", [1, 3])
def test_chunks_of_split_products(parts: int) -> None:
    """With a bias, into memory that is given; more tiles than blocks."""
    (config,) = family.SPLITS
    M, N, K = 2 * config.rows + 3, 3 * config.cols, 7 * config.depth + 5
    a, b, bias = numbers((M, K)), numbers((K, N), seed=1), numbers((N,), seed=2)
    x, y, row = map(from_numpy, (a, b, bias))
    left, right = (family.planes_of(z.shape, z.strides) for z in (x, y))
    sides = family.fold((), x.shape, left.strides, y.shape, right.strides)
    plan = plan_for(
        (M, N), sides, Cut(config, parts), (True, True), bfloat16, True,
        (left.apart, right.apart),
    )  # fmt: skip
    assert plan.splits == parts
    flat = from_numpy(np.zeros(8 + M * N, np.float32))
    out = TensorData(flat.storage, (M, N), (N, 1), 8)
    made = family.launch(plan, split(x), split(y), bias=row, wide=True, out=out)
    assert made is out and not array_of(flat)[:8].any()
    np.testing.assert_allclose(array_of(out), exact(a, b) + bias, 1e-5, 1e-5)


@ONLY_HOPPER
@pytest.mark.parametrize("how", ["", "transposed", "window"])
def test_a_long_matrix_is_split_some_rows_at_a_time(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into one result; the planes of all of it are never there."""
    monkeypatch.setattr(family, "_pays_on_tensor_cores", lambda *_: True)
    a, b, bias = numbers((300, 24)), numbers((24, 20), seed=1), numbers((20,), seed=2)
    x, y, row = laid_out(a, how), from_numpy(b), from_numpy(bias)
    whole = to_numpy(family.matmul_bias(x, y, row))
    monkeypatch.setattr(family, "MOST_SPLIT", 24 * family.ROWS)
    seen: list[TensorData] = []
    monkeypatch.setattr(family, "split", lambda a: seen.append(a) or split(a))
    np.testing.assert_array_equal(to_numpy(family.matmul_bias(x, y, row)), whole)
    assert [a.shape[0] for a in seen] == [24, 128, 128, 44]
    near(whole - bias, a, b, 1e-5)


@ONLY_HOPPER
@pytest.mark.parametrize("positive", [False, True])
def test_split_products_are_as_exact_as_others(positive: bool) -> None:
    """Tensor cores cut off what they add; few such sums are added up by others."""
    n, K = pick(32, 256), pick(200, 4096)
    a, b = numbers((n, K)), numbers((K, n), seed=1)
    if positive:
        a, b = abs(a), abs(b)
    right = exact(a.astype(float), b.astype(float))
    errors = [
        np.sqrt(np.mean((made - right) ** 2))
        for made in (product(a, b, fn=family.matmul_split),
                     (torch.from_numpy(a) @ torch.from_numpy(b)).numpy(),
                     product(a, b, fn=family.matmul_vectorized))
    ]  # fmt: skip
    assert errors[0] <= 2 * max(errors[1:])


@ONLY_HOPPER
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-38])
def test_what_is_infinite_or_no_number_in_split_products(value: float) -> None:
    a, b = numbers((TILE, 24)), numbers((24, TILE), seed=1)
    a[1, 2], a[3, 4] = value, -value
    b[2, 3], b[2, 4] = 0, 1
    b[2, 5], b[4, 5], b[2, 6], b[4, 6] = np.inf, 0, 0, -np.inf
    out = product(a, b, fn=family.matmul_split)
    expected = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@ONLY_HOPPER
def test_a_gradient_is_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the two products of a layer's backward pass; if it lies row by row."""
    monkeypatch.setattr(family, "_pays_on_tensor_cores", lambda *_: True)
    seen: list[Any] = []
    monkeypatch.setattr(family, "split", lambda a: seen.append(a) or split(a))
    of = loaded("cuda").linear_gradients
    g, x, w = (
        numbers(size, seed=i) for i, size in enumerate([(40, 24), (40, 16), (24, 16)])
    )
    grad, rows, weight = map(from_numpy, (g, x, w))
    grad_x, grad_weight, grad_bias = of(grad, rows, weight, float32, float32)
    assert len(seen) == 3 and seen[0] is grad and grad_bias is None
    near(to_numpy(grad_x), g, w, 1e-5)
    near(to_numpy(grad_weight), g.T, x, 1e-5)
    assert of(grad, rows, None, float32, float32) is None
    assert of(laid_out(g, "strided"), rows, weight, float32, float32) is None
    monkeypatch.setattr(family, "MOST_SPLIT", g.size - 1)
    assert of(grad, rows, weight, float32, float32) is None
    monkeypatch.setattr(family, "MOST_SPLIT", g.size)
    monkeypatch.setattr(precision.state, "allow_tf32", True)
    assert of(grad, rows, weight, float32, float32) is None


# ------------------------------------------------------------------------ choices


def test_small_products_are_spread_over_the_chip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a chip with 132 multiprocessors: a split of k is chosen where it helps."""
    chip = choosing.properties()._replace(multi_processor_count=132)
    monkeypatch.setattr(choosing, "properties", lambda: chip)
    family.choose.cache_clear()
    cut = family.choose(family.CONFIGS_4, 64, 64, 100_000, 1, family.FMA_RATE)
    assert cut.splits > 1
    large = family.choose(family.CONFIGS_4, 8192, 8192, 8192, 1, family.FMA_RATE)
    assert large.splits == 1
    family.choose.cache_clear()


def test_gradients_on_the_device() -> None:
    x, w = numbers((5, 7)), numbers((7, 4), seed=1)
    a = minitorch.tensor(x, device="cuda", requires_grad=True)
    b = minitorch.tensor(w, device="cuda", requires_grad=True)
    (a @ b).sum().backward()
    left, right = (torch.from_numpy(v).requires_grad_() for v in (x, w))
    (left @ right).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), left.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), right.grad.numpy(), rtol=1e-5)


LARGEST = Config(2, 2, 1, 8, 8, 4, 16, 4, blocks=3)  # also if simulated


@pytest.mark.parametrize("a_layout", [ACROSS_K, ALONG_K], ids=str)
def test_a_warp_of_the_largest_tiles_meets_all_banks(a_layout: Layout) -> None:
    """Each copy to shared memory and each load takes the least wavefronts."""
    sides = LARGEST.copies(a_layout, ACROSS_K, 4, True)
    tile, lanes = LARGEST.tile(*sides, 4), np.arange(32)
    rows = lanes // 16 * 2 + lanes % 2, lanes % 16 // 2  # see `thread_place`
    for copy, side, row in zip(sides, (tile.a, tile.b), rows):
        per_line = (copy.depth if copy.k_fast else copy.wide) // 4
        for thread in np.split(np.arange(copy.threads), copy.threads // 32):
            places = thread // per_line * copy.pitch + thread % per_line * 4
            assert wavefronts(dict(enumerate(places * 4)), 16, True) == (4, 4)
        first = row * (copy.pitch if copy.k_fast else 4)
        for i in range(side.rows):
            for k in range(0, LARGEST.depth, 4):
                at = side.place(i, k, 4) // 4 * 4  # the vector that it is in
                places = dict(enumerate((first + at) * 4))
                assert wavefronts(places, 16) == (2, 2)  # pairs of lanes share a vector


@pytest.mark.skipif(not SIMULATED, reason="the simulator counts")
@pytest.mark.parametrize(
    "rung, requests, sectors, ideal, wavefronts",
    [
        # 2 loads for each of 8 k, and a store; b and out, or a and out, by columns
        (matmul_naive, 32 * 17, 32 * (8 * (32 + 1) + 32), 32 * (8 * (4 + 1) + 4), 0),
        (matmul_coalesced, 32 * 17, 32 * (8 * (1 + 4) + 4), 32 * (8 * (1 + 4) + 4), 0),
        # 8 numbers for each row of a, 8 rows of b; 66 uses of shared memory a warp
        (matmul_tiled, 32 + 8 + 32, 32 + 8 * 4 + 128, 32 + 8 * 4 + 128, 32 * 66),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_the_first_rungs_ask_for(
    rung: Any, requests: int, sectors: int, ideal: int, wavefronts: int
) -> None:
    a, b = np.zeros((32, 8), np.float32), np.zeros((8, 32), np.float32)
    with real_sizes("cuda_ops.ladders.matmul"), watching() as watch:
        rung(from_numpy(a), from_numpy(b))
    found = watch.total
    assert (found.requests, found.sectors) == (requests, sectors)
    assert (found.ideal_sectors, found.wavefronts) == (ideal, wavefronts)
    assert found.bank_conflicts == 0


@pytest.mark.skipif(not SIMULATED, reason="the simulator counts")
@pytest.mark.parametrize(
    ("rung", "k"), [(family.matmul_squared, 8), (family.matmul_buffered, 16)]
)
def test_squares_of_outputs_read_without_conflicts_or_races(rung: Any, k: int) -> None:
    a, b = numbers((64, k)), numbers((k, 64), seed=1)
    with real_sizes("cuda_ops.ladders.matmul"), watching() as watch:
        near(product(a, b, fn=rung), a, b, 1e-5)
    found = watch.total
    assert found.sectors == found.ideal_sectors == (2 * 64 * k + 64 * 64) // 8
    assert found.bank_conflicts == 0
    stores = 2 * 64 * k + (2 * 64 * 8 if rung is family.matmul_buffered else 0)
    loads = 64 * k * 16  # 16 numbers a thread and step, for 64 products
    assert found.shared_requests == (stores + loads) // 32


@pytest.mark.skipif(not SIMULATED, reason="the simulator counts")
@pytest.mark.parametrize("name", ["matmul_vectorized", "matmul_tensor_core"])
def test_copies_and_factors_are_counted_at_the_kernels_lines(name: str) -> None:
    (rung,) = [rung for rung in family.LADDER if rung.__name__ == name]
    a, b = np.ones((32, 16), np.float32), np.ones((16, 32), np.float32)
    with watching() as watch:
        rung(from_numpy(a), from_numpy(b))
    assert {Path(line.file).name for line in watch.lines} == {"kernels.py"}
    texts = {line: linecache.getline(*line) for line in watch.lines}
    (multiply,) = [watch.lines[line] for line in texts if "multiply(" in texts[line]]
    (store,) = [watch.lines[line] for line in texts if " store(" in texts[line]]
    assert store.sectors == store.ideal_sectors == 128
    assert watch.total.ideal_sectors == 2 * 64 + 128
    assert multiply.shared_requests > 0 and multiply.bank_conflicts == 0


# ------------------------------------------------------------------------- half types


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_halves_are_multiplied_as_they_are(
    turned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to one rounding, of the result."""
    monkeypatch.setattr(family, "_pays_on_tensor_cores", lambda *_: True)
    if not family.runs_here(family.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    for batch, dtype, k in (((), bfloat16, 24), ((2,), float16, 24), ((), float16, 21)):
        a, b = (
            numbers((*batch, *shape), "float32", seed).astype(dtype.numpy)
            for seed, shape in enumerate([(40, k), (k, 56)])
        )
        x, y = (
            make(array.swapaxes(-1, -2), "cuda").permute(swapped(len(array.shape)))
            if name in turned
            else make(array, "cuda")
            for name, array in (("a", a), ("b", b))
        )
        got, right = family.matmul(x, y), a.astype(float) @ b.astype(float)
        assert got.dtype is dtype
        error = np.abs(array_of(got).astype(float) - right)
        assert (error <= finfo(dtype).eps / 2 * np.abs(right) + 1e-5).all()


@met("dtype, lay, more", [bfloat16, float32], ["nn", "nt", "tn", "tt"], [-1, 0, 1])
def test_warpgroups_around_the_size_of_a_tile(
    dtype: DType, lay: str, more: int
) -> None:
    """Each way to cut; more tiles than blocks; batches of which one operand repeats."""
    if not family.runs_here(family.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    cuts = range(len(family.ways((9, 0), dtype, True)[0]))
    for cut, parts in itertools.product(cuts, (1, 2)):
        config = family.ways((9, 0), dtype, True)[0][cut]
        M, N, K = config.rows + more, 2 * config.cols + more, 3 * config.depth + more
        x, y = (
            make(numbers((*batch, *shape), "float32", i).astype(dtype.numpy), "cuda")
            for i, (batch, shape) in enumerate(
                (((3,), (K, M) if lay[0] == "t" else (M, K)),
                 ((1,), (N, K) if lay[1] == "t" else (K, N)))
            )
        )  # fmt: skip
        x, y = (
            a.permute((0, 2, 1)) if how == "t" else a
            for how, a in zip(lay, map(family._in_longer_lines, (x, y)))
        )
        x, y = family._prepared(x, y.expand((3, K, N)))
        config = family.ways((9, 0), dtype, True, family._turns(y.strides, dtype))[0][
            cut
        ]
        sides = family.fold((3,), x.shape, x.strides, y.shape, y.strides)
        plan = plan_for((3, M, N), sides, Cut(config, parts), (True, True), dtype)
        got = array_of(family.launch(plan, x, y)).astype(float)
        x, y = (array_of(a).astype(float) for a in (x, y))
        right, sums = x @ y, abs(x) @ abs(y)
        unit = finfo(dtype).eps / 2 * abs(right) if dtype.half else 2.0**-10 * sums
        assert (abs(got - right) <= unit + 1e-4).all()


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A chip without warpgroups, whose tensor cores know both half types."""
    if is_available() and family.compute_capability() < (8, 0):
        pytest.skip("the tensor cores of this GPU do not know bfloat16")
    caches = family._pays_on_tensor_cores, family._group_plan, family._plan
    monkeypatch.setattr(family, "compute_capability", lambda: (8, 0))
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@met("dtype, lay, more", [bfloat16, float16], ["nn", "nt", "tn", "tt"], [-8, 0, 8])
def test_halves_on_tensor_cores_without_warpgroups(
    dtype: DType, lay: str, more: int, ampere: None
) -> None:
    """Each way to cut, in one part and in more; a batch; rounded, and as float32."""
    configs, _ = family.ways((8, 0), dtype, False)
    configs += family.OLD_CONFIGS * (dtype is float16)
    for config, parts, wide in itertools.product(configs, (1, 2), (False, True)):
        M, N, K = config.rows + more, 2 * config.cols + more, 4 * config.depth + more
        a, b = (
            numbers(shape, "float32", i).astype(dtype.numpy)
            for i, shape in enumerate([(2, M, K), (2, K, N)])
        )
        x, y = (
            laid_out(array, "transposed" if how == "t" else "")
            for array, how in zip((a, b), lay)
        )
        sides = family.fold((2,), x.shape, x.strides, y.shape, y.strides)
        plan = plan_for((2, M, N), sides, Cut(config, parts), (True, True), dtype, wide)
        got = family.launch(plan, x, y, wide=wide)
        assert got.dtype is (float32 if wide else dtype)
        right = a.astype(float) @ b.astype(float)
        unit = 0.0 if wide else finfo(dtype).eps / 2
        error = abs(array_of(got).astype(float) - right)
        assert (error <= unit * abs(right) + 1e-4).all()


@met("old, lay, more", [False, True], ["nn", "nt", "tn", "tt"], [-8, 0, 7])
def test_float64_on_tensor_cores(lay: str, more: int, old: bool) -> None:
    """Each way to cut, in one part and in more; a batch; nothing is rounded."""
    chips = list(family.F64_RATES)[not old :]
    if is_available() and not SIMULATED and family.compute_capability() not in chips:
        pytest.skip("the tensor cores of this GPU do not know float64, or this form")
    for config, parts in itertools.product(family.F64_CONFIGS, (1, 2)):
        M, N, K = config.rows + more, 2 * config.cols + more, 4 * config.depth + more
        shapes = (2, M, K), (2, K, N)
        a, b = (numbers(shape, "float64", i) for i, shape in enumerate(shapes))
        x, y = (
            laid_out(array, "transposed" if how == "t" else "")
            for array, how in zip((a, b), lay)
        )
        sides = family.fold((2,), x.shape, x.strides, y.shape, y.strides)
        cut = Cut(config._replace(old=old), parts)
        plan = plan_for((2, M, N), sides, cut, (True, True), float64)
        got = array_of(family.launch(plan, x, y))
        np.testing.assert_allclose(got, a @ b, rtol=1e-12, atol=1e-11)


def test_which_halves_tensor_cores_take(
    ampere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that end where a vector does, large products, and on chips that know them;
    a bias is added by others."""
    n = pick(48, 256)
    a, b, odd = (
        from_numpy(numbers(shape).astype(bfloat16.numpy))
        for shape in [(n, n), (n, n + 8), (n, n + 4)]
    )
    monkeypatch.setattr(family, "TENSOR_LEAST", n**3 // 2)
    assert family.matmul(a, b).dtype is bfloat16
    assert family.matmul_to(a, b, float32).dtype is float32
    with minitorch.cuda.graph(noted := minitorch.cuda.CUDAGraph()):
        assert family.matmul(a, odd) is NotImplemented
        made = family.matmul(a.slice(1, 1, n - 8), b.slice(0, 0, n - 8))
    assert made.dtype is bfloat16
    assert len(noted.kernels) == 2  # a copy of what begins anywhere, and its product
    assert family.matmul_bias(a, b, b.slice(0, 0, 1).view((n + 8,))) is None
    family._pays_on_tensor_cores.cache_clear()
    monkeypatch.setattr(family, "TENSOR_LEAST", 2 * n**3)
    assert family.matmul(a, b) is NotImplemented
    monkeypatch.setattr(family, "compute_capability", lambda: (7, 5))
    assert family.ways((7, 5), bfloat16, False)[0] == ()
    assert family.ways((8, 0), float32, True)[0] == ()
    assert family.ways((7, 5), float16, False)[0] == family.OLD_CONFIGS


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("parts, wide", [(3, False), (3, True), (1, True)])
def test_chunks_of_halves_are_summed_up_in_float32(
    biased: bool, parts: int, wide: bool
) -> None:
    if not family.runs_here(family.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    arrays = (
        numbers(shape, "float32", seed).astype(bfloat16.numpy)
        for seed, shape in enumerate([(136, 16), (136, 24)])
    )
    a, b = (make(array, "cuda") for array in arrays)
    a = a.permute((1, 0))  # both lie across k
    sides = family.fold((), a.shape, a.strides, b.shape, b.strides)
    cut = family.Cut(family.ways((9, 0), bfloat16, True)[0][0], parts)
    plan = family.plan_for((16, 24), sides, cut, (True, True), bfloat16, wide)
    assert plan.splits == parts
    bias = make(numbers((24,), "float32", 2), "cuda") if biased else None
    got = array_of(family.launch(plan, a, b, bias=bias, wide=wide)).astype(float)
    kind = np.float32 if wide else bfloat16.numpy
    flat = make(np.zeros(8 + 16 * 24, kind), "cuda")
    out = TensorData(flat.storage, (16, 24), (24, 1), 8)
    assert family.launch(plan, a, b, bias=bias, wide=wide, out=out) is out
    assert not array_of(flat)[:8].any()
    assert (array_of(out) == got).all()
    right = array_of(a).astype(float) @ array_of(b).astype(float)
    right = right + array_of(bias) if bias is not None else right
    unit = 0.0 if wide else finfo(bfloat16).eps / 2
    assert (abs(got - right) <= unit * abs(right) + 1e-4).all()


@met("more, dtype", [-8, 0, 8], [bfloat16, float16])
def test_the_gradient_of_a_weight_comes_with_that_of_a_bias(
    dtype: DType, more: int
) -> None:
    """Each way to cut, in one part and in more; several tiles on either side."""
    if not family.runs_here(family.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    for config, parts in itertools.product(family.ways((9, 0), dtype, True)[0], (1, 3)):
        N, K, R = 2 * config.rows + more, 2 * config.cols + 8, 7 * config.depth + more
        grad, x = (
            make(numbers((R, n), "float32", i).astype(dtype.numpy), "cuda")
            for i, n in enumerate((N, K))
        )
        a = grad.permute((1, 0))
        sides = family.fold((), a.shape, a.strides, x.shape, x.strides)
        cut = Cut(config._replace(sums=True), parts)
        plan = plan_for((N, K), sides, cut, (True, True), dtype, wide=True)
        totals = make(np.full(N, np.nan, np.float32), "cuda")
        made = array_of(family.launch(plan, a, x, wide=True, totals=totals))
        g, x64 = array_of(grad).astype(float), array_of(x).astype(float)
        np.testing.assert_allclose(made, g.T @ x64, 0, 1e-5 * R)
        np.testing.assert_allclose(array_of(totals), g.sum(0), 0, 1e-6 * R)


def test_when_gradients_of_a_layer_come_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And in which types; else each is made by itself."""
    if not family.runs_here(family.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    monkeypatch.setattr(family, "_pays_on_tensor_cores", lambda *_: True)
    of, random = loaded("cuda").linear_gradients, np.random.default_rng(0)
    g, x = (random.standard_normal((40, n)).astype(bfloat16.numpy) for n in (24, 16))
    grad, rows = make(g, "cuda"), make(x, "cuda")
    for kind, sums in ((float32, float32), (bfloat16, bfloat16), (float32, float16)):
        _, weight, bias = of(grad, rows, None, kind, sums)
        assert (weight.dtype, bias.dtype) == (kind, sums)
        np.testing.assert_allclose(
            array_of(weight).astype(float), g.T.astype(float) @ x.astype(float), 0, 0.1
        )
        np.testing.assert_allclose(
            array_of(bias).astype(float), g.astype(float).sum(0), 0, 0.1
        )
    turned = make(np.ascontiguousarray(g.T), "cuda").permute((1, 0))
    assert of(turned, rows, None, float32, float32) is None
    assert of(make(g.astype(np.float32), "cuda"), rows, None, *[float32] * 2) is None
    assert of(grad, rows, None, float16, float32) is None


@pytest.mark.parametrize("dtype", [bfloat16, float16, float32], ids=str)
@pytest.mark.parametrize("lay", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("size", [(33, 40, 24), (16, 21, 16)])
def test_products_that_begin_with_a_bias(
    dtype: DType, lay: str, size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bias is float32, or of the type of the product."""
    if not family.runs_here(family.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    monkeypatch.setattr(family, "_pays_on_tensor_cores", lambda *_: True)
    monkeypatch.setattr(family.precision.state, "allow_tf32", dtype is float32)
    m, n, k = size
    x, w, bias = (
        numbers(shape, "float32", seed).astype(dtype.numpy)
        for seed, shape in enumerate([(m, k), (n, k), (n,)])
    )
    for row in (bias, bias.astype(np.float32)):
        left, weight = (
            make(a.T, "cuda").permute((1, 0)) if how == "t" else make(a, "cuda")
            for a, how in zip((x, w), lay)
        )
        got = loaded("cuda").linear(left, weight, make(row, "cuda"))
        assert got is not None and got.dtype is dtype
        x64, w64 = x.astype(float), w.astype(float).T
        right, sums = x64 @ w64 + bias.astype(float), abs(x64) @ abs(w64)
        unit = finfo(dtype).eps / 2 * abs(right) if dtype.half else 2.0**-10 * sums
        assert (abs(array_of(got).astype(float) - right) <= unit + 1e-5).all()


def swapped(dims: int) -> tuple[int, ...]:
    return (*range(dims - 2), dims - 1, dims - 2)


def test_halves_that_are_widened() -> None:
    for shapes in (((3, 5), (5, 7)), ((8, 8), (8, 8))):
        a, b = (make(np.ones(s, bfloat16.numpy), "cuda") for s in shapes)
        assert family.matmul(a, b) is NotImplemented
