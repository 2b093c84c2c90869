"""Cross-entropy on the GPU, forward and backward, without writing a softmax.

With this file one can compare scores with target classes (`cross_entropy`), average the
losses (`mean_loss`), and take the gradient for the scores (`cross_entropy_backward`).
The kernels read rows as those of `softmax.py` do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import WARP, load, store
from cuda_ops.block.rows import (
    BLOCK,
    Fit,
    KernelFamily,
    merged,
    row_reader,
    row_writer,
    summed,
    width_of,
)
from cuda_ops.index_errors import after_launch, bad_index, notes, number
from cuda_ops.memory import contiguous, copy_into, empty
from cuda_ops.softmax import ITEMS, exp, log, partial_finder
from minitorch.dtypes import DType, computed, float32, float64
from minitorch.tensor_data import TensorData

OPERATION = number("cross_entropy")


def cross_entropy_rows(fit: Fit) -> Callable:
    """The loss of each row, without writing a softmax.

    # logits [N, C], target [N] -> losses [N], logsumexp [N]; rows `pitch` apart

        for n:  logsumexp[n] = log(sum over c of exp(logits[n, c]))
                losses[n] = logsumexp[n] - logits[n, target[n]]

    A warp or a block reads a row once, with a running maximum and sum; nothing of
    [N, C] is written. Softmax, logarithm and choice would move five times the bytes.

    A row whose target is neither a class nor `ignore_index` leaves a note for the host
    (`index_errors.py`), and has the loss 0.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    partial_of, merge = partial_finder(fit), merged(group, exp, kind)
    zero, lowest, width = kind(0), kind(-np.inf), fit.width

    def kernel(logits, pitch, target, ignore_index, classes, losses, logsumexp, notes):
        x = cuda.local.array(items, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, target.size - 1) * pitch
        whole = classes - classes % width
        top, total = partial_of(logits, at, whole, t, x)
        if whole + t < classes:  # what makes no vector
            value = load(logits, at + whole + t)
            best = value if value > top else top
            if value != lowest:  # NaN stays
                total = total * exp(top - best) + exp(value - best)
            top = best
        top, total = merge(top, total, t, tops, totals)
        rest = log(total)
        if t == 0 and r < target.size:
            logsumexp[r] = top + rest
            label = target[r]
            if label == ignore_index:
                losses[r] = zero
            elif label >= 0 and label < classes:
                losses[r] = rest - (load(logits, at + label) - top)
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
    number has the row's target, which it reads first, writes it a second time: `dx` may
    be `logits`.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    read, write, width = row_reader(fit), row_writer(fit), fit.width
    zero, one = kind(0), kind(1)

    def kernel(
        grad, step, logits, pitch, target, logsumexp, ignore_index, classes, dx,
        dx_pitch,
    ):  # fmt: skip
        x = cuda.local.array(items, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        if r < target.size:
            label = target[r]
            wanted = label != ignore_index
            factor, rest = load(grad, r * step), logsumexp[r]
            at, to, whole = r * pitch, r * dx_pitch, classes - classes % width
            owner = label // width % group if label < whole else label - whole
            mine = wanted and label >= 0 and label < classes and owner == t
            hit = exp(load(logits, at + label) - rest) - one if mine else zero
            for first in range(0, whole, group * items):
                read(logits, at + first, whole - first, t, zero, x)
                for k in range(items):
                    x[k] = factor * exp(x[k] - rest) if wanted else zero
                write(dx, to + first, whole - first, t, x)
            if whole + t < classes:  # what makes no vector
                value = factor * exp(load(logits, at + whole + t) - rest)
                store(dx, to + whole + t, value if wanted else zero)
            if mine:
                store(dx, to + label, factor * hit)

    return kernel


def mean_of_losses(dtype: DType) -> Callable:
    """The mean of the losses that count, and 1 / how many those are.

    # losses [N], target [N] -> mean [1], inverse [1]

        mean = sum of losses[n] where target[n] != ignore_index, by their number

    One block: thread t adds losses t, t + BLOCK, ...; then the threads' sums are added
    as in `rows.summed`. As four kernels (compare, count, add, divide) a step of a small
    network would wait three times longer for them than they compute.
    """
    kind = dtype.numpy.type
    total = summed(BLOCK)
    zero, one = kind(0), kind(1)

    def kernel(losses, target, ignore_index, mean, inverse):
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
            inverse[0] = one / count

    return kernel


# ---------------------------------------------------------------------------- kernels

MEAN_OF_LOSSES = KernelFamily(
    mean_of_losses, "T[] int64[] int64 T[] T[]", (float32,), (float64,)
)
OVER_CLASSES = (
    Fit(float32, 1, WARP, 4),
    Fit(float32, 4, BLOCK, ITEMS),
    Fit(float64, 1, WARP, ITEMS),
)
CROSS_ENTROPY_ROWS = KernelFamily(
    cross_entropy_rows, "T[] int64 int64[] int64 int64 T[] T[] int64[]", *OVER_CLASSES
)
CROSS_ENTROPY_BACKWARD_ROWS = KernelFamily(
    cross_entropy_backward_rows,
    "T[] int64 T[] int64 int64[] T[] int64 int64 T[] int64",
    *OVER_CLASSES,
)  # fmt: skip

# -------------------------------------------------------------------------- launchers


def _rows(a: TensorData) -> tuple[Any, int] | None:
    """A flat array in which the rows of a [N, C] begin at 0, and the elements from one
    to the next; None where a row has gaps, or none is behind the other."""
    if a.strides[1] != 1 or a.strides[0] < a.shape[1]:
        return None
    return a.storage.array[a.offset :], a.strides[0]


def _over_classes(classes: int, dtype: DType, pitch: int, *arrays: Any) -> Fit:
    """How the kernels of cross-entropy read rows of any length, part by part."""
    width = width_of(pitch, dtype, *arrays)
    if classes <= 4 * WARP:
        return Fit(dtype, width, WARP, 4)
    return Fit(dtype, width, WARP if classes <= 2 * ITEMS * WARP else BLOCK, ITEMS)


def cross_entropy(
    logits: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

    Of half types both are float32.

    The IndexError for a target outside [0, C) comes at the next copy to the host or
    synchronization, so that no call waits for the GPU (`index_errors.py`).
    """
    count, classes = logits.shape
    dtype = computed(logits.dtype)
    losses, logsumexp = empty((count,), dtype), empty((count,), dtype)
    if count == 0:
        return losses, logsumexp
    x, pitch = losses.storage.array, 0
    if classes:
        x, pitch = _rows(logits) or (contiguous(logits).flat(), classes)
    fit = _over_classes(classes, dtype, pitch, x)
    CROSS_ENTROPY_ROWS[fit][fit.launch(count)](
        x, pitch, contiguous(target).flat(), ignore_index, classes,
        losses.storage.array, logsumexp.storage.array, notes(),
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
    """The mean [] of losses [N] with another target than `ignore_index`, and
    1 / count [], the weight of each of them in it."""
    dtype = losses.dtype
    mean, inverse = empty((), dtype), empty((), dtype)
    MEAN_OF_LOSSES[dtype,][1, BLOCK](
        contiguous(losses).flat(), contiguous(target).flat(), ignore_index,
        mean.storage.array, inverse.storage.array,
    )  # fmt: skip
    return mean, inverse


def cross_entropy_backward(
    grad: TensorData,
    logits: TensorData,
    target: TensorData,
    logsumexp: TensorData,
    ignore_index: int,
    out: TensorData | None = None,
) -> TensorData:
    """grad[n] * (softmax(logits[n]) - onehot(target[n])), rows ignored are 0.

    Into `out` if given. Nothing is copied where rows lie behind each other, close or
    with a gap between them.
    """
    dx = out
    if dx is None or _rows(dx) is None:
        dx = empty(logits.shape, logits.dtype)
    if dx.size:
        count, classes = logits.shape
        x, pitch = _rows(logits) or (contiguous(logits).flat(), classes)
        z, dx_pitch = _rows(dx) or (dx.flat(), classes)
        even = math.gcd(pitch, dx_pitch)
        fit = _over_classes(classes, computed(logits.dtype), even, x, z)
        CROSS_ENTROPY_BACKWARD_ROWS[fit][fit.launch(count)](
            *_each(grad), x, pitch, contiguous(target).flat(),
            contiguous(logsumexp).flat(), ignore_index, classes, z, dx_pitch,
        )  # fmt: skip
    if out is None or out is dx:
        return dx
    copy_into(out, dx)
    return out
