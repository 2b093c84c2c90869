"""Transposes of the CUDA backend: every element has moved, and none twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import make
from minitorch import dtypes
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import pick

pytest.importorskip("numba_cuda")
from cuda_ops import transpose
from cuda_ops.memory import contiguous, empty, to_numpy

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


def copied(a: TensorData) -> np.ndarray | None:
    out = empty(a.shape, a.dtype)
    if not transpose.transpose_copy(a, out.storage.array):
        return None
    return to_numpy(out)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize(
    "shape", [(WIDE, SIDE), (3, WIDE + 4, 8), (2, 3, 5, 7), (1, SIDE + 1, 4), (4, 4)]
)
def test_copy_of_a_transposed_batch(shape: tuple[int, ...], dtype: DType) -> None:
    a = counted(shape, dtype)
    x = make(a, "cuda")
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    found = copied(x.permute(order))
    assert found is not None
    np.testing.assert_array_equal(found, a.transpose(order))


def test_copy_of_a_part() -> None:
    """Rows and columns of a larger batch: gaps between rows and matrices."""
    a = counted((3, 20, 24))
    x = make(a, "cuda")
    for rows, columns in ((slice(1, 13), slice(4, 20)), (slice(0, 9), slice(3, 16))):
        part = x.slice(1, rows.start, rows.stop - rows.start)
        part = part.slice(2, columns.start, columns.stop - columns.start)
        found = copied(part.permute((0, 2, 1)))
        assert found is not None
        np.testing.assert_array_equal(found, a[:, rows, columns].transpose(0, 2, 1))
    part = x.slice(0, 1, 2).expand((2, 20, 24)).permute((0, 2, 1))
    np.testing.assert_array_equal(copied(part), a[1:].transpose(0, 2, 1))


def test_other_layouts_are_left_alone() -> None:
    x = make(counted((3, 8, 12)), "cuda")
    for a in (
        x,
        x.permute((2, 1, 0)),
        x.permute((1, 0, 2)),
        x.select(0, 0).select(0, 0),
    ):
        assert copied(a) is None
    assert copied(x.slice(1, 0, 3).permute((0, 2, 1))) is None
    flat = make(counted((12,)), "cuda")
    assert copied(flat.expand((8, 12)).permute((1, 0))) is None


def test_contiguous_is_right_for_all_of_them() -> None:
    a = counted((3, WIDE, SIDE + 4))
    for order in ((0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1)):
        found = contiguous(make(a, "cuda").permute(order))
        np.testing.assert_array_equal(to_numpy(found), a.transpose(order))
