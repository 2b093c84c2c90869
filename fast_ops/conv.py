"""Two-dimensional convolution and its two gradients, without unfolding the image.

With this file one can convolve x [N, C, H, W] with weight [O, C/groups, KH, KW]
(`conv2d`) and bring a gradient back to x (`conv2d_backward_input`) and to the weight
(`conv2d_backward_weight`), with any stride, padding, dilation and number of groups.

The idea: lay one image out with its padding, in rows of P numbers. Then the neighbour
at (kh, kw) of all output positions lies at one fixed distance, kh * P + kw:

    x with padding, P = 5        tap (1, 2) of all outputs: the array from
    .  .  .  .  .                1 * P + 2 = 7 on
    .  a  b  c  .
    .  d  e  f  .                b c .  . d  e f .  . g  h i .  . .
    .  g  h  i  .                outputs 0 1 2, two to skip, outputs 3 4 5, ...
    .  .  .  .  .

so a convolution is a matrix product, out [O, positions] = weight [O, taps] times
rows [taps, positions], whose rows are windows onto the one flat image: `offsets` tells
where each begins. Nothing is copied KH * KW times. The P - OW positions at the end of
each row are wrong (they run over the edge) and are left out at the end.

- A stride s splits the image into s * s smaller ones first, one for each remainder of
  the position divided by s; within each, steps are 1 again.
- The gradient for x is a convolution of the gradient with the weight turned around;
  with a stride, it is one such convolution for each remainder.
- The gradient for the weight is dot products of these rows with rows of the gradient.

Zeros at the end of one row can be the zeros at the start of the next (`line_length`).

A zero of the padding times inf is NaN, where there should be no product at all. So the
kernels return whether the weight, or the gradient for it, is finite; where it is not,
`conv_exact.py` makes the result once more.

Source of the idea: Dukhan, "The Indirect Convolution Algorithm", 2019, for the offsets;
Zhang, Franchetti and Low, "High performance zero-memory overhead direct convolutions",
2018, for leaving out im2col.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import get_num_threads, prange

from fast_ops.conv_exact import (
    exact_backward_input,
    exact_backward_weight,
    exact_output,
)
from fast_ops.launch import device_function, kernel
from fast_ops.memory import contiguous, empty
from fast_ops.simd import (
    DOT,
    DOT_ROOM,
    TILE,
    VECTOR_BYTES,
    copy_line,
    tile_dot,
    tile_fma_at,
)
from fast_ops.workspace import workspace
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

Pair = tuple[int, int]

ROWS = TILE.rows
STRIP_BYTES = 1 << 18  # image strip and its outputs: a quarter of a second-level cache
FEW = 1 << 14  # packed weights that stay in the first-level cache
TASKS = 16  # split the work into at least so many pieces, where it can be split
PARTIAL = 1 << 22  # elements of the partial sums of a weight's gradient
SLACK = 2 * VECTOR_BYTES // 4  # elements that vectors may read behind the last one

# --------------------------------------------------------------------- how to lay out


class Axis(NamedTuple):
    """One direction, rows or columns, of a convolution in the form of this file.

    Output i gathers from source positions (i + shift) * step + phase - pad, a pair
    (phase, shift) for each tap, and goes to position i * out_step + out_at.
    """

    size: int  # of the source
    outputs: int
    step: int
    pad: int
    taps: tuple[int, ...]  # which taps of the kernel take part
    phases: tuple[int, ...]  # for each of them
    shifts: tuple[int, ...]
    out_size: int
    out_step: int
    out_at: int


def forward_axis(
    size: int, taps: int, stride: int, padding: int, dilation: int
) -> Axis:
    """out[i] = sum over k of x[i * stride + k * dilation - padding] * weight[k]."""
    count = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    reach = [k * dilation for k in range(taps)]
    phases = tuple(r % stride for r in reach)
    shifts = tuple(r // stride for r in reach)
    every = tuple(range(taps))
    return Axis(size, count, stride, padding, every, phases, shifts, count, 1, 0)


def backward_axis(
    size: int,
    count: int,
    taps: int,
    stride: int,
    padding: int,
    dilation: int,
    rest: int,
) -> Axis:
    """The positions h of dx for which (h + padding) % stride is `rest`.

    With h + padding = q * stride + rest, dx[h] = sum over those k for which
    k * dilation % stride is `rest` of grad[q - k * dilation // stride] * weight[k].
    """
    every = [k for k in range(taps) if k * dilation % stride == rest]
    backs = [k * dilation // stride for k in every]
    most = max(backs, default=0)
    first = -((rest - padding) // stride)  # the q of the first h that is not negative
    at = first * stride + rest - padding
    places = max(0, (size - at + stride - 1) // stride)
    return Axis(
        count, places, 1, most - first, tuple(every), (0,) * len(every),
        tuple(most - b for b in backs), size, stride, at,
    )  # fmt: skip


class Plan(NamedTuple):
    """A convolution as the kernels want it; `numbers` is spelled out in `Geometry`."""

    numbers: np.ndarray  # int64, the fields of Geometry
    phases: np.ndarray  # [phases used, 2]
    offsets: np.ndarray  # [taps of all channels] into the buffer
    taps: np.ndarray  # [taps of all channels] into the weight
    buffer: int  # elements of a laid out strip
    strips: int


class Geometry(NamedTuple):
    """The sizes that a kernel reads from `Plan.numbers`."""

    channels: int  # of the source, in one group
    groups: int
    height: int  # of the source
    width: int
    step_h: int
    step_w: int
    pad_h: int
    pad_w: int
    rows: int  # of a laid out strip
    columns: int  # of a laid out strip: P
    strip: int  # output rows in a strip
    count_h: int  # output rows and columns
    count_w: int
    out_h: int  # size of an output plane
    out_w: int
    out_step_h: int
    out_step_w: int
    out_at_h: int
    out_at_w: int


@lru_cache(maxsize=1024)
def make_plan(
    h: Axis, w: Axis, images: int, groups: int, channels: int, made: int,
    tap_steps: tuple[int, int, int], item: int,
) -> Plan:  # fmt: skip
    """Choose the strips and write the tables.

    Args:
        h, w: the two directions.
        images: how many images there are.
        groups, channels, made: groups, and source and output channels in each.
        tap_steps: strides of the weight for source channel, kh, kw.
        item: bytes of an element.
    """
    used = sorted(set(zip_product(h.phases, w.phases)))
    reach_h, columns = max(h.shifts, default=0), line_length(w)
    line = (len(used) * channels + made) * columns * item
    strip = max(1, min(h.outputs, STRIP_BYTES // max(line, 1)))
    pieces = -(-TASKS // max(1, images * groups))
    strip = max(min(strip, 4), min(strip, -(-h.outputs // pieces)))
    rows = strip + reach_h
    plane = rows * columns
    offsets, taps = [], []
    for c in range(channels):
        for kh, ph, sh in zip(h.taps, h.phases, h.shifts):
            for kw, pw, sw in zip(w.taps, w.phases, w.shifts):
                where = (c * len(used) + used.index((ph, pw))) * plane
                offsets.append(where + sh * columns + sw)
                taps.append(c * tap_steps[0] + kh * tap_steps[1] + kw * tap_steps[2])
    offsets += [0] * DOT.vectors  # tiles may read a few entries more
    numbers = Geometry(
        channels, groups, h.size, w.size, h.step, w.step, h.pad, w.pad, rows, columns,
        strip, h.outputs, w.outputs, h.out_size, w.out_size, h.out_step, w.out_step,
        h.out_at, w.out_at,
    )  # fmt: skip
    return Plan(
        np.array(numbers, dtype=np.int64),
        np.array(used, dtype=np.int64).reshape(-1, 2),
        np.array(offsets, dtype=np.int64),
        np.array(taps, dtype=np.int64),
        channels * len(used) * plane + columns + SLACK,
        -(-h.outputs // strip),
    )


def line_length(w: Axis) -> int:
    """P, the distance of the rows of a strip.

    Zeros at the end of a row serve as the zeros at the start of the next one as well.
    """
    reach = max(w.shifts, default=0)
    full = w.outputs + reach
    shared = reach
    for phase in w.phases:
        start = max(0, -((phase - w.pad) // w.step))
        stop = (w.size - 1 + w.pad - phase) // w.step + 1
        shared = min(shared, start, max(0, full - stop))
    return full - shared


def zip_product(a: tuple[int, ...], b: tuple[int, ...]) -> list[Pair]:
    """All pairs of an element of `a` and an element of `b`."""
    return [(i, j) for i in a for j in b]


# -------------------------------------------------------------------------- kernels


@device_function
def lay_out(source, at, first, numbers, phases, buffer):
    """Write the padded rows of a strip, split by phases, into `buffer`.

    # source: channels x [height, width] from `at` -> buffer [channels, phases, rows, P]

        buffer[c, f, i, j] = source[c, (first + i) * step_h + phase_h - pad_h,
                                       j * step_w + phase_w - pad_w]   or 0 outside
    """
    channels, height, width = numbers[0], numbers[2], numbers[3]
    step_h, step_w, pad_h, pad_w = numbers[4], numbers[5], numbers[6], numbers[7]
    rows, columns = numbers[8], numbers[9]
    line_at, zero = 0, source.dtype.type(0)
    for c in range(channels):
        for f in range(phases.shape[0]):
            left = pad_w - phases[f, 1]
            begin = min(max((left + step_w - 1) // step_w, 0), columns)
            end = min(max((width - 1 + left) // step_w + 1, begin), columns)
            for i in range(rows):
                h = (first + i) * step_h + phases[f, 0] - pad_h
                start = at + (c * height + h) * width - left
                if h < 0 or h >= height:
                    copy_line(source, 0, 0, 0, buffer, line_at, columns, zero)
                elif step_w == 1:
                    copy_line(source, start, begin, end, buffer, line_at, columns, zero)
                else:
                    buffer[line_at : line_at + columns] = 0
                    for j in range(begin, end):
                        buffer[line_at + j] = source[start + j * step_w]
                line_at += columns
    buffer[line_at:] = 0


@device_function
def _put_rows(made, bias, out, out_at, made_at, first, count, numbers):
    """Copy the right positions of one output channel of a strip to their place.

    # made [strip, P] -> out [count, count_w] from row `first` on, plus `bias`
    """
    columns, wide = numbers[9], numbers[12]
    out_w, step_h, step_w = numbers[14], numbers[15], numbers[16]
    for i in range(count):
        start = out_at + ((first + i) * step_h + numbers[17]) * out_w + numbers[18]
        if step_w == 1:
            copy_line(made, made_at + i * columns, 0, wide, out, start, wide, bias)
        else:
            for j in range(wide):
                out[start + j * step_w] = made[made_at + i * columns + j] + bias


@kernel(parallel=True)
def _correlate(
    source, weight, bias, out, numbers, phases, offsets, taps, row, packed, work, wide
):
    """Convolve all images; used forward, and backward with the weight turned around.

    # source [N, G * C, H, W], weight: G * M rows of C * taps -> out [N, G * M, OH, OW]

        for n, g, m, position:  out = bias[m] + sum over taps t of
                                weight[m, t] * buffer[offsets[t] + position]

    A task is a strip of rows of one image and group; a worker takes each `workers`-th
    task and has a part of `work` for itself. The strip, padded, and its outputs stay in
    the second-level cache. A tile is 8 channels by 32 positions, held in registers; its
    32 columns of all taps are used for all panels of 8 channels while they are in the
    first-level cache. Against unfolding (im2col), KH * KW times less is written.

    Returns False, and convolves nothing, where the weight is not finite.
    """
    channels, groups, strip = numbers[0], numbers[1], numbers[10]
    depth, made = taps.size, bias.size // groups
    panels = (made + ROWS - 1) // ROWS
    finite = True
    for g in range(groups):
        for p in range(panels):
            for k in range(depth):
                for i in range(ROWS):
                    at = g * row[0] + min(p * ROWS + i, made - 1) * row[1] + taps[k]
                    packed[((g * panels + p) * depth + k) * ROWS + i] = weight[at]
                    finite &= np.isfinite(weight[at])
    if not finite:
        return False
    strips = (numbers[11] + strip - 1) // strip
    plane_in, plane_out = numbers[2] * numbers[3], numbers[13] * numbers[14]
    tasks = out.size // max(1, bias.size * plane_out) * groups * strips
    room = strip * numbers[9]
    for worker in prange(work.shape[0]):
        buffer = work[worker, made * room :]
        results = work[worker, : made * room]
        for task in range(np.int64(worker), tasks, work.shape[0]):
            image, s = divmod(task, strips)  # image: n * groups + g
            first = s * strip
            lay_out(source, image * channels * plane_in, first, numbers, phases, buffer)
            rows = min(strip, numbers[11] - first)
            count = rows * numbers[9]
            across = (count + wide - 1) // wide
            for tile in range(across * panels):
                if panels * depth * ROWS < FEW:
                    j, p = divmod(tile, panels)
                else:
                    p, j = divmod(tile, across)
                tile_fma_at(
                    packed, (image % groups * panels + p) * depth * ROWS,
                    buffer, j * wide, offsets, 0, depth,
                    results, p * ROWS * room + j * wide, room,
                    made - p * ROWS, count - j * wide,
                )  # fmt: skip
            for m in range(made):
                _put_rows(
                    results, bias[image % groups * made + m], out,
                    (image * made + m) * plane_out, m * room, first, rows, numbers,
                )  # fmt: skip
    return True


@kernel(parallel=True)
def _weight_sums(source, grad, out, numbers, phases, offsets, partial, work, splits):
    """The gradient for the weight.

    # source [N, G * C, H, W], grad [N, G * M, OH, OW] -> out [G * M, C * taps]

        for m, t:  out = sum over n, position of
                   grad[n, m, position] * buffer[offsets[t] + position]

    A task is a block of images, a group, and one of `splits` parts of its channels m.
    It adds all its images, in order, to its own part of `partial`; the blocks are added
    in order at the end. Their number depends on the shapes alone, so the sum does not
    depend on the number of threads. A tile is 4 channels by 6 taps, and a register
    holds 16 positions of one sum: 24 multiply-adds for 10 loads.

    Returns whether all sums are finite.
    """
    channels, groups, strip, columns = numbers[0], numbers[1], numbers[10], numbers[9]
    plane_in, plane_out = numbers[2] * numbers[3], numbers[11] * numbers[12]
    depth = offsets.size - DOT.vectors
    made = out.size // (groups * depth)
    images = source.size // (channels * groups * plane_in)
    room = strip * columns + SLACK
    blocks, part = partial.shape[0], (made + splits - 1) // splits
    across = (depth + DOT.vectors - 1) // DOT.vectors
    for worker in prange(work.shape[0]):
        lines = work[worker, : (part + DOT.rows) * room]
        buffer = work[worker, (part + DOT.rows) * room :]
        for task in range(np.int64(worker), blocks * groups * splits, work.shape[0]):
            block, gs = divmod(task, groups * splits)
            g, low = gs // splits, gs % splits * part
            count = min(part, made - low)
            sums = partial[block, gs]
            sums[:] = 0
            for n in range(block * images // blocks, (block + 1) * images // blocks):
                image = n * groups + g
                for first in range(0, numbers[11], strip):
                    rows = min(strip, numbers[11] - first)
                    at = image * channels * plane_in
                    lay_out(source, at, first, numbers, phases, buffer)
                    at = (image * made + low) * plane_out
                    _widen(grad, at, count, first, rows, numbers, room, lines)
                    for m in range(0, count, DOT.rows):
                        for t in range(across):
                            tile_dot(
                                lines, m * room, room, buffer, 0, offsets,
                                t * DOT.vectors, rows * columns,
                                sums, (m // DOT.rows * across + t) * DOT_ROOM,
                            )  # fmt: skip
    for block in range(1, blocks):
        for gs in range(groups * splits):
            total, more = partial[0, gs], partial[block, gs]
            for i in range(total.size):
                total[i] += more[i]
    finite = True
    for m in range(groups * made):
        g, of_group = divmod(m, made)
        gs, row = g * splits + of_group // part, of_group % part
        for t in range(depth):
            tile = row // DOT.rows * across + t // DOT.vectors
            at = tile * DOT_ROOM + row % DOT.rows * DOT.vectors + t % DOT.vectors
            out[m * depth + t] = partial[0, gs, at]
            finite &= np.isfinite(partial[0, gs, at])
    return finite


@device_function
def _widen(grad, at, channels, first, rows, numbers, room, lines):
    """Lay rows of the gradient out with zeros up to a width of P.

    # grad: channels x [OH, OW] from `at`, rows `first` on -> lines [channels, room]
    """
    columns, high, wide = numbers[9], numbers[11], numbers[12]
    for m in range(channels):
        for i in range(rows):
            start = at + (m * high + first + i) * wide
            to = m * room + i * columns
            copy_line(grad, start, 0, wide, lines, to, columns, grad.dtype.type(0))
        lines[m * room + rows * columns : (m + 1) * room] = 0


# ------------------------------------------------------------------------ launchers


def _run(
    source: TensorData, weight: TensorData, bias: np.ndarray, out: TensorData,
    plan: Plan, row: Pair,
) -> bool:  # fmt: skip
    """Call `_correlate` with room for packed weights and for each worker.

    Returns whether the weight is finite; if not, `out` is still to be made.
    """
    dtype = out.dtype.numpy
    groups = int(plan.numbers[1])
    made = bias.size // groups
    strip, columns = int(plan.numbers[10]), int(plan.numbers[9])
    panels = -(-made // ROWS)
    packed = np.empty(groups * panels * ROWS * plan.taps.size, dtype)
    workers = max(1, min(get_num_threads(), source.shape[0] * groups * plan.strips))
    work = _for_workers(workers, made * strip * columns + plan.buffer, out.dtype)
    wide = TILE.vectors * VECTOR_BYTES // out.dtype.itemsize
    return _correlate(
        contiguous(source).flat(), contiguous(weight).flat(), bias, out.flat(),
        plan.numbers, plan.phases, plan.offsets, plan.taps, row, packed, work, wide,
    )  # fmt: skip


def _for_workers(workers: int, size: int, dtype: DType) -> np.ndarray:
    """Room for `size` elements for each of the workers, [workers, size]."""
    return workspace(workers * size, dtype)[: workers * size].reshape(workers, size)


def conv2d(
    x: TensorData,
    weight: TensorData,
    bias: TensorData | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """x [N, C, H, W], weight [O, C/groups, KH, KW] -> [N, O, OH, OW].

    Cross-correlation, as in all deep-learning libraries;
    OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1.
    """
    made, channels, *taps = weight.shape
    h, w = (
        forward_axis(x.shape[2 + i], taps[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    out = empty((x.shape[0], made, h.outputs, w.outputs), x.dtype)
    if out.size:
        steps = (taps[0] * taps[1], taps[1], 1)
        plan = make_plan(
            h, w, x.shape[0], groups, channels, made // groups, steps, x.dtype.itemsize
        )
        size = channels * taps[0] * taps[1]
        shift = (
            np.zeros(made, x.dtype.numpy) if bias is None else contiguous(bias).flat()
        )
        if not _run(x, weight, shift, out, plan, (made // groups * size, size)):
            exact_output(x, weight, bias, out, stride, padding, dilation)
    return out


def conv2d_backward_input(
    grad: TensorData,
    weight: TensorData,
    x_shape: Shape,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """The gradient for x [N, C, H, W] from grad [N, O, OH, OW]."""
    dx = empty(x_shape, grad.dtype)
    if dx.size == 0:
        return dx
    made, channels, *taps = weight.shape
    kernel_size = taps[0] * taps[1]
    steps = (channels * kernel_size, taps[1], 1)
    row = (made // groups * channels * kernel_size, kernel_size)
    zeros = np.zeros(x_shape[1], grad.dtype.numpy)
    for rest in zip_product(tuple(range(stride[0])), tuple(range(stride[1]))):
        h, w = (
            backward_axis(
                x_shape[2 + i], grad.shape[2 + i], taps[i], stride[i], padding[i],
                dilation[i], rest[i],
            )
            for i in range(2)
        )  # fmt: skip
        if h.outputs and w.outputs:
            plan = make_plan(
                h, w, x_shape[0], groups, made // groups, channels, steps,
                grad.dtype.itemsize,
            )  # fmt: skip
            if not _run(grad, weight, zeros, dx, plan, row):
                exact_backward_input(grad, weight, dx, stride, padding, dilation)
                break
    return dx


def conv2d_backward_weight(
    grad: TensorData,
    x: TensorData,
    weight_shape: Shape,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """The gradient for weight [O, C/groups, KH, KW] from grad [N, O, OH, OW]."""
    made, channels, *taps = weight_shape
    dw = empty(weight_shape, grad.dtype)
    if grad.size == 0 or x.size == 0 or dw.size == 0:
        dw.flat().fill(0)
        return dw
    h, w = (
        forward_axis(x.shape[2 + i], taps[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    item, dtype = x.dtype.itemsize, x.dtype.numpy
    steps = (taps[0] * taps[1], taps[1], 1)
    # 1 image: strips only bound the memory here, they are no tasks.
    plan = make_plan(h, w, TASKS, groups, channels, made // groups, steps, item)
    blocks = max(1, min(x.shape[0], 2 * TASKS, PARTIAL // dw.size))
    splits = max(1, min(-(-TASKS // (blocks * groups)), made // groups // DOT.rows))
    part = -(-(made // groups) // splits)
    splits = -(-(made // groups) // part)  # none may be empty
    tiles = -(-part // DOT.rows) * -(-channels * taps[0] * taps[1] // DOT.vectors)
    partial = np.empty((blocks, groups * splits, tiles * DOT_ROOM), dtype)
    room = int(plan.numbers[10] * plan.numbers[9]) + SLACK
    workers = min(get_num_threads(), blocks * groups * splits)
    work = _for_workers(workers, (part + DOT.rows) * room + plan.buffer, x.dtype)
    finite = _weight_sums(
        contiguous(x).flat(), contiguous(grad).flat(), dw.flat(), plan.numbers,
        plan.phases, plan.offsets, partial, work, splits,
    )  # fmt: skip
    if not finite:
        exact_backward_weight(grad, x, dw, stride, padding, dilation)
    return dw
