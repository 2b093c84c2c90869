"""Convolution in one and two dimensions.

With this file one can see that the three functions of a convolution, its output, the
gradient of its input and the gradient of its weight, are derivatives of each other:
each one's backward pass is made of the other two. The gradient of the input is
`conv_transpose1d` and `conv_transpose2d`, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from minitorch.arguments import check_floating
from minitorch.function import Context, Function
from minitorch.functions.autocasting import in_lower
from minitorch.functions.operands import check_alike
from minitorch.tensor_data import Shape

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

Pair = tuple[int, int]
Options = tuple[Pair, Pair, Pair, int]  # stride, padding, dilation, groups


class Conv2d(Function):
    """out[n, o, y, x] = bias[o] + sum_c,i,j weight[o, c, i, j] *
    input[n, c, y * stride + i * dilation - padding, x * stride + ...]

    x [N, C, H, W], weight [O, C/groups, KH, KW], bias [O] -> out [N, O, OH, OW]
    """

    # BEGIN SOLUTION a6.2
    @staticmethod
    def forward(
        ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None, options: Options
    ) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.options = options
        raw_bias = None if bias is None else bias.raw
        return x.backend.conv2d(x.raw, weight.raw, raw_bias, *options)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        options: Options = ctx.options
        need_x, need_weight, need_bias, _ = ctx.needs_input_grad
        to_x = to_weight = to_bias = None
        if need_x:
            to_x = Conv2dInput.apply(grad, weight, x.shape, options)
        if need_weight:
            to_weight = Conv2dWeight.apply(grad, x, weight.shape, options)
        if need_bias:
            to_bias = grad.sum((0, 2, 3))
        return to_x, to_weight, to_bias, None

    # END SOLUTION a6.2


class Conv2dInput(Function):
    """The gradient for the input: each output spreads back over its window.

    Linear in grad and in weight, so its own gradients are convolutions again.
    """

    @staticmethod
    def forward(
        ctx: Context, grad: Tensor, weight: Tensor, shape: Any, options: Options
    ) -> Any:
        ctx.save_for_backward(grad, weight)
        ctx.options = options
        return grad.backend.conv2d_backward_input(
            grad.raw, weight.raw, tuple(shape), *options
        )

    @staticmethod
    def backward(ctx: Context, upper: Tensor) -> tuple[Any, ...]:
        grad, weight = ctx.saved_tensors
        options: Options = ctx.options
        to_grad = Conv2d.apply(upper, weight, None, options)
        to_weight = Conv2dWeight.apply(grad, upper, weight.shape, options)
        return to_grad, to_weight, None, None


class Conv2dWeight(Function):
    """The gradient for the weight: products of outputs' gradients and inputs.

    Linear in grad and in the input.
    """

    @staticmethod
    def forward(
        ctx: Context, grad: Tensor, x: Tensor, shape: Any, options: Options
    ) -> Any:
        ctx.save_for_backward(grad, x)
        ctx.options = options
        return grad.backend.conv2d_backward_weight(
            grad.raw, x.raw, tuple(shape), *options
        )

    @staticmethod
    def backward(ctx: Context, upper: Tensor) -> tuple[Any, ...]:
        grad, x = ctx.saved_tensors
        options: Options = ctx.options
        to_grad = Conv2d.apply(x, upper, None, options)
        to_x = Conv2dInput.apply(grad, upper, x.shape, options)
        return to_grad, to_x, None, None


def as_pair(name: str, value: int | Sequence[int], least: int) -> Pair:
    """(value, value) for an int; the two ints of a pair; none below `least`."""
    if type(value) is int and value >= least:
        return value, value
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or [v for v in pair if not isinstance(v, int) or v < least]:
        raise ValueError(
            f"{name} is {value!r}; expected an int or two ints, each {least} or more"
        )
    return pair


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve (cross-correlate) images with a weight.

    input [N, C, H, W] or [C, H, W], weight [O, C/groups, KH, KW], bias [O] ->
    [N, O, OH, OW] with OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1.

    Args:
        padding: zeros added on both sides; "valid" is 0, and "same" keeps H and W
            (for stride 1 and an odd dilation * (K - 1) + 1).

    Raises:
        ValueError: shapes or options that do not fit each other.
    """
    check_alike("conv2d", input, weight, weight if bias is None else bias)
    if len(input.raw.shape) == 3:
        batch = conv2d(
            input.unsqueeze(0), weight, bias, stride, padding, dilation, groups
        )
        return batch.squeeze(0)
    size = weight.raw.shape
    _check_shapes(
        input.raw.shape, size, None if bias is None else bias.raw.shape, groups
    )
    if not input.dtype.is_floating_point:
        raise TypeError(
            f"conv2d: input is {input.dtype.name}; expected a floating type"
        )
    step = as_pair("conv2d: stride", stride, 1)
    spread = as_pair("conv2d: dilation", dilation, 1)
    pad = _padding(padding, size[2:], step, spread)
    _check_fit(input.raw.shape, size, pad, spread)
    return Conv2d.apply(input, weight, bias, (step, pad, spread, groups))


def _padding(padding: Any, kernel: Any, stride: Pair, dilation: Pair) -> Pair:
    if not isinstance(padding, str):
        return as_pair("conv2d: padding", padding, 0)
    if padding == "valid":
        return 0, 0
    reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
    if padding != "same" or stride != (1, 1) or any(r % 2 for r in reach):
        raise ValueError(
            f'conv2d: padding is {padding!r}; expected ints, "valid", or "same" with '
            f"stride 1 and an odd kernel; stride is {stride} and kernel {tuple(kernel)}"
        )
    return reach[0] // 2, reach[1] // 2


@lru_cache(maxsize=1024)
def _check_fit(shape: Shape, weight: Shape, padding: Pair, dilation: Pair) -> None:
    for name, size, p, d, k in zip(
        ("height", "width"), shape[2:], padding, dilation, weight[2:]
    ):
        if size + 2 * p < d * (k - 1) + 1:
            raise ValueError(
                f"conv2d: the kernel covers {d * (k - 1) + 1} in {name}, but the "
                f"padded input has only {size + 2 * p}; x is {shape}, the weight "
                f"{weight}, the padding {padding}"
            )


@lru_cache(maxsize=1024)
def _check_shapes(shape: Shape, size: Shape, bias: Shape | None, groups: int) -> None:
    if len(shape) != 4 or len(size) != 4:
        raise ValueError(
            f"conv2d: x is {shape} and the weight {size}; expected (N, C, H, W) and "
            f"(O, C/groups, KH, KW)"
        )
    channels, (out, per_group) = shape[1], size[:2]
    if groups < 1 or channels != per_group * groups or out % groups:
        raise ValueError(
            f"conv2d: x has {channels} channels, the weight is {size} "
            f"and groups is {groups}; channels must be {per_group} * groups, and the "
            f"{out} outputs divisible by groups"
        )
    if bias not in (None, (out,)):
        raise ValueError(f"conv2d: the bias is {bias}; expected ({out},)")


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: int | tuple[int] | str = 0,
    dilation: int | tuple[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve sequences: input [N, C, L], weight [O, C/groups, K] -> [N, O, OL].

    A sequence is an image of height 1, so this is `conv2d` on views.
    """
    x = input
    check_alike("conv1d", x, weight, weight if bias is None else bias)
    if x.dim() not in (2, 3) or weight.dim() != 3:
        raise ValueError(
            f"conv1d: input is {tuple(x.shape)} and the weight {tuple(weight.shape)}; "
            f"expected (N, C, L) and (O, C/groups, K)"
        )
    (step,) = as_sizes("conv1d: stride", stride, 1, 1)
    (spread,) = as_sizes("conv1d: dilation", dilation, 1, 1)
    pad: Any = padding
    if not isinstance(padding, str):
        pad = (0, *as_sizes("conv1d: padding", padding, 1, 0))
    # BEGIN SOLUTION a6.1
    out = conv2d(
        x.unsqueeze(-2), weight.unsqueeze(-2), bias, (1, step), pad, (1, spread), groups
    )
    return out.squeeze(-2)
    # END SOLUTION a6.1


@in_lower
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    output_padding: int | Pair = 0,
    groups: int = 1,
    dilation: int | Pair = 1,
) -> Tensor:
    """Spread each number over a window: the gradient of `conv2d` for its input.

    input [N, C, H, W] or [C, H, W], weight [C, O/groups, KH, KW], bias [O] ->
    [N, O, OH, OW] with OH = (H - 1) stride - 2 padding + dilation (KH - 1) + 1 +
    output_padding.

    Args:
        output_padding: lines at the end that a convolution of this stride would leave
            out; below the stride.

    Raises:
        ValueError: shapes or options that do not fit each other.
    """
    name = "conv_transpose2d"
    check_floating(name, input)
    check_alike(name, input, weight, weight if bias is None else bias)
    if input.dim() == 3:
        options: Any = (stride, padding, output_padding, groups, dilation)
        return conv_transpose2d(input.unsqueeze(0), weight, bias, *options).squeeze(0)
    step = as_pair(f"{name}: stride", stride, 1)
    spread = as_pair(f"{name}: dilation", dilation, 1)
    pad = as_pair(f"{name}: padding", padding, 0)
    more = as_pair(f"{name}: output_padding", output_padding, 0)
    made = (step, pad, spread, groups)
    shape = _transposed_shape(input.raw.shape, weight.raw.shape, made, more)
    if bias is not None and bias.raw.shape != shape[1:2]:
        raise ValueError(f"{name}: the bias is {bias.raw.shape}; expected {shape[1:2]}")
    out = Conv2dInput.apply(input, weight, shape, made)
    return out if bias is None else out + bias.reshape(-1, 1, 1)


@in_lower
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: int | tuple[int] = 0,
    output_padding: int | tuple[int] = 0,
    groups: int = 1,
    dilation: int | tuple[int] = 1,
) -> Tensor:
    """`conv_transpose2d` of sequences.

    input [N, C, L] or [C, L], weight [C, O/groups, K], bias [O] -> [N, O, OL].
    """
    name = "conv_transpose1d"
    check_alike(name, input, weight, weight if bias is None else bias)
    if input.dim() not in (2, 3) or weight.dim() != 3:
        raise ValueError(
            f"{name}: input is {input.raw.shape} and the weight {weight.raw.shape}; "
            f"expected (N, C, L) and (C, O/groups, K)"
        )
    (step,) = as_sizes(f"{name}: stride", stride, 1, 1)
    (spread,) = as_sizes(f"{name}: dilation", dilation, 1, 1)
    (pad,) = as_sizes(f"{name}: padding", padding, 1, 0)
    (more,) = as_sizes(f"{name}: output_padding", output_padding, 1, 0)
    # BEGIN TWIN a6.1
    images = input.unsqueeze(-2), weight.unsqueeze(-2), bias
    sides: Any = ((1, step), (0, pad), (0, more), groups, (1, spread))
    return conv_transpose2d(*images, *sides).squeeze(-2)
    # END TWIN a6.1


@lru_cache(maxsize=1024)
def _transposed_shape(
    shape: Shape, weight: Shape, options: Options, more: Pair
) -> Shape:
    """Of which images a convolution makes `shape`, with `more` lines that it skips."""
    *sides, groups = options
    fits = len(shape) == len(weight) == 4 and shape[1] == weight[0]
    if not fits or groups < 1 or shape[1] % groups:
        raise ValueError(
            f"conv_transpose2d: the input is {shape}, the weight {weight} and groups "
            f"is {groups}; expected (N, C, H, W) and (C, O/groups, KH, KW), with C "
            f"divisible by groups"
        )
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + m
        for n, k, s, p, d, m in zip(shape[2:], weight[2:], *sides, more)
    ]
    if min(sizes) < 1 or any(m >= s for m, s in zip(more, sides[0])):
        raise ValueError(
            f"conv_transpose2d: the output would be {sizes}, the output_padding is "
            f"{more}, which must be below the stride {sides[0]}; the input is {shape}, "
            f"the weight {weight}, the padding {sides[1]}"
        )
    return (shape[0], weight[1] * groups, *sizes)


def as_sizes(name: str, value: Any, dims: int, least: int) -> tuple[int, ...]:
    """One int for each of `dims` dimensions: an int, or so many, none below `least`."""
    if type(value) is int and value >= least:
        return (value,) * dims
    sizes = (value,) * dims if isinstance(value, int) else tuple(value)
    if len(sizes) != dims or [n for n in sizes if not isinstance(n, int) or n < least]:
        raise ValueError(
            f"{name} is {value!r}; expected an int, or {dims} of them, each {least} or "
            f"more"
        )
    return sizes
