"""The operations of networks as plain functions; usually imported as F.

With this file one can apply a layer, an activation or a loss without a module:
`F.linear(x, weight, bias)`, `F.relu(x)`, `F.conv2d(x, weight)`,
`F.cross_entropy(logits, target)`. Names, arguments and defaults are PyTorch's. An
argument of PyTorch's that is missing here is an error, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch import absent, arguments, creation
from minitorch.functions import activation, autocasting, elementwise, indexing, pool
from minitorch.functions import norm as norms
from minitorch.functions import softmax as softmaxes
from minitorch.functions.activation import LogSigmoid
from minitorch.functions.activation import gelu as gelu
from minitorch.functions.attention import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from minitorch.functions.conv import as_sizes
from minitorch.functions.conv import conv1d as conv1d
from minitorch.functions.conv import conv2d as conv2d
from minitorch.functions.conv import conv_transpose1d as conv_transpose1d
from minitorch.functions.conv import conv_transpose2d as conv_transpose2d
from minitorch.functions.elementwise import sigmoid as sigmoid
from minitorch.functions.elementwise import tanh as tanh
from minitorch.functions.interpolate import interpolate as interpolate
from minitorch.functions.linear import bias_activation as bias_activation
from minitorch.functions.linear import linear as linear
from minitorch.functions.linear import quantized_linear as quantized_linear
from minitorch.functions.losses import binary_cross_entropy as binary_cross_entropy
from minitorch.functions.losses import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from minitorch.functions.losses import cross_entropy as cross_entropy
from minitorch.functions.losses import huber_loss as huber_loss
from minitorch.functions.losses import kl_div as kl_div
from minitorch.functions.losses import l1_loss as l1_loss
from minitorch.functions.losses import linear_cross_entropy as linear_cross_entropy
from minitorch.functions.losses import mse_loss as mse_loss
from minitorch.functions.losses import nll_loss as nll_loss
from minitorch.functions.losses import smooth_l1_loss as smooth_l1_loss
from minitorch.functions.movement import flatten as flatten
from minitorch.functions.norm import (
    dropout_residual_layer_norm as dropout_residual_layer_norm,
)
from minitorch.functions.norm import group_norm as group_norm
from minitorch.functions.norm import layer_norm as layer_norm
from minitorch.functions.norm import rms_norm as rms_norm
from minitorch.functions.operands import cast, check_same_device, checked_tensor
from minitorch.functions.random import dropout as random_zeros
from minitorch.functions.rotary import rotary as rotary
from minitorch.random import Generator
from minitorch.tensor import Tensor

Pair = tuple[int, int]


def applied(fn: Callable, x: Tensor, inplace: bool) -> Tensor:
    """fn(x), and with `inplace` in the memory of x: other names of it see that, but no
    memory is saved, as a backward pass may need x as it was."""
    return checked_tensor("inplace", x)._replace("inplace", fn) if inplace else fn(x)


def _refuse(name: str, argument: str, value: Any, default: Any) -> None:
    if value != default:
        raise ValueError(
            f"{name}: {argument}={value!r} is not offered; leave it at {default!r}"
        )


# --------------------------------------------------------------- layers, stateless


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of a table: input int64 [*], weight [n, d] -> [*, d]

    Args:
        padding_idx: a row that receives no gradient.

    Raises:
        IndexError: an index is not a row.
    """
    check_same_device("embedding", input, weight)
    if input.dtype.category != 1:
        raise TypeError(
            f"embedding: the input is {input.dtype.name}; expected int64 row numbers"
        )
    if weight.dim() != 2:
        raise ValueError(
            f"embedding: the weight is {weight.raw.shape}; expected (n, d)"
        )
    out = indexing.IndexSelect.apply(weight, 0, input.long())
    if padding_idx is not None:
        padding = padding_idx % len(weight)
        out = out.where((input != padding).unsqueeze(-1), out.detach())
    return out


def dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """In training, zeros with probability p, and the others divided by 1 - p."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout: p is {p}; it must be from 0 to 1")
    if not training or p == 0:
        return input
    return applied(lambda x: random_zeros(x, p, generator), input, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels, alone or together: input [N, C, *]"""
    if arguments.dims_of("dropout2d", input) < 2:
        raise ValueError(
            f"dropout2d: the input is {input.raw.shape}; expected (N, C, ...)"
        )
    shape = input.raw.shape
    kept = dropout(input.new_ones(*shape[:2], *(1,) * (len(shape) - 2)), p, training)
    return applied(lambda x: x * kept, input, inplace)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of x, the input.

    input [N, C] or [N, C, *], all others [C]. In training, mean and variance are the
    batch's, and the running ones move towards them by the share `momentum` (the
    unbiased variance is what they learn); otherwise they are the running ones.
    """
    if training:
        out, mean, var = norms.batch_norm(input, weight, bias, eps)
        count = input.numel() // input.raw.shape[1]
        _move_towards(running_mean, mean, momentum)
        _move_towards(running_var, var * (count / (count - 1)), momentum)
        return out
    if running_mean is None or running_var is None:
        raise ValueError(
            "batch_norm: without training=True the running mean and variance are needed"
        )
    check_same_device("batch_norm", input, running_mean)
    if input.dim() < 2 or input.raw.shape[1:2] != running_mean.raw.shape:
        raise ValueError(
            f"batch_norm: input is {input.raw.shape}; expected (N, C, ...) with C = "
            f"{running_mean.numel()}"
        )
    return norms.batch_norm_inference(
        input, running_mean, running_var, weight, bias, eps
    )


def _move_towards(running: Tensor | None, new: Tensor, share: float) -> None:
    if running is not None:
        value = running.detach() * (1.0 - share) + new.detach() * share
        running.detach().copy_(value)


# ------------------------------------------------------------------------- pooling


def max_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window: input [N, C, H, W] or [C, H, W] -> [N, C, OH, OW].

    With `return_indices` also the int64 positions h * W + w of the maxima.
    """
    _refuse("max_pool2d", "ceil_mode", ceil_mode, False)
    values, index = pool.max_pool2d(input, kernel_size, stride, padding, dilation)
    return (values, index) if return_indices else values


def max_pool1d(
    input: Tensor,
    kernel_size: int | tuple[int],
    stride: int | tuple[int] | None = None,
    padding: int | tuple[int] = 0,
    dilation: int | tuple[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maximum of each window: input [N, C, L] or [C, L] -> [N, C, OL]."""
    _refuse("max_pool1d", "ceil_mode", ceil_mode, False)
    (kernel,) = as_sizes("max_pool1d: kernel_size", kernel_size, 1, 1)
    stride = kernel if stride is None else stride
    (step,) = as_sizes("max_pool1d: stride", stride, 1, 1)
    (pad,) = as_sizes("max_pool1d: padding", padding, 1, 0)
    (spread,) = as_sizes("max_pool1d: dilation", dilation, 1, 1)
    values, index = pool.max_pool1d(input, kernel, step, pad, spread)
    return (values, index) if return_indices else values


def avg_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window: input [N, C, H, W] or [C, H, W] -> [N, C, OH, OW]."""
    _refuse("avg_pool2d", "ceil_mode", ceil_mode, False)
    _refuse("avg_pool2d", "divisor_override", divisor_override, None)
    return pool.avg_pool2d(input, kernel_size, stride, padding, count_include_pad)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means that leave an image of `output_size`: input [*, H, W] -> [*, OH, OW].

    Args:
        output_size: OH = OW as an int, or the pair (OH, OW); None keeps a size. H and
            W must be multiples of them.
    """
    if arguments.dims_of("adaptive_avg_pool2d", input) not in (3, 4):
        raise ValueError(
            f"adaptive_avg_pool2d: input is {input.raw.shape}; expected "
            f"(N, C, H, W) or (C, H, W)"
        )
    wanted = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
    if wanted == (1, 1):
        return input.mean((-2, -1), keepdim=True)
    sizes = input.raw.shape[-2:]
    out = [size if w is None else w for size, w in zip(sizes, wanted)]
    if len(wanted) != 2 or any(o < 1 or n % o for n, o in zip(sizes, out)):
        raise ValueError(
            f"adaptive_avg_pool2d: output_size is {output_size!r} and input is "
            f"{input.raw.shape}; height and width must be multiples of the output's"
        )
    return pool.avg_pool2d(input, (sizes[0] // out[0], sizes[1] // out[1]))


# ---------------------------------------------------------------------- activations


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """x where x > 0, else 0"""
    return applied(elementwise.relu, input, inplace)


def leaky_relu(
    input: Tensor, negative_slope: float = 0.01, inplace: bool = False
) -> Tensor:
    """x where x > 0, else negative_slope * x"""
    return applied(lambda x: activation.leaky_relu(x, negative_slope), input, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1)"""
    return applied(lambda x: activation.elu(x, alpha), input, inplace)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x)"""
    return applied(activation.silu, input, inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold"""
    checked_tensor("softplus", input)
    if beta == 1 and threshold >= 20 and input.dtype.itemsize < 8:
        return input.softplus()  # whose numbers are x from there on
    scaled = input if beta == 1 else input * beta
    curve = scaled.softplus() if beta == 1 else scaled.softplus() * (1.0 / beta)
    return input.where(scaled > threshold, curve)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow"""
    return LogSigmoid.apply(arguments.check_floating("logsigmoid", input))


def softmax(
    input: Tensor, dim: int | None = None, *, dtype: dtypes.DType | None = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along dim"""
    return softmaxes.softmax(_typed(input, dtype), _required_dim("softmax", input, dim))


def log_softmax(
    input: Tensor, dim: int | None = None, *, dtype: dtypes.DType | None = None
) -> Tensor:
    """x - logsumexp(x) along dim"""
    dim = _required_dim("log_softmax", input, dim)
    return softmaxes.log_softmax(_typed(input, dtype), dim)


def _typed(x: Tensor, dtype: dtypes.DType | None) -> Tensor:
    return x if dtype is None else x.to(dtype)


def _required_dim(name: str, x: Tensor, dim: int | None) -> int:
    if dim is None:
        raise ValueError(
            f"{name}: dim is missing; for an input of shape "
            f"{checked_tensor(name, x).raw.shape} give, for example, dim=-1"
        )
    return dim


# ------------------------------------------------------------------- small helpers


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 [*] -> int64 [*, num_classes], 1 at the number of each class, else 0.

    Args:
        num_classes: one more than the largest number by default.
    """
    if checked_tensor("one_hot", input).dtype.category != 1:
        raise TypeError(f"one_hot: the input is {input.dtype.name}; expected int64")
    if num_classes == -1 and input.numel() == 0:
        raise ValueError("one_hot: num_classes is needed for an empty input")
    low, high = indexing.number_range(input)
    classes = high + 1 if num_classes == -1 else num_classes
    if low < 0 or high >= classes:
        raise ValueError(
            f"one_hot: the input has numbers from {low} to {high}; with num_classes="
            f"{classes} they must be from 0 to {classes - 1}"
        )
    numbers = creation.arange(classes, device=input.raw.device)
    column = cast(input, dtypes.int64).raw.unsqueeze(input.dim())
    return input.wrap(
        numbers.backend.zip(operators.eq, column, numbers.raw, dtypes.int64)
    )


def pad(
    input: Tensor,
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> Tensor:
    """Constants around input: `pad` is (before, after) of the last dim, then of the one
    before it, and so on; negative numbers cut off."""
    if mode != "constant":
        raise ValueError(f'pad: mode={mode!r} is not offered; use "constant"')
    return checked_tensor("pad", input).pad(pad, 0 if value is None else value)


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12
) -> Tensor:
    """x / max(norm of x along dim, eps)"""
    return input / checked_tensor("normalize", input).norm(p, dim, keepdim=True).clamp(
        min=eps
    )


@autocasting.in_float32
@arguments.numpy_names
def cosine_similarity(
    x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8
) -> Tensor:
    """The cosine of the angle between vectors along dim"""
    check_same_device("cosine_similarity", x1, x2)
    dtype = dtypes.promote(x1.dtype, x2.dtype)
    if dtype.half:  # float16 has no number as small as eps
        return cosine_similarity(x1.float(), x2.float(), dim, eps).to(dtype)
    lengths = x1.norm(2, dim).clamp(min=eps) * x2.norm(2, dim).clamp(min=eps)
    return (x1 * x2).sum(dim) / lengths


if not TYPE_CHECKING:  # for which a name that is not there stays an error
    __getattr__ = absent.explain(__name__)
