"""Softmax, log-softmax and cross-entropy, forward and backward.

With this file one can turn scores into probabilities along a dimension (`softmax`) or
into their logarithms (`log_softmax`), and compare scores with target classes
(`cross_entropy`).

All of them see a tensor as rows along `dim`. A row is finished by one function,
compiled once (`softmax_row` and its neighbours); the kernel around it is only the loop
over rows, shared by all threads or, for small tensors, run by one. Rows do not touch
each other, so results do not depend on the number of threads.

Each row is read two or three times, from the first-level cache after the first time.
The maximum is subtracted before the exponential, so nothing overflows; a row that is
-inf everywhere has no maximum to subtract and becomes NaN, as in PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel, device_function, kernel
from fast_ops.memory import contiguous, copy, empty
from fast_ops.vector_math import by_type_1, exp_flush, helper, maximum_float, scaled
from minitorch import operators
from minitorch.tensor_data import TensorData

# Below 2 ** -126 the exponential is 0 here: it is added to a sum of 1 or more.
exp = by_type_1(operators.exp, exp_flush)

# ------------------------------------------------------------------------- one row


@helper
def log_share(x: float, top: float, log_total: float) -> float:
    """(x - top) - log_total, in this order.

    x and top may be large and close to each other; top + log_total would be rounded.
    """
    return (x - top) - log_total


@helper
def surprise(x: float, top: float, log_total: float) -> float:
    """-log_share(x), in the same order."""
    return log_total - (x - top)


@device_function
def exp_sum(row: np.ndarray) -> tuple[float, float]:
    """The maximum of a row, and the sum of exp(element - maximum)."""
    top = row[0]
    for i in range(row.size):
        top = maximum_float(top, row[i])
    total = row.dtype.type(0)
    for i in range(row.size):
        total += exp(row[i] - top)
    return top, total


@device_function
def softmax_row(row: np.ndarray, out: np.ndarray) -> None:
    """out[i] = exp(row[i] - max) / sum over j of exp(row[j] - max)."""
    top = row[0]
    for i in range(row.size):
        top = maximum_float(top, row[i])
    total = row.dtype.type(0)
    for i in range(row.size):
        value = exp(row[i] - top)
        out[i] = value
        total += value
    scale = row.dtype.type(1) / total
    for i in range(row.size):
        out[i] = scaled(out[i], scale)


@device_function
def softmax_backward_row(grad: np.ndarray, out: np.ndarray, dx: np.ndarray) -> None:
    """dx[i] = out[i] * (grad[i] - sum over j of grad[j] * out[j])."""
    dot = out.dtype.type(0)
    for i in range(out.size):
        dot += grad[i] * out[i]
    for i in range(out.size):
        dx[i] = out[i] * (grad[i] - dot)


@device_function
def log_softmax_row(row: np.ndarray, out: np.ndarray) -> None:
    """out[i] = row[i] - max - log(sum over j of exp(row[j] - max))."""
    top, total = exp_sum(row)
    log_total = row.dtype.type(math.log(total))
    for i in range(row.size):
        out[i] = log_share(row[i], top, log_total)


@device_function
def log_softmax_backward_row(grad: np.ndarray, out: np.ndarray, dx: np.ndarray) -> None:
    """dx[i] = grad[i] - exp(out[i]) * sum over j of grad[j]."""
    total = out.dtype.type(0)
    for i in range(out.size):
        total += grad[i]
    for i in range(out.size):
        dx[i] = grad[i] - exp(out[i]) * total


# -------------------------------------------------------------- loops over all rows


def _softmax(a, out, n):
    """# a [R, n] -> out [R, n]; a thread makes whole rows."""
    for r in prange(out.size // n):
        at = np.int64(r) * n
        softmax_row(a[at : at + n], out[at : at + n])


def _softmax_backward(grad, out, dx, n):
    """# grad [R, n], out [R, n] -> dx [R, n]; a thread makes whole rows."""
    for r in prange(out.size // n):
        at = np.int64(r) * n
        softmax_backward_row(grad[at : at + n], out[at : at + n], dx[at : at + n])


def _log_softmax(a, out, n):
    """# a [R, n] -> out [R, n]; a thread makes whole rows."""
    for r in prange(out.size // n):
        at = np.int64(r) * n
        log_softmax_row(a[at : at + n], out[at : at + n])


def _log_softmax_backward(grad, out, dx, n):
    """# grad [R, n], out [R, n] -> dx [R, n]; a thread makes whole rows."""
    for r in prange(out.size // n):
        at = np.int64(r) * n
        log_softmax_backward_row(grad[at : at + n], out[at : at + n], dx[at : at + n])


def _cross_entropy(logits, target, ignore_index, losses, logsumexp):
    """The loss of each row, without writing a softmax.

    # logits [N, C], target [N] -> losses [N], logsumexp [N]

        for n:  logsumexp[n] = log(sum over c of exp(logits[n, c]))
                losses[n] = logsumexp[n] - logits[n, target[n]]

    A thread makes whole rows. Softmax, logarithm and choice would write and read
    [N, C] numbers three times; this reads them once from memory.
    """
    classes = logits.size // target.size
    for r in prange(target.size):
        at = np.int64(r) * classes
        row = logits[at : at + classes]
        top, total = exp_sum(row)
        log_total = row.dtype.type(math.log(total))
        logsumexp[r] = top + log_total
        losses[r] = 0
        if target[r] != ignore_index:
            losses[r] = surprise(row[target[r]], top, log_total)


def _cross_entropy_backward(grad, logits, target, logsumexp, ignore_index, dx):
    """The gradient for the logits, with one exponential for each.

    # grad [N], logits [N, C], target [N], logsumexp [N] -> dx [N, C]

        for n, c:  dx[n, c] = grad[n] * (exp(logits[n, c] - logsumexp[n])
                                         - (1 if c == target[n] else 0))

    A thread makes whole rows. The forward pass kept one number a row, not a softmax.
    """
    classes = logits.size // target.size
    for r in prange(target.size):
        at = np.int64(r) * classes
        row, made = logits[at : at + classes], dx[at : at + classes]
        if target[r] == ignore_index:
            made[:] = 0
        else:
            factor, log_total = grad[r], logsumexp[r]
            for i in range(row.size):
                made[i] = factor * exp(row[i] - log_total)
            made[target[r]] -= factor


# Each loop for one thread, and for all of them.
SOFTMAX = (compile_kernel(_softmax), compile_kernel(_softmax, parallel=True))
SOFTMAX_BACKWARD = (
    compile_kernel(_softmax_backward),
    compile_kernel(_softmax_backward, parallel=True),
)
LOG_SOFTMAX = (
    compile_kernel(_log_softmax),
    compile_kernel(_log_softmax, parallel=True),
)
LOG_SOFTMAX_BACKWARD = (
    compile_kernel(_log_softmax_backward),
    compile_kernel(_log_softmax_backward, parallel=True),
)
CROSS_ENTROPY = (
    compile_kernel(_cross_entropy),
    compile_kernel(_cross_entropy, parallel=True),
)
CROSS_ENTROPY_BACKWARD = (
    compile_kernel(_cross_entropy_backward),
    compile_kernel(_cross_entropy_backward, parallel=True),
)


@kernel()
def _first_bad_target(target, classes, ignore_index):
    """The first n whose target is neither a class nor `ignore_index`, or -1."""
    for n in range(target.size):
        if (target[n] < 0 or target[n] >= classes) and target[n] != ignore_index:
            return n
    return -1


@kernel()
def _mean_loss(losses, target, ignore_index, mean, share):
    """The mean of the losses that count, and the share of each."""
    total, count = 0.0, 0
    for n in range(losses.size):
        if target[n] != ignore_index:
            total += losses[n]
            count += 1
    mean[0] = total / count
    share[0] = 1.0 / count


# ------------------------------------------------------------------------ launchers


def _last(a: TensorData, dim: int) -> TensorData:
    """`a` with `dim` moved to the end, row by row; a copy only where that moves it."""
    if dim < a.dims - 1:
        a = a.permute([*(i for i in range(a.dims) if i != dim), dim])
    return contiguous(a)


def _back(a: TensorData, dim: int) -> TensorData:
    """The last dimension of `a` moved to `dim`, row by row."""
    if dim >= a.dims - 1:
        return a
    last = a.dims - 1
    moved = a.permute([*range(dim), last, *range(dim, last)])
    return copy(moved, moved.dtype)


def _along(kernels: tuple[Any, Any], dim: int, *operands: TensorData) -> TensorData:
    """Run the kernel that fits the size on the rows of all operands along `dim`."""
    rows = [_last(a, dim) for a in operands]
    out = empty(rows[0].shape, rows[0].dtype)
    made = out.storage.array
    if made.size:
        width = out.shape[-1] if out.shape else 1
        kernels[made.size >= SERIAL_LIMIT](*[a.flat() for a in rows], made, width)
    return _back(out, dim)


def softmax(a: TensorData, dim: int) -> TensorData:
    """exp(a - max) / sum(exp(a - max)) along `dim`."""
    return _along(SOFTMAX, dim, a)


def softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """out * (grad - sum(grad * out)) along `dim`."""
    return _along(SOFTMAX_BACKWARD, dim, grad, out)


def log_softmax(a: TensorData, dim: int) -> TensorData:
    """a - max - log(sum(exp(a - max))) along `dim`."""
    return _along(LOG_SOFTMAX, dim, a)


def log_softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """grad - exp(out) * sum(grad) along `dim`."""
    return _along(LOG_SOFTMAX_BACKWARD, dim, grad, out)


def cross_entropy(
    logits: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

    losses[n] = logsumexp(logits[n]) - logits[n, target[n]], or 0 where target[n]
    is `ignore_index`. Raises IndexError for another target outside [0, C).
    """
    rows, classes = logits.shape
    losses, logsumexp = empty((rows,), logits.dtype), empty((rows,), logits.dtype)
    wanted = contiguous(target).flat()
    bad = _first_bad_target(wanted, classes, ignore_index)
    if bad >= 0:
        raise IndexError(
            f"cross_entropy: target[{bad}] is {wanted[bad]}, but there are {classes} "
            f"classes; targets must be from 0 to {classes - 1}, or {ignore_index} "
            f"(ignore_index)"
        )
    if logits.size == 0:
        losses.flat().fill(0)
        logsumexp.flat().fill(-math.inf)
        return losses, logsumexp
    CROSS_ENTROPY[logits.size >= SERIAL_LIMIT](
        contiguous(logits).flat(), wanted, ignore_index, losses.flat(), logsumexp.flat()
    )
    return losses, logsumexp


def mean_loss(
    losses: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """The mean [] of losses [N] with another target than `ignore_index`, and the share
    1 / count [] that each of them has in it. NaN and infinity for none."""
    mean, share = empty((), losses.dtype), empty((), losses.dtype)
    _mean_loss(
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
    """grad[n] * (softmax(logits[n]) - onehot(target[n])), rows ignored are 0."""
    dx = empty(logits.shape, logits.dtype)
    if dx.size:
        CROSS_ENTROPY_BACKWARD[dx.size >= SERIAL_LIMIT](
            contiguous(grad).flat(),
            contiguous(logits).flat(),
            contiguous(target).flat(),
            contiguous(logsumexp).flat(),
            ignore_index,
            dx.flat(),
        )
    return dx
