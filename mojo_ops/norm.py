"""Layer norm and batch norm: launchers of `norm.mojo`.

With this file one can bring each row (`layer_norm`) or each channel (`batch_norm`) to
mean 0 and variance 1, and take the gradients.
"""

from __future__ import annotations

import math

import numpy as np

from minitorch.tensor_data import TensorData
from mojo_ops.bridge import Library
from mojo_ops.memory import contiguous, copy, empty

kernels = Library("norm")

BLOCKS = 32  # partial sums over rows, at most
SHORT = 16  # lines below this length are copied together first


def _flat_or(
    a: TensorData | None, size: int, value: float, x: TensorData
) -> np.ndarray:
    """The elements of `a`, or `value` everywhere where there is none."""
    return np.full(size, value, x.dtype.numpy) if a is None else contiguous(a).flat()


def layer_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float
) -> tuple[TensorData, TensorData, TensorData]:
    """x [R, D], weight and bias [D] -> out [R, D], mean [R], rstd [R].

    out = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps) with
    the biased variance of each row.
    """
    rows, width = x.shape
    out, mean, rstd = (empty(s, x.dtype) for s in (x.shape, (rows,), (rows,)))
    kernels.layer_norm(
        contiguous(x).flat(), _flat_or(weight, width, 1.0, x),
        _flat_or(bias, width, 0.0, x), out.storage.array, mean.storage.array,
        rstd.storage.array, eps, rows, width, x.dtype.itemsize,
    )  # fmt: skip
    return out, mean, rstd


def layer_norm_backward(
    grad: TensorData,
    x: TensorData,
    mean: TensorData,
    rstd: TensorData,
    weight: TensorData | None,
) -> tuple[TensorData, TensorData, TensorData]:
    """Gradients for x [R, D], weight [D] and bias [D]."""
    rows, width = x.shape
    dx, dw, db = (empty(s, x.dtype) for s in (x.shape, (width,), (width,)))
    blocks = max(1, min(BLOCKS, rows // 4))
    kernels.layer_norm_backward(
        contiguous(grad).flat(), contiguous(x).flat(), contiguous(mean).flat(),
        contiguous(rstd).flat(), _flat_or(weight, width, 1.0, x), dx.storage.array,
        np.empty(blocks * 2 * width, x.dtype.numpy), dw.storage.array,
        db.storage.array, rows, width, blocks, x.dtype.itemsize,
    )  # fmt: skip
    return dx, dw, db


def _by_channel(x: TensorData) -> TensorData:
    """Short lines of [N, C, L] put together as [1, C, N * L]: a copy."""
    n, c, length = x.shape
    moved = copy(x.permute((1, 0, 2)), x.dtype)
    return TensorData(moved.storage, (1, c, n * length))


def _by_image(x: TensorData, n: int) -> TensorData:
    """[1, C, N * L] as [N, C, L] again: a copy."""
    _, c, size = x.shape
    moved = TensorData(x.storage, (c, n, size // n)).permute((1, 0, 2))
    return copy(moved, x.dtype)


def batch_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float
) -> tuple[TensorData, TensorData, TensorData]:
    """x [N, C, L], weight and bias [C] -> out, mean [C], biased variance [C]."""
    images, channels, length = x.shape
    if length < SHORT and x.size and images > 1:
        out, mean, variance = batch_norm(_by_channel(x), weight, bias, eps)
        return _by_image(out, images), mean, variance
    out, mean, variance = (
        empty(s, x.dtype) for s in (x.shape, (channels,), (channels,))
    )
    if x.size == 0:
        mean.flat().fill(math.nan)
        variance.flat().fill(math.nan)
        return out, mean, variance
    kernels.batch_norm(
        contiguous(x).flat(), _flat_or(weight, channels, 1.0, x),
        _flat_or(bias, channels, 0.0, x), out.storage.array, mean.storage.array,
        variance.storage.array, eps, *x.shape, x.dtype.itemsize,
    )  # fmt: skip
    return out, mean, variance


def batch_norm_backward(
    grad: TensorData,
    x: TensorData,
    mean: TensorData,
    variance: TensorData,
    weight: TensorData | None,
    eps: float,
) -> tuple[TensorData, TensorData, TensorData]:
    """Gradients for x [N, C, L], weight [C] and bias [C] in training mode."""
    images, channels, length = x.shape
    if length < SHORT and x.size and images > 1:
        grad, x = _by_channel(grad), _by_channel(x)
        dx, dw, db = batch_norm_backward(grad, x, mean, variance, weight, eps)
        return _by_image(dx, images), dw, db
    dx, dw, db = (empty(s, x.dtype) for s in (x.shape, (channels,), (channels,)))
    if x.size == 0:
        dw.flat().fill(0)
        db.flat().fill(0)
        return dx, dw, db
    kernels.batch_norm_backward(
        contiguous(grad).flat(), contiguous(x).flat(), contiguous(mean).flat(),
        contiguous(variance).flat(), _flat_or(weight, channels, 1.0, x),
        dx.storage.array, dw.storage.array, db.storage.array, eps, *x.shape,
        x.dtype.itemsize,
    )  # fmt: skip
    return dx, dw, db
