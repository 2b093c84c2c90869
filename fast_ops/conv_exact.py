"""Convolution product by product, for numbers that are not finite.

With this file `conv.py` puts inf and NaN where `minitorch/simple_ops/conv.py` and
PyTorch put them (`exact_output`, `exact_backward_input`, `exact_backward_weight`).

A window that reaches over the edge has no product there. The kernels of `conv.py` have
one, with a zero of the padding; that changes no finite sum, but 0 * inf is NaN. They
see it, for what it costs to look at the weight or at its gradient, and the sums are
made once more by these loops, which are slow: they know nothing of registers, caches or
vectors.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import kernel
from fast_ops.memory import contiguous
from minitorch.tensor_data import TensorData

Pair = tuple[int, int]


@kernel(parallel=True)
def _output(x, weight, out, rows, columns):
    """Each task adds to one plane of the output.

    # x [N, C, H, W], weight [O, C/groups, KH, KW] -> out [N, O, OH, OW], has the bias

        for n, o:  for k, (p, i, row), (q, j, col):
            out[n, o, p, q] += x[n, first + k, row, col] * weight[o, k, i, j]
    """
    made, depth = weight.shape[:2]
    in_group = made // (x.shape[1] // depth)  # outputs
    for task in prange(x.shape[0] * made):
        n, o = divmod(np.int64(task), made)
        first = o // in_group * depth
        for k in range(depth):
            for p, i, row in rows:
                for q, j, col in columns:
                    out[n, o, p, q] += x[n, first + k, row, col] * weight[o, k, i, j]


@kernel(parallel=True)
def _backward_input(grad, weight, out, rows, columns):
    """Each task adds to one plane of the gradient.

    # grad [N, O, OH, OW], weight [O, C/groups, KH, KW] -> out [N, C, H, W]

        for n, c:  for o of its group, (p, i, row), (q, j, col):
            out[n, c, row, col] += grad[n, o, p, q] * weight[o, k, i, j]
    """
    made, depth = weight.shape[:2]
    channels = out.shape[1]
    in_group = made // (channels // depth)
    for task in prange(out.shape[0] * channels):
        n, c = divmod(np.int64(task), channels)
        group, k = divmod(c, depth)
        for o in range(group * in_group, (group + 1) * in_group):
            for p, i, row in rows:
                for q, j, col in columns:
                    out[n, c, row, col] += grad[n, o, p, q] * weight[o, k, i, j]


@kernel(parallel=True)
def _backward_weight(grad, x, out, rows, columns):
    """Each task adds to the taps of one output and one channel.

    # grad [N, O, OH, OW], x [N, C, H, W] -> out [O, C/groups, KH, KW]

        for o, k:  for n, (p, i, row), (q, j, col):
            out[o, k, i, j] += grad[n, o, p, q] * x[n, c, row, col]
    """
    made, depth = out.shape[:2]
    in_group = made // (x.shape[1] // depth)
    for task in prange(made * depth):
        o, k = divmod(np.int64(task), depth)
        c = o // in_group * depth + k
        for n in range(x.shape[0]):
            for p, i, row in rows:
                for q, j, col in columns:
                    out[o, k, i, j] += grad[n, o, p, q] * x[n, c, row, col]


def meetings(
    size: int, outputs: int, taps: int, stride: int, padding: int, dilation: int
) -> np.ndarray:
    """Along one axis, all (output, tap, source) positions that meet in a product."""
    reach = np.arange(taps) * dilation - padding
    source = np.arange(outputs)[:, None] * stride + reach  # [outputs, taps]
    output, tap = np.nonzero((source >= 0) & (source < size))
    return np.stack([output, tap, source[output, tap]], axis=1)


def _both(
    x: tuple[int, ...], out: tuple[int, ...], weight: tuple[int, ...], stride: Pair,
    padding: Pair, dilation: Pair,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The meetings of rows, and those of columns, from three shapes."""
    rows, columns = (
        meetings(
            x[i], out[i], weight[i], stride[i - 2], padding[i - 2], dilation[i - 2]
        )
        for i in (2, 3)
    )
    return rows, columns


def _wide(a: TensorData) -> np.ndarray:
    """The elements of `a` in float64, in which products of float32 are exact."""
    return contiguous(a).flat().reshape(a.shape).astype(np.float64)


def _store(values: np.ndarray, out: TensorData) -> None:
    with np.errstate(over="ignore"):  # beyond the largest float32 is inf
        out.flat()[:] = values.reshape(-1)


def exact_output(
    x: TensorData, weight: TensorData, bias: TensorData | None, out: TensorData,
    stride: Pair, padding: Pair, dilation: Pair,
) -> None:  # fmt: skip
    """x [N, C, H, W], weight [O, C/groups, KH, KW], bias [O] -> out [N, O, OH, OW]."""
    total = np.zeros(out.shape)
    if bias is not None:
        total += _wide(bias).reshape(-1, 1, 1)
    axes = _both(x.shape, out.shape, weight.shape, stride, padding, dilation)
    _output(_wide(x), _wide(weight), total, *axes)
    _store(total, out)


def exact_backward_input(
    grad: TensorData, weight: TensorData, out: TensorData,
    stride: Pair, padding: Pair, dilation: Pair,
) -> None:  # fmt: skip
    """grad [N, O, OH, OW], weight [O, C/groups, KH, KW] -> out [N, C, H, W]."""
    total = np.zeros(out.shape)
    axes = _both(out.shape, grad.shape, weight.shape, stride, padding, dilation)
    _backward_input(_wide(grad), _wide(weight), total, *axes)
    _store(total, out)


def exact_backward_weight(
    grad: TensorData, x: TensorData, out: TensorData,
    stride: Pair, padding: Pair, dilation: Pair,
) -> None:  # fmt: skip
    """grad [N, O, OH, OW], x [N, C, H, W] -> out [O, C/groups, KH, KW]."""
    total = np.zeros(out.shape)
    axes = _both(x.shape, grad.shape, out.shape, stride, padding, dilation)
    _backward_weight(_wide(grad), _wide(x), total, *axes)
    _store(total, out)
