"""Matrix products, on every installed backend."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import minitorch
from backends.shared import by_layout, inf, large, name_of, nan
from helpers import FLOATS, assert_close, assert_equal, make, numbers
from minitorch.dtypes import DType, float32, float64, int32, int64
from minitorch.tensor_data import Shape


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


HALF = minitorch.bfloat16


@pytest.mark.parametrize(
    "kind, made",
    [(float32, float32), (float64, float64), (HALF, float32), (HALF, HALF)],
    ids=str,
)
@pytest.mark.parametrize("k", [1, 5, 40])
def test_matmul_to_writes_where_it_is_told(
    backend: Any, kind: DType, made: DType, k: int
) -> None:
    """Into the middle of a storage, what it would have returned."""
    for m, n in ((1, 3), (6, 7), (70, 66)):
        a, b = numbers((k, m), float64, 1), numbers((k, n), float64, 2)
        x, y = (
            minitorch.tensor(c, dtype=kind, device=name_of(backend)) for c in (a, b)
        )
        flat = minitorch.full((m * n + 40,), -7.0, dtype=made, device=x.device)
        out = flat[16 : 16 + m * n].view(m, n).raw
        pair = x.t().raw, y.raw, made
        expected = x.wrap(x.backend.matmul_to(*pair))
        assert expected.dtype is made
        assert x.backend.matmul_to(*pair, out) is out
        assert (flat[16 : 16 + m * n].view(m, n) == expected).all()
        assert (flat[:16] == -7).all() and (flat[16 + m * n :] == -7).all()


def test_matmul_passes_on_nan_and_infinity(backend: Any) -> None:
    a, b = numbers((9, 9), float64, 1), numbers((9, 9), float64, 2)
    a[2, 3], b[3, 4], a[5, 5], b[5, 1] = nan, inf, inf, 0
    with np.errstate(invalid="ignore"):
        expected = a @ b
    x, y = make(a, name_of(backend)), make(b, name_of(backend))
    assert_close(backend.matmul(x, y), expected)
