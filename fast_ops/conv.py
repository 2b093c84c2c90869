"""Two-dimensional convolution (first, plain form)."""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import kernel
from fast_ops.memory import copy, empty
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

Pair = tuple[int, int]


def _dense(a: TensorData) -> np.ndarray:
    return (a if a.is_contiguous() else copy(a, a.dtype)).flat().reshape(a.shape)


@kernel(parallel=True)
def _forward(x, weight, out, s0, s1, p0, p1, d0, d1, per_group):
    N, O, OH, OW = out.shape
    C, H, W = weight.shape[1], x.shape[2], x.shape[3]
    for i in prange(N * O):
        n, o = divmod(np.int64(i), O)
        base = (o // per_group) * C
        for oh in range(OH):
            for ow in range(OW):
                acc = out[n, o, oh, ow]
                for c in range(C):
                    for kh in range(weight.shape[2]):
                        h = oh * s0 + kh * d0 - p0
                        if h < 0 or h >= H:
                            continue
                        for kw in range(weight.shape[3]):
                            w = ow * s1 + kw * d1 - p1
                            if w >= 0 and w < W:
                                acc += x[n, base + c, h, w] * weight[o, c, kh, kw]
                out[n, o, oh, ow] = acc


@kernel(parallel=True)
def _backward_input(grad, weight, dx, s0, s1, p0, p1, d0, d1, per_group):
    N, O, OH, OW = grad.shape
    C, H, W = weight.shape[1], dx.shape[2], dx.shape[3]
    for n in prange(N):
        for o in range(O):
            base = (o // per_group) * C
            for oh in range(OH):
                for ow in range(OW):
                    g = grad[n, o, oh, ow]
                    for c in range(C):
                        for kh in range(weight.shape[2]):
                            h = oh * s0 + kh * d0 - p0
                            if h < 0 or h >= H:
                                continue
                            for kw in range(weight.shape[3]):
                                w = ow * s1 + kw * d1 - p1
                                if w >= 0 and w < W:
                                    dx[n, base + c, h, w] += g * weight[o, c, kh, kw]


@kernel(parallel=True)
def _backward_weight(grad, x, dw, s0, s1, p0, p1, d0, d1, per_group):
    N, O, OH, OW = grad.shape
    C, H, W = dw.shape[1], x.shape[2], x.shape[3]
    for i in prange(O * C):
        o, c = divmod(np.int64(i), C)
        base = (o // per_group) * C
        for n in range(N):
            for oh in range(OH):
                for ow in range(OW):
                    g = grad[n, o, oh, ow]
                    for kh in range(dw.shape[2]):
                        h = oh * s0 + kh * d0 - p0
                        if h < 0 or h >= H:
                            continue
                        for kw in range(dw.shape[3]):
                            w = ow * s1 + kw * d1 - p1
                            if w >= 0 and w < W:
                                dw[o, c, kh, kw] += g * x[n, base + c, h, w]


def conv2d(
    x: TensorData,
    weight: TensorData,
    bias: TensorData | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """x [N, C, H, W], weight [O, C/groups, KH, KW] -> [N, O, OH, OW]."""
    sizes = [
        (x.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1)
        // stride[i]
        + 1
        for i in range(2)
    ]
    out = empty((x.shape[0], weight.shape[0], *sizes), x.dtype)
    view = out.flat().reshape(out.shape)
    view[:] = 0 if bias is None else _dense(bias).reshape(1, -1, 1, 1)
    per_group = max(weight.shape[0] // groups, 1)
    _forward(_dense(x), _dense(weight), view, *stride, *padding, *dilation, per_group)
    return out


def _zeros(shape: Shape, dtype: DType) -> tuple[TensorData, np.ndarray]:
    out = empty(shape, dtype)
    view = out.flat().reshape(shape)
    view[:] = 0
    return out, view


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
    out, view = _zeros(x_shape, grad.dtype)
    per_group = max(weight.shape[0] // groups, 1)
    _backward_input(
        _dense(grad), _dense(weight), view, *stride, *padding, *dilation, per_group
    )
    return out


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
    out, view = _zeros(weight_shape, grad.dtype)
    per_group = max(weight_shape[0] // groups, 1)
    _backward_weight(
        _dense(grad), _dense(x), view, *stride, *padding, *dilation, per_group
    )
    return out
