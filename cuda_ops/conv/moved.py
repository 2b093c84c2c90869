"""Convolutions of halves without columns: a product whose second factor moves.

With this file `unfolded.py` makes products of steps of one pixel (`moved_product`),
where that is worth while (`moves`). The image is copied into a frame of zeros, the
channels of a pixel side by side, and its rows lie one behind the other. Then the pixels
that meet one tap at all positions are neighbours, a stretch of the frame, and another
tap has the stretch that begins so many pixels later:

    frame        . . . . . . . . . a b c . . d e f . . g h i . . . . . .
    tap (0, 0)   |---------------------------|
    tap (0, 1)     |---------------------------|
    tap (1, 0)             |---------------------------|

So a product over taps and channels reads the frame where it lies, from another pixel on
for each tap. What it makes between two rows is no position, and is left out when the
result is copied.

    frame [images, rows * pitch, channels]
    made [images, O, OH * pitch] = weight [O, taps * channels] @ frame^T, moved

Of the weight, channels are filled up with zeros to the depth of a tile. (Channels come
first, as the copy engine begins at any line, but only at every eighth number of one.)
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Any

from cuda_ops import elementwise
from cuda_ops.conv.columns import TILE, VECTOR, Phase, padded, portions, shaped
from cuda_ops.conv.plan import Axis, is_plain
from cuda_ops.matmul.choosing import GROUP_RATE, choose
from cuda_ops.matmul.matmul import KINDS
from cuda_ops.matmul.plans import BatchRange, Plan, launch
from cuda_ops.matmul.warpgroup import CUTS, GROUP_CONFIGS, MOVED, Moves, bound
from cuda_ops.memory import copy_into, full
from cuda_ops.runtime.launch import ceil_div
from minitorch import operators
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

# Steps of k of a tile, at whose multiples another tap begins.
DEPTH = MOVED.depth


def moves(h: Axis, w: Axis, channels: int) -> bool:
    """Whether taps are a stretch each, and little is multiplied for nothing."""
    made = ceil_div(h.places * frame_of(h, w)[1], TILE) * TILE
    small = 2 * made <= 3 * h.places * w.places and 2 * _deep(channels) <= 3 * channels
    return h.step == w.step == 1 and small and not (is_plain(h) and is_plain(w))


def frame_of(h: Axis, w: Axis) -> tuple[int, int]:
    """Rows of a frame, and its pitch. A result's rows are whole vectors together."""
    high, wide = (
        axis.places + abs(axis.apart) * (len(axis.taps) - 1) for axis in (h, w)
    )
    step = VECTOR // gcd(h.places, VECTOR)
    return high, ceil_div(wide, step) * step


def _deep(channels: int) -> int:
    return ceil_div(channels, DEPTH) * DEPTH


@lru_cache(maxsize=1024)
def moved_plan(
    phase: Phase, dtype: DType, groups: int, outs: int, channels: int, count: int,
    wide_sums: bool,
) -> Plan:  # fmt: skip
    """The product for so many images, of channels of a group."""
    (h, w), deep = phase, _deep(channels)
    high, wide = frame_of(h, w)
    pixels, down, right = high * wide, h.apart, w.apart
    K, line = len(h.taps) * len(w.taps) * deep, groups * padded(channels)
    N, matrices = h.places * wide, count * groups
    cut = choose(
        GROUP_CONFIGS[KINDS[dtype]][: len(CUTS)], outs, N, K, matrices, GROUP_RATE
    )
    # Taps whose reach falls begin at the far end.
    start = -min(0, (len(h.taps) - 1) * down) * wide
    start -= min(0, (len(w.taps) - 1) * right)
    way = Moves(channels, pixels, deep, len(w.taps), start, down * wide, right)
    sizes, a = (outs, N, K, K), (K, 1, 0, outs * K, groups)
    b = line, 1, pixels * line, padded(channels), groups
    config = cut.config._replace(moved=True, wide=wide_sums)
    run = bound(config, sizes, a, b, matrices, way)
    batch = ((run, BatchRange(0, 0, 0, matrices)),)
    return Plan((count, groups, outs, N), batch, a, b, sizes, outs * N, 1, 0, True)


def moved_product(
    out: TensorData, image: TensorData, phase: Phase, matrix: TensorData,
    bias: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """out [N, O, OH, OW] = matrix [groups, O / groups, rows] @ windows + bias [O]."""
    (h, w), (groups, outs, _) = phase, matrix.shape
    taps, channels = len(h.taps) * len(w.taps), image.shape[1] // groups
    high, wide = frame_of(h, w)
    weight = _filled(matrix, taps, channels)
    size, sums = 2 * groups * padded(channels) * high * wide, bias is not None
    for first, count in portions(image.shape[0], size):
        framed = _framed(image.slice(0, first, count), phase, groups)
        plan = moved_plan(phase, image.dtype, groups, outs, channels, count, sums)
        made: Any = launch(plan, weight, framed, wide=sums)  # rounded once, with a bias
        del framed  # the next portion has its memory
        made = made.view((count, groups * outs, h.places, wide))
        put(out.slice(0, first, count), made.slice(3, 0, w.places), bias)
    return out


def put(out: TensorData, made: TensorData, bias: TensorData | None) -> None:
    """out [n, O, OH, OW] = made + bias [O], windows of any memory."""
    if bias is None:
        copy_into(out, made)
    else:
        row = shaped(bias, (1, made.shape[1], 1, 1)).expand(made.shape)
        elementwise.zip(operators.add, made, row, None, out)


def _framed(image: TensorData, phase: Phase, groups: int) -> TensorData:
    """image [n, C, H, W] -> [n, rows, pitch, groups, C / groups up to a vector]"""
    n, channels, *sizes = image.shape
    channels //= groups
    shape = n, *frame_of(*phase), groups, padded(channels)
    out = full(shape, 0.0, image.dtype)
    to, some = out.slice(4, 0, channels), image.permute((0, 2, 3, 1))
    some = shaped(some, (n, *sizes, groups, channels))
    for dim, axis in enumerate(phase):
        # The pixel of the image that is in the frame's corner.
        first = axis.base + min(reach for _, reach in axis.taps)
        begin = max(0, first)
        count = min(axis.size, first + shape[1 + dim]) - begin
        to = to.slice(1 + dim, begin - first, max(0, count))
        some = some.slice(1 + dim, begin, max(0, count))
    copy_into(to, some)
    return out


def _filled(matrix: TensorData, taps: int, channels: int) -> TensorData:
    """matrix [groups, O, channels * taps] -> [groups, O, taps, deep], zeros behind."""
    shape: Shape = (*matrix.shape[:2], taps, _deep(channels))
    out = full(shape, 0.0, matrix.dtype)
    by_tap = shaped(matrix, (*shape[:2], channels, taps)).permute((0, 1, 3, 2))
    copy_into(out.slice(3, 0, channels), by_tap)
    return out
