"""Softmax, log-softmax and cross-entropy, forward and backward, on the GPU.

With this file one can turn scores into probabilities along a dimension (`softmax`) or
into their logarithms (`log_softmax`), and compare scores with target classes
(`cross_entropy`).

Such kernels compute little, so the time is that of the bytes. A row is read once, kept
in registers (`cuda_ops/block/rows.py`) and written once, where it has up to 16,384
numbers:

    softmax_rows       the last dimension, held by a warp or by a block
    softmax_partials   the last dimension, too long for registers: many blocks share a
    softmax_pieces     row; the first kernel reads it, the second reads and writes it
    softmax_columns    any other dimension: neighbouring threads in neighbouring lines

and the same for backward. The steps that lead there are in `softmax_ladder.py`.

All find the maximum and the sum of exponentials in one pass, the "online" way: a sum of
exp(x - top) for a top that was too low is scaled down when a higher one is met. A row
that is -inf everywhere has no maximum to subtract and becomes NaN, as in PyTorch.

Results are the same to the last bit in every run: sums are added in an order that
depends on the shape alone.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import device
from cuda_ops.block.rows import (
    BLOCK,
    WARP,
    Fit,
    RowKernels,
    barrier,
    fitting,
    merged,
    row_reader,
    row_writer,
    summed,
    width_of,
)
from cuda_ops.index_errors import after_launch, bad_index, notes, number
from cuda_ops.memory import contiguous, copy, empty, full
from cuda_ops.runtime.launch import SIMULATED, Kernel, ceil_div, device_function
from minitorch import operators
from minitorch.dtypes import DType, float32, float64
from minitorch.tensor_data import TensorData

HELD = (
    8 if SIMULATED else 16
)  # numbers that a thread has in registers where rows are too long for that
PIECE = 2 * HELD * BLOCK  # numbers of a long row that one block takes, at least
MOST_PIECES = 256  # blocks that share a long row, at most
LINES = 16 if SIMULATED else 32  # lines side by side in a block
SHARES = 4 if SIMULATED else 8  # threads that share one of these lines
AHEAD = 4  # numbers that a thread loads at once in `softmax_columns`
SHORT_INNER = 4  # fewer lines than this side by side are moved to the end first

OPERATION = number("cross_entropy")

exp = device_function(operators.exp)
log = device_function(operators.log)


@device
def top_of(x):
    """The largest number of a local array."""
    top = x[0]
    for k in range(1, x.size):
        top = x[k] if x[k] > top else top
    return top


# --------------------------------------------------------- forward: rows in registers


def softmax_rows(fit: Fit) -> Callable:
    """The kernel for rows that fit into the registers of a warp or a block.

    # a [R, n] -> out [R, n]

        for r:  top = max(a[r]);  total = sum(exp(a[r] - top))
                for i:  out[r, i] = exp(a[r, i] - top) / total

    A group of threads makes a row; each holds up to 32 numbers of it in registers,
    loaded and stored 16 bytes at a time (`rows.py`). Memory sees 8 bytes for each
    number, which is the least possible; three passes would be 16.

    A thread takes its exponentials relative to its own maximum, at once, without
    waiting for that of the row. All maxima and sums are then merged in one go, with one
    barrier, and the exponentials scaled by exp(own top - row's top) / total.

    Source of the idea: Milakov and Gimelshein, 2018; rows in registers as in Triton's
    tutorial "Fused softmax".
    """
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read = row_reader(fit.width, group, held)
    write = row_writer(fit.width, group, held)
    merge = merged(group, exp, kind)
    lowest, zero = kind(-np.inf), kind(0)

    def kernel(a, out, count, n):
        x = cuda.local.array(held, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, count - 1) * n
        read(a, at, n, t, lowest, x)
        top = top_of(x)
        base = top if top > lowest else zero
        total = zero
        for k in range(held):
            x[k] = exp(x[k] - base)
            total += x[k]
        best, whole = merge(top, total, t, tops, totals)
        scale = exp(top - best) / whole
        for k in range(held):
            x[k] *= scale
        write(out, at, n if r < count else 0, t, x)

    return kernel


def log_softmax_rows(fit: Fit) -> Callable:
    """`softmax_rows` for the logarithm: the row itself stays in the registers.

    # a [R, n] -> out [R, n]

        for r:  top = max(a[r]);  rest = log(sum(exp(a[r] - top)))
                for i:  out[r, i] = (a[r, i] - top) - rest

    In this order, as both a and top may be large: top + rest would be rounded.
    """
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read = row_reader(fit.width, group, held)
    write = row_writer(fit.width, group, held)
    merge = merged(group, exp, kind)
    lowest, zero = kind(-np.inf), kind(0)

    def kernel(a, out, count, n):
        x = cuda.local.array(held, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, count - 1) * n
        read(a, at, n, t, lowest, x)
        top = top_of(x)
        base = top if top > lowest else zero
        total = zero
        for k in range(held):
            total += exp(x[k] - base)
        best, whole = merge(top, total, t, tops, totals)
        rest = log(whole)
        for k in range(held):
            x[k] = (x[k] - best) - rest
        write(out, at, n if r < count else 0, t, x)

    return kernel


# -------------------------------------------------------- backward: rows in registers


def softmax_backward_rows(fit: Fit) -> Callable:
    """The gradient for rows that fit into registers, together with the output's.

    # grad [R, n], out [R, n] -> dx [R, n]

        for r:  dot = sum(grad[r] * out[r])
                for i:  dx[r, i] = out[r, i] * (grad[r, i] - dot)

    Threads, registers and loads as in `softmax_rows`, with two rows for each group:
    12 bytes for each number, the least possible.
    """
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read = row_reader(fit.width, group, held)
    write = row_writer(fit.width, group, held)
    total_of = summed(group)
    zero = kind(0)

    def kernel(grad, out, dx, count, n):
        g = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, count - 1) * n
        read(grad, at, n, t, zero, g)
        read(out, at, n, t, zero, y)
        dot = zero
        for k in range(held):
            dot += g[k] * y[k]
        dot = total_of(dot, t, cells)
        for k in range(held):
            g[k] = y[k] * (g[k] - dot)
        write(dx, at, n if r < count else 0, t, g)

    return kernel


def log_softmax_backward_rows(fit: Fit) -> Callable:
    """The gradient of `log_softmax_rows`, made like `softmax_backward_rows`.

    # grad [R, n], out [R, n] -> dx [R, n]

        for r:  total = sum(grad[r])
                for i:  dx[r, i] = grad[r, i] - exp(out[r, i]) * total
    """
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read = row_reader(fit.width, group, held)
    write = row_writer(fit.width, group, held)
    total_of = summed(group)
    zero = kind(0)

    def kernel(grad, out, dx, count, n):
        g = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, count - 1) * n
        read(grad, at, n, t, zero, g)
        read(out, at, n, t, zero, y)
        total = zero
        for k in range(held):
            total += g[k]
        total = total_of(total, t, cells)
        for k in range(held):
            g[k] -= exp(y[k]) * total
        write(dx, at, n if r < count else 0, t, g)

    return kernel


# ------------------------------------------------------------- rows in several pieces


def part_finder(fit: Fit) -> Any:
    """Make `part(a, at, n, t, x)` -> top and total of thread t's numbers of a part.

    The part a[at : at + n] is read `held` numbers for each thread at a time; `x` is
    room for those.
    """
    kind, group, held = fit.kind, fit.group, fit.held
    read = row_reader(fit.width, group, held)
    lowest, zero = kind(-np.inf), kind(0)

    def part(a, at, n, t, x):
        top, total = lowest, zero
        for first in range(0, n, group * held):
            read(a, at + first, n - first, t, lowest, x)
            best = top_of(x)
            best = best if best > top else top
            base = best if best > lowest else zero
            total *= exp(top - base)
            for k in range(held):
                total += exp(x[k] - base)
            top = best
        return top, total

    return device(part)


def softmax_partials(fit: Fit) -> Callable:
    """The maximum and the sum of exponentials of each piece of a long row.

    # a [R, n] -> tops, totals [R, pieces]

        for r, p:  tops[r, p] = max(piece);  totals[r, p] = sum(exp(piece - tops[r, p]))

    A block makes one piece, `piece` numbers (the last one of a row may be shorter), so
    that even one row keeps all multiprocessors busy.
    """
    kind, group, held = fit.kind, fit.group, fit.held
    part = part_finder(fit)
    merge = merged(group, exp, kind)

    def kernel(a, n, pieces, piece, tops, totals):
        x = cuda.local.array(held, kind)
        warp_tops = cuda.shared.array(WARP, kind)
        warp_totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x // pieces
        first = (cuda.blockIdx.x - r * pieces) * piece
        top, total = part(a, r * n + first, min(piece, n - first), t, x)
        top, total = merge(top, total, t, warp_tops, warp_totals)
        if t == 0:
            tops[cuda.blockIdx.x] = top
            totals[cuda.blockIdx.x] = total

    return kernel


def softmax_pieces(fit: Fit, logarithm: bool) -> Callable:
    """Softmax, or its logarithm, of long rows from the results of `softmax_partials`.

    # a [R, n], tops, totals [R, pieces] -> out [R, n]

    A block merges what is known of its row's pieces, then reads its own piece again and
    writes it: 12 bytes for each number, 8 of them read. The second time, what fits is
    found in the second-level cache (50 MB on an H100 or H200).
    """
    kind, group, held = fit.kind, fit.group, fit.held
    read = row_reader(fit.width, group, held)
    write = row_writer(fit.width, group, held)
    merge = merged(group, exp, kind)
    lowest, zero, one = kind(-np.inf), kind(0), kind(1)

    def kernel(a, n, pieces, piece, tops, totals, out):
        x = cuda.local.array(held, kind)
        warp_tops = cuda.shared.array(WARP, kind)
        warp_totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x // pieces
        top, total = lowest, zero
        if t < pieces:  # there are no more pieces than threads
            top, total = tops[r * pieces + t], totals[r * pieces + t]
        top, total = merge(top, total, t, warp_tops, warp_totals)
        rest = log(total) if logarithm else one / total
        begin = (cuda.blockIdx.x - r * pieces) * piece
        for first in range(begin, min(begin + piece, n), group * held):
            read(a, r * n + first, n - first, t, zero, x)
            for k in range(held):
                if logarithm:
                    x[k] = (x[k] - top) - rest
                else:
                    x[k] = exp(x[k] - top) * rest
            write(out, r * n + first, n - first, t, x)

    return kernel


def slope_partials(fit: Fit, logarithm: bool) -> Callable:
    """The sum over each piece of a long row that the gradient needs.

    # grad, out [R, n] -> sums [R, pieces]

        for r, p:  sums[r, p] = sum(grad * out over the piece), or sum(grad)

    Blocks as in `softmax_partials`.
    """
    kind, group, held = fit.kind, fit.group, fit.held
    read = row_reader(fit.width, group, held)
    total_of = summed(group)
    zero = kind(0)

    def kernel(grad, out, n, pieces, piece, sums):
        g = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x // pieces
        begin = (cuda.blockIdx.x - r * pieces) * piece
        total = zero
        for first in range(begin, min(begin + piece, n), group * held):
            read(grad, r * n + first, n - first, t, zero, g)
            if logarithm:
                for k in range(held):
                    total += g[k]
            else:
                read(out, r * n + first, n - first, t, zero, y)
                for k in range(held):
                    total += g[k] * y[k]
        total = total_of(total, t, cells)
        if t == 0:
            sums[cuda.blockIdx.x] = total

    return kernel


def slope_pieces(fit: Fit, logarithm: bool) -> Callable:
    """The gradients of long rows from the results of `slope_partials`.

    # grad, out [R, n], sums [R, pieces] -> dx [R, n]
    """
    kind, group, held = fit.kind, fit.group, fit.held
    read = row_reader(fit.width, group, held)
    write = row_writer(fit.width, group, held)
    total_of = summed(group)
    zero = kind(0)

    def kernel(grad, out, n, pieces, piece, sums, dx):
        g = cuda.local.array(held, kind)
        y = cuda.local.array(held, kind)
        cells = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        r = cuda.blockIdx.x // pieces
        total = sums[r * pieces + t] if t < pieces else zero
        total = total_of(total, t, cells)
        begin = (cuda.blockIdx.x - r * pieces) * piece
        for first in range(begin, min(begin + piece, n), group * held):
            read(grad, r * n + first, n - first, t, zero, g)
            read(out, r * n + first, n - first, t, zero, y)
            for k in range(held):
                if logarithm:
                    g[k] -= exp(y[k]) * total
                else:
                    g[k] = y[k] * (g[k] - total)
            write(dx, r * n + first, n - first, t, g)

    return kernel


# ------------------------------------------------------------------------ other dims


def softmax_columns(dtype: DType, logarithm: bool) -> Callable:
    """Softmax along a dimension that is not the last.

    # a [O, n, I] -> out [O, n, I], softmax along n

        for o, k:  top = max(a[o, :, k]);  total = sum(exp(a[o, :, k] - top))
                   for i:  out[o, i, k] = exp(a[o, i, k] - top) / total

    A block makes LINES neighbouring lines (o, k), and SHARES threads share each:

        thread          0   1   2 ...  31      one row of LINES numbers is read at once
        thread         32  33  34 ...  63      from neighbouring addresses
        line            0   1   2 ...  31

    A thread takes every SHARES-th number of its line, `AHEAD` of them in flight, and
    keeps a running maximum and a running sum. The threads of a line meet in shared
    memory. The line is then read a second time, from a cache if it fits.
    """
    kind = dtype.numpy.type
    lowest, zero, one = kind(-np.inf), kind(0), kind(1)

    def kernel(a, n, inner, out):
        x = cuda.local.array(AHEAD, kind)
        tops = cuda.shared.array((SHARES, LINES), kind)
        totals = cuda.shared.array((SHARES, LINES), kind)
        j = cuda.threadIdx.x % LINES
        s = cuda.threadIdx.x // LINES
        line = cuda.blockIdx.x * LINES + j
        known = line * n < out.size
        line = line if known else 0
        at = (line // inner) * n * inner + line % inner
        top, total = lowest, zero
        for first in range(s, n, SHARES * AHEAD):
            for k in range(AHEAD):
                i = first + k * SHARES
                value = a[at + (i if i < n else s) * inner]
                x[k] = value if i < n else lowest
            best = top_of(x)
            best = best if best > top else top
            base = best if best > lowest else zero
            total *= exp(top - base)
            for k in range(AHEAD):
                total += exp(x[k] - base)
            top = best
        tops[s, j] = top
        totals[s, j] = total
        barrier()
        for k in range(SHARES):
            top = tops[k, j] if tops[k, j] > top else top
        total = zero
        for k in range(SHARES):
            scale = exp(tops[k, j] - top) if tops[k, j] > lowest else one
            total += totals[k, j] * scale  # 0, or NaN, where the maximum is lowest
        rest = log(total) if logarithm else one / total
        for i in range(s, n if known else 0, SHARES):
            value = a[at + i * inner] - top
            out[at + i * inner] = value - rest if logarithm else exp(value) * rest

    return kernel


def slope_columns(dtype: DType, logarithm: bool) -> Callable:
    """The gradient along a dimension that is not the last; threads as in
    `softmax_columns`.

    # grad, out [O, n, I] -> dx [O, n, I]
    """
    kind = dtype.numpy.type
    zero = kind(0)

    def kernel(grad, out, n, inner, dx):
        totals = cuda.shared.array((SHARES, LINES), kind)
        j = cuda.threadIdx.x % LINES
        s = cuda.threadIdx.x // LINES
        line = cuda.blockIdx.x * LINES + j
        known = line * n < out.size
        line = line if known else 0
        at = (line // inner) * n * inner + line % inner
        total = zero
        for i in range(s, n, SHARES):
            p = at + i * inner
            total += grad[p] if logarithm else grad[p] * out[p]
        totals[s, j] = total
        barrier()
        total = zero
        for k in range(SHARES):
            total += totals[k, j]
        for i in range(s, n if known else 0, SHARES):
            p = at + i * inner
            g, y = grad[p], out[p]
            dx[p] = g - exp(y) * total if logarithm else y * (g - total)

    return kernel


# ---------------------------------------------------------------------- cross-entropy


def cross_entropy_rows(fit: Fit) -> Callable:
    """The loss of each row, without writing a softmax.

    # logits [N, C], target [N] -> losses [N], logsumexp [N]

        for n:  logsumexp[n] = log(sum over c of exp(logits[n, c]))
                losses[n] = logsumexp[n] - logits[n, target[n]]

    A warp or a block reads a row once, with a running maximum and sum; nothing of
    [N, C] is written. Softmax, logarithm and choice would move five times the bytes.

    A row whose target is neither a class nor `ignore_index` leaves a note for the host
    (`index_errors.py`), and has the loss 0.
    """
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    part = part_finder(fit)
    merge = merged(group, exp, kind)
    zero = kind(0)

    def kernel(logits, target, ignore_index, classes, losses, logsumexp, notes):
        x = cuda.local.array(held, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, target.size - 1) * classes
        top, total = part(logits, at, classes, t, x)
        top, total = merge(top, total, t, tops, totals)
        rest = log(total)
        if t == 0 and r < target.size:
            logsumexp[r] = top + rest
            label = target[r]
            if label == ignore_index:
                losses[r] = zero
            elif label >= 0 and label < classes:
                losses[r] = rest - (logits[at + label] - top)
            else:
                losses[r] = zero
                bad_index(notes, OPERATION, label, classes, 1)

    return kernel


def cross_entropy_backward_rows(fit: Fit) -> Callable:
    """The gradient for the logits, with one exponential for each.

    # grad [N], logits [N, C], target [N], logsumexp [N] -> dx [N, C]

        for n, c:  dx[n, c] = grad[n] * (exp(logits[n, c] - logsumexp[n])
                                         - (1 if c == target[n] else 0))

    Threads as in `cross_entropy_rows`. The forward pass kept one number a row, not a
    softmax: 8 bytes for each number. `step` is 0 where all rows have one gradient, as
    those of a mean have. Where a row is ignored, all is 0. The thread whose
    number has the row's target writes it a second time.
    """
    kind, group, held, rows = fit.kind, fit.group, fit.held, fit.rows
    read = row_reader(fit.width, group, held)
    write = row_writer(fit.width, group, held)
    zero, one, width = kind(0), kind(1), fit.width

    def kernel(grad, step, logits, target, logsumexp, ignore_index, classes, dx):
        x = cuda.local.array(held, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        if r < target.size:
            label = target[r]
            wanted = label != ignore_index
            factor, rest = grad[r * step], logsumexp[r]
            for first in range(0, classes, group * held):
                at = r * classes + first
                read(logits, at, classes - first, t, zero, x)
                for k in range(held):
                    x[k] = factor * exp(x[k] - rest) if wanted else zero
                write(dx, at, classes - first, t, x)
            if (
                wanted
                and label >= 0
                and label < classes
                and label // width % group == t
            ):
                hit = exp(logits[r * classes + label] - rest) - one
                dx[r * classes + label] = factor * hit

    return kernel


def mean_of_losses(dtype: DType) -> Callable:
    """The mean of the losses that count, and 1 / how many those are.

    # losses [N], target [N] -> mean [1], share [1]

        mean = sum of losses[n] where target[n] != ignore_index, by their number

    One block: thread t adds losses t, t + BLOCK, ...; then the threads' sums are added
    as in `rows.summed`. As four kernels (compare, count, add, divide) a step of a small
    network would wait three times longer for them than they compute.
    """
    kind = dtype.numpy.type
    total = summed(BLOCK)
    zero, one = kind(0), kind(1)

    def kernel(losses, target, ignore_index, mean, share):
        cells = cuda.shared.array(WARP, kind)
        counts = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        loss, count = zero, zero
        for n in range(t, losses.size, BLOCK):
            if target[n] != ignore_index:
                loss += losses[n]
                count += one
        loss = total(loss, t, cells)
        count = total(count, t, counts)
        if t == 0:
            mean[0] = loss / count
            share[0] = one / count

    return kernel


# ---------------------------------------------------------------------------- kernels

MEAN_OF_LOSSES = {
    dtype: Kernel(
        mean_of_losses(dtype),
        f"mean_of_losses[{dtype.name}]",
        [f"{dtype.name}[] int64[] int64 {dtype.name}[] {dtype.name}[]"],
        threads=BLOCK,
    )
    for dtype in (float32, float64)
}

LONG = (Fit(float32, 4, BLOCK, HELD), Fit(float64, 1, BLOCK, HELD))
# Blocks that a multiprocessor is to hold at least, for some fits (`RowKernels`): 5 for
# Fit(float32, 4, BLOCK, 16) leaves 48 registers, too few for some assemblers.
RESIDENT: dict[Fit, int] = {}
BESIDE = (  # examples for two rows in registers
    Fit(float32, 1, WARP, 4),
    Fit(float32, 4, BLOCK, 16),
    Fit(float64, 1, BLOCK, 8),
)
OVER_CLASSES = (
    Fit(float32, 1, WARP, 4),
    Fit(float32, 4, BLOCK, HELD),
    Fit(float64, 1, WARP, HELD),
)

SOFTMAX_ROWS = RowKernels(
    "softmax_rows", softmax_rows, "T[] T[] int64 int64", resident=RESIDENT
)
LOG_SOFTMAX_ROWS = RowKernels(
    "log_softmax_rows", log_softmax_rows, "T[] T[] int64 int64", resident=RESIDENT
)
SOFTMAX_BACKWARD_ROWS = RowKernels(
    "softmax_backward_rows", softmax_backward_rows, "T[] T[] T[] int64 int64", BESIDE
)
LOG_SOFTMAX_BACKWARD_ROWS = RowKernels(
    "log_softmax_backward_rows", log_softmax_backward_rows,
    "T[] T[] T[] int64 int64", BESIDE,
)  # fmt: skip
SOFTMAX_PARTIALS = RowKernels(
    "softmax_partials", softmax_partials, "T[] int64 int64 int64 T[] T[]", LONG
)
# Where there are two kernels, the second one is for the logarithm.
SOFTMAX_PIECES, SLOPE_PARTIALS, SLOPE_PIECES = (
    tuple(
        RowKernels(prefix + name, partial(template, logarithm=bool(prefix)), text, LONG)
        for prefix in ("", "log_")
    )
    for name, template, text in (
        ("softmax_pieces", softmax_pieces, "T[] int64 int64 int64 T[] T[] T[]"),
        ("slope_partials", slope_partials, "T[] T[] int64 int64 int64 T[]"),
        ("slope_pieces", slope_pieces, "T[] T[] int64 int64 int64 T[] T[]"),
    )
)
CROSS_ENTROPY_ROWS = RowKernels(
    "cross_entropy_rows", cross_entropy_rows,
    "T[] int64[] int64 int64 T[] T[] int64[]", OVER_CLASSES,
)  # fmt: skip
CROSS_ENTROPY_BACKWARD_ROWS = RowKernels(
    "cross_entropy_backward_rows", cross_entropy_backward_rows,
    "T[] int64 T[] int64[] T[] int64 int64 T[]", OVER_CLASSES,
)  # fmt: skip


def _columns(name: str, template: Callable, example: str) -> Any:
    """The kernels of a template for columns, by (element type, logarithm)."""
    return {
        (dtype, logarithm): Kernel(
            template(dtype, logarithm),
            f"{'log_' if logarithm else ''}{name}[{dtype.name}]",
            [example.replace("T", dtype.name)],
            LINES * SHARES,
        )
        for dtype in (float32, float64)
        for logarithm in (False, True)
    }


SOFTMAX_COLUMNS = _columns("softmax_columns", softmax_columns, "T[] int64 int64 T[]")
SLOPE_COLUMNS = _columns("slope_columns", slope_columns, "T[] T[] int64 int64 T[]")

# -------------------------------------------------------------------------- launchers


def _inner(a: TensorData, dim: int) -> int:
    """How many lines along `dim` lie side by side."""
    return math.prod(a.shape[dim + 1 :])


def _moved(a: TensorData, dim: int) -> TensorData:
    """`a` with `dim` at the end, row by row."""
    order = [*(i for i in range(a.dims) if i != dim), dim]
    return contiguous(a.permute(order))


def _moved_back(a: TensorData, dim: int) -> TensorData:
    """The last dimension of `a` at `dim` again, row by row."""
    last = a.dims - 1
    return copy(a.permute([*range(dim), last, *range(dim, last)]), a.dtype)


def _pieces_of_a_row(n: int) -> tuple[int, int]:
    """Into how many pieces a long row is cut, and how long they are."""
    step = HELD * BLOCK
    most = min(MOST_PIECES, BLOCK)
    length = max(PIECE, ceil_div(ceil_div(n, most), step) * step)
    return ceil_div(n, length), length


def _rows(a: TensorData, out: TensorData, dim: int, logarithm: bool) -> None:
    """The kernels of `softmax` for contiguous tensors that have elements."""
    n, inner, dtype = a.shape[dim], _inner(a, dim), a.dtype
    x, y = a.flat(), out.storage.array
    count = len(y) // n
    if inner > 1:
        grid = ceil_div(count, LINES), LINES * SHARES
        SOFTMAX_COLUMNS[dtype, logarithm][grid](x, n, inner, y)
        return
    width = width_of(n, dtype, x)
    fit = fitting(n, dtype, width)
    if fit is not None:
        kernels = LOG_SOFTMAX_ROWS if logarithm else SOFTMAX_ROWS
        kernels[fit][fit.launch(count)](x, y, count, n)
        return
    fit = Fit(dtype, width, BLOCK, HELD)
    pieces, piece = _pieces_of_a_row(n)
    tops, totals = (empty((count * pieces,), dtype).storage.array for _ in range(2))
    grid = count * pieces, BLOCK
    SOFTMAX_PARTIALS[fit][grid](x, n, pieces, piece, tops, totals)
    SOFTMAX_PIECES[logarithm][fit][grid](x, n, pieces, piece, tops, totals, y)


def _forward(a: TensorData, dim: int, logarithm: bool) -> TensorData:
    if a.dims == 0:
        return full((), 0 if logarithm else 1, a.dtype)
    if 1 < _inner(a, dim) < SHORT_INNER:
        return _moved_back(_forward(_moved(a, dim), a.dims - 1, logarithm), dim)
    out = empty(a.shape, a.dtype)
    if out.size:
        _rows(contiguous(a), out, dim, logarithm)
    return out


def softmax(a: TensorData, dim: int) -> TensorData:
    """exp(a - max) / sum(exp(a - max)) along `dim`; a [*] -> [*]."""
    return _forward(a, dim, False)


def log_softmax(a: TensorData, dim: int) -> TensorData:
    """a - max - log(sum(exp(a - max))) along `dim`; a [*] -> [*]."""
    return _forward(a, dim, True)


def _slopes(
    grad: TensorData, out: TensorData, dx: TensorData, dim: int, logarithm: bool
) -> None:
    """The kernels of `softmax_backward` for contiguous tensors that have elements."""
    n, inner, dtype = out.shape[dim], _inner(out, dim), out.dtype
    g, y, made = grad.flat(), out.flat(), dx.storage.array
    count = len(made) // n
    if inner > 1:
        grid = ceil_div(count, LINES), LINES * SHARES
        SLOPE_COLUMNS[dtype, logarithm][grid](g, y, n, inner, made)
        return
    width = width_of(n, dtype, g, y)
    fit = fitting(n, dtype, width, 2)
    if fit is not None:
        kernels = LOG_SOFTMAX_BACKWARD_ROWS if logarithm else SOFTMAX_BACKWARD_ROWS
        kernels[fit][fit.launch(count)](g, y, made, count, n)
        return
    fit = Fit(dtype, width, BLOCK, HELD)
    pieces, piece = _pieces_of_a_row(n)
    sums = empty((count * pieces,), dtype).storage.array
    grid = count * pieces, BLOCK
    SLOPE_PARTIALS[logarithm][fit][grid](g, y, n, pieces, piece, sums)
    SLOPE_PIECES[logarithm][fit][grid](g, y, n, pieces, piece, sums, made)


def _backward(
    grad: TensorData, out: TensorData, dim: int, logarithm: bool
) -> TensorData:
    if out.dims == 0:
        return full((), 0, out.dtype)
    if 1 < _inner(out, dim) < SHORT_INNER:
        g, y = _moved(grad, dim), _moved(out, dim)
        return _moved_back(_backward(g, y, out.dims - 1, logarithm), dim)
    dx = empty(out.shape, out.dtype)
    if dx.size:
        _slopes(contiguous(grad), contiguous(out), dx, dim, logarithm)
    return dx


def softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """out * (grad - sum(grad * out)) along `dim`; all [*]."""
    return _backward(grad, out, dim, False)


def log_softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """grad - exp(out) * sum(grad) along `dim`; all [*]."""
    return _backward(grad, out, dim, True)


def _over_classes(classes: int, dtype: DType, *arrays: Any) -> Fit:
    """How the kernels of cross-entropy read rows of any length, part by part."""
    width = width_of(classes, dtype, *arrays)
    if classes <= 4 * WARP:
        return Fit(dtype, width, WARP, 4)
    return Fit(dtype, width, WARP if classes <= 2 * HELD * WARP else BLOCK, HELD)


def cross_entropy(
    logits: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

    losses[n] = logsumexp(logits[n]) - logits[n, target[n]], or 0 where target[n] is
    `ignore_index`. Raises IndexError for another target outside [0, C): at the next
    copy to the host or synchronization, so that no call waits for the GPU
    (`index_errors.py`).
    """
    count, classes = logits.shape
    dtype = logits.dtype
    losses, logsumexp = empty((count,), dtype), empty((count,), dtype)
    if count == 0:
        return losses, logsumexp
    x = contiguous(logits).flat() if classes else empty((1,), dtype).storage.array
    fit = _over_classes(classes, dtype, x)
    CROSS_ENTROPY_ROWS[fit][fit.launch(count)](
        x, contiguous(target).flat(), ignore_index, classes, losses.storage.array,
        logsumexp.storage.array, notes(),
    )  # fmt: skip
    after_launch()
    return losses, logsumexp


def _each(grad: TensorData) -> tuple[Any, int]:
    """A flat array, and the steps in it from the gradient of one row to the next."""
    if grad.size and grad.strides == (0,):
        return grad.storage.array[grad.offset : grad.offset + 1], 0
    return contiguous(grad).flat(), 1


def mean_loss(
    losses: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """The mean [] of losses [N] with another target than `ignore_index`, and the share
    1 / count [] that each of them has in it."""
    dtype = losses.dtype
    mean, share = empty((), dtype), empty((), dtype)
    MEAN_OF_LOSSES[dtype][1, BLOCK](
        contiguous(losses).flat(), contiguous(target).flat(), ignore_index,
        mean.storage.array, share.storage.array,
    )  # fmt: skip
    return mean, share


def cross_entropy_backward(
    grad: TensorData,
    logits: TensorData,
    target: TensorData,
    logsumexp: TensorData,
    ignore_index: int,
) -> TensorData:
    """grad[n] * (softmax(logits[n]) - onehot(target[n])), rows ignored are 0.

    grad, target, logsumexp [N], logits [N, C] -> [N, C]
    """
    dx = empty(logits.shape, logits.dtype)
    if dx.size:
        count, classes = logits.shape
        x = contiguous(logits).flat()
        fit = _over_classes(classes, logits.dtype, x)
        CROSS_ENTROPY_BACKWARD_ROWS[fit][fit.launch(count)](
            *_each(grad), x, contiguous(target).flat(),
            contiguous(logsumexp).flat(), ignore_index, classes, dx.storage.array,
        )  # fmt: skip
    return dx
