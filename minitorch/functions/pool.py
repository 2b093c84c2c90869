"""Pooling: one number for each window of an image.

With this file one can see where the gradient of a window goes: to its maximum alone, or
to all its elements in equal parts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from minitorch.arguments import dims_of
from minitorch.function import Context, Function
from minitorch.functions.conv import Pair, as_pair
from minitorch.functions.operands import checked_tensor
from minitorch.tensor_data import Shape

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class MaxPool2d(Function):
    """The maximum of each window, and where it is; it gets the whole gradient."""

    # BEGIN SOLUTION a6.3
    @staticmethod
    def forward(ctx: Context, x: Tensor, options: tuple[Pair, Pair, Pair, Pair]) -> Any:
        values, index = x.backend.max_pool2d(x.raw, *options)
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return values, index

    @staticmethod
    def backward(ctx: Context, grad: Tensor, _: Any = None) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        return PoolScatter.apply(grad, index, ctx.shape), None

    # END SOLUTION a6.3


class MaxPool1d(Function):
    """`MaxPool2d` of sequences [N, C, L] or [C, L], as images of height 1."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, options: tuple[Pair, Pair, Pair, Pair]) -> Any:
        image = x.raw.unsqueeze(x.raw.dims - 1)
        alone = image.dims == 3
        dims = (0, 2) if alone else (2,)
        image = image.unsqueeze(0) if alone else image
        values, index = x.backend.max_pool2d(image, *options)
        ctx.save_for_backward(index)
        ctx.shape, ctx.image = x.shape, image.shape
        return values.squeeze(dims), index.squeeze(dims)

    @staticmethod
    def backward(ctx: Context, grad: Tensor, _: Any = None) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        slope = PoolScatter.apply(grad.reshape(index.shape), index, ctx.image)
        return slope.reshape(ctx.shape), None


class PoolScatter(Function):
    """Zeros of `shape` with each gradient at the position of its maximum."""

    @staticmethod
    def forward(ctx: Context, grad: Tensor, index: Tensor, shape: Any) -> Any:
        ctx.save_for_backward(index)
        return grad.backend.max_pool2d_backward(grad.raw, index.raw, tuple(shape))

    @staticmethod
    def backward(ctx: Context, upper: Tensor) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        picked = upper.flatten(2).gather(2, index.flatten(2))
        return picked.reshape(index.shape), None, None


class AvgPool2d(Function):
    """The mean of each window; its elements share the gradient."""

    # BEGIN SOLUTION a6.3
    @staticmethod
    def forward(ctx: Context, x: Tensor, options: tuple[Pair, Pair, Pair, bool]) -> Any:
        ctx.shape, ctx.options = x.shape, options
        return x.backend.avg_pool2d(x.raw, *options)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return AvgPool2dInput.apply(grad, ctx.shape, ctx.options), None

    # END SOLUTION a6.3


class AvgPool2dInput(Function):
    """The gradient of AvgPool2d's input; its own gradient is AvgPool2d."""

    @staticmethod
    def forward(ctx: Context, grad: Tensor, shape: Any, options: Any) -> Any:
        ctx.options = options
        return grad.backend.avg_pool2d_backward(grad.raw, tuple(shape), *options)

    @staticmethod
    def backward(ctx: Context, upper: Tensor) -> tuple[Any, ...]:
        return AvgPool2d.apply(upper, ctx.options), None, None


def max_pool2d(
    x: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
) -> tuple[Tensor, Tensor]:
    """x [N, C, H, W] -> maxima [N, C, OH, OW] and their int64 positions in the plane.

    The stride is the kernel's size if not given.
    """
    kernel, step, pad = _options("max_pool2d", x, kernel_size, stride, padding)
    spread = as_pair("max_pool2d: dilation", dilation, 1)
    _check_fit("max_pool2d", x.raw.shape, kernel, pad, spread)
    if x.dim() == 3:
        values, index = MaxPool2d.apply(x.unsqueeze(0), (kernel, step, pad, spread))
        return values.squeeze(0), index.squeeze(0)
    return MaxPool2d.apply(x, (kernel, step, pad, spread))


def max_pool1d(
    x: Tensor, kernel: int, step: int, pad: int, spread: int
) -> tuple[Tensor, Tensor]:
    """x [N, C, L] or [C, L] -> maxima [..., OL] and their int64 positions."""
    shape = checked_tensor("max_pool1d", x).raw.shape
    if len(shape) not in (2, 3) or not x.dtype.is_floating_point:
        raise ValueError(
            f"max_pool1d: x is {shape} of {x.dtype.name}; expected (N, C, L) or "
            f"(C, L), of a floating type"
        )
    options = (1, kernel), (1, step), (0, pad), (1, spread)
    _check_fit("max_pool1d", (1, shape[-1]), options[0], options[2], options[3])
    return MaxPool1d.apply(x, options)


def avg_pool2d(
    x: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    count_include_pad: bool = True,
) -> Tensor:
    """x [N, C, H, W] -> means [N, C, OH, OW]; padding counts as 0, or not at all."""
    kernel, step, pad = _options("avg_pool2d", x, kernel_size, stride, padding)
    _check_fit("avg_pool2d", x.raw.shape, kernel, pad, (1, 1))
    options = (kernel, step, pad, bool(count_include_pad))
    if x.dim() == 3:
        return AvgPool2d.apply(x.unsqueeze(0), options).squeeze(0)
    return AvgPool2d.apply(x, options)


def _options(
    name: str, x: Tensor, kernel_size: Any, stride: Any, padding: Any
) -> tuple[Pair, Pair, Pair]:
    if dims_of(name, x) not in (3, 4) or not x.dtype.is_floating_point:
        raise ValueError(
            f"{name}: x is {tuple(x.shape)} of {x.dtype.name}; expected (N, C, H, W) "
            f"or (C, H, W), of a floating type"
        )
    kernel = as_pair(f"{name}: kernel_size", kernel_size, 1)
    step = kernel if stride is None else as_pair(f"{name}: stride", stride, 1)
    return kernel, step, as_pair(f"{name}: padding", padding, 0)


@lru_cache(maxsize=1024)
def _check_fit(name: str, shape: Shape, kernel: Pair, pad: Pair, spread: Pair) -> None:
    for size, k, p, d in zip(shape[-2:], kernel, pad, spread):
        if 2 * p > k:
            raise ValueError(
                f"{name}: the padding is {pad}; it must be at most half of the kernel "
                f"{kernel}"
            )
        if size + 2 * p < d * (k - 1) + 1:
            raise ValueError(
                f"{name}: the window covers {d * (k - 1) + 1}, but the padded input "
                f"has {size + 2 * p}; x is {shape}, the kernel {kernel}"
            )
