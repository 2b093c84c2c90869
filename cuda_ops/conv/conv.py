"""Two-dimensional convolution and its two gradients, without unfolding the image.

With this file one can convolve x [N, C, H, W] with weight [O, C/groups, KH, KW]
(`conv2d`) and bring a gradient back to x (`conv2d_backward_input`) and to the weight
(`conv2d_backward_weight`), with any stride, padding, dilation and number of groups.

All three are matrix products of which one factor, the image laid out in windows, exists
a tile at a time only (`tiles.py`; `plan.py` has the tables behind it). Three
ways to fill the tiles:

    table    any convolution; the weight is read as it lies
    packed   channels in multiples of 8: the weight is turned around first, one table
             entry serves 8 or 16 channels, and a bounds check a whole step
    wide     the same for kernels of one pixel: 16 bytes of neighbouring pixels at once

Groups of few channels go to `direct.py`, and the gradients of a convolution of an
image of few channels to `few.py`; many channels with 3 x 3 taps to `winograd.py`,
if it is estimated to be faster. Halves go to `unfolded.py`, where tensor cores pay.
`choose` picks a cut of the product by an estimate of how busy it keeps the chip.
Results depend on shapes and chip only: there are no atomics, and sums have a fixed
order.

What lies around the image is multiplied as zeros. So where a weight or a gradient is
infinite or NaN, an output that it meets only there becomes NaN; "cpu" leaves it alone.
`few.py` and `winograd.py` can spread an infinite pixel in the same way.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

from numba import cuda, int64

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.conv import few as conv_few
from cuda_ops.conv import unfolded, winograd
from cuda_ops.conv.direct import (
    CHUNK,
    DIRECT_WEIGHT,
    THREADS,
    direct_kernel,
    input_kernel,
)
from cuda_ops.conv.plan import (
    Axis,
    Weights,
    backward_axes,
    forward_axis,
    is_plain,
    magic,
    table_plan,
)
from cuda_ops.conv.tiles import (
    MOST,
    PACKED,
    SIZES,
    TABLE,
    WIDE,
    Cut,
    asynchronous_here,
    conv_template,
    cuts_for,
    tiles_kernel,
)
from cuda_ops.conv.weight import add_parts, run_weight, weight_kernel, weight_step
from cuda_ops.conv.winograd import WinogradPlan, run_winograd
from cuda_ops.matmul.matmul import FMA_RATE
from cuda_ops.memory import contiguous, copy, empty, from_numpy, full
from cuda_ops.runtime import device
from cuda_ops.runtime.device import Gpu, properties
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel, ceil_div, kernel
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData, numel

Pair = tuple[int, int]
Phases = tuple[tuple[Axis, Axis], ...]

# Channels of a group, out or in, that are too few for tiles.
FEW = 8
# Winograd's estimate is rather too high.
WINOGRAD_GAIN = 1.1
# Of a launch with a packed weight, and of the packing.
START_CYCLES = 20_000.0

# How a product can be cut, and the fraction of the chip's fma rate that the cut reaches
# when there is work for all multiprocessors. Fitted to times on an H200.
TABLE_CUTS = {
    Cut(128, 128, 8, 8, 8, 4, 2): 0.72,
    Cut(64, 128, 8, 8, 8, 4, 3): 0.68,
    Cut(64, 64, 8, 8, 8, 4, 6): 0.62,
    Cut(32, 128, 4, 8, 8, 4, 4): 0.50,
    Cut(16, 128, 4, 4, 8, 4, 4): 0.36,
}
PACKED_CUTS = {
    Cut(128, 128, 8, 8, 16, 3, 2): 0.80,
    Cut(128, 128, 8, 8, 8, 4, 2): 0.76,
    Cut(128, 64, 8, 8, 16, 3, 3): 0.80,
    Cut(64, 128, 8, 8, 16, 3, 3): 0.80,
    Cut(64, 128, 8, 8, 8, 4, 4): 0.74,
    Cut(64, 64, 8, 8, 16, 3, 6): 0.72,
    Cut(64, 64, 8, 8, 8, 4, 8): 0.68,
    Cut(32, 128, 4, 8, 16, 3, 4): 0.56,
    Cut(32, 128, 4, 8, 8, 4, 4): 0.50,
    Cut(16, 128, 4, 4, 8, 4, 4): 0.40,
}
# -------------------------------------------------------------------------- kernels


@cache
def conv_kernel(name: str, cut: Cut, mode: str, asynchronous: bool) -> Kernel:
    """The kernel of `conv_tiles` for a type, a cut and a way to fill the tiles."""
    vector = 16 // SIZES[name]
    groups = cut.thread_cols // vector
    ring = cut.stages * cut.depth * (cut.cols + cut.outs + vector)
    aside = cut.outs * (cut.cols // groups + vector)
    return tiles_kernel(
        conv_template(name, cut, mode, asynchronous),
        f"conv_tiles_{mode}",
        (name, cut, asynchronous),
        max(ring, aside),
        f"{name}[] {name}[] {name}[] {name}[] int32[] 5*int64 7*int64 bool",
    )


PACK_TX, PACK_TY = (4, 2) if TINY else (32, 8)


@kernel(examples=["float32[] float32[] int32[] 7*int64"], threads=PACK_TX * PACK_TY)
def pack_weight(weight, packed, plan, layout):
    """Turn a weight around, so that output channels lie side by side.

    # weight -> packed [groups, rows, pitch]
    # layout: rows, where they start in plan, pitch, O, the weight's steps of group and
    # O, rows of a block

        for g, row, o:  packed[g, row, o] = weight[g, o, place of row]  (0 if o >= O)

    A block makes 32 channels of 128 rows. Its reads jump, but the numbers beside those
    that it needs belong to its next rows, and come from the first-level cache then.
    """
    rows, start, pitch, outs, group_stride, out_stride, lines = layout
    o = int64(cuda.blockIdx.x) * PACK_TX + cuda.threadIdx.x % PACK_TX
    group = int64(cuda.blockIdx.z)
    first = int64(cuda.blockIdx.y) * lines
    source = group * group_stride + o * out_stride
    if o < pitch:
        for row in range(
            first + cuda.threadIdx.x // PACK_TX, min(first + lines, rows), PACK_TY
        ):
            value = weight.dtype.type(0)
            if o < outs:
                value = weight[source + plan[start + row]]
            packed[(group * rows + row) * pitch + o] = value


# ------------------------------------------------------------------ choosing a cut


def choose(
    cuts: dict[Cut, float], outs: int, cols: int, copies: int, depth: int = 0
) -> Cut:
    """The cut that is done first with `copies` products of `outs` x `cols` outputs.

    A multiprocessor takes the tiles of its blocks in turn, so the time is the largest
    number of tiles on one, times their size, over the rate of the cut; a
    multiprocessor with fewer than 8 warps does not reach that rate.

    Args:
        depth: if given, the cut's depth must divide it.
    """
    fitting = [cut for cut in cuts if depth % cut.depth == 0]
    return min(fitting, key=lambda cut: step_cycles(cut, cuts[cut], outs, cols, copies))


def step_cycles(cut: Cut, fraction: float, outs: int, cols: int, copies: int) -> float:
    """Cycles for one step of k, if the cut reaches this fraction of the fma rate."""
    tiles = ceil_div(outs, cut.outs) * ceil_div(cols, cut.cols) * copies
    most = max(1, ceil_div(tiles, properties().multi_processor_count))
    warps = min(most, cut.blocks) * cut.threads / 32
    rate = FMA_RATE * fraction * min(1.0, warps / 8) ** 0.5
    return most * cut.outs * cut.cols / rate


# -------------------------------------------------- forward, and gradient for the input


class Step(NamedTuple):
    """A convolution that is ready to be launched for any tensors of its shapes."""

    kernel: Kernel
    config: tuple[Any, ...]
    out_shape: Shape
    plan: Any  # the table, on the device
    sizes: tuple[int, ...]
    layout: tuple[int, ...]
    pack: tuple[int, ...]  # what `pack_weight` takes, () if the weight is read in place
    pack_grid: tuple[int, ...]
    wide: bool  # whether the source has to begin at a multiple of 16 bytes


class Problem(NamedTuple):
    """A convolution as a product, whichever direction it goes.

    Attributes:
        phases: what `forward_axis` or `backward_axes` make of rows and columns.
        batch, groups: images, and groups of channels.
        outs, channels: of a group.
        weights: where the weight lies.
        out_shape: of the result.
    """

    phases: Phases
    batch: int
    groups: int
    outs: int
    channels: int
    weights: Weights
    out_shape: Shape


def plan_step(problem: Problem, dtype: DType) -> Step:
    """Choose how to run a convolution, and prepare it."""
    positions = max(h.places * w.places for h, w in problem.phases)
    total = problem.batch * positions
    if total >= MOST:
        raise ValueError(
            f"conv2d: {problem.batch} images of {positions} positions are more than "
            f"2**31; split the batch"
        )
    mode = _choose_mode(problem, SIZES[dtype.name])
    cuts = cuts_for(dtype, TABLE_CUTS if mode == TABLE else PACKED_CUTS)
    depth = 0 if mode == TABLE else problem.channels
    copies = problem.groups * len(problem.phases)
    cut = choose(cuts, problem.outs, total, copies, depth)
    return _prepare(problem, dtype, mode, cut, total)


def _choose_mode(problem: Problem, item: int) -> str:
    if problem.channels % 8 or problem.channels == 0:
        return TABLE
    return WIDE if _is_wide(problem, item) else PACKED


def packed_cycles(problem: Problem) -> float:
    """An estimate of the time of a convolution of one phase with a packed weight."""
    (h, w), outs, channels = problem.phases[0], problem.outs, problem.channels
    size = (outs, problem.batch * h.places * w.places, problem.groups)
    cut = choose(PACKED_CUTS, *size, channels)
    taps = len(h.taps) * len(w.taps)
    steps = taps * channels
    return steps * step_cycles(cut, PACKED_CUTS[cut], *size) + START_CYCLES


def _is_wide(problem: Problem, item: int) -> bool:
    """Whether positions are pixels, one for one, and 16 bytes of them lie aligned."""
    h, w = problem.phases[0]
    plain = len(problem.phases) == 1 and is_plain(h) and is_plain(w)
    return plain and h.size * w.size * item % 16 == 0


def _prepare(problem: Problem, dtype: DType, mode: str, cut: Cut, total: int) -> Step:
    h, w = problem.phases[0]
    outs, weights, packed = problem.outs, problem.weights, mode != TABLE
    table, rows_at, rows = table_plan(
        problem.phases, problem.channels, weights, cut.depth, packed
    )
    plane, (out_h, out_w) = h.size * w.size, problem.out_shape[2:]
    pitch = ceil_div(outs, 4) * 4
    steps = (rows * pitch, pitch) if packed else (weights.group, weights.outs)
    out_tiles = ceil_div(outs, cut.outs)
    blocks = (
        out_tiles * ceil_div(total, cut.cols), problem.groups, len(problem.phases)
    )  # fmt: skip
    run = conv_kernel(dtype.name, cut, mode, asynchronous_here())
    lines = PACK_TY * 16  # rows of a block
    pack = (rows, rows_at, pitch, outs, weights.group, weights.outs, lines)
    grid = (ceil_div(pitch, PACK_TX), ceil_div(rows, lines), problem.groups)
    return Step(
        run,
        (blocks, cut.threads, 0, run.shared),
        problem.out_shape,
        from_numpy(table).flat(),
        (problem.batch, h.size, w.size, plane, problem.channels * plane),
        (problem.groups, outs, *steps, out_tiles, out_h * out_w, out_w),
        pack if packed else (),
        grid,
        mode == WIDE,
    )


def run_step(
    step: Step | WinogradPlan, source: TensorData, weight: TensorData,
    bias: TensorData | None,
) -> TensorData:  # fmt: skip
    """Launch a prepared convolution."""
    if isinstance(step, WinogradPlan):
        return run_winograd(step, source, weight, bias)
    out = empty(step.out_shape, source.dtype)
    if out.size == 0:
        return out
    pixels = contiguous(source).flat()
    if step.wide and not is_aligned(pixels):
        pixels = copy(source, source.dtype).flat()
    values = contiguous(weight).flat()
    if step.pack:
        shape = (step.layout[0] * step.layout[2],)
        packed = empty(shape, source.dtype).flat()
        threads = PACK_TX * PACK_TY
        pack_weight[step.pack_grid, threads](values, packed, step.plan, step.pack)
        values = packed
    added = values if bias is None else contiguous(bias).flat()
    step.kernel[step.config](
        pixels, values, added, out.flat(), step.plan, step.sizes,
        step.layout, bias is not None,
    )  # fmt: skip
    return out


def forward_problem(
    x: Shape, weight: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Problem:
    """conv2d as a product."""
    outs, channels, *taps = weight
    h, w = (
        forward_axis(x[2 + i], taps[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    area, outs = taps[0] * taps[1], outs // groups
    weights = Weights(outs * channels * area, channels * area, area, taps[1])
    shape = (x[0], weight[0], h.places, w.places)
    return Problem(((h, w),), x[0], groups, outs, channels, weights, shape)


def input_problem(
    grad: Shape, weight: Shape, x: Shape, stride: Pair, padding: Pair, dilation: Pair,
    groups: int,
) -> Problem:  # fmt: skip
    """The gradient for the input as a product: the weight's channels change places."""
    summed, outs, *taps = weight
    rows, cols = (
        backward_axes(
            x[2 + i], grad[2 + i], taps[i], stride[i], padding[i], dilation[i]
        )
        for i in range(2)
    )
    area, summed = taps[0] * taps[1], summed // groups
    weights = Weights(summed * outs * area, area, outs * area, taps[1])
    # The phases with most taps come first: the short ones fill the gaps at the end.
    phases = sorted(
        ((h, w) for h in rows for w in cols),
        key=lambda axes: -len(axes[0].taps) * len(axes[1].taps),
    )
    return Problem(tuple(phases), x[0], groups, outs, summed, weights, x)


# A step holds a table in the memory of its GPU.


@lru_cache(maxsize=1024)
def _forward_step(
    _: Gpu, dtype: DType, x: Shape, weight: Shape, stride: Pair, padding: Pair,
    *others: Any,
) -> Step | WinogradPlan:  # fmt: skip
    problem = forward_problem(x, weight, stride, padding, *others)
    if winograd.fits(dtype, x, problem.out_shape, weight[2:], stride, *others):
        plan = winograd.forward_plan(x, weight, padding)
        if plan.cycles < WINOGRAD_GAIN * packed_cycles(problem):
            return plan
    return plan_step(problem, dtype)


@lru_cache(maxsize=1024)
def _input_step(
    _: Gpu, dtype: DType, grad: Shape, weight: Shape, x: Shape, stride: Pair,
    padding: Pair, *others: Any,
) -> Step | WinogradPlan:  # fmt: skip
    problem = input_problem(grad, weight, x, stride, padding, *others)
    if winograd.fits(dtype, grad, x, weight[2:], stride, *others):
        plan = winograd.input_plan(grad, weight, x, padding)
        if plan.cycles < WINOGRAD_GAIN * packed_cycles(problem):
            return plan
    return plan_step(problem, dtype)


def conv2d(
    x: TensorData, weight: TensorData, bias: TensorData | None, stride: Pair,
    padding: Pair, dilation: Pair, groups: int,
) -> TensorData:  # fmt: skip
    """x [N, C, H, W], weight [O, C/groups, KH, KW] -> [N, O, OH, OW]."""
    if unfolded.has_halves(x, weight, bias):
        return unfolded.conv2d(x, weight, bias, stride, padding, dilation, groups)
    if _is_direct(weight.shape, groups):
        return _run_direct(x, weight, bias, stride, padding, dilation, groups)
    options = (stride, padding, dilation, groups)
    here = device.current.gpu
    step = _forward_step(here, x.dtype, x.shape, weight.shape, *options)
    return run_step(step, x, weight, bias)


def conv2d_backward_input(
    grad: TensorData, weight: TensorData, x_shape: Shape, stride: Pair, padding: Pair,
    dilation: Pair, groups: int,
) -> TensorData:  # fmt: skip
    """The gradient for x [N, C, H, W] from grad [N, O, OH, OW]."""
    options = (stride, padding, dilation, groups)
    if unfolded.has_halves(grad, weight):
        return unfolded.conv2d_backward_input(grad, weight, x_shape, *options)
    if _is_direct(weight.shape, groups):
        return _run_direct_input(grad, weight, x_shape, *options)
    few = conv_few.is_few(grad.dtype, weight.shape, stride, dilation, groups)
    if few and numel(x_shape[2:]) <= conv_few.MOST_PIXELS:
        return _run_few_input(grad, weight, x_shape, padding)
    here = device.current.gpu
    step = _input_step(here, grad.dtype, grad.shape, weight.shape, x_shape, *options)
    return run_step(step, grad, weight, None)


# -------------------------------------------------------------- gradient for the weight


def conv2d_backward_weight(
    grad: TensorData, x: TensorData, weight_shape: Shape, stride: Pair, padding: Pair,
    dilation: Pair, groups: int,
) -> TensorData:  # fmt: skip
    """The gradient for weight [O, C/groups, KH, KW] from grad [N, O, OH, OW]."""
    options = (stride, padding, dilation, groups)
    if unfolded.has_halves(grad, x):
        return unfolded.conv2d_backward_weight(grad, x, weight_shape, *options)
    if numel(weight_shape) == 0 or grad.size == 0 or x.size == 0:
        return full(weight_shape, 0.0, grad.dtype)
    if _is_direct(weight_shape, groups):
        return _run_direct_weight(grad, x, weight_shape, *options)
    few = conv_few.is_few(grad.dtype, weight_shape, stride, dilation, groups)
    if few and weight_shape[0] <= conv_few.FEW_OUTS:
        return _run_few_weight(grad, x, weight_shape, padding)
    here = device.current.gpu
    step = weight_step(here, grad.dtype, grad.shape, x.shape, weight_shape, *options)
    return run_weight(step, grad, x, weight_shape)


# ------------------------------------------------------------- groups of few channels


def _is_direct(weight: Shape, groups: int) -> bool:
    """Whether a group has so few channels that tiles would be nearly empty."""
    return groups > 1 and min(weight[0] // groups, weight[1]) < FEW


def _direct_sizes(
    x: Shape, weight: Shape, out: Shape, groups: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    image = (x[1], x[2], x[3], weight[1])
    outs = weight[0] // groups
    return image, (weight[0], out[2], out[3], *weight[2:], outs, out[2] * out[3])


def _run_direct(
    x: TensorData, weight: TensorData, bias: TensorData | None, stride: Pair,
    padding: Pair, dilation: Pair, groups: int,
) -> TensorData:  # fmt: skip
    problem = forward_problem(x.shape, weight.shape, stride, padding, dilation, groups)
    out = empty(problem.out_shape, x.dtype)
    if out.size:
        image, window = _direct_sizes(x.shape, weight.shape, out.shape, groups)
        values = contiguous(weight).flat()
        grid = (out.shape[0] * out.shape[1], ceil_div(window[6], CHUNK))
        direct_kernel(weight.shape[2:])[grid, THREADS](
            contiguous(x).flat(), values,
            values if bias is None else contiguous(bias).flat(), out.flat(), image,
            window, (*stride, *padding, *dilation), (*magic(window[2]), 0, 0),
            bias is not None,
        )  # fmt: skip
    return out


def _run_direct_input(
    grad: TensorData, weight: TensorData, x_shape: Shape, stride: Pair, padding: Pair,
    dilation: Pair, groups: int,
) -> TensorData:  # fmt: skip
    out = empty(x_shape, grad.dtype)
    if out.size:
        image, window = _direct_sizes(x_shape, weight.shape, grad.shape, groups)
        grid = (x_shape[0] * x_shape[1], ceil_div(x_shape[2] * x_shape[3], CHUNK))
        magics = (*magic(x_shape[3]), *magic(stride[0]), *magic(stride[1]))
        run = input_kernel(weight.shape[2:], stride == (1, 1))
        run[grid, THREADS](
            contiguous(grad).flat(), contiguous(weight).flat(), out.flat(), image,
            window, (*stride, *padding, *dilation), magics,
        )  # fmt: skip
    return out


def _run_direct_weight(
    grad: TensorData, x: TensorData, weight_shape: Shape, stride: Pair, padding: Pair,
    dilation: Pair, groups: int,
) -> TensorData:  # fmt: skip
    out = empty(weight_shape, grad.dtype)
    image, window = _direct_sizes(x.shape, weight_shape, grad.shape, groups)
    total = grad.shape[0] * window[6]
    if total >= MOST:
        raise ValueError(f"conv2d: {total} positions are too many; split the batch")
    magics = (*magic(window[6]), *magic(window[2]))
    DIRECT_WEIGHT[grad.dtype,][out.size, THREADS](
        contiguous(grad).flat(), contiguous(x).flat(), out.flat(), image, window,
        (*stride, *padding, *dilation), magics, total,
    )  # fmt: skip
    return out


# ------------------------------------------------- gradients for few channels


def _run_few_input(
    grad: TensorData, weight: TensorData, x_shape: Shape, padding: Pair
) -> TensorData:
    out = empty(x_shape, grad.dtype)
    if out.size:
        N, C, *size = x_shape
        taps = (weight.shape[2], weight.shape[3])
        cut = conv_few.InputCut(taps, conv_few.choose_quads(size[1]), 2)
        plan = conv_few.plan_input(cut, N * C, grad.shape[1], (size[0], size[1]))
        run = conv_few.input_kernel(cut, asynchronous_here())
        run[plan.grid, plan.threads, 0, plan.shared](
            contiguous(grad).flat(), contiguous(weight).flat(), out.flat(),
            (C, *size), (*grad.shape[1:], *padding), plan.tile,
        )  # fmt: skip
    return out


def _run_few_weight(
    grad: TensorData, x: TensorData, weight_shape: Shape, padding: Pair
) -> TensorData:
    out = empty(weight_shape, grad.dtype)
    taps = (weight_shape[2], weight_shape[3])
    cut = conv_few.choose_weight_cut(taps, weight_shape[0], grad.shape[3])
    plan = conv_few.plan_weight(cut, weight_shape, grad.shape)
    parts = plan.grid[0]
    to = out if parts == 1 else empty((parts * out.size,), grad.dtype)
    conv_few.weight_kernel(cut, asynchronous_here())[
        plan.grid, plan.threads, 0, plan.shared
    ](
        contiguous(grad).flat(), contiguous(x).flat(), to.flat(), x.shape[1:],
        (*grad.shape[1:], *padding), plan.tile,
    )  # fmt: skip
    if parts > 1:
        add_parts(to, out, parts)
    return out


def _register() -> None:
    """Make the kernels that tests compile and `minitorch inspect` shows."""
    if not SIMULATED:
        conv_kernel("float32", Cut(128, 128, 8, 8, 8, 4, 2), PACKED, True)
        conv_kernel("float32", Cut(64, 128, 8, 8, 16, 3, 3), PACKED, True)
        conv_kernel("float32", Cut(64, 64, 8, 8, 16, 3, 6), WIDE, True)
        conv_kernel("float32", Cut(64, 128, 8, 8, 8, 4, 3), TABLE, True)
        conv_kernel("float32", Cut(64, 64, 8, 8, 8, 4, 6), TABLE, False)
        conv_kernel("float64", Cut(64, 64, 4, 4, 8, 3, 2), PACKED, True)
        weight_kernel("float32", Cut(128, 128, 8, 8, 16, 3, 2), True)
        weight_kernel("float32", Cut(64, 64, 8, 8, 16, 3, 6), True)


_register()
