"""Softmax, log-softmax and cross-entropy, forward and backward.

With this file the backend turns scores into probabilities along a dimension
(`softmax`) or into their logarithms (`log_softmax`), and compares scores with target
classes (`cross_entropy`); the launchers of `KERNELS` are in
`minitorch/backend/host/softmax.py`.

All of them see a tensor as rows along a dimension. A row is finished by one function,
compiled once (`softmax_row` and its neighbours); the kernel around it is only the loop
over rows, shared by all threads or, for small tensors, run by one. Rows do not touch
each other, so results do not depend on the number of threads.

Each row is read two or three times, from the first-level cache after the first time.
The maximum is subtracted before the exponential, so nothing overflows; a row that is
-inf everywhere has no maximum to subtract and becomes NaN, as in PyTorch.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from fast_ops.launch import both, compile_kernel, device_function
from fast_ops.memory import contiguous, empty
from fast_ops.vector_math import by_type_1, exp_flush, helper, maximum_float, scaled
from minitorch import operators
from minitorch.backend.indexing import index_error
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
def nll(x: float, top: float, log_total: float) -> float:
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
            losses[r] = nll(row[target[r]], top, log_total)


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
        row, z = logits[at : at + classes], dx[at : at + classes]
        if target[r] == ignore_index:
            z[:] = 0
        else:
            factor, log_total = grad[r], logsumexp[r]
            for i in range(row.size):
                z[i] = factor * exp(row[i] - log_total)
            z[target[r]] -= factor


def _mean_loss(losses, target, ignore_index, mean, share):
    """mean = sum of losses[n] / count, share = 1 / count, for the n not ignored.

    One thread adds the N numbers up, in float64: there are no more than rows of logits,
    each of which took a hundred times as long.
    """
    total, count = 0.0, 0
    for n in range(target.size):
        if target[n] != ignore_index:
            total += losses[n]
            count += 1
    mean[0] = total / count
    share[0] = 1.0 / count


def _first_bad_target(target, classes, ignore_index):
    """The first n whose target is neither a class nor `ignore_index`, or -1."""
    for n in range(target.size):
        if (target[n] < 0 or target[n] >= classes) and target[n] != ignore_index:
            return n
    return -1


def _nll(scores, classes, target, ignore_index, losses):
    """losses[n] = -scores[n, target[n]], or 0; the first n with no class, or -1."""
    for n in range(target.size):
        if target[n] == ignore_index:
            losses[n] = 0
        elif target[n] < 0 or target[n] >= classes:
            return n
        else:
            losses[n] = -scores[n * classes + target[n]]
    return -1


KERNELS = both(
    _softmax,
    _softmax_backward,
    _log_softmax,
    _log_softmax_backward,
    _cross_entropy,
    _cross_entropy_backward,
    _mean_loss,
    _first_bad_target,
)
first_bad_of_nll = compile_kernel(_nll)


def nll_of_rows(
    scores: TensorData, target: TensorData, ignore_index: int
) -> TensorData:
    """The classes are checked while the losses are made."""
    classes, losses = scores.shape[1], empty(target.shape, scores.storage.dtype)
    wanted, rows = contiguous(target).flat(), contiguous(scores).flat()
    bad = first_bad_of_nll(rows, classes, wanted, ignore_index, losses.storage.array)
    if bad >= 0:
        raise index_error("gather", wanted[bad], 1, classes)
    return losses
