"""Softmax, log-softmax and cross-entropy, forward and backward.

With this file one can turn scores into probabilities along a dimension (`softmax`) or
into their logarithms (`log_softmax`), and compare scores with target classes
(`cross_entropy`).

All of them treat the tensor as rows along `dim`. Rows do not touch each other, so a
thread takes whole rows, and the order in which a row is summed is the same for any
number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from fast_ops.launch import kernel
from fast_ops.memory import copy, empty
from minitorch.tensor_data import TensorData


def _rows(a: TensorData) -> np.ndarray:
    """a [..., D] as an array [R, D], copied only if it has gaps."""
    dense = a if a.is_contiguous() else copy(a, a.dtype)
    width = a.shape[-1] if a.shape else 1
    return dense.flat().reshape(-1, width) if width else dense.flat().reshape(0, 1)


def _last(a: TensorData, dim: int) -> TensorData:
    """a with `dim` moved to the end (a view)."""
    return a.permute([*(i for i in range(a.dims) if i != dim), dim]) if a.dims else a


def _back(a: TensorData, dim: int, dims: int) -> TensorData:
    """The last dimension of the contiguous a, moved to `dim` and contiguous again."""
    if dim >= dims - 1:
        return a
    moved = a.permute([*range(dim), dims - 1, *range(dim, dims - 1)])
    return moved if moved.is_contiguous() else copy(moved, moved.dtype)


@kernel(parallel=True)
def _softmax_rows(a, out):
    for r in prange(a.shape[0]):
        row, made = a[r], out[r]
        top = row[0]
        for i in range(row.size):
            top = max(top, row[i])
        total = row.dtype.type(0)
        for i in range(row.size):
            made[i] = math.exp(row[i] - top)
            total += made[i]
        for i in range(row.size):
            made[i] /= total


@kernel(parallel=True)
def _softmax_rows_backward(grad, out, dx):
    for r in prange(out.shape[0]):
        dot = out.dtype.type(0)
        for i in range(out.shape[1]):
            dot += grad[r, i] * out[r, i]
        for i in range(out.shape[1]):
            dx[r, i] = out[r, i] * (grad[r, i] - dot)


@kernel(parallel=True)
def _log_softmax_rows(a, out):
    for r in prange(a.shape[0]):
        row, made = a[r], out[r]
        top = row[0]
        for i in range(row.size):
            top = max(top, row[i])
        total = row.dtype.type(0)
        for i in range(row.size):
            total += math.exp(row[i] - top)
        log_total = math.log(total)
        for i in range(row.size):
            made[i] = row[i] - top - log_total


@kernel(parallel=True)
def _log_softmax_rows_backward(grad, out, dx):
    for r in prange(out.shape[0]):
        total = out.dtype.type(0)
        for i in range(out.shape[1]):
            total += grad[r, i]
        for i in range(out.shape[1]):
            dx[r, i] = grad[r, i] - math.exp(out[r, i]) * total


def softmax(a: TensorData, dim: int) -> TensorData:
    """exp(a - max) / sum(exp(a - max)) along `dim`."""
    moved = _last(a, dim)
    out = empty(moved.shape, a.dtype)
    if out.size:
        _softmax_rows(_rows(moved), _rows(out))
    return _back(out, dim, a.dims)


def softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """out * (grad - sum(grad * out)) along `dim`."""
    moved = _last(out, dim)
    dx = empty(moved.shape, out.dtype)
    if dx.size:
        _softmax_rows_backward(_rows(_last(grad, dim)), _rows(moved), _rows(dx))
    return _back(dx, dim, out.dims)


def log_softmax(a: TensorData, dim: int) -> TensorData:
    """a - max - log(sum(exp(a - max))) along `dim`."""
    moved = _last(a, dim)
    out = empty(moved.shape, a.dtype)
    if out.size:
        _log_softmax_rows(_rows(moved), _rows(out))
    return _back(out, dim, a.dims)


def log_softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """grad - exp(out) * sum(grad) along `dim`."""
    moved = _last(out, dim)
    dx = empty(moved.shape, out.dtype)
    if dx.size:
        _log_softmax_rows_backward(_rows(_last(grad, dim)), _rows(moved), _rows(dx))
    return _back(dx, dim, out.dims)


@kernel()
def _bad_target(target, classes, ignore_index):
    for n in range(target.size):
        if (target[n] < 0 or target[n] >= classes) and target[n] != ignore_index:
            return n
    return -1


@kernel(parallel=True)
def _cross_entropy_rows(logits, target, losses, logsumexp, ignore_index):
    for n in prange(logits.shape[0]):
        row = logits[n]
        top = row[0]
        for i in range(row.size):
            top = max(top, row[i])
        total = row.dtype.type(0)
        for i in range(row.size):
            total += math.exp(row[i] - top)
        logsumexp[n] = top + math.log(total)
        losses[n] = 0
        if target[n] != ignore_index:
            losses[n] = logsumexp[n] - row[target[n]]


@kernel(parallel=True)
def _cross_entropy_rows_backward(grad, logits, target, logsumexp, ignore_index, dx):
    for n in prange(logits.shape[0]):
        if target[n] == ignore_index:
            for i in range(dx.shape[1]):
                dx[n, i] = 0
        else:
            for i in range(dx.shape[1]):
                dx[n, i] = grad[n] * math.exp(logits[n, i] - logsumexp[n])
            dx[n, target[n]] -= grad[n]


def _flat(a: TensorData) -> np.ndarray:
    return (a if a.is_contiguous() else copy(a, a.dtype)).flat()


def cross_entropy(
    logits: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

    losses[n] = logsumexp(logits[n]) - logits[n, target[n]], or 0 where target[n]
    is `ignore_index`. Raises IndexError for another target outside [0, C).
    """
    rows, classes = logits.shape
    losses, logsumexp = empty((rows,), logits.dtype), empty((rows,), logits.dtype)
    wanted = _flat(target)
    bad = _bad_target(wanted, classes, ignore_index)
    if bad >= 0:
        raise IndexError(
            f"cross_entropy: target[{bad}] is {wanted[bad]}, but there are {classes} "
            f"classes; targets must be from 0 to {classes - 1}, or {ignore_index} "
            f"(ignore_index)"
        )
    if classes == 0:
        losses.flat()[:] = 0
        logsumexp.flat()[:] = -np.inf
    elif rows:
        _cross_entropy_rows(
            _rows(logits), wanted, losses.flat(), logsumexp.flat(), ignore_index
        )
    return losses, logsumexp


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
        _cross_entropy_rows_backward(
            _flat(grad),
            _rows(logits),
            _flat(target),
            _flat(logsumexp),
            ignore_index,
            _rows(dx),
        )
    return dx
