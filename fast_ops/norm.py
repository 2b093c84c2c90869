"""Layer norm and batch norm, forward and backward (first, plain form)."""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from fast_ops.launch import kernel
from fast_ops.memory import copy, empty
from minitorch.tensor_data import TensorData


def _flat(a: TensorData) -> np.ndarray:
    return (a if a.is_contiguous() else copy(a, a.dtype)).flat()


def _flat_or(a: TensorData | None, size: int, value: float, like: TensorData):
    if a is not None:
        return _flat(a)
    return np.full(size, value, like.dtype.numpy)


def layer_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float
) -> tuple[TensorData, TensorData, TensorData]:
    """x [R, D], weight and bias [D] -> out [R, D], mean [R], rstd [R]."""
    R, D = x.shape
    out, mean, rstd = empty(x.shape, x.dtype), empty((R,), x.dtype), empty((R,), x.dtype)
    _layer_norm(
        _flat(x).reshape(R, D),
        _flat_or(weight, D, 1.0, x),
        _flat_or(bias, D, 0.0, x),
        eps,
        out.flat().reshape(R, D),
        mean.flat(),
        rstd.flat(),
    )
    return out, mean, rstd


@kernel(parallel=True)
def _layer_norm(x, weight, bias, eps, out, mean, rstd):
    D = x.shape[1]
    for r in prange(x.shape[0]):
        total = 0.0
        for i in range(D):
            total += x[r, i]
        m = total / D
        total = 0.0
        for i in range(D):
            total += (x[r, i] - m) ** 2
        s = 1.0 / math.sqrt(total / D + eps)
        mean[r] = m
        rstd[r] = s
        for i in range(D):
            out[r, i] = (x[r, i] - m) * s * weight[i] + bias[i]


@kernel(parallel=True)
def _layer_norm_backward(grad, x, mean, rstd, weight, dx):
    D = x.shape[1]
    for r in prange(x.shape[0]):
        a = 0.0
        b = 0.0
        for i in range(D):
            g = grad[r, i] * weight[i]
            a += g
            b += g * (x[r, i] - mean[r]) * rstd[r]
        for i in range(D):
            hat = (x[r, i] - mean[r]) * rstd[r]
            dx[r, i] = rstd[r] * (grad[r, i] * weight[i] - a / D - hat * b / D)


@kernel(parallel=True)
def _layer_norm_backward_params(grad, x, mean, rstd, dw, db):
    for i in prange(x.shape[1]):
        a = 0.0
        b = 0.0
        for r in range(x.shape[0]):
            a += grad[r, i] * (x[r, i] - mean[r]) * rstd[r]
            b += grad[r, i]
        dw[i] = a
        db[i] = b


def layer_norm_backward(
    grad: TensorData,
    x: TensorData,
    mean: TensorData,
    rstd: TensorData,
    weight: TensorData | None,
) -> tuple[TensorData, TensorData, TensorData]:
    """Gradients for x [R, D], weight [D] and bias [D]."""
    R, D = x.shape
    dx, dw, db = empty(x.shape, x.dtype), empty((D,), x.dtype), empty((D,), x.dtype)
    g, xs = _flat(grad).reshape(R, D), _flat(x).reshape(R, D)
    m, s = _flat(mean), _flat(rstd)
    w = _flat_or(weight, D, 1.0, x)
    _layer_norm_backward(g, xs, m, s, w, dx.flat().reshape(R, D))
    _layer_norm_backward_params(g, xs, m, s, dw.flat(), db.flat())
    return dx, dw, db


@kernel(parallel=True)
def _batch_norm(x, weight, bias, eps, out, mean, variance):
    N, C, L = x.shape
    for c in prange(C):
        total = 0.0
        for n in range(N):
            for i in range(L):
                total += x[n, c, i]
        m = total / (N * L)
        total = 0.0
        for n in range(N):
            for i in range(L):
                total += (x[n, c, i] - m) ** 2
        v = total / (N * L)
        mean[c] = m
        variance[c] = v
        s = 1.0 / math.sqrt(v + eps)
        for n in range(N):
            for i in range(L):
                out[n, c, i] = (x[n, c, i] - m) * s * weight[c] + bias[c]


@kernel(parallel=True)
def _batch_norm_backward(grad, x, mean, variance, weight, eps, dx, dw, db):
    N, C, L = x.shape
    for c in prange(C):
        s = 1.0 / math.sqrt(variance[c] + eps)
        m = mean[c]
        a = 0.0
        b = 0.0
        for n in range(N):
            for i in range(L):
                a += grad[n, c, i]
                b += grad[n, c, i] * (x[n, c, i] - m) * s
        dw[c] = b
        db[c] = a
        count = N * L
        for n in range(N):
            for i in range(L):
                hat = (x[n, c, i] - m) * s
                dx[n, c, i] = (
                    weight[c] * s * (grad[n, c, i] - a / count - hat * b / count)
                )


def batch_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float
) -> tuple[TensorData, TensorData, TensorData]:
    """x [N, C, L], weight and bias [C] -> out, mean [C], biased variance [C]."""
    C = x.shape[1]
    out = empty(x.shape, x.dtype)
    mean, variance = empty((C,), x.dtype), empty((C,), x.dtype)
    _batch_norm(
        _flat(x).reshape(x.shape),
        _flat_or(weight, C, 1.0, x),
        _flat_or(bias, C, 0.0, x),
        eps,
        out.flat().reshape(x.shape),
        mean.flat(),
        variance.flat(),
    )
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
    C = x.shape[1]
    dx, dw, db = empty(x.shape, x.dtype), empty((C,), x.dtype), empty((C,), x.dtype)
    _batch_norm_backward(
        _flat(grad).reshape(x.shape),
        _flat(x).reshape(x.shape),
        _flat(mean),
        _flat(variance),
        _flat_or(weight, C, 1.0, x),
        eps,
        dx.flat().reshape(x.shape),
        dw.flat(),
        db.flat(),
    )
    return dx, dw, db
