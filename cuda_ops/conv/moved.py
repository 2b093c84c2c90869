"""Convolutions of halves without columns: a product whose second factor moves.

With this file `unfolded.py` makes products of steps of one pixel (`moved_product`),
where that is worth while (`moves`). The image is copied into a frame of zeros, and its
rows lie one behind the other. Then the pixels that meet one tap at all positions are
neighbours, a stretch of the frame, and another tap has the stretch that begins so many
pixels later:

    frame of a channel     . . . . . . . . . a b c . . d e f . . g h i . . . . . .
    tap (0, 0)             |---------------------------|
    tap (0, 1)               |---------------------------|
    tap (1, 0)                       |---------------------------|

So a product over channels and taps reads the frame where it lies, from another pixel on
for each tap. The copy engine can begin at any element. What it makes between two rows
is no position, and is left out when the result is copied.

    frame [channels, images, rows * pitch]
    made [images, O, OH * pitch] = weight [O, taps * channels] @ frame, moved

Channels are filled up with zeros to the depth of a tile.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Any

from cuda_ops import elementwise
from cuda_ops.conv.columns import TILE, VECTOR, columns_of, padded, portions, shaped
from cuda_ops.conv.plan import Axis, is_plain
from cuda_ops.matmul.choosing import GROUP_RATE, choose
from cuda_ops.matmul.matmul import KINDS
from cuda_ops.matmul.plans import BatchRange, Plan, launch
from cuda_ops.matmul.warpgroup import GROUP_CONFIGS, Moves, bound
from cuda_ops.memory import copy_into, full
from cuda_ops.runtime.launch import ceil_div
from minitorch import operators
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

Phase = tuple[Axis, Axis]


def moves(h: Axis, w: Axis, channels: int) -> bool:
    """Whether taps are a stretch each, and little is multiplied for nothing."""
    size, places = frame_size(h, w)
    wide = size // _high(h)
    depth = GROUP_CONFIGS["bf16"][0].depth
    made = ceil_div(h.places * wide, TILE) * TILE
    small = 2 * made <= 3 * places and ceil_div(channels, depth) * depth <= 2 * channels
    return h.step == w.step == 1 and small and not (is_plain(h) and is_plain(w))


def _reach(axis: Axis) -> tuple[int, int, int]:
    """The smallest reach of its taps, how far they are apart, and the largest less the
    smallest."""
    reach = [far for _, far in axis.taps]
    return (
        min(reach),
        reach[1] - reach[0] if len(reach) > 1 else 0,
        abs(reach[-1] - reach[0]),
    )


def _high(h: Axis) -> int:
    return h.places + _reach(h)[2]


def frame_size(h: Axis, w: Axis) -> tuple[int, int]:
    """Pixels of a frame, and positions. A result's rows are whole vectors together."""
    step = VECTOR // gcd(h.places, VECTOR)
    wide = ceil_div(w.places + _reach(w)[2], step) * step
    return _high(h) * wide, h.places * w.places


@lru_cache(maxsize=1024)
def moved_plan(
    phase: Phase, dtype: DType, groups: int, outs: int, channels: int, count: int,
    wide_sums: bool,
) -> Plan:  # fmt: skip
    """The product for so many images, of channels of a group."""
    (h, w), depth = phase, GROUP_CONFIGS[KINDS[dtype]][0].depth
    deep, pixels = ceil_div(channels, depth) * depth, frame_size(h, w)[0]
    wide = pixels // _high(h)
    (_, down, _), (_, right, _) = map(_reach, phase)
    K, line = len(h.taps) * len(w.taps) * deep, padded(pixels)
    N, matrices = h.places * wide, count * groups
    cut = choose(GROUP_CONFIGS[KINDS[dtype]][:2], outs, N, K, matrices, GROUP_RATE)
    # Taps whose reach falls begin at the far end.
    start = -min(0, (len(h.taps) - 1) * down) * wide
    start -= min(0, (len(w.taps) - 1) * right)
    way = Moves(line, channels, deep, len(w.taps), start, down * wide, right)
    sizes, a = (outs, N, K, K), (K, 1, 0, outs * K, groups)
    b = 1, count * line, line, channels * count * line, groups
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
    pixels = frame_size(h, w)[0]
    frame: Any = tuple(
        Axis(axis.size, places, 1, axis.base + _reach(axis)[0], 1, 0, ((0, 0),))
        for axis, places in ((h, _high(h)), (w, pixels // _high(h)))
    )
    weight = _filled(matrix, taps, channels)
    for first, count in portions(image.shape[0], 2 * image.shape[1] * pixels):
        framed = columns_of(image, frame, first, count, groups, False)
        wide = bias is not None  # for one rounding, with it
        plan = moved_plan(phase, image.dtype, groups, outs, channels, count, wide)
        made: Any = launch(plan, weight, framed, wide=wide)
        del framed  # the next portion has its memory
        made = made.view((count, groups * outs, h.places, pixels // _high(h)))
        made, part = made.slice(3, 0, w.places), out.slice(0, first, count)
        if bias is None:
            copy_into(part, made)
        else:
            row: Any = shaped(bias, (1, groups * outs, 1, 1)).expand(made.shape)
            elementwise.zip(operators.add, made, row, None, part)
    return out


def _filled(matrix: TensorData, taps: int, channels: int) -> TensorData:
    """matrix [groups, O, channels * taps] -> [groups, O, taps, deep], zeros behind."""
    depth = GROUP_CONFIGS[KINDS[matrix.dtype]][0].depth
    shape: Shape = (*matrix.shape[:2], taps, ceil_div(channels, depth) * depth)
    out = full(shape, 0.0, matrix.dtype)
    by_tap = shaped(matrix, (*shape[:2], channels, taps)).permute((0, 1, 3, 2))
    copy_into(out.slice(3, 0, channels), by_tap)
    return out
