"""Pooling layers: one number for each window; and the way back to larger images.

With this file one can shrink images and sequences (`MaxPool2d`, `AvgPool2d`,
`MaxPool1d`), reduce them to a fixed size (`AdaptiveAvgPool2d`, `AdaptiveAvgPool1d`),
give them any size (`Upsample`), or make large images of small ones (`PixelShuffle`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import minitorch.nn.functional as F
from minitorch.nn.module import Module
from minitorch.tensor import Tensor


class _MaxPool(Module):
    _shown = ("kernel_size", "stride", "padding", "dilation")
    _pool: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        if ceil_mode:
            raise ValueError(
                f"{type(self).__name__}: ceil_mode=True is not offered; pad the input"
            )
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        return self._pool(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            return_indices=self.return_indices,
        )


class MaxPool1d(_MaxPool):
    """The maximum of each window: x [N, C, L] -> [N, C, OL]"""

    _pool = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The maximum of each window: x [N, C, H, W] -> [N, C, OH, OW]"""

    _pool = staticmethod(F.max_pool2d)


class AvgPool2d(Module):
    """The mean of each window: x [N, C, H, W] -> [N, C, OH, OW]"""

    _shown = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        if ceil_mode or divisor_override is not None:
            raise ValueError(
                "AvgPool2d: ceil_mode=True and divisor_override are not offered"
            )
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.count_include_pad = padding, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            count_include_pad=self.count_include_pad,
        )


class AdaptiveAvgPool2d(Module):
    """Means that leave an image of `output_size`: x [*, H, W] -> [*, OH, OW].

    H and W must be multiples of OH and OW; `AdaptiveAvgPool2d(1)` always fits.
    """

    _shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
    """Means that leave a line of `output_size`: x [*, L] -> [*, OL]; L = k OL."""

    def forward(self, x: Tensor) -> Tensor:
        given = self.output_size
        (size,) = given if isinstance(given, tuple) else (given,)
        return F.adaptive_avg_pool2d(x.unsqueeze(-2), (1, size)).squeeze(-2)


class PixelShuffle(Module):
    """Channels become pixels: x [*, C r^2, H, W] -> [*, C, H r, W r], for a factor r.

    Source: Shi et al., "Real-time single image and video super-resolution using an
    efficient sub-pixel convolutional neural network", 2016.
    """

    _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        r = self.upscale_factor
        if x.dim() < 3 or x.raw.shape[-3] % (r * r):
            raise ValueError(
                f"PixelShuffle: the input is {x.raw.shape}; expected (..., C, H, W), "
                f"where C is a multiple of {r * r}"
            )
        *batch, c, h, w = x.raw.shape
        parts = x.reshape(-1, c // (r * r), r, r, h, w).permute(0, 1, 4, 2, 5, 3)
        return parts.reshape(*batch, c // (r * r), h * r, w * r)


class Upsample(Module):
    """Another size: x [N, C, *] -> [N, C, *size]; see `functional.interpolate`."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        several = isinstance(scale_factor, (tuple, list))
        self.scale_factor = (
            tuple(map(float, scale_factor)) if several
            else None if scale_factor is None else float(scale_factor)
        )  # fmt: skip
        self.size, self.mode, self.align_corners = size, mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(
            x,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        key = "size" if self.scale_factor is None else "scale_factor"
        return f"{key}={getattr(self, key)!r}, mode={self.mode!r}"
