"""Starting values of parameters.

With this file one can fill a tensor in place before training: `uniform_`, `normal_`,
`kaiming_uniform_`, `xavier_normal_`, `orthogonal_` and so on. Random numbers come from
the library's default generator (`minitorch.manual_seed`) unless another is given.

For the fan of a weight [out, in, *]: fan_in = in * receptive field, fan_out = out *
receptive field, where the receptive field is the product of the sizes *.
"""

from __future__ import annotations

import math

import numpy as np

from minitorch.autodiff import no_grad
from minitorch.creation import rand_like, randn, randn_like
from minitorch.random import Generator
from minitorch.tensor import Tensor
from minitorch.tensor_data import numel

GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def _fill(tensor: Tensor, values: Tensor | float) -> Tensor:
    with no_grad():
        return tensor.copy_(values)


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform random numbers in [a, b)."""
    return _fill(tensor, rand_like(tensor, generator=generator) * (b - a) + a)


def normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers."""
    return _fill(tensor, randn_like(tensor, generator=generator) * std + mean)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers; those that are not in [a, b] are drawn again."""
    low, high = (math.erf((end - mean) / (std * math.sqrt(2.0))) for end in (a, b))
    if high - low < 0.02:
        raise ValueError(
            f"trunc_normal_: of numbers with mean {mean} and std {std}, fewer than 1 % "
            f"are in [{a}, {b}]; choose an interval that has more of them"
        )
    values = randn_like(tensor, generator=generator) * std + mean
    while ((values < a) | (values > b)).any():
        again = randn_like(tensor, generator=generator) * std + mean
        values = again.where((values < a) | (values > b), values)
    return _fill(tensor, values)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """`val` everywhere."""
    return _fill(tensor, val)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return _fill(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return _fill(tensor, 1)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor on the standard deviation that a nonlinearity asks for.

    Args:
        nonlinearity: "linear", "conv1d", "conv2d", "sigmoid", "tanh", "relu",
            "leaky_relu" or "selu".
        param: for "leaky_relu" its negative slope, 0.01 by default.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in GAINS:
        raise ValueError(
            f"calculate_gain: nonlinearity is {nonlinearity!r}; expected one of "
            f"{', '.join(GAINS)}, leaky_relu"
        )
    return GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight [out, in, *]."""
    shape = tensor.raw.shape
    if len(shape) < 2:
        raise ValueError(
            f"init: a tensor of shape {shape} has no fan; expected (out, in, ...)"
        )
    field = numel(shape[2:])
    return shape[1] * field, shape[0] * field


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f'init: mode is {mode!r}; expected "fan_in" or "fan_out"')
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in +-gain * sqrt(3 / fan), so that signals keep their variance.

    Args:
        a: the negative slope of the leaky ReLU that follows.
        mode: "fan_in" keeps it forward, "fan_out" backward.

    Source: He, Zhang, Ren and Sun, "Delving deep into rectifiers", 2015.
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal with the standard deviation gain / sqrt(fan); see kaiming_uniform_."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return normal_(tensor, 0.0, std, generator)


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)).

    Source: Glorot and Bengio, "Understanding the difficulty of training deep
    feedforward neural networks", 2010.
    """
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal with the standard deviation gain * sqrt(2 / (fan_in + fan_out))."""
    std = gain * math.sqrt(2.0 / sum(fans(tensor)))
    return normal_(tensor, 0.0, std, generator)


def orthogonal_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """A random matrix [rows, *] whose rows (or columns, if fewer) are orthonormal.

    Source: Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of
    learning in deep linear neural networks", 2014.
    """
    shape = tensor.raw.shape
    if len(shape) < 2:
        raise ValueError(
            f"orthogonal_: the tensor is {shape}; expected 2 dimensions or more"
        )
    if tensor.numel() == 0:
        return tensor
    rows, cols = shape[0], numel(shape[1:])
    tall = (max(rows, cols), min(rows, cols))
    q, r = np.linalg.qr(randn(tall, generator=generator).numpy().astype(np.float64))
    q = q * np.sign(np.diag(r))  # without this, Q is not uniform among all rotations
    values = (q if rows >= cols else q.T) * gain
    return _fill(tensor, tensor.new_tensor(values.reshape(shape)))
