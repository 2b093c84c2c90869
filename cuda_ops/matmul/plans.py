"""How a matrix product is launched: its batch, its kernels, its partial sums.

With this file one can join the batch dims of a product (`fold`), bind the kernels of a
cut to its shapes (`plan_for`), and run them on numbers (`launch`). What is chosen is
chosen in `matmul.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.block.mma import HALVES, TF32
from cuda_ops.block.tiles import VECTOR_BYTES
from cuda_ops.half import bits
from cuda_ops.matmul.choosing import Cut
from cuda_ops.matmul.kernels import (
    Layout,
    TensorConfig,
    add_partials,
    tensor_core,
    vectorized,
)
from cuda_ops.matmul.vector import VectorConfig, matvec
from cuda_ops.matmul.warpgroup import GroupConfig, bound
from cuda_ops.memory import contiguous, copy, empty
from cuda_ops.runtime.arrays import allocate, nothing
from cuda_ops.runtime.device import compute_capability
from cuda_ops.runtime.launch import ceil_div
from minitorch.dtypes import DType, computed, float32
from minitorch.tensor_data import Shape, Strides, TensorData

# Matrices in one launch.
MOST_BATCHES = 65535


class BatchRange(NamedTuple):
    """The matrices of one launch: where it starts, and how many matrices it has."""

    a_at: int
    b_at: int
    first: int
    matrices: int


class Plan(NamedTuple):
    """All that depends on shapes, strides and dtype only.

    Attributes:
        shape: of the result.
        launches: kernels with their grids, and the matrices that each makes.
        a_strides, b_strides: of rows (columns), of steps of k, of two batch dims, and
            the size of the last of these.
        sizes: M, N, K, and the steps of k of a chunk.
        matrix: elements of one matrix of the result.
        splits: how many chunks k is split into.
        ends: parts of the sums of a's rows, if they are made.
        biased: whether the kernels take a bias and room for sums, behind all else.
    """

    shape: Shape
    launches: tuple[tuple[Callable, BatchRange], ...]
    a_strides: tuple[int, ...]
    b_strides: tuple[int, ...]
    sizes: tuple[int, int, int, int]
    matrix: int
    splits: int
    ends: int
    biased: bool


class Sides(NamedTuple):
    """A product with its batch folded up.

    Attributes:
        M, N, K: sizes of one product.
        a, b: strides of a row (column) and of a step of k.
        batch: (size, stride of a, stride of b) of each remaining batch dim.
    """

    M: int
    N: int
    K: int
    a: tuple[int, int]
    b: tuple[int, int]
    batch: tuple[tuple[int, int, int], ...]


def fold(
    batch: Shape, a_shape: Shape, a_strides: Strides, b_shape: Shape, b_strides: Strides
) -> Sides:
    """Join batch dims where strides allow; a batch with one b is one taller product."""
    (M, K), N = a_shape[-2:], b_shape[-1]
    dims: list[tuple[int, int, int]] = []
    for size, a, b in zip(
        batch,
        _expanded(batch, a_shape[:-2], a_strides[:-2]),
        _expanded(batch, b_shape[:-2], b_strides[:-2]),
    ):
        if size == 1:
            continue
        if dims and dims[-1][1] == size * a and dims[-1][2] == size * b:
            size *= dims.pop()[0]
        dims.append((size, a, b))
    a_row = a_strides[-2]
    if len(dims) == 1 and dims[0][2] == 0 and (M == 1 or dims[0][1] == M * a_row):
        a_row = dims[0][1] if M == 1 else a_row
        M, dims = M * dims[0][0], []
    return Sides(
        M, N, K, (a_row, a_strides[-1]), (b_strides[-1], b_strides[-2]), tuple(dims)
    )


def _expanded(batch: Shape, shape: Shape, strides: Strides) -> Strides:
    """An operand's batch strides; 0 where it repeats."""
    steps = tuple(0 if n == 1 else s for n, s in zip(shape, strides))
    return (0,) * (len(batch) - len(shape)) + steps


def size_of(sides: Sides) -> tuple[int, int, int, int]:
    return sides.M, sides.N, sides.K, math.prod(size for size, _, _ in sides.batch)


def _launches(batch: tuple[tuple[int, int, int], ...]) -> Iterator[BatchRange]:
    """Launches that cover the batch: each walks two dims, Python walks the others."""
    inner, a_inner, b_inner = batch[-1] if batch else (1, 0, 0)
    outer, a_outer, b_outer = batch[-2] if len(batch) > 1 else (1, 0, 0)
    first = 0
    for a_at, b_at in _starts(batch[:-2]):
        if inner > MOST_BATCHES:
            starts = [
                (o, i) for o in range(outer) for i in range(0, inner, MOST_BATCHES)
            ]
            counts = [min(MOST_BATCHES, inner - i) for _, i in starts]
        else:
            rows = MOST_BATCHES // max(inner, 1)
            starts = [(o, 0) for o in range(0, outer, rows)]
            counts = [min(rows, outer - o) * inner for o, _ in starts]
        for (o, i), count in zip(starts, counts):
            at = a_at + o * a_outer + i * a_inner, b_at + o * b_outer + i * b_inner
            yield BatchRange(*at, first, count)
            first += count


def _starts(dims: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[int, int]]:
    """Offsets of a and b for each index of the dims, in row-major order."""
    if not dims:
        yield 0, 0
        return
    size, a, b = dims[-1]
    for a_at, b_at in _starts(dims[:-1]):
        for i in range(size):
            yield a_at + i * a, b_at + i * b


def layout_for(
    strides: tuple[int, int], others: tuple[int, ...], aligned: bool, vector: int,
    wide: int, depth: int,
) -> Layout:  # fmt: skip
    """How to copy an operand with these strides of rows (or columns) and of k.

    16 bytes at a time need neighbours on the way, and that every line starts at a
    multiple of 16 bytes and holds a whole number of such vectors.
    """
    stride, step = strides
    k_fast = along_k_of(stride, step, wide, depth)
    fast, slow, size = (step, stride, depth) if k_fast else (stride, step, wide)
    even = aligned and all(s % vector == 0 for s in (slow, size, *others))
    return Layout(vector if even and fast == 1 else 1, k_fast)


def along_k_of(stride: int, step: int, wide: int, depth: int) -> bool:
    """Whether an operand has its steps of k closer together than rows or columns."""
    return depth > 1 and (wide == 1 or abs(step) < abs(stride))


def plan_for(
    shape: Shape, sides: Sides, cut: Cut, aligned: tuple[bool, bool], dtype: DType,
    wide: bool = False, apart: tuple[int, ...] = (),
) -> Plan:  # fmt: skip
    """The launches for a product that is cut in a given layout; `wide`: of halves, to
    float32; `apart`: how far the planes of float32 are that is split."""
    M, N, K = sides.M, sides.N, sides.K
    config, vector = cut.config, VECTOR_BYTES // dtype.itemsize
    a_batch, b_batch = (tuple(dim[i] for dim in sides.batch) for i in (1, 2))
    inner = sides.batch[-1][0] if sides.batch else 1
    a_strides = (*sides.a, *(0, 0, *a_batch)[-2:], inner)
    b_strides = (*sides.b, *(0, 0, *b_batch)[-2:], inner)
    if apart:
        a_strides, b_strides = (
            (*strides[:2], plane, *strides[3:])
            for strides, plane in zip((a_strides, b_strides), apart)
        )
    chunk = ceil_div(ceil_div(K, cut.splits), config.depth) * config.depth
    splits = max(1, ceil_div(K, max(chunk, 1)))
    blocks = ceil_div(M, config.rows) * ceil_div(N, config.cols)
    sizes = M, N, K, chunk
    if isinstance(config, GroupConfig) or getattr(config, "kind", TF32) in HALVES:
        config = config._replace(wide=wide or splits > 1)
    if isinstance(config, GroupConfig):
        launches = tuple(
            (bound(config, sizes, a_strides, b_strides, some.matrices), some)
            for some in _launches(sides.batch)
        )
        ends = splits * ceil_div(N, config.cols) if config.sums else 0
        return Plan(
            shape, launches, a_strides, b_strides, sizes, M * N, splits, ends, True
        )
    a_layout = layout_for(sides.a, a_batch, aligned[0], vector, M, K)
    b_layout = layout_for(sides.b, b_batch, aligned[1], vector, N, K)
    if isinstance(config, VectorConfig):
        run = matvec(computed(dtype).name, config)
    elif isinstance(config, TensorConfig):
        run = tensor_core(config, a_layout, b_layout)
    else:
        new = compute_capability() >= (8, 0)
        run = vectorized(dtype.name, config, a_layout, b_layout, new)
    shared = config.shared(a_layout, b_layout, dtype.itemsize)
    launches = tuple(
        (
            run[(blocks, splits, batch_range.matrices), config.threads, None, shared],
            batch_range,
        )
        for batch_range in _launches(sides.batch)
    )
    return Plan(shape, launches, a_strides, b_strides, sizes, M * N, splits, 0, False)


def even(a: TensorData) -> bool:
    """Whether the first element lies at a multiple of 16 bytes."""
    array = a.storage.array
    return a.offset * a.storage.dtype.itemsize % 16 == 0 and is_aligned(array)


def launch(
    plan: Plan, a: TensorData, b: TensorData, words: bool = True,
    bias: TensorData | None = None, wide: bool = False, out: TensorData | None = None,
    totals: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """Run a plan's kernels, to which halves are words, or else numbers.

    Those of tensor cores make float32 of halves, if their plan is `wide`; those of
    warpgroups add a bias, if there is one, and make the sums of a's rows in `totals`,
    if their plan has `ends`. `out` is used if it is of the type that they make, and
    begins at a multiple of 16 bytes.
    """
    made = float32 if wide else a.storage.dtype
    if out is None or out.dtype is not made or not even(out):
        out = empty(plan.shape, made)
    dtype = computed(a.storage.dtype)
    left, right, result = a.storage.array, b.storage.array, out.flat()
    numbers = result
    if words:
        result = bits(result)
        if not plan.biased:  # maps are of bytes
            left, right = bits(left), bits(right)
    row = ends = end = nothing(float32)
    if totals is not None:
        end = totals.storage.array
        ends = allocate(len(end) * plan.ends, float32)
    if bias is not None:
        row = contiguous(bias if bias.dtype is float32 else copy(bias, float32)).flat()
    for run, batch_range in plan.launches:
        place = result
        if len(plan.launches) > 1:
            first = batch_range.first * plan.matrix
            place = result[first : first + batch_range.matrices * plan.matrix]
        size = batch_range.matrices * plan.matrix
        sums = place if plan.splits == 1 else allocate(size * plan.splits, dtype)
        run(
            left, a.offset + batch_range.a_at, plan.a_strides,
            right, b.offset + batch_range.b_at, plan.b_strides, sums, plan.sizes,
            *(row, ends) * plan.biased,
        )  # fmt: skip
        if plan.splits > 1 or plan.ends:
            first = batch_range.first * plan.matrix
            place = numbers[first : first + size] if plan.splits > 1 else row
            add_partials[ceil_div(len(place) + len(end), 256), 256](
                sums, place, plan.splits, ends, end, plan.ends
            )
    return out
