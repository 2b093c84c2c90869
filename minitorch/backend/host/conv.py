"""Two-dimensional convolution and its two gradients, without unfolding: launchers.

With this file a backend of the host convolves x [N, C, H, W] with weight
[O, C/groups, KH, KW] (`conv2d`) and brings a gradient back to x
(`conv2d_backward_input`) and to the weight (`conv2d_backward_weight`), with any stride,
padding, dilation and number of groups.

The idea: lay one image out with its padding, in rows of P numbers. Then the neighbour
at (kh, kw) of all output positions lies at one fixed distance, kh * P + kw:

    x with padding, P = 5        tap (1, 2) of all outputs: the array from
    .  .  .  .  .                1 * P + 2 = 7 on
    .  a  b  c  .
    .  d  e  f  .                b c .  . d  e f .  . g  h i .  . .
    .  g  h  i  .                outputs 0 1 2, two to skip, outputs 3 4 5, ...
    .  .  .  .  .

so a convolution is a matrix product, out [O, positions] = weight [O, taps] times
rows [taps, positions], whose rows are windows onto the one flat image: `offsets` tells
where each begins. Nothing is copied KH * KW times. The P - OW positions at the end of
each row are wrong (they run over the edge) and are left out at the end.

- A stride s splits the image into s * s smaller ones first, one for each remainder of
  the position divided by s; within each, steps are 1 again.
- The gradient for x is a convolution of the gradient with the weight turned around;
  with a stride, it is one such convolution for each remainder.
- The gradient for the weight is dot products of these rows with rows of the gradient.

Zeros at the end of one row can be the zeros at the start of the next (`line_length`).

A zero of the padding times inf is NaN, where there should be no product at all. So the
kernels say whether the weight, or the gradient for it, is finite; where it is not,
`conv_exact.py` makes the result once more.

A backend brings the two passes over all images, `_correlate` and `_weight_sums`, which
read the tables of a `Plan`.

Source of the idea: Dukhan, "The Indirect Convolution Algorithm", 2019, for the offsets;
Zhang, Franchetti and Low, "High performance zero-memory overhead direct convolutions",
2018, for leaving out im2col.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from minitorch.backend.host.conv_exact import (
    exact_backward_input,
    exact_backward_weight,
    exact_output,
)
from minitorch.backend.host.memory import HostMemory
from minitorch.backend.primitives import Pair, Primitives
from minitorch.tensor_data import Shape, TensorData

STRIP_BYTES = 1 << 18  # image strip and its outputs: a quarter of a second-level cache
TASKS = 16  # split the work into at least so many tasks, where it can be split
PARTIAL = 1 << 22  # elements of the partial sums of a weight's gradient
DOT_ROWS = 4  # channels whose gradients a kernel sums at a time, at most
SLACK = 32  # elements that vectors may read behind the last one
MORE_TAPS = 6  # entries of `offsets` that tiles may read behind the last one

# --------------------------------------------------------------------- how to lay out


class Axis(NamedTuple):
    """One direction, rows or columns, of a convolution in the form of this file.

    Output i gathers from source positions (i + shift) * step + phase - pad, a pair
    (phase, shift) for each tap, and goes to position i * out_step + out_at.
    """

    size: int  # of the source
    outputs: int
    step: int
    pad: int
    taps: tuple[int, ...]  # which taps of the kernel take part
    phases: tuple[int, ...]  # for each of them
    shifts: tuple[int, ...]
    out_size: int
    out_step: int
    out_at: int


def forward_axis(
    size: int, taps: int, stride: int, padding: int, dilation: int
) -> Axis:
    """out[i] = sum over k of x[i * stride + k * dilation - padding] * weight[k]."""
    count = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    reach = [k * dilation for k in range(taps)]
    phases = tuple(r % stride for r in reach)
    shifts = tuple(r // stride for r in reach)
    every = tuple(range(taps))
    return Axis(size, count, stride, padding, every, phases, shifts, count, 1, 0)


def backward_axis(
    size: int,
    count: int,
    taps: int,
    stride: int,
    padding: int,
    dilation: int,
    rest: int,
) -> Axis:
    """The positions h of dx for which (h + padding) % stride is `rest`.

    With h + padding = q * stride + rest, dx[h] = sum over those k for which
    k * dilation % stride is `rest` of grad[q - k * dilation // stride] * weight[k].
    """
    every = [k for k in range(taps) if k * dilation % stride == rest]
    backs = [k * dilation // stride for k in every]
    most = max(backs, default=0)
    first = -((rest - padding) // stride)  # the q of the first h that is not negative
    at = first * stride + rest - padding
    places = max(0, (size - at + stride - 1) // stride)
    return Axis(
        count, places, 1, most - first, tuple(every), (0,) * len(every),
        tuple(most - b for b in backs), size, stride, at,
    )  # fmt: skip


class Plan(NamedTuple):
    """A convolution as the kernels want it; `numbers` is spelled out in `Geometry`."""

    numbers: np.ndarray  # int64, the fields of Geometry
    phases: np.ndarray  # [phases used, 2]
    offsets: np.ndarray  # [taps of all channels] into the buffer
    taps: np.ndarray  # [taps of all channels] into the weight
    buffer: int  # elements of a laid out strip
    strips: int
    groups: int
    positions: int  # elements of a strip of one output channel


class Geometry(NamedTuple):
    """The sizes that a kernel reads from `Plan.numbers`."""

    channels: int  # of the source, in one group
    groups: int
    height: int  # of the source
    width: int
    step_h: int
    step_w: int
    pad_h: int
    pad_w: int
    rows: int  # of a laid out strip
    columns: int  # of a laid out strip: P
    strip: int  # output rows in a strip
    count_h: int  # output rows and columns
    count_w: int
    out_h: int  # size of an output plane
    out_w: int
    out_step_h: int
    out_step_w: int
    out_at_h: int
    out_at_w: int


@lru_cache(maxsize=1024)
def make_plan(
    h: Axis, w: Axis, images: int, groups: int, channels: int, made: int,
    tap_steps: tuple[int, int, int], item: int,
) -> Plan:  # fmt: skip
    """Choose the strips and write the tables.

    Args:
        h, w: the two directions.
        images: how many images there are.
        groups, channels, made: groups, and source and output channels in each.
        tap_steps: strides of the weight for source channel, kh, kw.
        item: bytes of an element.
    """
    used = sorted(set(zip_product(h.phases, w.phases)))
    reach_h, columns = max(h.shifts, default=0), line_length(w)
    line = (len(used) * channels + made) * columns * item
    strip = max(1, min(h.outputs, STRIP_BYTES // max(line, 1)))
    pieces = -(-TASKS // max(1, images * groups))
    strip = max(min(strip, 4), min(strip, -(-h.outputs // pieces)))
    rows = strip + reach_h
    plane = rows * columns
    offsets, taps = [], []
    for c in range(channels):
        for kh, ph, sh in zip(h.taps, h.phases, h.shifts):
            for kw, pw, sw in zip(w.taps, w.phases, w.shifts):
                where = (c * len(used) + used.index((ph, pw))) * plane
                offsets.append(where + sh * columns + sw)
                taps.append(c * tap_steps[0] + kh * tap_steps[1] + kw * tap_steps[2])
    offsets += [0] * MORE_TAPS
    numbers = Geometry(
        channels, groups, h.size, w.size, h.step, w.step, h.pad, w.pad, rows, columns,
        strip, h.outputs, w.outputs, h.out_size, w.out_size, h.out_step, w.out_step,
        h.out_at, w.out_at,
    )  # fmt: skip
    return Plan(
        np.array(numbers, dtype=np.int64),
        np.array(used, dtype=np.int64).reshape(-1, 2),
        np.array(offsets, dtype=np.int64),
        np.array(taps, dtype=np.int64),
        channels * len(used) * plane + columns + SLACK,
        -(-h.outputs // strip),
        groups,
        strip * columns,
    )


@lru_cache(maxsize=1024)
def forward_plan(
    x_shape: Shape, weight_shape: Shape, stride: Pair, padding: Pair, dilation: Pair,
    groups: int, item: int,
) -> tuple[Shape, Plan | None, Pair]:  # fmt: skip
    """The shape of the output, the plan (None if it is empty), and the steps in the
    weight to the next group and the next output channel."""
    made, channels, *taps = weight_shape
    h, w = _forward_axes(x_shape, taps, stride, padding, dilation)
    shape = (x_shape[0], made, h.outputs, w.outputs)
    size, tap_steps = channels * taps[0] * taps[1], (taps[0] * taps[1], taps[1], 1)
    plan = None
    if math.prod(shape):
        plan = make_plan(
            h, w, x_shape[0], groups, channels, made // groups, tap_steps, item
        )
    return shape, plan, (made // groups * size, size)


def line_length(w: Axis) -> int:
    """P, the distance of the rows of a strip.

    Zeros at the end of a row serve as the zeros at the start of the next one as well.
    """
    reach = max(w.shifts, default=0)
    full = w.outputs + reach
    shared = reach
    for phase in w.phases:
        start = max(0, -((phase - w.pad) // w.step))
        stop = (w.size - 1 + w.pad - phase) // w.step + 1
        shared = min(shared, start, max(0, full - stop))
    return full - shared


def zip_product(a: tuple[int, ...], b: tuple[int, ...]) -> list[Pair]:
    """All pairs of an element of `a` and an element of `b`."""
    return [(i, j) for i in a for j in b]


class Split(NamedTuple):
    """How the sums of a weight's gradient are shared: by images, then by channels.

    It depends on shapes alone, and so do the sums.
    """

    blocks: int  # of images
    splits: int  # of the channels of a group
    part: int  # channels of a split


@lru_cache(maxsize=1024)
def split_sums(images: int, groups: int, made: int, elements: int) -> Split:
    """For `made` output channels in each group, and a weight of so many elements."""
    blocks = max(1, min(images, 2 * TASKS, PARTIAL // elements))
    splits = max(1, min(-(-TASKS // (blocks * groups)), made // DOT_ROWS))
    part = -(-made // splits)
    return Split(blocks, -(-made // part), part)  # none is empty


# ------------------------------------------------------------------------ launchers


class HostConv(HostMemory, Primitives):
    """The launchers of what a backend brings."""

    @abstractmethod
    def _correlate(
        self,
        source: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray,
        out: TensorData,
        plan: Plan,
        steps: Pair,
    ) -> bool:
        """Convolve all images of the flat `source`; out[n, o] begins with bias[o].

        `steps` lead to the next group and to the next channel in the weight. Returns
        whether the weight is finite; if not, `out` is still to be made.
        """

    @abstractmethod
    def _weight_sums(
        self,
        source: np.ndarray,
        grad: np.ndarray,
        out: TensorData,
        plan: Plan,
        images: int,
        split: Split,
    ) -> bool:
        """The gradient for the weight; returns whether all sums are finite."""

    def conv2d(
        self,
        x: TensorData,
        weight: TensorData,
        bias: TensorData | None,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """As a product of matrices, with tiles of it in registers."""
        dtype = x.storage.dtype
        shape, plan, steps = forward_plan(
            x.shape, weight.shape, stride, padding, dilation, groups, dtype.itemsize
        )
        out = self.empty(shape, dtype)
        if plan is None:
            return out
        shift = np.zeros(shape[1], dtype.numpy) if bias is None else self._flat(bias)
        if not self._correlate(
            self._flat(x), self._flat(weight), shift, out, plan, steps
        ):
            exact_output(
                self.to_numpy(x), self.to_numpy(weight), self.to_numpy(out), shift,
                stride, padding, dilation,
            )  # fmt: skip
        return out

    def conv2d_backward_input(
        self,
        grad: TensorData,
        weight: TensorData,
        x_shape: Shape,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """A convolution with the weight turned around, for each phase of the stride."""
        dtype = grad.storage.dtype
        dx = self.empty(x_shape, dtype)
        if dx.size == 0:
            return dx
        made, channels, *taps = weight.shape
        kernel_size = taps[0] * taps[1]
        steps = (made // groups * channels * kernel_size, kernel_size)
        zeros = np.zeros(x_shape[1], dtype.numpy)
        source, taps_of_all = self._flat(grad), self._flat(weight)
        for rest in zip_product(tuple(range(stride[0])), tuple(range(stride[1]))):
            h, w = (
                backward_axis(
                    x_shape[2 + i], grad.shape[2 + i], taps[i], stride[i], padding[i],
                    dilation[i], rest[i],
                )
                for i in range(2)
            )  # fmt: skip
            if h.outputs and w.outputs:
                plan = make_plan(
                    h, w, x_shape[0], groups, made // groups, channels,
                    (channels * kernel_size, taps[1], 1), dtype.itemsize,
                )  # fmt: skip
                if not self._correlate(source, taps_of_all, zeros, dx, plan, steps):
                    exact_backward_input(
                        self.to_numpy(grad), self.to_numpy(weight), self.to_numpy(dx),
                        stride, padding, dilation,
                    )  # fmt: skip
                    break
        return dx

    def conv2d_backward_weight(
        self,
        grad: TensorData,
        x: TensorData,
        weight_shape: Shape,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """Dot products of rows of the gradient with rows of the image."""
        dtype = grad.storage.dtype
        made, channels, *taps = weight_shape
        dw = self.empty(weight_shape, dtype)
        if grad.size == 0 or x.size == 0 or dw.size == 0:
            dw.storage.array.fill(0)
            return dw
        h, w = _forward_axes(x.shape, taps, stride, padding, dilation)
        # As for TASKS images: strips only bound the memory here, they are no tasks.
        plan = make_plan(
            h, w, TASKS, groups, channels, made // groups,
            (taps[0] * taps[1], taps[1], 1), dtype.itemsize,
        )  # fmt: skip
        split = split_sums(x.shape[0], groups, made // groups, dw.size)
        if not self._weight_sums(
            self._flat(x), self._flat(grad), dw, plan, x.shape[0], split
        ):
            exact_backward_weight(
                self.to_numpy(grad), self.to_numpy(x), self.to_numpy(dw),
                stride, padding, dilation,
            )  # fmt: skip
        return dw


def _forward_axes(
    x_shape: Shape, taps: list[int], stride: Pair, padding: Pair, dilation: Pair
) -> tuple[Axis, Axis]:
    h, w = (
        forward_axis(x_shape[2 + i], taps[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    return h, w
