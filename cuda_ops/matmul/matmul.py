"""Matrix products on the GPU, close to the limit of its multipliers.

With this file one can multiply batches of matrices (`matmul`), and read, call and time
every step on the way there (`LADDER`; the first six are in `ladders/matmul.py`):

    matmul_naive        the definition, a thread for each output
    matmul_coalesced    the same, but neighbouring threads read neighbours
    matmul_tiled        tiles of both matrices in shared memory
    matmul_coarsened    many outputs a thread, in registers
    matmul_squared      a square of them: 16 numbers loaded for 64 products
    matmul_buffered     the next tiles are on their way while these are multiplied
    matmul_vectorized   16-byte loads, and copies past the registers, four tiles ahead
    matmul_tensor_core  the tensor cores, in TF32
    matmul_warpgroup    the same, fed as Hopper does it (compute capability 9.0 only)

(the kernels of the last three are in `kernels.py` and `warpgroup.py`).
`matmul` runs `matmul_vectorized` in tiles that suit the shape, or one of the last two
for large float32 products after `minitorch.set_float32_matmul_precision("high")`.
Large products of halves go to the last one as well, whose sums are float32.
Operands are read in place, whatever their strides are. An output is one sum in an order
that shapes, strides and chip determine: equal inputs give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.block.mma import HALVES, TF32
from cuda_ops.block.tiles import VECTOR_BYTES
from cuda_ops.block.wgmma import ARCH
from cuda_ops.half import bits
from cuda_ops.ladders.matmul import (
    matmul_buffered,
    matmul_coalesced,
    matmul_coarsened,
    matmul_naive,
    matmul_squared,
    matmul_tiled,
)
from cuda_ops.matmul.choosing import (
    ALONG_RATE,
    COPY_BYTES,
    FMA_RATE,
    GROUP_RATE,
    PASS_CYCLES,
    TENSOR_RATE,
    Cut,
    choose,
    estimate,
)
from cuda_ops.matmul.kernels import (
    CONFIGS_4,
    CONFIGS_8,
    TENSOR_CONFIGS,
    Config,
    Layout,
    TensorConfig,
    add_partials,
    tensor_core,
    vectorized,
)
from cuda_ops.matmul.turning import TURN_LEAST, turned
from cuda_ops.matmul.vector import VectorConfig, cut_of, matvec
from cuda_ops.matmul.warpgroup import GROUP_CONFIGS, GroupConfig, bound
from cuda_ops.memory import contiguous, copy, copy_into, empty
from cuda_ops.runtime.arrays import allocate
from cuda_ops.runtime.device import compute_capability, properties
from cuda_ops.runtime.launch import ceil_div
from minitorch import precision
from minitorch.dtypes import DType, computed, float32
from minitorch.tensor_data import Shape, Strides, TensorData, broadcast_shapes

# Multiplications for which rounding to TF32 pays.
TENSOR_LEAST = 2**22
# What numbers are to the tensor cores.
KINDS = {float32: TF32, **{dtype: kind for kind, dtype in HALVES.items()}}

# ------------------------------------------------------------------------ the launcher

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


def _fold(
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
    k_fast = _along_k(stride, step, wide, depth)
    fast, slow, size = (step, stride, depth) if k_fast else (stride, step, wide)
    even = aligned and all(s % vector == 0 for s in (slow, size, *others))
    return Layout(vector if even and fast == 1 else 1, k_fast)


def _along_k(stride: int, step: int, wide: int, depth: int) -> bool:
    """Whether an operand has its steps of k closer together than rows or columns."""
    return depth > 1 and (wide == 1 or abs(step) < abs(stride))


@lru_cache(maxsize=4096)
def _plan(
    a_shape: Shape, a_strides: Strides, a_aligned: bool, b_shape: Shape,
    b_strides: Strides, b_aligned: bool, dtype: DType, allow_tf32: bool,
) -> Plan | None:  # fmt: skip
    """Fold, choose and bind everything that does not depend on the numbers.

    None for halves without a vector among them, which have plans of their own.
    """
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    sides = _fold(batch, a_shape, a_strides, b_shape, b_strides)
    vector = cut_of(sides, (a_aligned, b_aligned))
    if vector is not None:
        cut = Cut(*vector)
    elif dtype.half:
        return None
    else:
        cut = _cut(sides, dtype, allow_tf32)
    shape = (*batch, a_shape[-2], b_shape[-1])
    return plan_for(shape, sides, cut, (a_aligned, b_aligned), dtype)


def _size(sides: Sides) -> tuple[int, int, int, int]:
    return sides.M, sides.N, sides.K, math.prod(size for size, _, _ in sides.batch)


def _cut(sides: Sides, dtype: DType, allow_tf32: bool) -> Cut:
    """The best cut of the kernels that take operands as they are."""
    size = _size(sides)
    best = choose(configs_for(dtype), *size, FMA_RATE)
    if not (allow_tf32 and _pays_to_round(size)):
        return best
    along_k = _along_k(*sides.a, sides.M, sides.K), _along_k(*sides.b, sides.N, sides.K)
    rate = ALONG_RATE if all(along_k) else TENSOR_RATE
    tensor = choose(TENSOR_CONFIGS, *size, rate)
    fast = estimate(tensor, *size, rate) < estimate(best, *size, FMA_RATE)
    return tensor if fast else best


def _pays_to_round(size: tuple[int, ...]) -> bool:
    """Whether tensor cores are worth while, and there."""
    return math.prod(size) >= TENSOR_LEAST and compute_capability() >= (8, 0)


# --------------------------------------------- operands as a warpgroup wants them


def _copied(a: TensorData, b: TensorData) -> tuple[bool, bool]:
    """Which of a [*, M, K] and b [*, N, K] have to be copied for a warpgroup.

    Of float32, one has to lie along k.
    """
    first, second = not _in_vectors(a), not _in_vectors(b)
    if not (a.dtype.half or first or second or 1 in (a.strides[-1], b.strides[-1])):
        return a.size <= b.size, a.size > b.size
    return first, second


def _prepared(a: TensorData, b: TensorData) -> tuple[TensorData, TensorData]:
    """a [*, M, K] and b [*, K, N], or copies of those that are `_copied`."""
    first, second = _copied(a, _flipped(b))
    a = _in_longer_lines(a) if first else a
    if second and b.dtype.half:
        return a, _in_longer_lines(b)
    return a, _flipped(_in_longer_lines(_flipped(b))) if second else b


def _flipped(a: TensorData) -> TensorData:
    return a.permute((*range(a.dims - 2), a.dims - 1, a.dims - 2))


def _groups(dtype: DType, turned: bool, sums: bool = False) -> tuple[GroupConfig, ...]:
    """How warpgroups may cut a product; `turned` where a lies along k, and b across."""
    cuts = GROUP_CONFIGS[KINDS[dtype]]
    return tuple(c._replace(turned=turned, sums=sums) for c in cuts)


def _turns(b_strides: Strides, dtype: DType) -> bool:
    return not dtype.half and b_strides[-2] != 1


def configs_for(dtype: DType) -> tuple[Config, ...]:
    """How the ordinary units may cut a product of this dtype on this chip.

    Without `cp.async` copies go through registers, and the largest tile has too few.
    """
    if dtype.itemsize == 8:
        return CONFIGS_8
    return CONFIGS_4 if compute_capability() >= (8, 0) else CONFIGS_4[1:]


def plan_for(
    shape: Shape, sides: Sides, cut: Cut, aligned: tuple[bool, bool], dtype: DType,
    wide: bool = False,
) -> Plan:  # fmt: skip
    """The launches for a product that is cut in a given layout; `wide`: of halves, to
    float32."""
    M, N, K = sides.M, sides.N, sides.K
    config, vector = cut.config, VECTOR_BYTES // dtype.itemsize
    a_batch, b_batch = (tuple(dim[i] for dim in sides.batch) for i in (1, 2))
    inner = sides.batch[-1][0] if sides.batch else 1
    a_strides = (*sides.a, *(0, 0, *a_batch)[-2:], inner)
    b_strides = (*sides.b, *(0, 0, *b_batch)[-2:], inner)
    chunk = ceil_div(ceil_div(K, cut.splits), config.depth) * config.depth
    splits = max(1, ceil_div(K, max(chunk, 1)))
    blocks = ceil_div(M, config.rows) * ceil_div(N, config.cols)
    sizes = M, N, K, chunk
    if isinstance(config, GroupConfig):
        config = config._replace(wide=wide or splits > 1)
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


def matmul(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> [*, M, N]; the batch dims * broadcast.

    Any strides, read in place: a transposed operand costs no copy. Only of large
    float32 matrices one may be turned around first (`turning.py`), where that pays; and
    for Hopper's tensor cores an operand may be copied (`_copied`). Of halves, what the
    tensor cores do not multiply as it is gives NotImplemented, to be widened.
    """
    return _of_halves(a, b) if a.dtype.half else _product(a, b)


def _product(a: TensorData, b: TensorData, out: TensorData | None = None) -> TensorData:
    """A product of numbers that are no halves."""
    made = _by_warpgroup(a, b, out=out)
    if made is not NotImplemented:
        return made
    if a.dims == b.dims == 2 and a.size >= TURN_LEAST:
        a, b = turned(a, b)
    return launch(_plan_of(a, b), a, b, out=out)


def matmul_to(
    a: TensorData, b: TensorData, dtype: DType, out: TensorData | None = None
) -> Any:
    """`matmul` as `dtype`: of halves that a warpgroup multiplies, without rounding.

    Kernels write to `out` where `launch` uses it, else a copy is made.
    """
    run: Any = partial(_of_halves, wide=dtype is float32) if a.dtype.half else _product
    made = run(a, b, out=out)
    if made is NotImplemented or made is out:
        return made
    made = made if made.dtype is dtype else copy(made, dtype)
    if out is None:
        return made
    copy_into(out, made)
    return out


def matmul_bias(a: TensorData, b: TensorData, bias: TensorData) -> TensorData | None:
    """a [M, K] @ b [K, N] + bias [N], rounded once, where a warpgroup makes it.

    Else None, and nothing is done. The bias may be float32 beside halves.
    """
    made = _by_warpgroup(a, b, bias)
    return None if made is NotImplemented else made


def linear_gradients(
    grad: TensorData, x: TensorData, dtype: DType, sums: DType,
    out: TensorData | None = None,
) -> tuple[TensorData, TensorData] | None:  # fmt: skip
    """grad^T @ x [N, K] as `dtype`, and the sums [N] of the columns of grad, for halves
    grad [R, N], x [R, K], where a warpgroup makes them together; else None."""
    a, kind = grad.permute((1, 0)), grad.dtype
    if not kind.half or x.dtype is not kind or 1 in (a.shape[0], x.shape[1]):
        return None
    if (
        any(_copied(a, _flipped(x)))
        or a.strides[0] != 1
        or dtype not in (kind, float32)
    ):
        return None
    if not _pays_by_warpgroup(a.shape, x.shape, kind, False):
        return None
    wide, totals = dtype is float32, empty(a.shape[:1], float32)
    plan = _group_plan(a.shape, a.strides, x.shape, x.strides, kind, wide, True)
    made = launch(plan, a, x, wide=wide, out=out, totals=totals)
    return made, totals if sums is float32 else copy(totals, sums)


def _plan_of(a: TensorData, b: TensorData) -> Any:
    high = precision.state.allow_tf32 and a.dtype is float32
    return _plan(
        a.shape, a.strides, _even(a), b.shape, b.strides, _even(b), a.dtype, high
    )


def _of_halves(
    a: TensorData, b: TensorData, wide: bool = False, out: TensorData | None = None
) -> Any:
    """A product that is rounded once, where one operand is a vector, or a warpgroup
    makes it and that pays; `wide` and `out` as in `launch`, for a warpgroup."""
    if 1 in (a.shape[-2], b.shape[-1]):
        plan = _plan_of(a, b)
        return NotImplemented if plan is None else launch(plan, a, b, words=False)
    return _by_warpgroup(a, b, wide=wide, out=out)


def _by_warpgroup(
    a: TensorData, b: TensorData, bias: TensorData | None = None, wide: bool = False,
    out: TensorData | None = None,
) -> Any:  # fmt: skip
    """A product of halves or in TF32 where that pays, else NotImplemented."""
    kind, allow_tf32 = a.dtype, precision.state.allow_tf32
    if not (kind.half or (allow_tf32 and kind is float32)):
        return NotImplemented
    if 1 in (a.shape[-2], b.shape[-1]):
        return NotImplemented
    which = _copied(a, _flipped(b))
    if not _pays_by_warpgroup(a.shape, b.shape, kind, allow_tf32, which):
        return NotImplemented
    a, b = _prepared(a, b)
    plan = _group_plan(a.shape, a.strides, b.shape, b.strides, kind, wide)
    return launch(plan, a, b, bias=bias, wide=wide, out=out)


def _in_longer_lines(a: TensorData) -> TensorData:
    """A copy whose lines begin at multiples of 16 bytes; what repeats, repeats."""
    once = [1 if s == 0 else n for n, s in zip(a.shape[:-2], a.strides)]
    *rest, n = *once, *a.shape[-2:]
    long = n + -n % (VECTOR_BYTES // a.dtype.itemsize)
    out = empty((*rest, long), a.dtype).slice(a.dims - 1, 0, n)
    copy_into(out, TensorData(a.storage, out.shape, a.strides, a.offset))
    return out.expand(a.shape)


def _in_vectors(a: TensorData) -> bool:
    """Whether a tensor map can say where these numbers are: in lines, of rows or of
    columns, that begin at multiples of 16 bytes."""
    unit = VECTOR_BYTES // a.dtype.itemsize
    fast = a.dims - (1 if a.strides[-1] == 1 else 2)
    steps = [s for i, s in enumerate(a.strides) if i != fast]
    whole = not any(s % unit or s < 0 for s in steps)
    return a.strides[fast] == 1 and 0 not in a.strides[-2:] and whole and _even(a)


@lru_cache(maxsize=4096)
def _pays_by_warpgroup(
    a_shape: Shape, b_shape: Shape, dtype: DType, allow_tf32: bool,
    copied: tuple[bool, bool] = (False, False),
) -> bool:  # fmt: skip
    """Whether a warpgroup is there, and faster than others, after widening halves."""
    M, N, K = a_shape[-2], b_shape[-1], a_shape[-1]
    size = M, N, K, math.prod(broadcast_shapes(a_shape[:-2], b_shape[:-2]))
    if compute_capability() != ARCH or not _pays_to_round(size):
        return False
    wide = Sides(M, N, K, (K, 1), (1, N), ((size[3], 0, 0),))
    other = _cut(wide, float32, allow_tf32)
    rate = TENSOR_RATE if isinstance(other.config, TensorConfig) else FMA_RATE
    most = estimate(other, *size, rate)
    rate = GROUP_RATE * 2 / dtype.itemsize
    least = estimate(choose(_groups(dtype, False), *size, rate), *size, rate)
    if dtype.half:  # two operands are widened, the result is rounded
        return least < most + 3 * PASS_CYCLES
    bandwidth = properties().multi_processor_count * COPY_BYTES
    for shape, copy_first in zip((a_shape, b_shape), copied):
        least += copy_first * (PASS_CYCLES + 8 * math.prod(shape) / bandwidth)
    return least < most


@lru_cache(maxsize=4096)
def _group_plan(
    a_shape: Shape, a_strides: Strides, b_shape: Shape, b_strides: Strides,
    dtype: DType, wide: bool, sums: bool = False,
) -> Plan:  # fmt: skip
    """How a warpgroup multiplies halves, or float32 in TF32."""
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    sides = _fold(batch, a_shape, a_strides, b_shape, b_strides)
    configs = _groups(dtype, _turns(b_strides, dtype), sums)
    cut = choose(configs, *_size(sides), GROUP_RATE * 2 / dtype.itemsize)
    shape = (*batch, a_shape[-2], b_shape[-1])
    return plan_for(shape, sides, cut, (True, True), dtype, wide)


def _even(a: TensorData) -> bool:
    """Whether the first element lies at a multiple of 16 bytes."""
    array = a.storage.array
    return a.offset * a.storage.dtype.itemsize % 16 == 0 and is_aligned(array)


def launch(
    plan: Plan, a: TensorData, b: TensorData, words: bool = True,
    bias: TensorData | None = None, wide: bool = False, out: TensorData | None = None,
    totals: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """Run a plan's kernels, to which halves are words, or else numbers.

    Those of warpgroups add a bias, if there is one, and make float32 of halves, if
    their plan is `wide`, and the sums of a's rows in `totals`, if it has `sums`. `out`
    is used if it is of the type that they make, and begins at a multiple of 16 bytes.
    """
    made = float32 if wide else a.storage.dtype
    if out is None or out.dtype is not made or not _even(out):
        out = empty(plan.shape, made)
    dtype = computed(a.storage.dtype)
    left, right, result = a.storage.array, b.storage.array, out.flat()
    numbers = result
    if words:
        left, right, result = bits(left), bits(right), bits(result)
    row = ends = end = allocate(0, float32)
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


# ----------------------------------------------------- the last rungs, callable


def _run_rung(name: str, a: TensorData, b: TensorData, cut: Cut) -> TensorData:
    """A product of two matrices, cut in a given layout."""
    if a.dims != 2 or b.dims != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{name}: a is {a.shape} and b is {b.shape}; expected matrices [M, K] and "
            f"[K, N] (matmul takes batches)"
        )
    sides = _fold((), a.shape, a.strides, b.shape, b.strides)
    shape = (a.shape[0], b.shape[1])
    return launch(plan_for(shape, sides, cut, (_even(a), _even(b)), a.dtype), a, b)


def _must_be_float32(name: str, a: TensorData) -> None:
    if a.dtype is not float32:
        raise TypeError(f"{name}: got {a.dtype.name}; expected float32 (.to(float32))")


def matmul_vectorized(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by the kernel `matmul_vectorized`; any strides."""
    return _run_rung("matmul_vectorized", a, b, Cut(configs_for(a.dtype)[0], 1))


def matmul_tensor_core(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by the kernel `matmul_tensor_core`; any strides.

    float32, rounded to TF32 whatever precision is set.
    """
    _must_be_float32("matmul_tensor_core", a)
    return _run_rung("matmul_tensor_core", a, b, Cut(TENSOR_CONFIGS[0], 1))


def matmul_warpgroup(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by the kernel `matmul_warpgroup`; any strides.

    float32, rounded to TF32 whatever precision is set.

    Raises:
        RuntimeError: the GPU's compute capability is not 9.0.
    """
    _must_be_float32("matmul_warpgroup", a)
    turns = False
    if a.dims == b.dims == 2:
        if 0 in (a.size, b.size):  # nothing would come into the ring
            return matmul(a, b)
        a, b = _prepared(a, b)
        turns = _turns(b.strides, float32)
    cut = Cut(_groups(float32, turns)[0], 1)
    return _run_rung("matmul_warpgroup", a, b, cut)


# From the definition to the fastest; a benchmark draws them all.
LADDER = (
    matmul_naive,
    matmul_coalesced,
    matmul_tiled,
    matmul_coarsened,
    matmul_squared,
    matmul_buffered,
    matmul_vectorized,
    matmul_tensor_core,
    matmul_warpgroup,
)


def runs_here(rung: Callable) -> bool:
    """Whether this GPU has what a rung of the ladder needs."""
    return rung is not matmul_warpgroup or compute_capability() == ARCH
