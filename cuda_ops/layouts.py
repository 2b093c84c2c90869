"""How a tensor lies in memory, seen from a reduction.

With this file one can choose how to walk through the elements that are folded into one
(`layout_of`), lay them out side by side where no other way is good (`in_rows`), and say
how a warp shares a row (`lane_shift`, `is_wide`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from cuda_ops.block.intrinsics import WARP, is_aligned
from cuda_ops.memory import contiguous
from minitorch.backend.host.memory import merged
from minitorch.tensor_data import Shape, Strides, TensorData

# Fewer outputs than this get their elements side by side first.
FEW = 4096


class Layout(NamedTuple):
    """How a tensor lies, seen from a reduction.

    Attributes:
        kind: `ROWS`, `COLUMNS`, `STRIDES`, or `COPY` where only a copy helps.
        kept, folded: sizes and strides of the dimensions; outputs are row-major in
            `kept`.
    """

    kind: int
    kept: tuple[tuple[int, int], ...]
    folded: tuple[tuple[int, int], ...]


ROWS, COLUMNS, STRIDES, COPY = range(4)
# Dimensions that `fold_strided` can keep, and fold.
DIMS = 3


@lru_cache(maxsize=4096)
def layout_of(
    shape: Shape, strides: Strides, dims: tuple[int, ...], ordered: bool
) -> Layout:
    """Choose the kernel; `ordered` keeps the row-major order of the elements."""
    kept_dims = [
        (n, s) for i, (n, s) in enumerate(zip(shape, strides)) if i not in dims
    ]
    folded_dims = [(n, s) for i, (n, s) in enumerate(zip(shape, strides)) if i in dims]
    kept = _merged(kept_dims)
    if not ordered:
        folded_dims.sort(key=lambda dim: -dim[1])
    folded = _merged(folded_dims)
    if not ordered:
        if len(kept) <= 1 and len(folded) <= 2 and folded and folded[-1][1] == 1:
            return Layout(ROWS, _padded(kept, 1), _padded(folded, 2))
        if len(kept) in (1, 2) and len(folded) == 1 and kept[-1][1] == 1:
            return Layout(COLUMNS, _padded(kept, 2), _padded(folded, 1))
    outputs = math.prod(n for n, _ in kept)
    size = math.prod(n for n, _ in folded)
    if len(kept) > DIMS or len(folded) > DIMS:
        return Layout(COPY, (), ())
    if not ordered and outputs < FEW and size > 64:
        return Layout(COPY, (), ())
    return Layout(STRIDES, _padded(kept, DIMS), _padded(folded, DIMS))


def _merged(dims: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without sizes of 1, and with dimensions merged that follow without gaps."""
    return [(n, step) for n, (step,) in merged((n, (step,)) for n, step in dims)]


def _padded(dims: list[tuple[int, int]], rank: int) -> tuple[tuple[int, int], ...]:
    return tuple([(1, 0)] * (rank - len(dims)) + dims)


def in_rows(a: TensorData, dims: tuple[int, ...]) -> TensorData:
    """`a` as [outputs, elements], with the folded dimensions last, without gaps."""
    kept = [i for i in range(a.dims) if i not in dims]
    moved = contiguous(a.permute([*kept, *sorted(dims)]))
    n = math.prod([a.shape[i] for i in dims])
    return TensorData(moved.storage, (a.size // n, n), None, moved.offset)


def is_wide(a: TensorData, *multiples: int) -> bool:
    """Whether vectors of 4 elements can be loaded: what must be multiples of 4 is."""
    four = all([m % 4 == 0 for m in (a.offset, *multiples)])
    return four and is_aligned(a.storage.array)


def lane_shift(n: int) -> int:
    """The power of two of lanes of a warp that suits n units of work."""
    return min(WARP.bit_length() - 1, max(n - 1, 0).bit_length())
