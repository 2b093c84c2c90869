"""The fully connected layer, and a bias with an activation, as one operation each.

With this file one can see the three gradients of x @ weight^T + bias (`linear`), and
add a bias and apply an activation in one pass over memory (`bias_activation`). Composed
of smaller operations, both compute the same numbers; as one operation they record one
node instead of three, and each gradient comes out in the layout of its parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import minitorch.operators as operators
from minitorch.autodiff import backpropagate, grad_mode
from minitorch.dtypes import DType, computed, float32, int8
from minitorch.function import Context, Function
from minitorch.functions.activation import Gelu, Silu
from minitorch.functions.elementwise import Relu, Sigmoid, Tanh
from minitorch.functions.matmul import MatMul
from minitorch.functions.operands import (
    cast,
    check_alike,
    check_same_device,
    uncast,
)
from minitorch.functions.reduce import dropped
from minitorch.tensor_data import Shape, TensorData, numel

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

Grads = tuple[Any, ...]


@lru_cache(maxsize=4096)
def rows_shape(shape: Shape) -> Shape:
    """[*, N] as [R, N]; a vector is one row."""
    return numel(shape[:-1]), shape[-1]


def as_rows(a: TensorData, backend: Any) -> TensorData:
    """The elements of a [*, N] as [R, N], copied only where no strides show them so."""
    if len(a.shape) == 2:
        return a
    shape = rows_shape(a.shape)
    seen = a.view(shape)
    return TensorData(backend.copy(a, a.dtype).storage, shape) if seen is None else seen


def reshaped(a: TensorData, shape: Shape) -> TensorData:
    """A new contiguous tensor under another shape."""
    return a if a.shape == shape else TensorData(a.storage, shape)


def seen_as(a: TensorData, shape: Shape, backend: Any) -> TensorData:
    """`a` under another shape, copied only where no strides show it so."""
    seen = a.view(shape)
    return reshaped(backend.copy(a, a.dtype), shape) if seen is None else seen


class Linear(Function):
    """out = x @ weight^T + bias, that is out[r, n] = sum_k x[r, k] weight[n, k] + b[n]

    x [*, K], weight [N, K], bias [N] or None -> out [*, N]. With the dims * as rows r:

        grad_x      = grad @ weight        [R, N] @ [N, K]
        grad_weight = grad^T @ x           [N, R] @ [R, K]
        grad_bias   = sum of grad over r   [N]

    Where the weight was cast from another type, grad_weight is of that one.
    """

    writes = 1

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.sums, ctx.kind = None if bias is None else bias.dtype, uncast(weight)
        backend, w = x.backend, weight.raw
        rows, b = as_rows(x.raw, backend), None if bias is None else bias.raw
        out = backend.linear(rows, w, b)
        if out is None:
            turned = w.permute((1, 0))
            if b is not None and x.dtype.half:  # rounded once, after the bias
                made = backend.matmul_to(rows, turned, float32)
                out = backend.empty(made.shape, x.dtype)
                backend.bias_activation(made, b, None, out)
            else:
                out = backend.matmul(rows, turned)
                if b is not None:
                    backend.bias_activation(out, b, None, out)
        return reshaped(out, (*x.raw.shape[:-1], w.shape[0]))

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        x, weight = ctx.saved_tensors
        if grad_mode.enabled:
            needs = ctx.needs_input_grad
            return _linear_backward_recorded(grad, x, weight, needs, ctx.sums)
        need_x, need_weight, need_bias = ctx.needs_input_grad
        backend, wrap = grad.backend, grad.wrap
        g, rows = as_rows(grad.raw, backend), as_rows(x.raw, backend)
        kind, sums = ctx.kind, ctx.sums if need_bias else None
        home, ctx.home = ctx.home, None
        made, w = None, weight.raw if need_x else None
        if need_weight:
            made = backend.linear_gradients(g, rows, w, kind, sums, home)
        grad_x, grad_weight, grad_bias = made or (None, None, None)
        if need_x and grad_x is None:
            grad_x = backend.matmul(g, weight.raw)
        if need_weight and grad_weight is None:
            pair = g.permute((1, 0)), rows
            grad_weight = (
                backend.matmul(*pair)
                if kind is grad.dtype and home is None
                else backend.matmul_to(*pair, kind, home)
            )
        if need_bias and grad_bias is None:
            grad_bias = cast(wrap(column_sums(g, backend, sums)), ctx.sums).raw
        grad_x = grad_x and reshaped(grad_x, x.raw.shape)
        return tuple([a and wrap(a) for a in (grad_x, grad_weight, grad_bias)])


def _linear_backward_recorded(
    grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, ...], sums: Any
) -> Grads:
    """The gradients of `Linear` as operations that have gradients themselves."""
    need_x, need_weight, need_bias = needs
    g = grad.reshape(rows_shape(grad.raw.shape))
    rows = x.reshape(rows_shape(x.raw.shape))
    return (
        MatMul.apply(g, weight).reshape(x.raw.shape) if need_x else None,
        MatMul.apply(g.t(), rows) if need_weight else None,
        cast(g.sum(0), sums) if need_bias else None,
    )


def column_sums(a: TensorData, backend: Any, dtype: DType | None = None) -> TensorData:
    """a [R, N] -> [N]: a bias is added to every row, so its gradient adds rows up."""
    # BEGIN SOLUTION a8.1
    return dropped(backend.reduce(operators.add, a, (0,), 0, dtype), (0,))
    # END SOLUTION a8.1


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight^T + bias

    input [*, K], weight [N, K], bias [N] or None -> [*, N].

    Raises:
        ValueError: a shape does not fit.
        TypeError: the dtypes differ, or are bool.
        RuntimeError: the devices differ.
    """
    check_linear("linear", input, weight, bias)
    return Linear.apply(input, weight, bias)


def check_linear(name: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Whether the operands of `linear` fit together."""
    _check_kinds(name, x, weight, weight if bias is None else bias)
    _check_shapes(name, x.raw.shape, weight.raw.shape, bias)


def _check_shapes(name: str, shape: Shape, size: Shape, bias: Tensor | None) -> None:
    """Whether an input of `shape`, a weight of `size` and a bias fit together."""
    if len(size) != 2:
        raise ValueError(
            f"{name}: the weight is {size}; expected (out_features, in_features)"
        )
    if not shape or shape[-1] != size[1]:
        raise ValueError(
            f"{name}: the input is {shape} and the weight {size}; the input's last "
            f"dimension must equal the weight's second, in_features"
        )
    if bias is not None and bias.raw.shape != size[:1]:
        raise ValueError(
            f"{name}: the weight is {size} and the bias {bias.raw.shape}; the bias "
            f"must be ({size[0]},), one number for each output"
        )


def _check_kinds(name: str, first: Tensor, *others: Tensor) -> None:
    """One device and one dtype for all, which is not bool."""
    check_alike(name, first, *others)
    if first.raw.storage.dtype.category == 0:
        raise TypeError(f"{name}: got bool tensors; convert them with .to(float32)")


# ----------------------------------------------------------------- quantized weights


class QuantizedLinear(Function):
    """out = x @ w^T + bias, for a weight w = scale * weight of whole numbers

    x [*, K], weight int8 [N, K], scale [N], bias [N] or None -> out [*, N]; of four
    bits weight int8 [N, G, S / 2], scale [N, G]. The weight is fixed, and x learns
    through it as through any other:

        grad_x    = grad @ w                   [R, N] @ [N, K]
        grad_bias = sum of grad over r         [N]
    """

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None
    ) -> Any:
        ctx.save_for_backward(weight, scale)
        ctx.columns = x.raw.shape[-1]
        ctx.sums = None if bias is None else bias.dtype
        backend, b = x.backend, None if bias is None else bias.raw
        rows = as_rows(x.raw, backend)
        out = backend.quantized_linear(rows, weight.raw, scale.raw, b)
        return reshaped(out, (*x.raw.shape[:-1], weight.raw.shape[0]))

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        weight, scale = ctx.saved_tensors
        need_x, _, _, need_bias = ctx.needs_input_grad
        grad_x = grad_bias = None
        if need_x:
            w = grad.backend.dequantize(weight.raw, scale.raw, ctx.columns, grad.dtype)
            grad_x = grad.matmul(grad.wrap(w))
        if need_bias:
            grad_bias = cast(grad.reshape(rows_shape(grad.raw.shape)).sum(0), ctx.sums)
        return grad_x, None, None, grad_bias


def _as_matrix(shape: Shape, size: Shape) -> Shape:
    """(N, K) of a weight of this size, whose last group may be cut off for the input's
    K numbers."""
    if len(size) != 3:
        return size
    rows, groups, half = size
    least, most = (groups - 1) * 2 * half, groups * 2 * half
    fits = shape and least < shape[-1] <= most
    return rows, shape[-1] if fits else most


def quantized_linear(
    input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """input @ (scale[:, None] * weight)^T + bias, without the product in brackets

    input [*, K], weight int8 [N, K], scale [N], bias [N] or None -> [*, N]. Of four
    bits, weight is int8 [N, G, S / 2], scale [N, G], for G groups of S numbers in a
    row. `minitorch.quantization.quantize` makes weight and scale from a float weight.
    Scale and bias have the input's dtype, or are float32 beside a half type.

    Raises:
        ValueError: a shape does not fit, or the scale wants a gradient: it is fixed.
        TypeError: the dtypes are others.
        RuntimeError: the devices differ.
    """
    name, floats = "quantized_linear", [scale] if bias is None else [scale, bias]
    check_same_device(name, input, weight, *floats)
    kind = input.dtype
    if weight.dtype is not int8 or not kind.is_floating_point:
        raise TypeError(
            f"{name}: the input is {kind.name} and the weight {weight.dtype.name}; "
            f"expected floats, and int8 (see minitorch.quantization.quantize)"
        )
    if wrong := [x for x in floats if x.dtype not in (kind, computed(kind))]:
        raise TypeError(
            f"{name}: the input is {kind.name}, and a scale or bias is "
            f"{wrong[0].dtype.name}; convert one with .to(dtype)"
        )
    size = weight.raw.shape
    _check_shapes(name, input.raw.shape, _as_matrix(input.raw.shape, size), bias)
    if scale.raw.shape != size[:-1]:
        raise ValueError(
            f"{name}: the weight is {size} and the scale {scale.raw.shape}; expected "
            f"{size[:-1]}, one number for each row, or group, of the weight"
        )
    if scale.requires_grad:
        raise ValueError(f"{name}: the scale is fixed; give scale.detach()")
    return QuantizedLinear.apply(input, weight, scale, bias)


# ------------------------------------------------------------- bias and activation


class Activation(NamedTuple):
    """What `bias_activation` needs to know about one activation.

    Attributes:
        op: the operation without a bias, whose formulas are used again.
        fn: its function of one number.
        fn_backward: the derivative from the activation's input; None where `op` takes
            it from the output, so that nothing else has to be kept.
    """

    op: type[Function]
    fn: Callable
    fn_backward: Callable | None = None


ACTIVATIONS = {
    "relu": Activation(Relu, operators.relu),
    "tanh": Activation(Tanh, operators.tanh),
    "sigmoid": Activation(Sigmoid, operators.sigmoid),
    "gelu": Activation(Gelu, operators.gelu, operators.gelu_backward),
    "silu": Activation(Silu, operators.silu, operators.silu_backward),
}


class BiasActivation(Function):
    """out = fn(x + bias) for x [*, N] and bias [N]

    grad_x = grad * fn'(x + bias), grad_bias = the sum of grad_x over all but the last
    dim. Where fn' follows from the output (relu, tanh, sigmoid), only that is kept; for
    the others x + bias is computed again, in registers.
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor, bias: Tensor, kind: Activation | None) -> Any:
        # BEGIN SOLUTION a8.1
        backend = x.backend
        rows = as_rows(x.raw, backend)
        fn = None if kind is None else kind.fn
        out = reshaped(backend.bias_activation(rows, bias.raw, fn), x.raw.shape)
        ctx.kind = kind
        if kind is not None:
            ctx.save_for_backward(*((x, bias) if kind.fn_backward else (out,)))
        return out
        # END SOLUTION a8.1

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Grads:
        # BEGIN SOLUTION a8.1
        kind: Activation | None = ctx.kind
        grad_x, grad_bias = grad, None
        if kind is not None and kind.fn_backward is None:
            grad_x = kind.op.backward(ctx, grad)  # it expects just what was saved
        elif kind is not None:
            grad_x = _through_activation(kind, grad, *ctx.saved_tensors)
        if ctx.needs_input_grad[1]:
            if grad_mode.enabled:
                grad_bias = grad_x.reshape(rows_shape(grad_x.raw.shape)).sum(0)
            else:
                backend = grad.backend
                sums = column_sums(as_rows(grad_x.raw, backend), backend)
                grad_bias = grad.wrap(sums)
        return grad_x, grad_bias, None
        # END SOLUTION a8.1


def _through_activation(
    kind: Activation, grad: Tensor, x: Tensor, bias: Tensor
) -> Tensor:
    """grad * fn'(x + bias): recorded as a composition, or one kernel."""
    if grad_mode.enabled:
        inner = x + bias
        out = kind.op.apply(inner)
        made = backpropagate([out], [grad], True, True, [inner])
        assert made is not None  # inputs were given
        return made[0]
    backend = grad.backend
    g, rows = as_rows(grad.raw, backend), as_rows(x.raw, backend)
    raw = backend.bias_activation_backward(g, rows, bias.raw, kind.fn_backward)
    return grad.wrap(reshaped(raw, x.raw.shape))


def bias_activation(x: Tensor, bias: Tensor, activation: str | None = None) -> Tensor:
    """activation(x + bias), in one pass over memory

    x [*, N], bias [N] -> [*, N].

    Args:
        activation: "relu", "gelu", "tanh", "sigmoid", "silu", or None for x + bias.

    Raises:
        ValueError: the shapes do not fit, or there is no such activation.
        TypeError: the dtypes differ, or are no floats.
        RuntimeError: the devices differ.
    """
    name = "bias_activation"
    _check_kinds(name, x, bias)
    shape, size = x.raw.shape, bias.raw.shape
    if not shape or size != shape[-1:]:
        raise ValueError(
            f"{name}: x is {shape} and the bias {size}; expected x (..., N) and a bias "
            f"(N,)"
        )
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(
            f"{name}: activation is {activation!r}; expected one of "
            f"{', '.join(map(repr, ACTIVATIONS))}, or None"
        )
    if not x.dtype.is_floating_point:
        raise TypeError(f"{name}: x is {x.dtype.name}; expected a floating type")
    kind = None if activation is None else ACTIVATIONS[activation]
    return BiasActivation.apply(x, bias, kind)
