"""Normalization over features (layer, group norm) and over the batch (batch norm).

With this file one can see them as one idea: subtract a mean, divide by a standard
deviation, then scale and shift; only what the statistics are taken over differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import minitorch.operators as operators
from minitorch.arguments import check_floating
from minitorch.autodiff import grad_mode
from minitorch.dtypes import DType, finfo, float32, promote
from minitorch.function import Context, Function, once_differentiable
from minitorch.functions.autocasting import in_float32
from minitorch.functions.elementwise import AddMixed
from minitorch.functions.linear import as_rows, reshaped, seen_as
from minitorch.functions.movement import in_shape
from minitorch.functions.operands import (
    cast,
    check_alike,
    check_same_device,
    unbroadcast,
)
from minitorch.functions.random import dropout
from minitorch.random import Generator, default_generator
from minitorch.tensor_data import Shape, numel

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


# BEGIN SOLUTION a8.3
class LayerNorm(Function):
    """out = xhat * weight + bias, xhat = (x - mean) * rstd, statistics of each row

    With g = grad * weight:
    grad_x = rstd * (g - mean(g) - xhat * mean(g * xhat)),
    grad_weight = sum over rows of grad * xhat, grad_bias = sum over rows of grad.

    x [R, D], weight [D], bias [D]. Source: Ba, Kiros and Hinton, 2016.
    """

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Any:
        raw_weight = None if weight is None else weight.raw
        raw_bias = None if bias is None else bias.raw
        out, mean, rstd = x.backend.layer_norm(x.raw, raw_weight, raw_bias, eps)
        ctx.save_for_backward(x, mean, rstd, weight)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        once_differentiable(
            "layer_norm", "(x - x.mean(-1)) * (x.var(-1) + eps).rsqrt()"
        )
        x, mean, rstd, weight = ctx.saved_tensors
        raw_weight = None if weight is None else weight.raw
        grads = grad.backend.layer_norm_backward(
            grad.raw, x.raw, mean.raw, rstd.raw, raw_weight
        )
        return _wanted(ctx, grad, grads)


# END SOLUTION a8.3


class LayerNormTo(LayerNorm):
    """LayerNorm of x [*, D] to a half type, of which its gradient is, too.

    Where x has a gradient already, as a stream has to which blocks add, it is read and
    added on the way. What x is the sum of may want x's gradient in a half type, too.
    """

    adds = True

    @staticmethod
    def forward(ctx: Context, x: Tensor, *args: Any) -> Any:
        weight, bias = (None if a is None else a.raw for a in args[:2])
        rows = as_rows(x.raw, x.backend)
        out, mean, rstd = x.backend.layer_norm(rows, weight, bias, *args[2:])
        ctx.save_for_backward(x, mean, rstd, args[0])
        return reshaped(out, x.raw.shape)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        once_differentiable("layer_norm", "layer_norm(x, ...).to(dtype)")
        x, mean, rstd, weight = ctx.saved_tensors
        before, ctx.before, backend = ctx.before, None, grad.backend
        g, rows = as_rows(grad.raw, backend), as_rows(x.raw, backend)
        plus = None if before is None else as_rows(before.raw, backend)
        w = None if weight is None else weight.raw
        source: Any = ctx.edges[0] and ctx.edges[0][0]
        half: Any = None
        if getattr(source, "function", None) is AddMixed:
            half = backend.empty(rows.shape, next(k for k in source.kinds if k.half))
        args = g, rows, mean.raw, rstd.raw, w, plus, half
        dx, *sums = backend.layer_norm_backward(*args)
        dx = reshaped(dx, x.raw.shape)
        if half is not None:
            source.rounded = dx, dx.storage.version, reshaped(half, dx.shape)
        return *_wanted(ctx, grad, (dx, *sums)), None


class GroupNorm(Function):
    """LayerNorm of groups of channels, which have weights and biases.

    x [N, C, *] seen as `rows` [R, D], weight [C, 1...], bias [C, 1...].
    """

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, weight: Tensor | None, bias: Tensor | None,
        rows: Shape, eps: float,
    ) -> Any:  # fmt: skip
        shape, backend = x.raw.shape, x.backend
        seen = seen_as(x.raw, rows, backend)
        out, mean, rstd = backend.layer_norm(seen, None, None, eps)
        out = normal = reshaped(out, shape)
        if weight is not None:
            out = backend.zip(operators.mul, out, weight.raw)
        if bias is not None:  # in place, if nobody needs the product
            into = out if out is not normal else None
            out = backend.zip(operators.add, out, bias.raw, None, into)
        ctx.save_for_backward(
            x, mean, rstd, weight, weight if weight is None else normal
        )
        ctx.shapes = rows, None if bias is None else bias.raw.shape
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        once_differentiable(
            "group_norm", "(x - x.mean(-1)) * (x.var(-1) + eps).rsqrt()"
        )
        x, mean, rstd, weight, normal = ctx.saved_tensors
        (rows, bias), backend = ctx.shapes, grad.backend
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        dx: Any = None
        if need_x:
            inner = grad if weight is None else grad * weight
            seen = [seen_as(t.raw, rows, backend) for t in (inner, x)]
            dx = backend.layer_norm_backward(*seen, mean.raw, rstd.raw, None)[0]
            dx = grad.wrap(reshaped(dx, x.raw.shape))
        dweight = unbroadcast(grad * normal, weight.raw.shape) if need_weight else None
        return dx, dweight, unbroadcast(grad, bias) if need_bias else None, None, None


class DropoutResidualLayerNorm(Function):
    """LayerNorm of dropout(x) + residual, as one operation.

    What transformers do twice in each layer. The sum is needed by nobody else, so it is
    never written to memory: backward makes it again from x, residual and the counter of
    the random numbers. With `inner` the gradient that LayerNorm has for its input:
    grad_residual = inner, grad_x = dropout(inner) with the same zeros.

    x, residual [R, D], weight [D], bias [D].
    """

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, residual: Tensor, weight: Tensor | None,
        bias: Tensor | None, p: float, seed: int, offset: int, eps: float,
    ) -> Any:  # fmt: skip
        raw_weight = None if weight is None else weight.raw
        raw_bias = None if bias is None else bias.raw
        out, mean, rstd = x.backend.dropout_residual_layer_norm(
            x.raw, residual.raw, raw_weight, raw_bias, p, seed, offset, eps
        )
        ctx.save_for_backward(x, residual, mean, rstd, weight)
        ctx.options = p, seed, offset
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        once_differentiable(
            "dropout_residual_layer_norm", "layer_norm composed of (x - x.mean(-1)) ..."
        )
        x, residual, mean, rstd, weight = ctx.saved_tensors
        raw_weight = None if weight is None else weight.raw
        options: Any = ctx.options
        grads = grad.backend.dropout_residual_layer_norm_backward(
            grad.raw, x.raw, residual.raw, mean.raw, rstd.raw, raw_weight, *options
        )
        return (*_wanted(ctx, grad, grads), None, None, None)


class RMSNorm(Function):
    """out = xhat * weight, xhat = x * rstd, rstd = 1 / sqrt(mean(x^2) + eps)

    With g = grad * weight: grad_x = rstd * (g - xhat * mean(g * xhat)), and
    grad_weight = sum over rows of grad * xhat.

    x [R, D], weight [D].
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor | None, eps: float) -> Any:
        out, rstd = x.backend.rms_norm(
            x.raw, None if weight is None else weight.raw, eps
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        x, weight, rstd = ctx.saved_tensors
        if grad_mode.enabled:  # a gradient of this one has to know how rstd was made
            wide = cast(x, rstd.dtype)
            rstd = ((wide * wide).mean(-1) + ctx.eps).rsqrt()
        rstd, grad = rstd.unsqueeze(1), cast(grad, rstd.dtype)
        normal = x * rstd
        product = grad * normal
        dweight = None if weight is None else cast(product.sum(0), weight.dtype)
        inner = grad if weight is None else grad * weight
        product = product if weight is None else product * weight
        dx = (inner - normal * product.mean(-1, keepdim=True)) * rstd
        return cast(dx, x.dtype), dweight, None


class BatchNormInference(Function):
    """out = xhat * weight + bias, xhat = (x - mean) / sqrt(variance + eps)

    The mean and the variance are given. x [N, C, L], the others [C].
    """

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None,
        bias: Tensor | None, eps: float,
    ) -> Any:  # fmt: skip
        ctx.save_for_backward(x, mean, var, weight)
        ctx.eps = eps
        raws = [None if p is None else p.raw for p in (x, mean, var, weight, bias)]
        return x.backend.batch_norm_inference(*raws, eps)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        x, mean, var, weight = ctx.saved_tensors
        need_x, *need = ctx.needs_input_grad[:5]
        grad = cast(grad, mean.dtype)
        rstd = (var + ctx.eps).rsqrt()
        scale = rstd if weight is None else rstd * weight
        dx = cast(grad * scale.unsqueeze(1), x.dtype) if need_x else None
        if not any(need):
            return dx, *[None] * 5
        normal = (x - mean.unsqueeze(1)) * rstd.unsqueeze(1)
        dbias, dweight = grad.sum((0, 2)), (grad * normal).sum((0, 2))
        dmean, dvar = -dbias * scale, -0.5 * dweight * scale * rstd
        grads = dmean, dvar, dweight, dbias
        return dx, *[g if wanted else None for g, wanted in zip(grads, need)], None


class BatchNorm(Function):
    """The same with the statistics of each channel, over N and L.

    x [N, C, L], weight [C], bias [C]. Source: Ioffe and Szegedy, 2015.
    """

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Any:
        raw_weight = None if weight is None else weight.raw
        raw_bias = None if bias is None else bias.raw
        out, mean, var = x.backend.batch_norm(x.raw, raw_weight, raw_bias, eps)
        ctx.save_for_backward(x, mean, var, weight)
        ctx.eps = eps
        mean, var = x.wrap(mean), x.wrap(var)
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    def backward(ctx: Context, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        once_differentiable("batch_norm", "(x - x.mean(0)) * (x.var(0) + eps).rsqrt()")
        x, mean, var, weight = ctx.saved_tensors
        raw_weight = None if weight is None else weight.raw
        eps: float = ctx.eps
        grads = grad.backend.batch_norm_backward(
            grad.raw, x.raw, mean.raw, var.raw, raw_weight, eps
        )
        return _wanted(ctx, grad, grads)


def _wanted(ctx: Context, grad: Tensor, grads: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients that somebody asked for, and None for the number after them."""
    pairs = zip(ctx.needs_input_grad, grads)
    return (*[grad.wrap(raw) if need else None for need, raw in pairs], None)


def layer_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5, dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    """Normalize over the last dims, which must be `normalized_shape`.

    input [*, D1, ..., Dk]; weight and bias, if given, are [D1, ..., Dk].

    Args:
        dtype: of the result; None: that of input, and under autocast float32
    """
    rows, flat = _rows("layer_norm", input, normalized_shape, weight, bias)
    if dtype and dtype.half and "layer_norm_backward" in input.backend.takes_half:
        rows = input if rows.raw.shape[1:] == input.raw.shape[-1:] else rows
        out = LayerNormTo.apply(rows, *flat, float(eps), dtype)
    else:
        out = LayerNorm.apply(rows, *flat, float(eps))
        out = out if dtype is None else cast(out, dtype)
    return in_shape(out, input.raw.shape)


@in_float32
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalize each group of channels of each example: layer norm of a view.

    input [N, C, *], where C is a multiple of num_groups; weight and bias [C].

    Source: Wu and He, "Group normalization", 2018.
    """
    shape = check_floating("group_norm", input).raw.shape
    if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
        raise ValueError(
            f"group_norm: the input is {shape}; expected (N, C, ...), where C is a "
            f"multiple of num_groups, {num_groups}"
        )
    if input.raw.size == num_groups:
        raise ValueError(
            f"group_norm: the input is {shape}; with num_groups {num_groups} each "
            f"group is one number, and the result 0"
        )
    flat = [_checked("group_norm", input, p, shape[1:2]) for p in (weight, bias)]
    size = numel(shape[1:]) // num_groups
    wide = (shape[1], *[1] * (len(shape) - 2))
    given = [p if p is None else in_shape(p, wide) for p in flat]
    rows = (shape[0] * num_groups, size)
    return GroupNorm.apply(input, *given, rows, float(eps))


def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dims: layer norm without means.

    input [*, D1, ..., Dk]; the weight, if given, is [D1, ..., Dk].

    Args:
        eps: None: the distance from 1 to the next number of the dtype (for half types,
            of float32)

    Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.
    """
    rows, (flat, _) = _rows("rms_norm", input, normalized_shape, weight, None)
    eps = finfo(promote(rows.dtype, float32)).eps if eps is None else eps
    return in_shape(RMSNorm.apply(rows, flat, float(eps)), input.raw.shape)


def dropout_residual_layer_norm(
    x: Tensor, residual: Tensor, normalized_shape: int | Sequence[int],
    weight: Tensor | None = None, bias: Tensor | None = None, p: float = 0.5,
    training: bool = True, eps: float = 1e-5, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """layer_norm(dropout(x, p) + residual, ...), in one pass over memory.

    x, residual [*, D1, ..., Dk]; weight and bias, if given, are [D1, ..., Dk]. Without
    `training` nothing is dropped. PyTorch has no such function; there it is three.
    """
    name = "dropout_residual_layer_norm"
    p = p if training else 0.0
    if residual.shape != x.shape:
        raise ValueError(
            f"{name}: x is {tuple(x.shape)} and residual {tuple(residual.shape)}; both "
            f"must have one shape"
        )
    if not 0.0 <= p < 1.0:
        raise ValueError(f"{name}: p is {p}; it must be from 0 to below 1")
    check_alike(name, x, residual)
    rows, flat = _rows(name, x, normalized_shape, weight, bias)
    chosen = generator or default_generator
    if p and chosen.sequence == "pytorch":
        summed = dropout(x, p, chosen) + residual
        return layer_norm(summed, normalized_shape, weight, bias, eps)
    seed, offset = chosen.take(x.numel())
    out = DropoutResidualLayerNorm.apply(
        rows, in_shape(residual, rows.raw.shape), *flat, float(p), seed, offset,
        float(eps),
    )  # fmt: skip
    return in_shape(out, x.raw.shape)


def _rows(
    name: str, x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, list[Tensor | None]]:  # fmt: skip
    """x as rows of what is normalized together, and flat parameters; all checked."""
    shape = (
        (normalized_shape,)
        if isinstance(normalized_shape, int)
        else tuple(normalized_shape)
    )
    check_floating(name, x)
    if not shape or x.raw.shape[-len(shape) :] != shape:
        raise ValueError(
            f"{name}: x is {x.raw.shape}, whose last dimensions are not the "
            f"normalized_shape {shape}"
        )
    flat = [_checked(name, x, p, shape) for p in (weight, bias)]
    size = numel(shape)
    return in_shape(x, (x.raw.size // size if size else 0, size)), flat


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize each channel with the statistics of this batch.

    x [N, C] or [N, C, *] -> the normalized x, the mean [C] and the biased variance [C].

    Raises:
        ValueError: fewer than two values for each channel, or parameters not [C].
    """
    if check_floating("batch_norm", x).dim() < 2:
        raise ValueError(f"batch_norm: x is {tuple(x.shape)}; expected (N, C, ...)")
    n, c = x.shape[:2]
    length = numel(tuple(x.shape[2:]))
    if n * length < 2:
        raise ValueError(
            f"batch_norm: x is {tuple(x.shape)}; training needs two values or more "
            f"for each channel"
        )
    flat = [_checked("batch_norm", x, p, (c,)) for p in (weight, bias)]
    out, mean, var = BatchNorm.apply(x.reshape(n, c, length), *flat, float(eps))
    return out.reshape(x.shape), mean, var


def batch_norm_inference(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel with statistics that are given: x [N, C, *], others [C].

    Those may have another type than x, of which the result is.
    """
    shape, kind = x.raw.shape, promote(check_floating("batch_norm", x).dtype, float32)
    given = [p if p is None else cast(p, kind) for p in (mean, var, weight, bias)]
    check_same_device("batch_norm", x, *[p for p in given if p is not None])
    flat = [p if p is None else _checked("batch_norm", p, p, shape[1:2]) for p in given]
    wide = in_shape(x, (shape[0], shape[1], numel(shape[2:])))
    return in_shape(BatchNormInference.apply(wide, *flat, float(eps)), shape)


def _checked(
    name: str, x: Tensor, parameter: Tensor | None, shape: tuple[int, ...]
) -> Tensor | None:
    """A weight or bias, flat; an error where it does not fit x."""
    if parameter is None:
        return None
    check_alike(name, x, parameter)
    if parameter.raw.shape != shape:
        raise ValueError(
            f"{name}: the weight or bias is {parameter.raw.shape}; expected {shape}"
        )
    return in_shape(parameter, (numel(shape),))
