"""Pooling over windows of a plane, forward and backward: launchers.

With this file a backend of the host takes the maximum or the mean of each window of
x [N, C, H, W], and brings gradients back to x. The kernels see N * C planes; `numbers`
says how large they are and which windows they have (`window_numbers`).

    max_pool2d(x, out, index, numbers)    max_pool2d_backward(grad, index, dx, numbers)
    avg_pool2d(x, out, numbers)           avg_pool2d_backward(grad, dx, numbers)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from minitorch.backend.host.memory import SERIAL_LIMIT, HostMemory
from minitorch.backend.primitives import Pair, Primitives
from minitorch.dtypes import int64
from minitorch.tensor_data import Shape, TensorData


@lru_cache(maxsize=1024)
def window_numbers(x_shape: Shape, outputs: Shape, *windows: int) -> np.ndarray:
    """N * C, H, W, OH, OW; then, for both directions, kernel, stride, padding and
    dilation; and whether a mean counts the padding."""
    n, c, h, w = x_shape
    return np.array((n * c, h, w, *outputs[2:], *windows), np.int64)


@lru_cache(maxsize=1024)
def output_shape(
    x_shape: Shape, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Shape:
    """N, C, OH, OW: how many windows fit."""
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    room = [x_shape[2 + i] + 2 * padding[i] - reach[i] for i in range(2)]
    return *x_shape[:2], room[0] // stride[0] + 1, room[1] // stride[1] + 1


class HostPool(HostMemory, Primitives):
    """The launchers of the kernels above."""

    _pool: Any

    def max_pool2d(
        self, x: TensorData, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
    ) -> tuple[TensorData, TensorData]:
        """Padding is never the maximum."""
        shape = output_shape(x.shape, kernel, stride, padding, dilation)
        out, index = self.empty(shape, x.storage.dtype), self.empty(shape, int64)
        if out.size:
            numbers = window_numbers(
                x.shape, shape, *kernel, *stride, *padding, *dilation, 0
            )
            self._pool.max_pool2d[out.size * kernel[0] * kernel[1] >= SERIAL_LIMIT](
                self._flat(x), out.storage.array, index.storage.array, numbers
            )
        return out, index

    def max_pool2d_backward(
        self, grad: TensorData, index: TensorData, x_shape: Shape
    ) -> TensorData:
        """The places say all that is to know about the windows."""
        dx = self.empty(x_shape, grad.storage.dtype)
        if dx.size:
            numbers = window_numbers(x_shape, grad.shape, *(1,) * 9)
            self._pool.max_pool2d_backward[dx.size >= SERIAL_LIMIT](
                self._flat(grad), self._flat(index), dx.storage.array, numbers
            )
        return dx

    def avg_pool2d(
        self,
        x: TensorData,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        count_include_pad: bool,
    ) -> TensorData:
        """Sums and their division in one pass."""
        shape = output_shape(x.shape, kernel, stride, padding, (1, 1))
        out = self.empty(shape, x.storage.dtype)
        if out.size:
            numbers = window_numbers(
                x.shape, shape, *kernel, *stride, *padding, 1, 1, count_include_pad
            )
            self._pool.avg_pool2d[x.size >= SERIAL_LIMIT](
                self._flat(x), out.storage.array, numbers
            )
        return out

    def avg_pool2d_backward(
        self,
        grad: TensorData,
        x_shape: Shape,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        count_include_pad: bool,
    ) -> TensorData:
        """Each window's gradient, divided among its elements."""
        dx = self.empty(x_shape, grad.storage.dtype)
        if dx.size:
            numbers = window_numbers(
                x_shape, grad.shape, *kernel, *stride, *padding, 1, 1, count_include_pad
            )
            self._pool.avg_pool2d_backward[dx.size >= SERIAL_LIMIT](
                self._flat(grad), dx.storage.array, numbers
            )
        return dx
