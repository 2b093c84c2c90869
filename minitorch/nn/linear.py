"""The fully connected layer.

With this file one can map features to other features: `Linear(in, out)`.
"""

from __future__ import annotations

import math
from typing import Any

import minitorch.nn.functional as F
import minitorch.nn.init as init
from minitorch.creation import empty
from minitorch.dtypes import DType
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Tensor


def default_weight(
    shape: tuple[int, ...], device: str | None, dtype: DType | None
) -> Parameter:
    """A weight [out, in, *], uniform in +-1 / sqrt(fan_in)."""
    weight = Parameter(empty(shape, device=device, dtype=dtype))
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    return weight


def default_bias(
    weight: Parameter, device: str | None, dtype: DType | None, size: int | None = None
) -> Parameter:
    """A bias [size], uniform in +-1 / sqrt(fan_in of the weight [out, in, *]).

    Args:
        size: None: out.
    """
    size = len(weight) if size is None else size
    bias = Parameter(empty((size,), device=device, dtype=dtype))
    fan_in, _ = init.fans(weight)
    bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
    init.uniform_(bias, -bound, bound)
    return bias


def check_sizes(name: str, **sizes: Any) -> None:
    """All sizes must be ints, none below 0."""
    for key, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name}: {key} is {value!r}; expected an int, 0 or more")


class Linear(Module):
    """y = x @ weight^T + bias

    x [*, in_features] -> y [*, out_features]; weight [out_features, in_features],
    bias [out_features], both uniform in +-1 / sqrt(in_features) at first.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_sizes("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = default_weight((out_features, in_features), device, dtype)
        first = default_bias(self.weight, device, dtype) if bias else None
        self.register_parameter("bias", first)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
