"""Convolutions as matrix products: which element meets which, written down in tables.

With this file one can turn the shapes and options of a convolution into an `Axis` for
each direction (`forward_axis`, `backward_axes`), and these into the table of numbers
that the kernels of `conv.py` read (`table_plan`, `weight_plan`).

A convolution multiplies a matrix that is never written down:

    out [position, channel]  =  rows [position, k]  @  weight [k, channel]

Position m is a pixel (n, y, x) of the output, k a pair of a source channel and a tap
(kh, kw) of the kernel, and rows[m, k] is the pixel of the source at

    row     y * step + base + reach(kh)         0 if it is outside of the source
    column  x * step + base + reach(kw)

The gradient for the input has the same form with a step of 1, if the input's pixels are
split into stride * stride phases, by the remainder of their place: all pixels of a
phase meet the same taps. So one table serves both; a table has a header for each phase.

Integer division is slow on a GPU, so the header brings numbers to multiply with instead
(`magic`). Source of the idea: Granlund and Montgomery, "Division by Invariant Integers
using Multiplication", 1994.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Numbers of a phase's header.
HEADER = 20
# The reach of a tap that is there only to fill up the table.
FAR = 1 << 29
# Numbers in a table are 32 bits wide.
LIMIT = 1 << 31


class Axis(NamedTuple):
    """One direction, rows or columns, of a convolution.

    Position i reads source place i * step + base + reach and is written to place
    i * out_step + out_at.

    Attributes:
        size: places of the source.
        places: how many positions there are.
        taps: pairs (tap of the kernel, its reach).
    """

    size: int
    places: int
    step: int
    base: int
    out_step: int
    out_at: int
    taps: tuple[tuple[int, int], ...]

    @property
    def apart(self) -> int:
        """From one tap's reach to the next one's, where it is the same for all."""
        return self.taps[1][1] - self.taps[0][1] if len(self.taps) > 1 else 0


def is_plain(axis: Axis) -> bool:
    """Whether its positions are the source's places, one for one."""
    one = axis.taps == ((0, 0),) and axis.step == 1 and axis.base == 0
    return one and axis.places == axis.size


def out_size(size: int, taps: int, stride: int, padding: int, dilation: int) -> int:
    """How many windows fit along one axis."""
    return (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1


def forward_axis(
    size: int, taps: int, stride: int, padding: int, dilation: int
) -> Axis:
    """out[i] = sum over k of x[i * stride + k * dilation - padding] * weight[k]."""
    count = out_size(size, taps, stride, padding, dilation)
    reach = tuple((k, k * dilation) for k in range(taps))
    return Axis(size, count, stride, -padding, 1, 0, reach)


def backward_axes(
    size: int, count: int, taps: int, stride: int, padding: int, dilation: int
) -> list[Axis]:
    """The phases of the gradient for an input of `size` from `count` outputs.

    With h + padding = q * stride + rest, dx[h] = sum over those k for which
    k * dilation % stride is `rest` of grad[q - k * dilation // stride] * weight[k].
    """
    axes = []
    for rest in range(stride):
        at = (rest - padding) % stride
        first = (at + padding - rest) // stride  # the q of place `at`
        reach = tuple(
            (k, -(k * dilation // stride))
            for k in range(taps)
            if k * dilation % stride == rest
        )
        places = len(range(at, size, stride))
        axes.append(Axis(count, places, 1, first, stride, at, reach))
    return axes


def magic(divisor: int) -> tuple[int, int]:
    """(factor, shift) with n // divisor == n * factor >> shift for 0 <= n < 2**31.

    >>> 1000 * magic(7)[0] >> magic(7)[1]
    142
    """
    bits = (divisor - 1).bit_length()
    return -(-(1 << (31 + bits)) // divisor), 31 + bits


class Weights(NamedTuple):
    """Where a weight lies, seen from a product: steps of the storage.

    Attributes:
        group: from one group of channels to the next.
        outs: from one output channel to the next.
        channel: from one summed channel to the next.
        columns: taps in a row of the kernel.
    """

    group: int
    outs: int
    channel: int
    columns: int


def _header(h: Axis, w: Axis, steps: int, row: int, packed: int) -> list[int]:
    count, wide = h.places * w.places, w.places
    return [
        steps, row, count, wide, *magic(max(1, count)), *magic(max(1, wide)),
        h.step, w.step, h.base, w.base, h.out_step, w.out_step, h.out_at, w.out_at,
        packed, 0, 0, 0,
    ]  # fmt: skip


def taps_of(h: Axis, w: Axis, columns: int) -> list[tuple[int, int, int]]:
    """(tap, reach down, reach to the right) for all taps of a phase."""
    return [
        (kh * columns + kw, down, right) for kh, down in h.taps for kw, right in w.taps
    ]


def table_plan(
    phases: Sequence[tuple[Axis, Axis]],
    channels: int,
    weights: Weights,
    depth: int,
    packed: bool,
) -> tuple[np.ndarray, int, int]:
    """The table of a convolution, and for a packed weight its rows.

    The table is int32: a header of 20 numbers for each phase, then entries of four:
    the source element's distance from the window's first one, its reach down and to
    the right, and its distance in the weight. Without `packed` there is an entry for
    each k, channels outermost. With it, there is one for each `depth` channels of a
    tap (channels must be a multiple of `depth`), and behind all entries comes, for each
    row of the packed weight, its place in the weight.

    Returns:
        the table, where the rows of the packed weight start in it, and how many.
    """
    head: list[int] = []
    entries: list[tuple[int, int, int, int]] = []
    rows: list[int] = []
    plane, width = phases[0][0].size * phases[0][1].size, phases[0][1].size
    for h, w in phases:
        start, taps = len(entries), taps_of(h, w, weights.columns)
        packed_from = len(rows)
        for c in range(0, channels, depth if packed else 1):
            for tap, down, right in taps:
                at = c * plane + down * width + right
                entries.append((at, down, right, c * weights.channel + tap))
                if packed:
                    own = range(c, c + depth)
                    rows += [one * weights.channel + tap for one in own]
        while not packed and (len(entries) - start) % depth:
            entries.append((0, FAR, 0, 0))
        steps = (len(entries) - start) // (1 if packed else depth)
        row = len(phases) * HEADER // 4 + start
        head += _header(h, w, steps, row, packed_from)
    flat = [*head, *(number for entry in entries for number in entry), *rows]
    return _as_int32(flat), len(flat) - len(rows), len(rows)


def weight_plan(h: Axis, w: Axis, channels: int, cols: int) -> np.ndarray:
    """The table for a weight's gradient: one header, and an entry for each column.

    Column k is a channel and a tap, in the order of the weight; entries fill up a
    multiple of `cols`.
    """
    plane, width, columns = h.size * w.size, w.size, len(w.taps)
    entries = [
        (c * plane + down * width + right, down, right, 0)
        for c in range(channels)
        for _, down, right in taps_of(h, w, columns)
    ]
    entries += [(0, FAR, 0, 0)] * (-len(entries) % cols)
    head = _header(h, w, 0, HEADER // 4, 0)
    return _as_int32([*head, *(number for entry in entries for number in entry)])


def _as_int32(numbers: list[int]) -> np.ndarray:
    wide = np.array(numbers, dtype=np.int64)
    if wide.size and (wide.min() < -LIMIT or wide.max() >= 2 * LIMIT):
        raise ValueError(
            "conv2d: an image or a weight has more than 2**31 elements, which the "
            "CUDA backend cannot address; split the channels"
        )
    return wide.astype(np.uint32).view(np.int32)
