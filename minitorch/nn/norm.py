"""Normalization layers.

With this file one can keep activations near mean 0 and variance 1: over the batch
(`BatchNorm1d`, `BatchNorm2d`) or over the features (`LayerNorm`, `GroupNorm`,
`InstanceNorm1d`, `InstanceNorm2d`, `RMSNorm`).
"""

from __future__ import annotations

from collections.abc import Sequence

import minitorch.nn.functional as F
from minitorch.creation import ones, tensor, zeros
from minitorch.dtypes import DType, int64
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Tensor
from minitorch.tensor_data import Shape


def _register_affine(
    module: Module,
    shape: Shape,
    weight: bool,
    bias: bool,
    device: str | None,
    dtype: DType | None,
) -> None:
    """The parameters `weight` of ones and `bias` of zeros, or None for either."""
    for name, make, wanted in (("weight", ones, weight), ("bias", zeros, bias)):
        made = Parameter(make(shape, device=device, dtype=dtype)) if wanted else None
        module.register_parameter(name, made)


class _BatchNorm(Module):
    dims: tuple[int, ...]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        size = (num_features,)
        _register_affine(self, size, affine, affine, device, dtype)
        mean = var = count = None
        if track_running_stats:
            mean = zeros(size, device=device, dtype=dtype)
            var = ones(size, device=device, dtype=dtype)
            count = tensor(0, dtype=int64, device=device)
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", var)
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Forget the running mean and variance."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def _share(self) -> float:
        """How much of the running values this batch replaces; count it."""
        if self.num_batches_tracked is None or not self.track_running_stats:
            return 0.0
        self.num_batches_tracked.add_(1)
        if self.momentum is None:  # the mean of all batches so far
            return 1.0 / float(self.num_batches_tracked)
        return self.momentum

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() not in self.dims or x.raw.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}: the input is {x.raw.shape}; expected "
                f"{' or '.join(map(str, self.dims))} dimensions, of which the second "
                f"has size {self.num_features}"
            )
        share = self._share() if self.training else 0.0
        kept = self.track_running_stats or not self.training  # may be switched off
        return F.batch_norm(
            x,
            self.running_mean if kept else None,
            self.running_var if kept else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            share,
            self.eps,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Normalize each channel of x [N, C] or [N, C, L].

    In training with the batch's mean and variance, of which running values are kept
    (momentum None: the mean over all batches); in evaluation with the running values.
    """

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalize each channel of x [N, C, H, W]; see BatchNorm1d."""

    dims = (4,)


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dims.

    x [*, D1, ..., Dk] for normalized_shape (D1, ..., Dk).
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = _as_shape(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.elementwise_affine = elementwise_affine
        affine = elementwise_affine
        _register_affine(self, shape, affine, affine and bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias; mean and var of groups of channels.

    x [N, C, *] for C = num_channels, a multiple of num_groups; weight and bias [C].
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: num_channels is {num_channels} and num_groups "
                f"{num_groups}; the first must be a multiple of the second"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        _register_affine(self, (num_channels,), affine, affine and bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, "
            f"affine={self.affine}, bias={self.bias is not None}"
        )


class _InstanceNorm(GroupNorm):
    dims: int

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = False, track_running_stats: bool = False,
        device: str | None = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, num_features, eps, affine, device, dtype)
        if track_running_stats:
            raise ValueError(
                f"{type(self).__name__}: track_running_stats is not offered; leave it"
            )
        self.num_features, self.momentum = num_features, momentum
        self.track_running_stats = track_running_stats

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() not in (self.dims - 1, self.dims):
            raise ValueError(
                f"{type(self).__name__}: the input is {x.raw.shape}; expected "
                f"{self.dims} dimensions, or {self.dims - 1} of one"
            )
        batch = x if x.dim() == self.dims else x.unsqueeze(0)
        return super().forward(batch).reshape(x.raw.shape)

    extra_repr = _BatchNorm.extra_repr


class InstanceNorm1d(_InstanceNorm):
    """A `GroupNorm` whose groups are channels: x [N, C, L], or [C, L] of one."""

    dims = 3


class InstanceNorm2d(_InstanceNorm):
    """A `GroupNorm` whose groups are channels: x [N, C, H, W], or [C, H, W] of one."""

    dims = 4


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dims; see `rms_norm`.

    x [*, D1, ..., Dk] for normalized_shape (D1, ..., Dk).
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = _as_shape(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.elementwise_affine = elementwise_affine
        _register_affine(self, shape, elementwise_affine, False, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    extra_repr = LayerNorm.extra_repr


def _as_shape(size: int | Sequence[int]) -> Shape:
    return (size,) if isinstance(size, int) else tuple(size)
