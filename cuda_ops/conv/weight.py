"""The gradient of a convolution for its weight: long sums of few numbers.

With this file `conv.py` plans and launches the kernel `conv_weight_tiles`
(`plan_weight`, `run_weight`): how the product is cut, and into how many parts the
pixels are split, whose partial sums `sum_parts` adds up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

from numba import cuda, int64

from cuda_ops.block.rows import KernelFamily
from cuda_ops.conv.plan import forward_axis, magic, weight_plan
from cuda_ops.conv.tiles import (
    MOST,
    NUMBERS,
    SIZES,
    Cut,
    asynchronous_here,
    cuts_for,
    tiles_kernel,
    weight_tiles_template,
)
from cuda_ops.memory import contiguous, empty, from_numpy
from cuda_ops.runtime.device import Gpu, properties
from cuda_ops.runtime.launch import TINY, Kernel, ceil_div
from minitorch.dtypes import DType, float32, float64
from minitorch.tensor_data import Shape, TensorData, numel

Pair = tuple[int, int]

# As `TABLE_CUTS` of `conv.py`.
WEIGHT_CUTS = {
    Cut(128, 128, 8, 8, 16, 3, 2): 0.72,
    Cut(64, 128, 8, 8, 16, 3, 3): 0.74,
    Cut(64, 64, 8, 8, 16, 3, 6): 0.61,
    Cut(32, 64, 4, 8, 8, 4, 8): 0.45,
    Cut(32, 32, 4, 4, 8, 4, 8): 0.36,
    Cut(16, 64, 4, 4, 8, 4, 8): 0.40,
}

# Threads side by side, and rows of them, in a block of `sum_parts`.
TX, TY = (4, 2) if TINY else (32, 8)
# Elements of the partial sums at most.
PARTIAL = 1 << 24


def sum_parts(dtype: DType) -> Callable:
    """Add up the parts of a weight's gradient, always in the same order.

    # parts [count, size] -> out [size]

    A block makes 32 numbers. Row y of its 8 rows of threads adds the parts y, y + 8,
    ..., and the rows' sums meet in shared memory.
    """
    kind, room = NUMBERS[dtype.name], TX * TY

    def kernel(parts, out, size, count):
        shared = cuda.shared.array(room, kind)
        ty, tx = divmod(int64(cuda.threadIdx.x), TX)
        at = int64(cuda.blockIdx.x) * TX + tx
        total = kind(0)
        if at < size:
            for p in range(ty, count, TY):
                total += parts[p * size + at]
        shared[cuda.threadIdx.x] = total
        cuda.syncthreads()
        if ty == 0 and at < size:
            for y in range(1, TY):
                total += shared[y * TX + tx]
            out[at] = total

    return kernel


SUM_PARTS = KernelFamily(
    sum_parts, "T[] T[] int64 int64", (float32,), (float64,), threads=TX * TY
)


@cache
def weight_kernel(name: str, cut: Cut, asynchronous: bool) -> Kernel:
    """The kernel of `conv_weight_tiles` for a type and a cut."""
    vector = 16 // SIZES[name]
    return tiles_kernel(
        weight_tiles_template(name, cut, asynchronous),
        "conv_weight_tiles",
        (name, cut, asynchronous),
        cut.stages * cut.depth * (cut.cols + cut.outs + 2 * vector),
        f"{name}[] {name}[] {name}[] int32[] 5*int64 7*int64 10*int64",
    )


class WeightStep(NamedTuple):
    """A weight's gradient, ready to be launched for any tensors of its shapes."""

    kernel: Kernel
    config: tuple[Any, ...]
    parts: int
    plan: Any
    sizes: tuple[int, ...]
    layout: tuple[int, ...]
    axes: tuple[int, ...]


def plan_weight(
    dtype: DType, grad: Shape, x: Shape, weight: Shape, stride: Pair, padding: Pair,
    dilation: Pair, groups: int, parts: int | None = None,
) -> WeightStep:  # fmt: skip
    """Choose how to run the gradient for a weight, and prepare it."""
    (outs, channels, *taps), out_w = weight, grad[3]
    outs //= groups
    h, w = (
        forward_axis(x[2 + i], taps[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    columns, positions = channels * taps[0] * taps[1], grad[2] * out_w
    total = grad[0] * positions
    if total >= MOST:
        raise ValueError(f"conv2d: {total} positions are too many; split the batch")
    cuts = cuts_for(dtype, WEIGHT_CUTS)
    cut = choose_weight_cut(cuts, outs, columns, total, groups)
    out_tiles, across = ceil_div(outs, cut.outs), ceil_div(columns, cut.cols)
    if parts is None:
        parts = part_count(cut, out_tiles * across * groups, numel(weight), total)
    length = ceil_div(ceil_div(total, parts), cut.depth) * cut.depth
    parts = max(1, ceil_div(total, max(length, 1)))
    run = weight_kernel(dtype.name, cut, asynchronous_here())
    plane = h.size * w.size
    magics = (*magic(max(1, positions)), *magic(max(1, out_w)))
    return WeightStep(
        run,
        ((out_tiles * across, groups, parts), cut.threads, 0, run.shared),
        parts,
        from_numpy(weight_plan(h, w, channels, cut.cols)).flat(),
        (x[0], h.size, w.size, plane, channels * plane),
        (groups, outs, positions, columns, out_tiles, length, total),
        (positions, out_w, *magics, h.step, w.step, h.base, w.base),
    )


def choose_weight_cut(
    cuts: dict[Cut, float], outs: int, columns: int, total: int, groups: int
) -> Cut:
    """The cut that is done first, with the parts that `part_count` gives it."""

    def cost(cut: Cut) -> float:
        tiles = ceil_div(outs, cut.outs) * ceil_div(columns, cut.cols) * groups
        parts = part_count(cut, tiles, groups * outs * columns, total)
        most = ceil_div(tiles * parts, properties().multi_processor_count)
        return most * cut.outs * cut.cols / (parts * cuts[cut])

    return min(cuts, key=cost)


def part_count(cut: Cut, tiles: int, size: int, total: int) -> int:
    """How many parts to split the pixels into, for `tiles` tiles of the result.

    As many blocks as fit on the chip at once; but at least 4 steps of work for each, no
    huge partial sums, and not so many parts that adding them up takes longer than the
    rest: more than 3 for each multiprocessor did.
    """
    processors = properties().multi_processor_count
    wanted = cut.blocks * processors // max(1, tiles)
    if tiles * wanted < processors * cut.blocks // 2:
        wanted += 1
    least = max(1, total // (4 * cut.depth))
    return max(1, min(wanted, least, PARTIAL // max(1, size), 3 * processors))


@lru_cache(maxsize=1024)
def weight_step(_: Gpu, dtype: DType, *shapes: Any) -> WeightStep:
    """The step for a GPU, whose memory holds its tables."""
    return plan_weight(dtype, *shapes)


def run_weight(
    step: WeightStep, grad: TensorData, x: TensorData, weight_shape: Shape
) -> TensorData:
    """Launch a prepared gradient for a weight."""
    dw = empty(weight_shape, grad.dtype)
    size = dw.size
    to = dw if step.parts == 1 else empty((step.parts * size,), grad.dtype)
    step.kernel[step.config](
        contiguous(grad).flat(), contiguous(x).flat(), to.flat(), step.plan,
        step.sizes, step.layout, step.axes,
    )  # fmt: skip
    if step.parts > 1:
        add_parts(to, dw, step.parts)
    return dw


def add_parts(parts: TensorData, out: TensorData, count: int) -> None:
    """parts [count, ...] -> out, their sum."""
    SUM_PARTS[out.dtype,][ceil_div(out.size, TX), TX * TY](
        parts.flat(), out.flat(), out.size, count
    )
