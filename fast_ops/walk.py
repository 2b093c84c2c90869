"""How a reduction walks through a tensor.

With this file `reduce.py` finds the loops that fold the elements of each output in the
order in which they lie in memory, whatever the strides are (`walk`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from minitorch.backend.host.memory import Dim, merged
from minitorch.tensor_data import Shape, Strides, contiguous_strides

LANES = 512  # outputs, or copies of outputs, that one task folds side by side
STRETCH = 16_384  # contiguous elements folded in one go
SHORT = 32  # rows below this length are folded many at a time, one lane for each
MAX_BLOCKS = 64  # parts into which the fold of one output is cut, at most


class Walk(NamedTuple):
    """Which loop folds a tensor (`ROWS`, `LINES` or `STRIDED`), and its arguments."""

    kind: int
    kept: Shape
    a_steps: Strides
    out_steps: Strides
    folded: Shape
    folded_steps: Strides
    width: int = 1  # outputs side by side in one task
    out_width: int = 1  # their stride in the output
    lanes: int = 1
    length: int = 1  # of a contiguous stretch
    chunk: int = 1  # how much of a stretch is folded in one go
    blocks: int = 1  # tasks that share the fold of one output


BY_ROWS, BY_LINES, BY_STRIDES = range(3)


@lru_cache(maxsize=4096)
def walk(shape: Shape, strides: Strides, dims: tuple[int, ...]) -> Walk | None:
    """Choose the loops for a reduction; None where there are too many dimensions."""
    out_shape = tuple([1 if i in dims else n for i, n in enumerate(shape)])
    out_strides = contiguous_strides(out_shape)
    kept: list[Dim] = []
    folded: list[Dim] = []
    for i, (n, step) in enumerate(zip(shape, strides)):
        if n != 1:
            (folded if i in dims else kept).append((n, (step, out_strides[i])))
    kept = _merge_sorted(kept)
    folded = _merge_sorted([(n, (step, 0)) for n, (step, _) in folded])
    if folded and folded[-1][1][0] == 1 and (folded[-1][0] >= SHORT or not kept):
        return _row_walk(kept, folded)
    if kept and kept[-1][1][0] == 1:
        size = kept[-1][0]
        if size >= 64:
            return _wide_walk(kept, folded)
        if folded and folded[-1][1][0] == size:
            return _narrow_walk(kept, folded)
    return _strided_walk(kept, folded)


def _row_walk(kept: list[Dim], folded: list[Dim]) -> Walk | None:
    """The innermost folded dimension is contiguous."""
    if len(kept) > 3 or len(folded) > 3:
        return None
    kept, outer, length = _padded(kept, 3), _padded(folded[:-1], 2), folded[-1][0]
    chunk = min(length, STRETCH)
    blocks = _blocks(kept, outer, length, -(-length // chunk))
    return Walk(
        BY_ROWS, *_columns(kept), *_columns(outer)[:2],
        length=length, chunk=chunk, blocks=blocks,
    )  # fmt: skip


def _narrow_walk(kept: list[Dim], folded: list[Dim]) -> Walk | None:
    """A few outputs side by side, and the folded rows follow without gaps."""
    if len(kept) > 4 or len(folded) > 3:
        return None
    width, (_, out_width) = kept[-1]
    kept, outer = _padded(kept[:-1], 3), _padded(folded[:-1], 2)
    length = folded[-1][0] * width
    lanes = min(LANES, length) // width * width
    chunk = STRETCH // lanes * lanes
    blocks = _blocks(kept, outer, length, -(-length // chunk))
    return Walk(
        BY_LINES, *_columns(kept), *_columns(outer)[:2],
        width, out_width, lanes, length, chunk, blocks,
    )  # fmt: skip


def _wide_walk(kept: list[Dim], folded: list[Dim]) -> Walk | None:
    """Many outputs side by side: a task takes as many as divide them evenly."""
    size, (_, out_width) = kept[-1]
    width = next((w for w in range(min(LANES, size), 31, -1) if size % w == 0), 0)
    if len(kept) > 3 or len(folded) > 2 or width == 0:
        return _strided_walk(kept, folded)
    lines = (size // width, (width, width * out_width))
    kept, outer = _padded([*kept[:-1], lines], 3), _padded(folded, 2)
    blocks = _blocks(kept, outer, width, 1)
    return Walk(
        BY_LINES, *_columns(kept), *_columns(outer)[:2],
        width, out_width, width, width, width, blocks,
    )  # fmt: skip


def _strided_walk(kept: list[Dim], folded: list[Dim]) -> Walk | None:
    if len(kept) > 3 or len(folded) > 3:
        return None
    kept, folded = _padded(kept, 3), _padded(folded, 3)
    lanes = min(256, kept[-1][0])
    return Walk(BY_STRIDES, *_columns(kept), *_columns(folded)[:2], lanes=lanes)


def _blocks(kept: list[Dim], folded: list[Dim], length: int, chunks: int) -> int:
    """Into how many parts to cut the fold, so that threads have enough to share."""
    tasks = 1
    for n, _ in kept:
        tasks *= n
    stretches = folded[0][0] * folded[1][0] * chunks
    work = stretches * min(length, STRETCH)
    return max(1, min(MAX_BLOCKS // tasks, stretches, work // STRETCH))


def _merge_sorted(dims: list[Dim]) -> list[Dim]:
    """Sort by stride, the smallest last, and merge what lies without gaps."""
    return merged(sorted(dims, key=lambda d: -d[1][0]))


def _padded(dims: list[Dim], rank: int) -> list[Dim]:
    return [(1, (0, 0))] * (rank - len(dims)) + dims


def _columns(dims: list[Dim]) -> tuple[Shape, Strides, Strides]:
    return (
        tuple(n for n, _ in dims),
        tuple(steps[0] for _, steps in dims),
        tuple(steps[1] for _, steps in dims),
    )
