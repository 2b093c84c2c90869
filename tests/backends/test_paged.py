"""Attention through block tables, on every installed backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.shared import by_float, long, name_of
from backends.test_attention import expected
from helpers import array_of, make, numbers
from minitorch.dtypes import DType, float32, float64

SIZE = 3
# H, K, E, T, and the lengths of the texts.
CASES = (
    (4, 2, 5, 1, (1, 9, 4)),
    (3, 1, 16, 1, (7,)),
    (2, 2, 1, 4, (4, 5)),
    (4, 4, 2, 3, (8,)),
)
LAYOUTS = ("contiguous", "permuted", "stepped")


def run(backend: Any, dtype: DType, case: Any, layout: str = "contiguous") -> Any:
    """What the backend makes, and what PyTorch makes of each text."""
    H, K, E, T, lengths = case
    device, R, P = name_of(backend), len(lengths), 1 + max(lengths) // SIZE
    tables = np.random.default_rng(1).permutation(R * P + 2)[: R * P].reshape(R, P)
    tables[:, -1] = 0  # no text's last block
    memory = numbers((R * P + 2, SIZE, 2 * K, E), dtype)
    query = numbers((R, H, T, E), dtype, 3)
    out = make(np.full(query.shape, 7, dtype.numpy), device, layout)
    backend.paged_attention(
        out, make(query, device, layout), make(memory, device),
        make(tables.astype(np.int64), device), make(long(*lengths), device), 0.7,
    )  # fmt: skip
    right = []
    for row, table, n in zip(query, tables, lengths):
        tokens = memory[table].reshape(-1, 2 * K, E)[:n].transpose(1, 0, 2)
        seen = np.tri(T, n, n - T, dtype=bool)
        arrays = [row[None], tokens[None, :K], tokens[None, K:], row[None]]
        right.append(expected(arrays, 0.7, False, seen)[0][0])
    return out, np.stack(right)


@by_float
@pytest.mark.parametrize("case", CASES, ids=str)
def test_paged_attention(backend: Any, dtype: DType, case: Any) -> None:
    out, right = run(backend, dtype, case)
    close = 1e-11 if dtype is float64 else 1e-5
    np.testing.assert_allclose(array_of(out), right, rtol=close, atol=close)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_paged_attention(backend: Any, layout: str) -> None:
    for case in (CASES[0], CASES[2]):
        out, right = run(backend, float32, case, layout)
        np.testing.assert_allclose(array_of(out), right, rtol=1e-5, atol=1e-5)
