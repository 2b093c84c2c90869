"""Transposes of the CUDA backend: every element has moved, and none twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import make
from minitorch import dtypes
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData, contiguous_strides
from tests.cuda.sizes import pick

pytest.importorskip("numba_cuda")
from cuda_ops import transpose
from cuda_ops.memory import contiguous, copy, copy_into, copy_plan, to_numpy
from cuda_ops.runtime.launch import SIMULATED
from cuda_ops.simulator.watch import watching, wavefronts

SIDE, WIDE = transpose.SIDE, transpose.WIDE
SHAPES = [
    (1, 1), (4, 4), (1, 9), (SIDE, SIDE), (SIDE - 1, SIDE + 1), (WIDE, WIDE),
    (WIDE + 4, 2 * WIDE - 4), (2 * WIDE + 1, SIDE + 3), (0, 3),
    pick((5, 40), (999, 1111)),
]  # fmt: skip


def counted(shape: tuple[int, ...], dtype: DType = dtypes.float32) -> np.ndarray:
    """Different elements, so that each can be told from the others."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype.numpy)


@pytest.mark.parametrize("rung", transpose.LADDER, ids=lambda rung: rung.__name__)
@pytest.mark.parametrize("shape", SHAPES)
def test_ladder(rung: Any, shape: tuple[int, int]) -> None:
    a = counted(shape)
    out = rung(make(a, "cuda"))
    assert out.shape == a.T.shape and out.is_contiguous()
    np.testing.assert_array_equal(to_numpy(out), a.T)


@pytest.mark.parametrize("rung", transpose.LADDER, ids=lambda rung: rung.__name__)
def test_ladder_takes_contiguous_matrices(rung: Any) -> None:
    for a in (
        make(counted((2, 3, 4)), "cuda"),
        make(counted((2, 3)), "cuda", "permuted"),
    ):
        with pytest.raises(ValueError, match=rung.__name__):
            rung(a)


def is_tiled(a: TensorData) -> bool:
    """Whether a copy of it, row by row, goes through tiles."""
    strides = tuple(contiguous_strides(a.shape))
    return copy_plan(a.shape, a.strides, strides)[1] == "by tiles"


ORDERS = [
    ((2 * WIDE, WIDE), (1, 0)),
    ((3, WIDE + 4, SIDE), (0, 2, 1)),
    ((3, SIDE + 1, WIDE + 3), (0, 2, 1)),  # no multiples of 4
    ((SIDE, 3, WIDE), (2, 1, 0)),
    ((SIDE, 3, WIDE), (2, 0, 1)),  # the first two are one
    ((SIDE, 3, WIDE), (1, 2, 0)),
    ((2, SIDE, 5, SIDE), (0, 2, 3, 1)),  # channels last
    ((2, 5, SIDE, SIDE), (0, 3, 1, 2)),  # and back
    ((3, SIDE, 2, 3, SIDE), (0, 4, 2, 3, 1)),
    ((2, 3, SIDE, 2, 2, SIDE), (5, 3, 4, 1, 0, 2)),  # more than a launch takes
]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape, order", ORDERS)
def test_copies_in_another_order_go_through_tiles(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: DType
) -> None:
    a = counted(shape, dtype)
    x = make(a, "cuda").permute(order)
    assert is_tiled(x)
    np.testing.assert_array_equal(to_numpy(contiguous(x)), a.transpose(order))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("other", dtypes.ALL, ids=str)
def test_a_copy_through_tiles_converts(dtype: DType, other: DType) -> None:
    a = counted((SIDE + 4, WIDE), dtype)
    found = copy(make(a, "cuda").permute((1, 0)), other)
    np.testing.assert_array_equal(to_numpy(found), a.T.astype(other.numpy))


def test_copy_of_a_part() -> None:
    """Rows and columns of a larger batch: gaps between rows and matrices."""
    a = counted((3, 20 + SIDE, 24 + SIDE))
    x = make(a, "cuda")
    for rows, columns in (
        (slice(1, 13 + SIDE), slice(4, 20 + SIDE)),
        (slice(0, 9 + SIDE), slice(3, 16 + SIDE)),
    ):
        part = x.slice(1, rows.start, rows.stop - rows.start)
        part = part.slice(2, columns.start, columns.stop - columns.start)
        part = part.permute((0, 2, 1))
        assert is_tiled(part)
        right = a[:, rows, columns].transpose(0, 2, 1)
        np.testing.assert_array_equal(to_numpy(contiguous(part)), right)
    part = x.slice(0, 1, 2).permute((0, 2, 1))
    np.testing.assert_array_equal(to_numpy(part), a[1:].transpose(0, 2, 1))


def test_copy_into_a_part() -> None:
    """From rows into columns of a larger matrix, and backwards; nothing beside it."""
    a, b = counted((WIDE, SIDE)), counted((2 * SIDE, 2 * WIDE))
    right = b.copy()
    right[4 : 4 + SIDE, 8 : 8 + WIDE] = a.T[:, ::-1]
    x, out = make(a, "cuda"), make(b, "cuda")
    flipped = TensorData(x.storage, a.shape, (-SIDE, 1), (WIDE - 1) * SIDE)
    copy_into(out.slice(0, 4, SIDE).slice(1, 8, WIDE), flipped.permute((1, 0)))
    np.testing.assert_array_equal(to_numpy(out), right)


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("first", [0, 2, 16])
def test_lines_are_copied_in_vectors(dtype: DType, first: int) -> None:
    """Or element by element, where they do not begin at a multiple of 16 bytes."""
    a = (counted((2, 3, 5, 32)) % 251).astype(dtype.numpy)
    part, to = make(a, "cuda").permute((0, 2, 1, 3)), make(0 * a, "cuda")
    copy_into(to.slice(3, 16, 16), make(a, "cuda").slice(3, first, 16))
    right = 0 * a
    right[..., 16:] = a[..., first : first + 16]
    np.testing.assert_array_equal(to_numpy(to), right)
    np.testing.assert_array_equal(to_numpy(contiguous(part)), a.swapaxes(1, 2))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("first", [0, 1])
def test_a_few_channels_are_gathered_or_dealt(dtype: DType, first: int) -> None:
    """Four elements for each thread, the last one fewer; into and from windows, too,
    that begin at a multiple of 16 bytes or beside one."""
    for shape, order in (
        ((2, 3, 4, 5), (0, 2, 3, 1)), ((2, 4, 5, 3), (0, 3, 1, 2)),
        ((5, 1, 7), (2, 1, 0)), ((3, 2, 3, 2, 3), (4, 2, 0, 3, 1)), ((3, 1), (1, 0)),
        ((2, SIDE + 1, 8), (0, 2, 1)), ((2, 3, SIDE, 2, 12), (4, 0, 3, 1, 2)),
    ):  # fmt: skip
        a = (counted(shape) % 120).astype(dtype.numpy)
        x = make(a, "cuda").permute(order)
        np.testing.assert_array_equal(to_numpy(contiguous(x)), a.transpose(order))
        right = np.zeros(a.size + 2, dtype.numpy)
        window = make(right, "cuda")
        out = TensorData(window.storage, x.shape, None, first)
        copy_into(out, x)
        right[first : first + a.size] = a.transpose(order).reshape(-1)
        np.testing.assert_array_equal(to_numpy(window), right)
        part = TensorData(x.storage, (*x.shape[:-1], x.shape[-1] - 1), x.strides)
        found = to_numpy(contiguous(part))
        np.testing.assert_array_equal(found, a.transpose(order)[..., :-1])
        moved = make(np.concatenate([a.reshape(-1), a.reshape(-1)]), "cuda")
        part = TensorData(moved.storage, x.shape, x.strides, a.size - first)
        flat = np.concatenate([a.reshape(-1), a.reshape(-1)])[a.size - first :]
        expected = flat[: a.size].reshape(a.shape).transpose(order)
        np.testing.assert_array_equal(to_numpy(contiguous(part)), expected)
    other = copy(make(counted((5, 3)), "cuda").permute((1, 0)), dtype)
    np.testing.assert_array_equal(
        to_numpy(other), counted((5, 3)).T.astype(dtype.numpy)
    )


def test_other_layouts_are_copied_element_by_element() -> None:
    x = make(counted((3, 2 * SIDE, 3 * SIDE)), "cuda")
    row = make(counted((WIDE,)), "cuda")
    for a in (
        x.permute((1, 0, 2)),  # the last dim stays
        x.slice(1, 0, 2).permute((0, 2, 1)),  # a narrow one
        row.expand((2 * SIDE, WIDE)).permute((1, 0)),  # one element many times
        row.expand((2 * SIDE, WIDE)),
        x.select(0, 0).select(0, 0),
    ):
        assert not is_tiled(a)


# ------------------------------------------------------------------- shared memory


@pytest.mark.parametrize("itemsize", [1, 4])
def test_vectors_meet_all_banks(itemsize: int) -> None:
    """`transpose_vectorized`: each access takes the least wavefronts."""
    vector_at = getattr(transpose.vector_at, "py_func", transpose.vector_at)
    width, lanes = 4 * itemsize, np.arange(32)
    for warp in range(8):
        x, y = lanes % 16, 2 * warp + lanes // 16
        stores = [vector_at(4 * x + e, y) for e in range(4)]
        loads = [vector_at(y + k, x) for k in range(0, 64, 16)]
        for places in stores + loads:
            taken, least = wavefronts(dict(enumerate(places * itemsize)), width)
            assert taken == least == max(1, width // 4)


def test_vectors_have_places_of_their_own() -> None:
    vector_at = getattr(transpose.vector_at, "py_func", transpose.vector_at)
    lines, quads = np.divmod(np.arange(WIDE * transpose.QUADS), transpose.QUADS)
    places = np.sort(vector_at(lines, quads))
    np.testing.assert_array_equal(places, np.arange(0, WIDE * WIDE, 4))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_padded_columns_meet_all_banks(dtype: DType) -> None:
    x, item = np.arange(32), dtype.itemsize
    pitch = 32 + transpose.elements_of_a_word(dtype)
    for k in range(32):
        for places in (x * pitch + k, k * pitch + x):
            taken, least = wavefronts(dict(enumerate(places * item)), item)
            assert taken == least == max(1, item // 4)


@pytest.mark.skipif(not SIMULATED, reason="the simulator counts")
@pytest.mark.parametrize(
    "rung, sectors, turns",
    [(transpose.uncoalesced, 36, 0), (transpose.tiled, 8, 33), (transpose.padded, 8, 2),
     (transpose.vectorized, 32, 8)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_what_each_rung_asks_for(rung: Any, sectors: int, turns: int) -> None:
    """For each warp and row: sectors of both, wavefronts in the tile."""
    a = make(counted((WIDE, WIDE)), "cuda")
    with watching() as watch:
        rung(a)
    rows = WIDE * WIDE // (128 if rung is transpose.vectorized else 32)
    found = watch.total
    assert found.requests == 2 * rows and found.ideal_sectors == 2 * WIDE * WIDE // 8
    assert (found.sectors, found.wavefronts) == (sectors * rows, turns * rows)
