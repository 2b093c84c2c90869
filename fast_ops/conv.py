"""Two-dimensional convolution and its two gradients: the kernels.

With this file the backend passes over all images, for a convolution and for the
gradient of its input (`correlate`), and for the gradient of its weight (`weight_sums`).
`minitorch/backend/host/conv.py` explains how, and plans it: an image is laid out with
its padding, in rows of P numbers, so that a tap is one fixed distance for all outputs.
"""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, prange

from fast_ops.launch import SERIAL, both, device_function, kernel
from fast_ops.simd import (
    DOT,
    DOT_ROOM,
    TILE,
    VECTOR_BYTES,
    copy_line,
    tile_dot,
    tile_fma_at,
)
from minitorch.backend.host.conv import MORE_TAPS, SLACK, Plan, Split
from minitorch.backend.host.workspace import workspace
from minitorch.backend.primitives import Pair
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData

ROWS = TILE.rows
FEW = 1 << 14  # packed weights that stay in the first-level cache

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


KERNELS = both(_correlate)


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
    depth = offsets.size - MORE_TAPS
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
                                sums, (m // DOT.rows * across + t) * DOT_ROOM, DOT.rows,
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


def correlate(
    source: np.ndarray, weight: np.ndarray, bias: np.ndarray, out: TensorData,
    plan: Plan, steps: Pair,
) -> bool:  # fmt: skip
    """Call `_correlate` with room for packed weights and for each worker."""
    dtype = out.storage.dtype
    groups, positions = plan.groups, plan.positions
    made = bias.size // groups
    packed = np.empty(groups * -(-made // ROWS) * ROWS * plan.taps.size, dtype.numpy)
    workers = 1  # for whom no thread is woken, which takes as long as a small image
    if len(out.storage.array) * plan.taps.size > SERIAL:
        workers = max(1, min(get_num_threads(), out.shape[0] * groups * plan.strips))
    work = _for_workers(workers, made * positions + plan.buffer, dtype)
    return KERNELS.correlate[workers > 1](
        source, weight, bias, out.storage.array, plan.numbers, plan.phases,
        plan.offsets, plan.taps, steps, packed, work,
        TILE.vectors * VECTOR_BYTES // dtype.itemsize,
    )  # fmt: skip


def weight_sums(
    source: np.ndarray, grad: np.ndarray, out: TensorData, plan: Plan, images: int,
    split: Split,
) -> bool:  # fmt: skip
    """Call `_weight_sums` with room for partial sums and for each worker."""
    dtype = out.storage.dtype
    groups, positions = plan.groups, plan.positions
    blocks, splits, part = split
    tiles = -(-part // DOT.rows) * -(-plan.taps.size // DOT.vectors)
    partial = np.empty((blocks, groups * splits, tiles * DOT_ROOM), dtype.numpy)
    workers = min(get_num_threads(), blocks * groups * splits)
    room = (part + DOT.rows) * (positions + SLACK) + plan.buffer
    work = _for_workers(workers, room, dtype)
    return _weight_sums(
        source, grad, out.storage.array, plan.numbers, plan.phases, plan.offsets,
        partial, work, splits,
    )  # fmt: skip


def _for_workers(workers: int, size: int, dtype: DType) -> np.ndarray:
    """Room for `size` elements for each of the workers, [workers, size]."""
    return workspace(workers * size, dtype)[: workers * size].reshape(workers, size)
