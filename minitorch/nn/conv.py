"""Convolution layers.

With this file one can slide a learned kernel over sequences (`Conv1d`) and images
(`Conv2d`), or make larger ones of them (`ConvTranspose1d`, `ConvTranspose2d`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import minitorch.nn.functional as F
from minitorch.dtypes import DType
from minitorch.functions.conv import as_sizes
from minitorch.nn.linear import check_sizes, default_bias, default_weight
from minitorch.nn.module import Module
from minitorch.tensor import Tensor


class _Conv(Module):
    """What convolutions of one and of two dimensions share."""

    dims: int
    output_padding: tuple[int, ...] = ()  # of the transposed ones
    _transposed = False
    _conv: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_sizes(name, in_channels=in_channels, out_channels=out_channels)
        check_sizes(name, groups=groups)
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: groups is {groups}; it must divide in_channels "
                f"({in_channels}) and out_channels ({out_channels})"
            )
        if padding_mode != "zeros":
            raise ValueError(
                f'{name}: padding_mode={padding_mode!r} is not offered; use "zeros"'
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        sizes = lambda key, value, least: as_sizes(
            f"{name}: {key}", value, self.dims, least
        )
        self.kernel_size = sizes("kernel_size", kernel_size, 1)
        self.stride = sizes("stride", stride, 1)
        self.padding: Any = (
            padding if isinstance(padding, str) else sizes("padding", padding, 0)
        )
        self.dilation = sizes("dilation", dilation, 1)
        self.groups = groups
        channels = [out_channels, in_channels][:: -1 if self._transposed else 1]
        shape = (channels[0], channels[1] // groups, *self.kernel_size)
        self.weight = weight = default_weight(shape, device, dtype)
        first = default_bias(weight, device, dtype, out_channels) if bias else None
        self.register_parameter("bias", first)

    def forward(self, x: Tensor) -> Tensor:
        return self._conv(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
        )

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        for key, value, default in (
            ("padding", self.padding, (0,) * self.dims),
            ("dilation", self.dilation, (1,) * self.dims),
            ("output_padding", self.output_padding, (0,) * len(self.output_padding)),
            ("groups", self.groups, 1),
            ("bias", self.bias is not None, True),
        ):
            if value != default:
                parts.append(f"{key}={value}")
        return ", ".join(parts)


class Conv1d(_Conv):
    """x [N, C, L] -> [N, O, OL]; weight [O, C/groups, K], bias [O].

    OL = (L + 2 padding - dilation (K - 1) - 1) // stride + 1. Weight and bias are
    uniform in +-1 / sqrt(C/groups * K) at first.
    """

    dims = 1
    _conv = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """x [N, C, H, W] -> [N, O, OH, OW]; weight [O, C/groups, KH, KW], bias [O].

    OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1. Weight and bias are
    uniform in +-1 / sqrt(C/groups * KH * KW) at first.
    """

    dims = 2
    _conv = staticmethod(F.conv2d)


class _ConvTranspose(_Conv):
    """What transposed convolutions of one and of two dimensions share."""

    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
            bias, padding_mode, device, dtype,
        )  # fmt: skip
        name = f"{type(self).__name__}: output_padding"
        self.output_padding = as_sizes(name, output_padding, self.dims, 0)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Args: output_size: (OL,) or (OH, OW), in place of the output_padding."""
        sides: Any = (self.stride, self.padding, self.dilation, self.kernel_size)
        more: Any = self.output_padding
        if output_size is not None:
            more = tuple(
                wanted - ((n - 1) * s - 2 * p + d * (k - 1) + 1)
                for wanted, n, s, p, d, k in zip(
                    output_size[-self.dims :], x.shape[-self.dims :], *sides
                )
            )
        stride, padding, dilation, _ = sides
        return self._conv(
            x, self.weight, self.bias, stride, padding, more, self.groups, dilation
        )


class ConvTranspose1d(_ConvTranspose):
    """x [N, C, L] -> [N, O, OL]; weight [C, O/groups, K], bias [O].

    Sizes and first values as those of `ConvTranspose2d`.
    """

    dims = 1
    _conv = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """x [N, C, H, W] -> [N, O, OH, OW]; weight [C, O/groups, KH, KW], bias [O].

    OH = (H - 1) stride - 2 padding + dilation (KH - 1) + 1 + output_padding: the size
    of which a `Conv2d` with these options makes H. Weight and bias are uniform in
    +-1 / sqrt(O/groups * KH * KW) at first.
    """

    dims = 2
    _conv = staticmethod(F.conv_transpose2d)
