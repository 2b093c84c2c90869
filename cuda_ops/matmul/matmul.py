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
Large products of halves go to `matmul_halves` (`halves.py`), whose sums are float32.
Operands are read in place, whatever their strides are. An output is one sum in an order
that shapes, strides and chip determine: equal inputs give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.block.mma import HALVES
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
from cuda_ops.matmul.halves import HALF_CONFIGS, HalfConfig, bound
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
from cuda_ops.matmul.warpgroup import (
    GROUP_CONFIGS,
    GroupConfig,
    rounded_rows,
    warpgroup,
    warpgroup_template,
)
from cuda_ops.memory import contiguous, copy, copy_into, empty
from cuda_ops.runtime.arrays import allocate
from cuda_ops.runtime.device import compute_capability, properties
from cuda_ops.runtime.launch import ceil_div
from minitorch import precision
from minitorch.dtypes import DType, computed, float32
from minitorch.tensor_data import Shape, Strides, TensorData, broadcast_shapes
from minitorch.todo import unwritten_task

# ---------------------------------------------------------------- choosing how to cut

# What the estimate below is made of, in cycles of a multiprocessor.
# Fma a cycle.
FMA_RATE = 128.0
# Of TF32, as far as mma.sync gets.
TENSOR_RATE = 430.0
# The same, where both operands lie along k.
ALONG_RATE = 300.0
# Of TF32, of the 1024 that wgmma could do.
GROUP_RATE = 860.0
# Of halves, where the sums of `IDLE_HALF_SUMS` tell what becomes of it.
HALF_RATE = 2048.0
# Sums in registers for which the units are busy half of the time.
IDLE_SUMS = 8192
IDLE_HALF_SUMS = 3600
# Of a step of k at least: a barrier, and the way to shared memory.
STEP_CYCLES = 400.0
# Of a block: its first tile comes from far away.
START_CYCLES = 2500.0
# Of a second kernel.
PASS_CYCLES = 4000.0
# That it moves a cycle.
PASS_BYTES = 8.0
# That a copy moves a cycle.
COPY_BYTES = 16.0
# Multiplications for which rounding to TF32 pays.
TENSOR_LEAST = 2**22
# What halves are to the tensor cores.
KINDS = {dtype: kind for kind, dtype in HALVES.items()}


class Cut(NamedTuple):
    """A choice: how a block cuts the product, and into how many chunks k is split."""

    config: Any
    splits: int


@lru_cache(maxsize=4096)
def choose(
    configs: tuple[Any, ...], M: int, N: int, K: int, batches: int, rate: float
) -> Cut:
    """The cut with the smallest estimated time."""
    sms = properties().multi_processor_count

    def few_tiles(config: Any, M: int, N: int) -> bool:
        """Whether a split would give work to multiprocessors that have none."""
        return ceil_div(M, config.rows) * ceil_div(N, config.cols) * batches < 2 * sms

    def splits_for(config: Any) -> set[int]:
        """Some, and of the ordinary units those that fill the chip once or twice."""
        some = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}
        if isinstance(config, Config):
            tiles = ceil_div(M, config.rows) * ceil_div(N, config.cols) * batches or 1
            room = sms * config.blocks
            some |= {n for n in (room // tiles, 2 * room // tiles) if 0 < n < 32}
        return some

    cuts = [
        Cut(config, splits)
        for config in configs
        for splits in sorted(splits_for(config))
        if splits == 1 or (K >= 2 * splits * config.depth and few_tiles(config, M, N))
    ]
    return min(cuts, key=lambda cut: estimate(cut, M, N, K, batches, rate))


def estimate(cut: Cut, M: int, N: int, K: int, batches: int, rate: float) -> float:
    """Cycles for one product, roughly.

    Blocks are dealt out evenly. Those that are on a multiprocessor together share its
    units, and keep them the busier the more sums they have in registers: these are
    the fma that do not wait for each other. A step takes its barrier at least.
    """
    c, sms = cut.config, properties().multi_processor_count
    matrix_tiles = ceil_div(M, c.rows) * ceil_div(N, c.cols) * batches
    load = ceil_div(matrix_tiles * cut.splits, sms)
    together = max(1, min(load, c.blocks))
    steps = ceil_div(ceil_div(K, cut.splits), c.depth)
    sums = together * c.rows * c.cols * getattr(c, "slices", 1)
    idle = IDLE_HALF_SUMS if isinstance(c, HalfConfig) else IDLE_SUMS
    busy = 0.95 * sums / (sums + idle)
    step = max(together * c.rows * c.cols * c.depth / rate / busy, STEP_CYCLES)
    cycles = ceil_div(load, together) * (steps * step + START_CYCLES)
    if cut.splits > 1:
        moved = (cut.splits + 1) * M * N * batches * 4
        cycles += PASS_CYCLES + moved / (sms * PASS_BYTES)
    return cycles


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
        biased: whether the kernels take a bias, behind all else.
    """

    shape: Shape
    launches: tuple[tuple[Callable, BatchRange], ...]
    a_strides: tuple[int, ...]
    b_strides: tuple[int, ...]
    sizes: tuple[int, int, int, int]
    matrix: int
    splits: int
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
    reads: int | None,
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
    elif reads is None:
        cut = _cut(sides, dtype, allow_tf32)
    else:
        cut = choose(_groups(reads), *_size(sides), GROUP_RATE)
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


# ------------------------------------------------- an operand for tensor cores to read


@lru_cache(maxsize=4096)
def _reads(
    a_shape: Shape, a_strides: Strides, b_shape: Shape, b_strides: Strides, dtype: DType
) -> int | None:
    """Which operand, 0 or 1, a warpgroup should read; None where others are faster.

    It is copied for that (`rounded_rows`), in one pass if it lies along k, else in two.
    """
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    sides = _fold(batch, a_shape, a_strides, b_shape, b_strides)
    size = _size(sides)
    if min(sides.M, sides.N) == 1:  # read once: nothing pays
        return None
    if compute_capability() != ARCH or not _pays_to_round(size):
        return None
    if unwritten_task(warpgroup_template):  # as in an edition for students
        return None
    other = _cut(sides, dtype, True)
    rate = TENSOR_RATE if isinstance(other.config, TensorConfig) else FMA_RATE
    best, found = estimate(other, *size, rate), None
    for reads, side, wide in ((1, sides.b, sides.N), (0, sides.a, sides.M)):
        cut = choose(_groups(reads), *size, GROUP_RATE)
        cycles = estimate(cut, *size, GROUP_RATE)
        copies = math.prod(n for n, *strides in sides.batch if strides[reads])
        passes = 1 if _along_k(*side, wide, sides.K) else 2
        moved = 8 * wide * sides.K * copies
        bandwidth = properties().multi_processor_count * COPY_BYTES
        cycles += passes * (PASS_CYCLES + moved / bandwidth)
        if cycles < best:
            best, found = cycles, reads
    return found


def _groups(reads: int) -> tuple[GroupConfig, ...]:
    """The cuts in which a warpgroup reads a (0) or b (1)."""
    return tuple(config for config in GROUP_CONFIGS if config.turned == (reads == 0))


def _prepared(
    a: TensorData, b: TensorData, reads: int | None
) -> tuple[TensorData, TensorData]:
    """a and b, of which one is replaced by its `rounded_rows`, of b by those of b.T."""
    if reads == 0:
        return rounded_rows(a), b
    if reads == 1:
        swap = (*range(b.dims - 2), b.dims - 1, b.dims - 2)
        return a, rounded_rows(b.permute(swap)).permute(swap)
    return a, b


def configs_for(dtype: DType) -> tuple[Config, ...]:
    """How the ordinary units may cut a product of this dtype on this chip.

    Without `cp.async` copies go through registers, and the largest tile has too few.
    """
    if dtype.itemsize == 8:
        return CONFIGS_8
    return CONFIGS_4 if compute_capability() >= (8, 0) else CONFIGS_4[1:]


def plan_for(
    shape: Shape, sides: Sides, cut: Cut, aligned: tuple[bool, bool], dtype: DType
) -> Plan:
    """The launches for a product that is cut in a given layout."""
    M, N, K = sides.M, sides.N, sides.K
    config, vector = cut.config, VECTOR_BYTES // dtype.itemsize
    a_batch, b_batch = (tuple(dim[i] for dim in sides.batch) for i in (1, 2))
    inner = sides.batch[-1][0] if sides.batch else 1
    a_strides = (*sides.a, *(0, 0, *a_batch)[-2:], inner)
    b_strides = (*sides.b, *(0, 0, *b_batch)[-2:], inner)
    chunk = ceil_div(ceil_div(K, cut.splits), config.depth) * config.depth
    splits = max(1, ceil_div(K, max(chunk, 1)))
    blocks = ceil_div(M, config.rows) * ceil_div(N, config.cols)
    sizes, begins = (M, N, K, chunk), isinstance(config, GroupConfig)
    if isinstance(config, HalfConfig):
        config = config._replace(wide=splits > 1)
        launches = tuple(
            (bound(config, sizes, a_strides, b_strides, some.matrices), some)
            for some in _launches(sides.batch)
        )
        return Plan(shape, launches, a_strides, b_strides, sizes, M * N, splits, True)
    a_layout = layout_for(sides.a, a_batch, aligned[0], vector, M, K)
    b_layout = layout_for(sides.b, b_batch, aligned[1], vector, N, K)
    if isinstance(config, VectorConfig):
        run = matvec(computed(dtype).name, config)
    elif isinstance(config, GroupConfig):
        a_layout, b_layout = config.layouts(a_layout, b_layout)
        run = warpgroup(config, a_layout, b_layout)
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
    return Plan(shape, launches, a_strides, b_strides, sizes, M * N, splits, begins)


def matmul(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> [*, M, N]; the batch dims * broadcast.

    Any strides, read in place: a transposed operand costs no copy. Only of large
    float32 matrices one may be turned around first (`turning.py`), where that pays; and
    for Hopper's tensor cores one operand is copied (`_reads`). Of halves, what the
    tensor cores do not multiply as it is gives NotImplemented, to be widened.
    """
    dtype, reads = a.storage.dtype, None
    if dtype.half:
        return _of_halves(a, b)
    high = precision.state.allow_tf32 and dtype is float32
    if high:
        reads = _reads(a.shape, a.strides, b.shape, b.strides, dtype)
        a, b = _prepared(a, b, reads)
    if reads is None and a.dims == b.dims == 2 and a.size >= TURN_LEAST:
        a, b = turned(a, b)
    return launch(_plan_of(a, b, high, reads), a, b)


def matmul_to(a: TensorData, b: TensorData, dtype: DType) -> Any:
    """`matmul` as `dtype`: of halves whose chunks of k are added, without rounding."""
    out = _of_halves(a, b, dtype=dtype) if a.dtype.half else matmul(a, b)
    return out if out is NotImplemented or out.dtype is dtype else copy(out, dtype)


def matmul_bias(a: TensorData, b: TensorData, bias: TensorData) -> TensorData | None:
    """a [M, K] @ b [K, N] + bias [N], rounded once, where a warpgroup makes it.

    Else None, and nothing is done. The bias may be float32 beside halves.
    """
    dtype, reads = a.dtype, None
    if 1 in (a.shape[0], b.shape[1]):
        return None
    if dtype.half:
        made = _of_halves(a, b, bias)
        return None if made is NotImplemented else made
    if precision.state.allow_tf32 and dtype is float32:
        reads = _reads(a.shape, a.strides, b.shape, b.strides, dtype)
    if reads is None:
        return None
    a, b = _prepared(a, b, reads)
    return launch(_plan_of(a, b, True, reads), a, b, bias=bias)


def _plan_of(
    a: TensorData, b: TensorData, high: bool = False, reads: int | None = None
) -> Any:
    return _plan(
        a.shape, a.strides, _even(a), b.shape, b.strides, _even(b), a.dtype, high, reads
    )


def _of_halves(
    a: TensorData, b: TensorData, bias: TensorData | None = None,
    dtype: DType | None = None,
) -> Any:  # fmt: skip
    """A product that is rounded once, where one operand is a vector, or a warpgroup
    makes it and that pays; `dtype` as in `launch`."""
    if 1 in (a.shape[-2], b.shape[-1]):
        plan = _plan_of(a, b)
        return NotImplemented if plan is None else launch(plan, a, b, words=False)
    allow_tf32 = precision.state.allow_tf32
    if not _pays_as_halves(a.shape, b.shape, a.dtype, allow_tf32):
        return NotImplemented
    a, b = (x if _in_vectors(x) else _in_longer_lines(x) for x in (a, b))
    plan = _half_plan(a.shape, a.strides, b.shape, b.strides, a.dtype)
    return launch(plan, a, b, bias=bias, dtype=dtype)


def _in_longer_lines(a: TensorData) -> TensorData:
    """A copy whose lines begin at multiples of 16 bytes."""
    *rest, n = a.shape
    out = empty((*rest, n + -n % 8), a.dtype).slice(a.dims - 1, 0, n)
    copy_into(out, a)
    return out


def _in_vectors(a: TensorData) -> bool:
    """Whether a tensor map can say where these halves are: in lines, of rows or of
    columns, that begin at multiples of 16 bytes."""
    fast = a.dims - (1 if a.strides[-1] == 1 else 2)
    steps = [s for i, s in enumerate(a.strides) if i != fast]
    whole = not any(s % 8 or s < 0 for s in steps)
    return a.strides[fast] == 1 and 0 not in a.strides[-2:] and whole and _even(a)


@lru_cache(maxsize=4096)
def _pays_as_halves(
    a_shape: Shape, b_shape: Shape, dtype: DType, allow_tf32: bool
) -> bool:
    """Whether a warpgroup is there, and faster than others after widening."""
    M, N, K = a_shape[-2], b_shape[-1], a_shape[-1]
    size = M, N, K, math.prod(broadcast_shapes(a_shape[:-2], b_shape[:-2]))
    if compute_capability() != ARCH or not _pays_to_round(size):
        return False
    wide = Sides(M, N, K, (K, 1), (1, N), ((size[3], 0, 0),))
    other = _cut(wide, float32, allow_tf32)
    rate = TENSOR_RATE if isinstance(other.config, TensorConfig) else FMA_RATE
    cut = choose(HALF_CONFIGS[KINDS[dtype]], *size, HALF_RATE)
    least = estimate(cut, *size, HALF_RATE)
    # Beside the product, two operands are widened and the result is rounded.
    return least < estimate(other, *size, rate) + 3 * PASS_CYCLES


@lru_cache(maxsize=4096)
def _half_plan(
    a_shape: Shape, a_strides: Strides, b_shape: Shape, b_strides: Strides, dtype: DType
) -> Plan:
    """How a warpgroup multiplies halves."""
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    sides = _fold(batch, a_shape, a_strides, b_shape, b_strides)
    cut = choose(HALF_CONFIGS[KINDS[dtype]], *_size(sides), HALF_RATE)
    shape = (*batch, a_shape[-2], b_shape[-1])
    return plan_for(shape, sides, cut, (True, True), dtype)


def _even(a: TensorData) -> bool:
    """Whether the first element lies at a multiple of 16 bytes."""
    array = a.storage.array
    return a.offset * a.storage.dtype.itemsize % 16 == 0 and is_aligned(array)


def launch(
    plan: Plan, a: TensorData, b: TensorData, words: bool = True,
    bias: TensorData | None = None, dtype: DType | None = None,
) -> TensorData:  # fmt: skip
    """Run a plan's kernels, to which halves are words, or else numbers.

    Those of warpgroups add a bias, if there is one. The result is of type `dtype`, if
    that is given and k is split.
    """
    out = empty(plan.shape, (plan.splits > 1 and dtype) or a.storage.dtype)
    dtype = computed(a.storage.dtype)
    left, right, result = (x.storage.array for x in (a, b, out))
    if words:
        left, right, result = bits(left), bits(right), bits(result)
    row = allocate(0, float32)
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
            *(row,) * plan.biased,
        )  # fmt: skip
        if plan.splits > 1:
            first = batch_range.first * plan.matrix
            place = out.storage.array[first : first + size]
            add_partials[ceil_div(size, 256), 256](sums, place, plan.splits)
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

    float32, rounded to TF32 whatever precision is set; if only b lies along k, or both
    do, b is read, else a.

    Raises:
        RuntimeError: the GPU's compute capability is not 9.0.
    """
    _must_be_float32("matmul_warpgroup", a)
    reads = int(b.dims == 2 and _along_k(b.strides[1], b.strides[0], b.shape[1], 2))
    if a.dims == b.dims == 2:
        a, b = _prepared(a, b, reads)
    return _run_rung("matmul_warpgroup", a, b, Cut(_groups(reads)[0], 1))


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
