"""Matrix products on the GPU, close to the limit of its multipliers.

With this file one can multiply batches of matrices (`matmul`), and read, call and time
every step on the way there (`LADDER`; the first six are in `ladders/matmul.py`):

    matmul_naive        the definition, a thread for each output
    matmul_coalesced    the same, but neighbouring threads read neighbours
    matmul_tiled        tiles of both matrices in shared memory
    matmul_coarsened    many outputs a thread, in registers
    matmul_squared      a square of them: 16 numbers loaded for 64 products
    matmul_buffered     the next tiles are on their way while these are multiplied
    matmul_vectorized   16-byte loads, and copies past the registers, three tiles ahead
    matmul_tensor_core  the tensor cores, in TF32
    matmul_warpgroup    the same, fed as Hopper does it (compute capability 9.0 only)
    matmul_split        all of float32 there, as sums of three bfloat16

(the kernels of the last four are in `kernels.py` and `warpgroup.py`).
`matmul` runs `matmul_vectorized` in tiles that suit the shape; on a Hopper the last one
for large float32 products. After `minitorch.set_float32_matmul_precision("high")` it is
one of the two before. Large products of halves go to these as well, with sums in
float32; before Ampere those of float16 alone do.
Operands are read in place, whatever their strides are. An output is one sum in an order
that shapes, strides and chip determine: equal inputs give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from cuda_ops.block.mma import HALVES, TF32
from cuda_ops.block.tiles import VECTOR_BYTES
from cuda_ops.block.wgmma import ARCH
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
    HALF_RATE,
    OLD_RATE,
    PASS_CYCLES,
    TENSOR_RATE,
    Cut,
    choose,
    estimate,
)
from cuda_ops.matmul.kernels import (
    CONFIGS_4,
    CONFIGS_8,
    F64_CONFIGS,
    HALF_CONFIGS,
    OLD_CONFIGS,
    TENSOR_CONFIGS,
    Config,
    TensorConfig,
)
from cuda_ops.matmul.plans import (
    Plan,
    Sides,
    along_k_of,
    even,
    fold,
    launch,
    plan_for,
    size_of,
)
from cuda_ops.matmul.split import PRODUCTS, flipped, once, planes_of, split
from cuda_ops.matmul.turning import TURN_LEAST, turned
from cuda_ops.matmul.vector import cut_of
from cuda_ops.matmul.warpgroup import GROUP_CONFIGS, SPLITS
from cuda_ops.memory import copy, copy_into, empty
from cuda_ops.runtime.device import compute_capability, properties
from minitorch import precision
from minitorch.dtypes import DType, bfloat16, float16, float32, float64, int8, int32
from minitorch.tensor_data import Shape, Strides, TensorData, broadcast_shapes

# Multiplications for which rounding to TF32 pays.
TENSOR_LEAST = 2**22
# Numbers of a whose planes are there at a time, 512 MiB, rows at whose multiples its
# parts begin, and numbers that 32 bits count.
MOST_SPLIT, ROWS, COUNTED = 2**29 // 6, 128, 2**32
# Of float64 that tensor cores multiply and add in a cycle, on chips whose units for it
# are not a few for compatibility.
F64_RATES = {(8, 0): 64.0, (9, 0): 128.0}
# What numbers are to the tensor cores.
KINDS = {float32: TF32, **{dtype: kind for kind, dtype in HALVES.items()}}

# ------------------------------------------------------------------------ the launcher


@lru_cache(maxsize=4096)
def _plan(
    a_shape: Shape, a_strides: Strides, a_aligned: bool, b_shape: Shape,
    b_strides: Strides, b_aligned: bool, dtype: DType, allow_tf32: bool,
) -> Plan | None:  # fmt: skip
    """Fold, choose and bind everything that does not depend on the numbers.

    None for halves without a vector among them, which have plans of their own.
    """
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    sides = fold(batch, a_shape, a_strides, b_shape, b_strides)
    vector = cut_of(sides, (a_aligned, b_aligned))
    if vector is not None:
        cut = Cut(*vector)
    elif dtype.half:
        return None
    else:
        cut = _cut(sides, dtype, allow_tf32)
    shape = (*batch, a_shape[-2], b_shape[-1])
    return plan_for(shape, sides, cut, (a_aligned, b_aligned), dtype)


def _cut(sides: Sides, dtype: DType, allow_tf32: bool) -> Cut:
    """The best cut of the kernels that take operands as they are."""
    size, chip = size_of(sides), compute_capability()
    if dtype is float64 and chip in F64_RATES and _pays_to_round(size):
        cuts = tuple(c._replace(old=chip < (9, 0)) for c in F64_CONFIGS)
        return choose(cuts, *size, F64_RATES[chip])
    best = choose(configs_for(dtype), *size, FMA_RATE)
    if not (allow_tf32 and _pays_to_round(size)) or chip < (8, 0):
        return best
    along_k = (
        along_k_of(*sides.a, sides.M, sides.K),
        along_k_of(*sides.b, sides.N, sides.K),
    )
    rate = ALONG_RATE if all(along_k) else TENSOR_RATE
    tensor = choose(TENSOR_CONFIGS, *size, rate)
    fast = estimate(tensor, *size, rate) < estimate(best, *size, FMA_RATE)
    return tensor if fast else best


def _pays_to_round(size: tuple[int, ...]) -> bool:
    """Whether tensor cores are worth while."""
    return math.prod(size) >= TENSOR_LEAST


# --------------------------------------------- operands as a warpgroup wants them


def _copied(a: TensorData, b: TensorData) -> tuple[bool, bool]:
    """Which of a [*, M, K] and b [*, K, N] have to be copied for a warpgroup."""
    kind = a.storage.dtype
    smaller = kind.half or a.size <= b.size
    return _to_copy(a.strides, even(a), b.strides, even(b), kind, smaller)


@lru_cache(maxsize=4096)
def _to_copy(
    a_strides: Strides, a_even: bool, b_strides: Strides, b_even: bool, dtype: DType,
    smaller: bool,
) -> tuple[bool, bool]:  # fmt: skip
    """As `_copied`. Of float32, one has to lie along k: if none does, the smaller one
    is copied; `smaller`: a is."""
    b_strides = *b_strides[:-2], b_strides[-1], b_strides[-2]
    first = not (a_even and _in_vectors(a_strides, dtype))
    second = not (b_even and _in_vectors(b_strides, dtype))
    if not (dtype.half or first or second or 1 in (a_strides[-1], b_strides[-1])):
        return smaller, not smaller
    return first, second


def _prepared(a: TensorData, b: TensorData) -> tuple[TensorData, TensorData]:
    """a [*, M, K] and b [*, K, N], or copies of those that are `_copied`."""
    first, second = _copied(a, b)
    a = _in_longer_lines(a) if first else a
    if second and b.dtype.half:
        return a, _in_longer_lines(b)
    return a, flipped(_in_longer_lines(flipped(b))) if second else b


def ways(
    chip: tuple[int, int], dtype: DType, allow_tf32: bool, turned: bool = False,
    sums: bool = False,
) -> tuple[tuple[Any, ...], float]:  # fmt: skip
    """How the tensor cores of a chip may cut a product of this dtype, and their rate.

    `turned`, for a warpgroup: a lies along k, and b across. Float32 that may not be
    rounded is split. Chips without warpgroups multiply halves as they multiply TF32.
    """
    if chip != ARCH:
        if dtype.half and chip >= (8, 0):
            return HALF_CONFIGS[KINDS[dtype]], HALF_RATE
        return OLD_CONFIGS if dtype is float16 else (), OLD_RATE
    if not (dtype.half or allow_tf32):
        return SPLITS, GROUP_RATE / PRODUCTS
    cuts = GROUP_CONFIGS[KINDS[dtype]]
    groups = tuple(c._replace(turned=turned, sums=sums) for c in cuts)
    return groups, GROUP_RATE * 2 / dtype.itemsize


def _turns(b_strides: Strides, dtype: DType) -> bool:
    return not dtype.half and b_strides[-2] != 1


def configs_for(dtype: DType) -> tuple[Config, ...]:
    """How the ordinary units may cut a product of this dtype on this chip.

    Without `cp.async` copies go through registers, and the largest tile has too few.
    """
    if dtype.itemsize == 8:
        return CONFIGS_8
    return CONFIGS_4 if compute_capability() >= (8, 0) else CONFIGS_4[1:]


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
    if a.dtype is int8:  # sums of int32 wrap around to the same
        made = copy(_product(copy(a, int32), copy(b, int32)), int8)
        if out is not None:
            copy_into(out, made)
        return made if out is None else out
    made = _on_tensor_cores(a, b, out=out)
    if made is not NotImplemented:
        return made
    if a.dims == b.dims == 2 and a.size >= TURN_LEAST:
        a, b = turned(a, b)
    return launch(_plan_of(a, b), a, b, out=out)


def matmul_to(
    a: TensorData, b: TensorData, dtype: DType, out: TensorData | None = None
) -> Any:
    """`matmul` as `dtype`: of halves that tensor cores multiply, without rounding.

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
    made = _on_tensor_cores(a, b, bias)
    return None if made is NotImplemented else made


def linear_gradients(
    grad: TensorData, x: TensorData, weight: TensorData | None, dtype: DType,
    sums: DType | None, out: TensorData | None = None,
) -> tuple[Any, TensorData, Any] | None:  # fmt: skip
    """As `Backend.linear_gradients`: of halves [R, N] where a warpgroup makes the last
    two together; of float32 the first two, where both want `grad` split: it is once.
    """
    a, kind = grad.permute((1, 0)), grad.dtype
    if x.dtype is not kind or 1 in (a.shape[0], x.shape[1]):
        return None
    if kind is float32 is dtype and weight is not None:
        alike = a.strides[0] == 1 != a.strides[1] and a.size <= MOST_SPLIT
        if not (alike and _splits(grad, weight) and _splits(a, x)):
            return None
        grad_x = _split_product(grad, weight, parts := split(grad))
        return grad_x, _split_product(a, x, parts.permute((1, 0)), out=out), None
    fits = a.strides[0] == 1 and True not in _copied(a, x)
    fits = fits and compute_capability() == ARCH
    if not (kind.half and sums and fits and dtype in (kind, float32)):
        return None
    if not _pays_on_tensor_cores(ARCH, a.shape, x.shape, kind, False):
        return None
    wide, totals = dtype is float32, empty(a.shape[:1], float32)
    plan = _group_plan(ARCH, a.shape, a.strides, x.shape, x.strides, kind, wide, True)
    made = launch(plan, a, x, wide=wide, out=out, totals=totals)
    return None, made, totals if sums is float32 else copy(totals, sums)


def _plan_of(a: TensorData, b: TensorData) -> Any:
    high = precision.state.allow_tf32 and a.dtype is float32
    return _plan(
        a.shape, a.strides, even(a), b.shape, b.strides, even(b), a.dtype, high
    )


def _of_halves(
    a: TensorData, b: TensorData, wide: bool = False, out: TensorData | None = None
) -> Any:
    """A product that is rounded once, where one operand is a vector, or tensor cores
    make it and that pays; `wide` and `out` as in `launch`, for these."""
    if 1 in (a.shape[-2], b.shape[-1]):
        plan = _plan_of(a, b)
        return NotImplemented if plan is None else launch(plan, a, b, words=False)
    return _on_tensor_cores(a, b, wide=wide, out=out)


def _on_tensor_cores(
    a: TensorData, b: TensorData, bias: TensorData | None = None, wide: bool = False,
    out: TensorData | None = None,
) -> Any:  # fmt: skip
    """A product of halves by tensor cores where that pays, and of float32, in TF32 or
    as it is, by those of a Hopper; else NotImplemented. `bias`: on a Hopper only."""
    kind, allow_tf32 = a.dtype, precision.state.allow_tf32
    if not (kind.half or kind is float32) or 1 in (a.shape[-2], b.shape[-1]):
        return NotImplemented
    if not (kind.half or allow_tf32):
        splits = _splits(a, b)
        return _split_product(a, b, bias=bias, out=out) if splits else NotImplemented
    which, chip = _copied(a, b), compute_capability()
    if not _pays_on_tensor_cores(chip, a.shape, b.shape, kind, allow_tf32, which):
        return NotImplemented
    if chip != ARCH and (bias is not None or not _in_whole_vectors(a, b, which)):
        return NotImplemented
    if True in which:
        a, b = _prepared(a, b)
    plan = _group_plan(chip, a.shape, a.strides, b.shape, b.strides, kind, wide)
    return launch(plan, a, b, bias=bias, wide=wide, out=out)


def _in_whole_vectors(a: TensorData, b: TensorData, copied: tuple[bool, bool]) -> bool:
    """Whether lines of halves end where a vector does, also of copies, whose last dim
    is dense: only the copy engine puts zeros where a matrix ends."""
    dense = [x.strides[-1] == 1 or some for x, some in zip((a, b), copied)]
    ends = [x.shape[-1 if last else -2] for x, last in zip((a, b), dense)]
    return not any(n % 8 for n in ends)


def _splits(a: TensorData, b: TensorData) -> bool:
    """Whether the factors of a float32 product are split: that pays, and one batch dim
    is enough."""
    if precision.state.allow_tf32 or 1 in (a.shape[-2], b.shape[-1]):
        return False
    chip, both = compute_capability(), (True, True)
    if not _pays_on_tensor_cores(chip, a.shape, b.shape, float32, False, both):
        return False
    return _split_plan(a.shape, a.strides, b.shape, b.strides) is not None


def _split_product(
    a: TensorData, b: TensorData, parts: TensorData | None = None,
    out: TensorData | None = None, bias: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """A product of float32 whose factors are split; `parts`: a is already.

    A large matrix a is split, and multiplied, some rows at a time.
    """
    plan: Any = _split_plan(a.shape, a.strides, b.shape, b.strides)
    (M, K), right = a.shape[-2:], split(b)
    rows = max(ROWS, MOST_SPLIT // K // ROWS * ROWS)
    if parts is not None or a.dims > 2 or M <= rows:
        parts = split(a) if parts is None else parts
        return launch(plan, parts, right, wide=True, bias=bias, out=out)
    if out is None or out.dtype is not float32 or not even(out):
        out = empty(plan.shape, float32)
    for start in range(0, M, rows):
        some, end = (x.slice(0, start, min(rows, M - start)) for x in (a, out))
        plan = _split_plan(some.shape, a.strides, b.shape, b.strides)
        launch(plan, split(some), right, wide=True, bias=bias, out=end)
    return out


def _in_longer_lines(a: TensorData) -> TensorData:
    """A copy whose lines begin at multiples of 16 bytes; what repeats, repeats."""
    *rest, n = once(a).shape
    long = n + -n % (VECTOR_BYTES // a.dtype.itemsize)
    out = empty((*rest, long), a.dtype).slice(a.dims - 1, 0, n)
    copy_into(out, once(a))
    return out.expand(a.shape)


def _in_vectors(strides: Strides, dtype: DType) -> bool:
    """Whether a tensor map can say where these numbers are: in lines, of rows or of
    columns, that begin at multiples of 16 bytes, as the first one does."""
    unit = VECTOR_BYTES // dtype.itemsize
    fast = len(strides) - (1 if strides[-1] == 1 else 2)
    steps = [s for i, s in enumerate(strides) if i != fast]
    whole = not any(s % unit or s < 0 for s in steps)
    return strides[fast] == 1 and 0 not in strides[-2:] and whole


@lru_cache(maxsize=4096)
def _pays_on_tensor_cores(
    chip: tuple[int, int], a_shape: Shape, b_shape: Shape, dtype: DType,
    allow_tf32: bool, copied: tuple[bool, bool] = (False, False),
) -> bool:  # fmt: skip
    """Whether `ways` has one, faster than the ordinary units after widening halves.

    Of float32 that may not be rounded: after splitting it.
    """
    M, N, K = a_shape[-2], b_shape[-1], a_shape[-1]
    size = M, N, K, math.prod(broadcast_shapes(a_shape[:-2], b_shape[:-2]))
    configs, rate = ways(chip, dtype, allow_tf32)
    if not (configs and _pays_to_round(size)):
        return False
    wide = Sides(M, N, K, (K, 1), (1, N), ((size[3], 0, 0),))
    other = _cut(wide, float32, allow_tf32)
    rounds = isinstance(other.config, TensorConfig)
    most = estimate(other, *size, TENSOR_RATE if rounds else FMA_RATE)
    least = estimate(choose(configs, *size, rate), *size, rate)
    if dtype.half:  # two operands are widened, the result is rounded
        return least < most + 3 * PASS_CYCLES
    bandwidth = properties().multi_processor_count * COPY_BYTES
    moved = 8 if allow_tf32 else 10
    for shape, copy_first in zip((a_shape, b_shape), copied):
        least += copy_first * (PASS_CYCLES + moved * math.prod(shape) / bandwidth)
    return least < most


@lru_cache(maxsize=4096)
def _group_plan(
    chip: tuple[int, int], a_shape: Shape, a_strides: Strides, b_shape: Shape,
    b_strides: Strides, dtype: DType, wide: bool, sums: bool = False,
) -> Plan:  # fmt: skip
    """How tensor cores multiply halves, or a warpgroup float32 in TF32."""
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    sides = fold(batch, a_shape, a_strides, b_shape, b_strides)
    configs, rate = ways(chip, dtype, True, _turns(b_strides, dtype), sums)
    cut = choose(configs, *size_of(sides), rate)
    shape = (*batch, a_shape[-2], b_shape[-1])
    return plan_for(shape, sides, cut, (True, True), dtype, wide)


@lru_cache(maxsize=4096)
def _split_plan(
    a_shape: Shape, a_strides: Strides, b_shape: Shape, b_strides: Strides
) -> Plan | None:
    """How a warpgroup multiplies float32 that is split; None for two batch dims, or
    too many numbers."""
    batch = broadcast_shapes(a_shape[:-2], b_shape[:-2])
    a, b = planes_of(a_shape, a_strides), planes_of(b_shape, b_strides)
    sides = fold(batch, a_shape, a.strides, b_shape, b.strides)
    if len(sides.batch) > 1 or max(a.apart, b.apart) >= COUNTED:
        return None
    cut = choose(SPLITS, *size_of(sides), GROUP_RATE / PRODUCTS)
    shape = (*batch, a_shape[-2], b_shape[-1])
    return plan_for(shape, sides, cut, (True, True), bfloat16, True, (a.apart, b.apart))


# ----------------------------------------------------- the last rungs, callable


def _run_rung(name: str, a: TensorData, b: TensorData, cut: Cut) -> TensorData:
    """A product of two matrices, cut in a given layout."""
    _must_be_matrices(name, a, b)
    sides = fold((), a.shape, a.strides, b.shape, b.strides)
    shape = (a.shape[0], b.shape[1])
    return launch(plan_for(shape, sides, cut, (even(a), even(b)), a.dtype), a, b)


def _must_be_matrices(name: str, a: TensorData, b: TensorData) -> None:
    if a.dims != 2 or b.dims != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{name}: a is {a.shape} and b is {b.shape}; expected matrices [M, K] and "
            f"[K, N] (matmul takes batches)"
        )


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
    cut = Cut(GROUP_CONFIGS[TF32][0]._replace(turned=turns), 1)
    return _run_rung("matmul_warpgroup", a, b, cut)


def matmul_split(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by the kernel `matmul_split`; any strides.

    float32, none of which is rounded.

    Raises:
        RuntimeError: the GPU's compute capability is not 9.0.
    """
    _must_be_float32("matmul_split", a)
    _must_be_matrices("matmul_split", a, b)
    return matmul(a, b) if 0 in (a.size, b.size) else _split_product(a, b)


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
    matmul_split,
)


def runs_here(rung: Callable) -> bool:
    """Whether this GPU has what a rung of the ladder needs."""
    new = matmul_warpgroup, matmul_split
    return rung not in new or compute_capability() == ARCH
