"""Matrix products of the CPU backend: the ladder, block edges, strides, threads."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_ops.matmul import BLOCK_ROWS, DEPTH, FEW, LADDER, PAGE, SERIAL, TINY
from fast_ops.simd import TILE, VECTOR_BYTES
from minitorch.backend import get_backend
from minitorch.backend.host.matmul import BLOCK_PANELS, panels
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")

WIDE = TILE.vectors * VECTOR_BYTES // 4
SIZES = [1, 2, TILE.rows - 1, TILE.rows, WIDE - 1, WIDE, WIDE + 1, 65, 130]


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def product(a: TensorData, b: TensorData) -> np.ndarray:
    return cpu.to_numpy(cpu.matmul(a, b))


def close(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Compare with float64; the error of a sum grows with the size of its terms."""
    expected = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    eps = np.finfo(got.dtype).eps
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= 8 * eps * scale + 1e-300).all()


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.__name__)
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 70, 515), (65, 1, 40), (3, 0, 4)])
def test_every_rung(rung: Callable, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = numbers(m, k), numbers(k, n, seed=1)
    got = rung(cpu.from_numpy(a), cpu.from_numpy(b))
    close(cpu.to_numpy(got), a, b)


def test_rungs_say_what_they_take() -> None:
    a = cpu.from_numpy(numbers(3, 4))
    for rung in LADDER[:4]:
        with pytest.raises(ValueError, match=rung.__name__):
            rung(a, a)
        with pytest.raises(ValueError, match="contiguous"):
            rung(a.permute((1, 0)), a)


@given(
    m=st.sampled_from(SIZES),
    k=st.sampled_from([1, 3, 15, 16, 17, DEPTH, DEPTH + 1]),
    n=st.sampled_from(SIZES),
    dtype=st.sampled_from(["float32", "float64"]),
    layout=st.tuples(st.booleans(), st.booleans()),
)
def test_sizes_around_blocks(
    m: int, k: int, n: int, dtype: str, layout: tuple[bool, bool]
) -> None:
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1)
    left = cpu.from_numpy(np.asarray(a, order="F" if layout[0] else "C"))
    right = cpu.from_numpy(np.asarray(b, order="F" if layout[1] else "C"))
    close(product(left, right), a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [WIDE + 1, 2 * WIDE - 1])
def test_nothing_is_read_behind_the_last_column(n: int, dtype: str) -> None:
    """b ends where a page begins that nobody may read."""
    m, k = 5 * TILE.rows, DEPTH + 1
    b = numbers(k, n, dtype=dtype, seed=1)
    end = -(-b.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, end + mmap.PAGESIZE), np.uint8)
    protect, last = ctypes.CDLL(None).mprotect, memory.ctypes.data + end
    assert not protect(ctypes.c_void_p(last), ctypes.c_size_t(mmap.PAGESIZE), 0)
    right = memory[end - b.nbytes : end].view(dtype).reshape(k, n)
    right[...] = b
    a, given = numbers(m, k, dtype=dtype), cpu.from_numpy(right)
    assert np.shares_memory(given.storage.array, right)
    close(product(cpu.from_numpy(a), given), a, b)


@given(
    tiles=st.sampled_from([FEW, FEW + 1]),
    line=st.sampled_from([PAGE // 4 - 1, PAGE // 4, PAGE // 4 + WIDE - 1]),
    k=st.sampled_from([17, DEPTH + 1]),
)
def test_packed_or_read_as_it_lies(tiles: int, line: int, k: int) -> None:
    """Around the strides and the numbers of tiles at which an operand is packed."""
    a, b = numbers(tiles * TILE.rows, k), numbers(k, line, seed=1)
    close(product(cpu.from_numpy(a), cpu.from_numpy(b)), a, b)
    a, b = numbers(k, line, seed=2), numbers(k, tiles * WIDE, seed=3)
    close(product(cpu.from_numpy(a).permute((1, 0)), cpu.from_numpy(b)), a.T, b)


@pytest.mark.parametrize("m", [2, 9, 300])
def test_any_strides_and_offset(m: int) -> None:
    a, b = numbers(2 * m + 1, 80), numbers(40, 3 * m + 2, seed=1)
    left = cpu.from_numpy(a).slice(0, 1, m, 2).slice(1, 0, 20, 4)
    right = cpu.from_numpy(b).slice(0, 39, 20, -2).slice(1, 2, m, 3)
    close(product(left, right), a[1::2, ::4], b[39::-2, 2::3])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 1, 5, 6), (4, 6, 7)),
        ((2, 40, 50), (50, 6)),
        ((40, 50), (3, 50, 2)),
        ((17, 64, 65), (17, 65, 33)),
        ((2, 3, 1, 70), (2, 1, 70, 90)),
        ((2, 3, 90, 70), (2, 1, 70, 1)),
        ((0, 4, 5), (5, 3)),
        ((2, 0, 5), (5, 3)),
    ],
)
def test_batches_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = numbers(*left), numbers(*right, seed=1)
    close(product(cpu.from_numpy(a), cpu.from_numpy(b)), a, b)


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("shape", [(1, 300, 500), (500, 300, 1), (1, 2000, 1)])
def test_vectors(shape: tuple[int, int, int], layout: str) -> None:
    m, k, n = shape
    a, b = numbers(m, k), numbers(k, n, seed=1)
    left = cpu.from_numpy(np.asarray(a, order=layout))
    right = cpu.from_numpy(np.asarray(b, order=layout))
    close(product(left, right), a, b)


def test_no_terms_give_zeros() -> None:
    a, b = np.empty((3, 0), np.float32), np.empty((0, 4), np.float32)
    got = product(cpu.from_numpy(a), cpu.from_numpy(b))
    np.testing.assert_array_equal(got, np.zeros((3, 4)))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("size", [3, 70])
def test_integers_are_exact(dtype: str, size: int) -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-1000, 1000, (size, size)).astype(dtype) for _ in range(2))
    got = product(cpu.from_numpy(a), cpu.from_numpy(b).permute((1, 0)))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, a @ b.T)


def test_nan_and_infinity_stay_in_their_row() -> None:
    a, b = numbers(40, 50), numbers(50, 60, seed=1)
    a[3, 7], a[5, 0] = np.nan, np.inf
    got = product(cpu.from_numpy(a), cpu.from_numpy(b))
    assert np.isnan(got[3]).all()
    np.testing.assert_array_equal(got[5], np.inf * b[0])
    assert np.isfinite(np.delete(got, [3, 5], axis=0)).all()


@pytest.mark.parametrize("side", [round(TINY ** (1 / 3)) + 1, 41, 200])
def test_same_bits_on_any_number_of_threads(side: int) -> None:
    a, b = (cpu.from_numpy(numbers(3, side, side, seed=s)) for s in range(2))
    many = product(a, b)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        np.testing.assert_array_equal(product(a, b), many)
    finally:
        numba.set_num_threads(threads)


def test_one_thread_and_many_use_the_same_order() -> None:
    side = round(SERIAL ** (1 / 3)) + 4
    a, b = numbers(side, side), numbers(side, side, seed=1)
    whole = product(cpu.from_numpy(a), cpu.from_numpy(b))
    part = product(cpu.from_numpy(a[:8].copy()), cpu.from_numpy(b))
    np.testing.assert_array_equal(whole[:8], part)


@given(st.integers(1, 4), st.integers(1, 2000), st.integers(0, 60))
def test_columns_of_blocks_are_equally_wide(
    products: int, rows: int, wanted: int
) -> None:
    each = panels(products * -(-rows // BLOCK_ROWS), wanted * WIDE, WIDE)
    columns = -(-wanted // each)
    assert 1 <= each <= BLOCK_PANELS
    assert each * columns - wanted < max(columns, 1)  # less than one missing in each
