"""Pooling over windows of a plane: launchers of `pool.mojo`.

With this file one can take the maximum (`max_pool2d`) or the mean (`avg_pool2d`) of
each window of x [N, C, H, W], and bring gradients back to x (`max_pool2d_backward`,
`avg_pool2d_backward`).
"""

from __future__ import annotations

from minitorch.dtypes import int64
from minitorch.tensor_data import Shape, TensorData
from mojo_ops.bridge import Library
from mojo_ops.memory import contiguous, empty

kernels = Library("pool")

Pair = tuple[int, int]


def _sizes(
    x_shape: Shape, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Pair:
    """OH, OW: how many windows fit."""
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    room = [x_shape[2 + i] + 2 * padding[i] - reach[i] for i in range(2)]
    return room[0] // stride[0] + 1, room[1] // stride[1] + 1


def max_pool2d(
    x: TensorData, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[TensorData, TensorData]:
    """x [N, C, H, W] -> maxima and their int64 positions h * W + w in the plane.

    The first maximum of a window wins; NaN counts as the largest. Padding is never the
    maximum.
    """
    n, c, *plane = x.shape
    sizes = _sizes(x.shape, kernel, stride, padding, dilation)
    out, index = empty((n, c, *sizes), x.dtype), empty((n, c, *sizes), int64)
    if out.size:
        kernels.max_pool2d(
            contiguous(x).flat(), out.storage.array, index.storage.array,
            x.dtype.itemsize, n * c, *plane, *sizes, *kernel, *stride, *padding,
            *dilation,
        )  # fmt: skip
    return out, index


def max_pool2d_backward(
    grad: TensorData, index: TensorData, x_shape: Shape
) -> TensorData:
    """grad [N, C, OH, OW] added up at the positions `index` of each plane."""
    dx = empty(x_shape, grad.dtype)
    if dx.size:
        n, c, *plane = x_shape
        nowhere = (1,) * 8  # the places say all that is to know about the windows
        kernels.max_pool2d_backward(
            contiguous(grad).flat(), contiguous(index).flat(), dx.storage.array,
            dx.dtype.itemsize, n * c, *plane, *grad.shape[2:], *nowhere,
        )  # fmt: skip
    return dx


def avg_pool2d(
    x: TensorData,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    count_include_pad: bool,
) -> TensorData:
    """x [N, C, H, W] -> means of windows; padding counts as 0, or not at all."""
    n, c, *plane = x.shape
    sizes = _sizes(x.shape, kernel, stride, padding, (1, 1))
    out = empty((n, c, *sizes), x.dtype)
    if out.size:
        kernels.avg_pool2d(
            contiguous(x).flat(), out.storage.array, int(count_include_pad),
            x.dtype.itemsize, n * c, *plane, *sizes, *kernel, *stride, *padding, 1, 1,
        )  # fmt: skip
    return out


def avg_pool2d_backward(
    grad: TensorData,
    x_shape: Shape,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    count_include_pad: bool,
) -> TensorData:
    """The gradient for x [N, C, H, W] from grad [N, C, OH, OW]."""
    dx = empty(x_shape, grad.dtype)
    if dx.size:
        n, c, *plane = x_shape
        kernels.avg_pool2d_backward(
            contiguous(grad).flat(), dx.storage.array, int(count_include_pad),
            dx.dtype.itemsize, n * c, *plane, *grad.shape[2:], *kernel, *stride,
            *padding, 1, 1,
        )  # fmt: skip
    return dx
