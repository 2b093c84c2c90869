"""Images of another size: each number of the new one is taken from the old one.

With this file one can enlarge and shrink what has N examples of C channels: where
number i of a new side lies on the old one is `i * ratio`, and from there it takes the
nearest number (`mode="nearest"`) or a mean of the two around it ("bilinear").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from minitorch.arguments import check_floating, int_sequence
from minitorch.function import Context, Function
from minitorch.functions.indexing import IndexAdd, index_select
from minitorch.functions.linear import reshaped, seen_as
from minitorch.tensor_data import Shape, TensorData

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5}  # the dimensions of the input


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Another size: input [N, C, *] -> [N, C, *size].

    Args:
        size: of each side, or of all; or give
        scale_factor: by which sides grow, rounded down.
        mode: "nearest", "linear" (one side), "bilinear" (two) or "trilinear".
        align_corners: of linear modes: whether the first and the last number stay as
            they are; else numbers are areas, whose outlines stay.
        recompute_scale_factor: whether numbers lie apart as the sizes say, not as
            scale_factor does.
        antialias: must be left out.
    """
    shape = check_floating("interpolate", input).raw.shape
    if mode not in ("nearest", *LINEAR) or len(shape) != LINEAR.get(mode, len(shape)):
        raise ValueError(
            f'interpolate: mode is {mode!r} for an input {shape}; expected "nearest", '
            f'or for 3, 4 or 5 dimensions "linear", "bilinear" or "trilinear"'
        )
    if antialias or (align_corners is not None and mode == "nearest"):
        raise ValueError(
            f"interpolate: align_corners is {align_corners} and antialias {antialias}; "
            f"the first is for linear modes, the second is not offered"
        )
    if mode != "nearest" and input.dtype.half:
        options: Any = (size, scale_factor, mode, align_corners, recompute_scale_factor)
        return interpolate(input.float(), *options).to(input.dtype)
    plan = _plan(shape, size, scale_factor, bool(recompute_scale_factor))
    if mode == "nearest":
        return _nearest(input, plan)
    for dim, (new, ratio) in enumerate(plan, 2):
        input = _between(input, dim, new, ratio, bool(align_corners))
    return input


def _plan(
    shape: Sequence[int], size: Any, scale_factor: Any, recompute: bool
) -> list[tuple[int, float]]:
    """For each side its new size, and how far apart its numbers are on the old one."""
    old = shape[2:]
    given = scale_factor if size is None else size
    values = list(given) if isinstance(given, (tuple, list)) else [given] * len(old)
    both = (size is None) == (scale_factor is None) or (recompute and size is not None)
    if both or not old or len(values) != len(old):
        raise ValueError(
            f"interpolate: size is {size}, scale_factor {scale_factor} and "
            f"recompute_scale_factor {recompute}; for an input {tuple(shape)}, (N, C, "
            f"...), give one of the first two, {len(old)} numbers or one for all; the "
            f"third is for a scale_factor"
        )
    if size is None:
        new = tuple(math.floor(n * float(f)) for n, f in zip(old, values))
    else:
        new = int_sequence("interpolate: size", tuple(values))
    if min(*old, *new) < 1:
        raise ValueError(f"interpolate: sides {old} cannot become {new}; expected 1 up")
    exact = size is not None or recompute
    return [(m, n / m if exact else 1.0 / f) for n, m, f in zip(old, new, values)]


def _nearest(x: Tensor, plan: Sequence[tuple[int, float]]) -> Tensor:
    """Numbers floor(i * ratio) of each side, computed in float32 as by PyTorch.

    All sides at once: where they grow by whole factors numbers are repeated, whose
    gradients are then sums, and else taken from the flattened image.
    """
    raw, backend = x.raw, x.backend
    new, repeated = _repeats(raw.shape, tuple(plan))
    if repeated:
        apart, wide = repeated
        return x.reshape(apart).expand(wide).reshape((*raw.shape[:2], *new))
    places = _places(backend, raw.storage.device, raw.shape[2:], tuple(plan))
    return Nearest.apply(x, x.wrap(places), new)


@lru_cache(maxsize=256)
def _repeats(
    shape: Shape, plan: Sequence[tuple[int, float]]
) -> tuple[Shape, tuple[Shape, Shape] | None]:
    """The new sides; and, where numbers are repeated, the sizes before and after."""
    images, old = shape[:2], shape[2:]
    new = tuple([size for size, _ in plan])
    whole = all(m % n == 0 and ratio == n / m for n, (m, ratio) in zip(old, plan))
    if not whole or new == old or 1 in old:  # a view would do, without a copy
        return new, None
    apart = [n for pair in zip(old, [1] * len(old)) for n in pair]
    wide = [n for n, m in zip(old, new) for n in (n, m // n)]
    return new, ((*images, *apart), (*images, *wide))


class Nearest(Function):
    """The numbers `places` [M] of each flattened image [N, C, *] -> [N, C, *size]."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, places: Tensor, size: Shape) -> Any:
        shape = x.raw.shape
        ctx.save_for_backward(places)
        ctx.shape, ctx.flat = shape, (*shape[:2], math.prod(shape[2:]))
        flat = seen_as(x.raw, ctx.flat, x.backend)
        out = x.backend.index_select(flat, 2, places.raw)
        return reshaped(out, (*shape[:2], *size))

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (places,) = ctx.saved_tensors
        flat = grad.reshape((*ctx.shape[:2], places.raw.size))
        out = IndexAdd.apply(grad.new_zeros(ctx.flat), 2, places, flat)
        return out.reshape(ctx.shape), None, None


@lru_cache(maxsize=32)
def _places(
    backend: Any, _: Any, old: Sequence[int], plan: Sequence[tuple[int, float]]
) -> TensorData:
    """The same ones for each image of a size and device: from the host, once."""
    places = np.zeros((), np.int64)
    for n, (size, ratio) in zip(old, plan):
        side = (np.arange(size, dtype=np.float32) * np.float32(ratio)).astype(np.int64)
        places = places[..., None] * n + side.clip(max=n - 1)
    found: TensorData = backend.from_numpy(places.reshape(-1))
    return found


def _between(x: Tensor, dim: int, size: int, ratio: float, corners: bool) -> Tensor:
    """(1 - w) x[low] + w x[low + 1], where number i lies w behind place `low`."""
    last = x.raw.shape[dim] - 1
    places = x.wrap(x.backend.arange(0.0, 1.0, size, x.dtype, size - 1.0))
    if corners:
        places = places * (last / max(size - 1, 1))
    else:
        places = ((places + 0.5) * ratio - 0.5).clamp(min=0)
    low = places.long().clamp(max=last)
    weight = (places - low).reshape(-1, *[1] * (x.dim() - dim - 1))
    first = index_select(x, dim, low)
    return first + (index_select(x, dim, (low + 1).clamp(max=last)) - first) * weight
