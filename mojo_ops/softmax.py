"""Softmax, log-softmax and cross-entropy: launchers of `softmax.mojo`.

With this file one can turn scores into probabilities along a dimension (`softmax`) or
into their logarithms (`log_softmax`), and compare scores with target classes
(`cross_entropy`). The kernels see rows: a dimension that is not the last one is moved
there first, by a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minitorch.dtypes import int64
from minitorch.tensor_data import TensorData
from mojo_ops.bridge import Library
from mojo_ops.memory import contiguous, copy, empty

kernels = Library("softmax")


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


def _along(kernel: Callable, dim: int, a: TensorData, b: TensorData) -> TensorData:
    """Run the kernel on the rows of both operands along `dim`."""
    x = _last(a, dim)
    y = x if b is a else _last(b, dim)
    out = empty(x.shape, x.dtype)
    if out.size:
        width = out.shape[-1] if out.shape else 1
        rows = out.size // width
        item = x.dtype.itemsize
        kernel(x.flat(), y.flat(), out.storage.array, rows, width, item)
    return _back(out, dim)


def softmax(a: TensorData, dim: int) -> TensorData:
    """exp(a - max) / sum(exp(a - max)) along `dim`."""
    return _along(kernels.softmax, dim, a, a)


def softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """out * (grad - sum(grad * out)) along `dim`."""
    return _along(kernels.softmax_backward, dim, grad, out)


def log_softmax(a: TensorData, dim: int) -> TensorData:
    """a - max - log(sum(exp(a - max))) along `dim`."""
    return _along(kernels.log_softmax, dim, a, a)


def log_softmax_backward(grad: TensorData, out: TensorData, dim: int) -> TensorData:
    """grad - exp(out) * sum(grad) along `dim`."""
    return _along(kernels.log_softmax_backward, dim, grad, out)


def _labels(target: TensorData) -> TensorData:
    """The classes as int64, one behind the other."""
    return contiguous(target) if target.dtype is int64 else copy(target, int64)


def cross_entropy(
    logits: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

    losses[n] = logsumexp(logits[n]) - logits[n, target[n]], or 0 where target[n]
    is `ignore_index`. Raises IndexError for another target outside [0, C).
    """
    rows, classes = logits.shape
    dtype = logits.dtype
    losses, logsumexp = empty((rows,), dtype), empty((rows,), dtype)
    wanted = _labels(target).flat()
    bad = kernels.cross_entropy(
        contiguous(logits).flat(), wanted, losses.storage.array,
        logsumexp.storage.array, rows, classes, ignore_index, dtype.itemsize,
    )  # fmt: skip
    if bad >= 0:
        raise IndexError(
            f"cross_entropy: target[{bad}] is {wanted[bad]}, but there are {classes} "
            f"classes; targets must be from 0 to {classes - 1}, or {ignore_index} "
            f"(ignore_index)"
        )
    if classes == 0:
        losses.storage.array.fill(0)
        logsumexp.storage.array.fill(-math.inf)
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
        kernels.cross_entropy_backward(
            contiguous(grad).flat(), contiguous(logits).flat(),
            _labels(target).flat(), contiguous(logsumexp).flat(),
            dx.storage.array, *logits.shape, ignore_index, dx.dtype.itemsize,
        )  # fmt: skip
    return dx


def mean_loss(
    losses: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """The mean [] of losses [N] with another target than `ignore_index`, and the share
    1 / count [] that each of them has in it. NaN and infinity for none."""
    mean, share = empty((), losses.dtype), empty((), losses.dtype)
    kernels.mean_loss(
        contiguous(losses).flat(), _labels(target).flat(), mean.storage.array,
        share.storage.array, losses.size, ignore_index, losses.dtype.itemsize,
    )  # fmt: skip
    return mean, share
