"""Convolutions of halves on tensor cores: the image unfolded, and matrix products.

With this file `conv.py` convolves float16 and bfloat16 (`conv2d`) and makes the two
gradients (`conv2d_backward_input`, `conv2d_backward_weight`). Each gives NotImplemented
where that is not worth while, before anything is done; then operands are widened.

Steps of one pixel go to `moved.py`, where it pays. Of others a kernel, `unfold`, writes
the windows of images side by side, as halves:

    columns [channels * taps, images, P8]     P8: positions, up to a multiple of 8

so that all lines begin at multiples of 16 bytes, as copies for tensor cores want, and
three products remain, for each group of channels:

    out [O, n, P]  =  weight [O, C KH KW] @ columns of x
    dw [O, C KH KW]  =  grad [O, n P8] @ (columns of x)^T, or a sum over images
    dx [C, n, P]  =  weight^T [C, O KH KW] @ columns of grad

The last is a convolution as well, as `plan.py` says: one for each phase of a stride.
Unlike columns^T that are multiplied first and then folded up, it rounds once. With a
bias, products are float32 until it is added.

Columns of many images are made in portions of `COLUMN_BYTES`. Sums are float32 and
have a fixed order.

Source of the idea: Chellapilla et al., "High Performance Convolutional Neural Networks
for Document Processing", 2006.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

from cuda_ops import elementwise
from cuda_ops.block.wgmma import ARCH
from cuda_ops.conv.columns import (
    TILE,
    VECTOR,
    Phase,
    columns_of,
    padded,
    portions,
    shaped,
)
from cuda_ops.conv.moved import moved_product, moves, put
from cuda_ops.conv.plan import Axis, backward_axes, forward_axis, is_plain
from cuda_ops.matmul.matmul import TENSOR_LEAST, matmul_to, ways
from cuda_ops.memory import contiguous, copy, empty, full
from cuda_ops.reduce import reduce
from cuda_ops.runtime.device import compute_capability
from cuda_ops.runtime.launch import ceil_div
from minitorch import operators
from minitorch.dtypes import DType, float32
from minitorch.tensor_data import Shape, TensorData, numel

Pair = tuple[int, int]

# Of the sums of each image that are added up to a weight's gradient.
SUMS_BYTES = 1 << 26
# Channels of a group to make, and numbers of a sum, from which tensor cores gain more
# than it costs to write columns and read them.
LEAST_OUTS, LEAST_SUM = 32, 32
# Channels in one launch.
MOST_CHANNELS = 65535

# ------------------------------------------------------------ what is worth while


@lru_cache(maxsize=1024)
def forward_phase(x: Shape, weight: Shape, *options: Pair) -> Phase:
    """Rows and columns of a convolution with this stride, padding and dilation."""
    h, w = map(forward_axis, x[2:], weight[2:], *options)
    return h, w


@lru_cache(maxsize=1024)
def input_phases(
    grad: Shape, weight: Shape, x: Shape, *options: Pair
) -> tuple[Phase, ...]:
    """The phases of x that have pixels, with taps or without."""
    rows, cols = map(backward_axes, x[2:], grad[2:], weight[2:], *options)
    return tuple((h, w) for h, w in product(rows, cols) if h.places * w.places)


@lru_cache(maxsize=4096)
def _pays(
    chip: Pair, dtype: DType, image: Shape, outs: int, groups: int,
    phases: tuple[Phase, ...],
) -> bool:  # fmt: skip
    """Whether `outs` channels of a group are better made by the tensor cores of a chip.

    Every product has to be one that `matmul` takes: before Hopper, of whole vectors.
    """
    N, C, H, W = image
    sums = [C // groups * len(h.taps) * len(w.taps) for h, w in phases]
    rows, unit = min(sums, default=0), 1 if chip == ARCH else VECTOR
    most = min([h.places * w.places for h, w in phases], default=0)
    return (
        ways(chip, dtype, False)[0] != ()
        and not any(n % unit for n in sums)
        and outs >= LEAST_OUTS
        and rows >= LEAST_SUM
        and max(C, outs * groups) <= MOST_CHANNELS
        and H * W > 0
        and N * most * rows * outs * groups >= TENSOR_LEAST
    )


def has_halves(*operands: TensorData | None) -> bool:
    return any([a is not None and a.dtype.half for a in operands])


def _alike(*operands: TensorData | None) -> bool:
    return len({a.dtype for a in operands if a is not None}) == 1


# --------------------------------------------------------------------- the products


def _product(
    out: TensorData, image: TensorData, phase: Phase, matrix: TensorData,
    bias: TensorData | None = None,
) -> Any:  # fmt: skip
    """out [N, O, OH, OW] = matrix [groups, O / groups, rows] @ columns of the image,
    and a bias [O].

    Images are products of their own, whose results lie where they belong. Small ones
    are joined, and so is a phase of several, whose places are not neighbours.
    """
    (h, w), (groups, outs, rows), chip = phase, matrix.shape, compute_capability()
    if chip == ARCH and moves(h, w, image.shape[1] // groups):
        return moved_product(out, image, phase, matrix, bias)
    P = h.places * w.places
    joined = not out.is_contiguous() or ceil_div(P, TILE) * TILE > 1.5 * P
    joined = joined or (chip != ARCH and P % VECTOR != 0)
    plain = is_plain(h) and is_plain(w) and P % VECTOR == 0 and not joined
    nbytes = 0 if plain else 2 * groups * rows * padded(P)
    kind = out.dtype if bias is None else float32  # for one rounding, with it
    for first, count in portions(image.shape[0], nbytes):
        part = out.slice(0, first, count)
        shape = count, groups, outs, P
        place = part.view(shape) if not joined and bias is None else None
        if plain:
            columns: Any = image.slice(0, first, count).view((count, groups, rows, P))
        else:
            columns = columns_of(image, phase, first, count, groups)
        if joined:
            columns = _lines(columns)
        elif not plain:
            columns = columns.permute((2, 0, 1, 3)).slice(3, 0, P)
        made: Any = matmul_to(matrix, columns, kind, place)
        del columns  # the next portion has its memory
        if made is NotImplemented:
            return made
        if joined:
            made = made.view((groups, outs, count, padded(P))).slice(3, 0, P)
            made = made.permute((2, 0, 1, 3))
        if made is not place:
            put(part, made.view(part.shape), bias)
    return out


def conv2d(
    x: TensorData, weight: TensorData, bias: TensorData | None, stride: Pair,
    padding: Pair, dilation: Pair, groups: int,
) -> Any:  # fmt: skip
    """x [N, C, H, W], weight [O, C/groups, KH, KW] -> [N, O, OH, OW]."""
    phase = forward_phase(x.shape, weight.shape, stride, padding, dilation)
    outs, rows = weight.shape[0] // groups, numel(weight.shape[1:])
    what = x.shape, outs, groups, (phase,)
    if not _pays(compute_capability(), x.dtype, *what) or not _alike(x, weight, bias):
        return NotImplemented
    matrix = shaped(weight, (groups, outs, rows))
    out = empty((x.shape[0], weight.shape[0], *(a.places for a in phase)), x.dtype)
    return _product(out, contiguous(x), phase, matrix, bias)


def conv2d_backward_input(
    grad: TensorData, weight: TensorData, x_shape: Shape, stride: Pair, padding: Pair,
    dilation: Pair, groups: int,
) -> Any:  # fmt: skip
    """The gradient for x [N, C, H, W] from grad [N, O, OH, OW].

    The taps of a phase are every so many of the kernel, for pixels every so many.
    """
    shapes = grad.shape, weight.shape, x_shape
    phases = input_phases(*shapes, stride, padding, dilation)
    outs = weight.shape[1]
    met = tuple((h, w) for h, w in phases if h.taps and w.taps)
    what = grad.shape, outs, groups, met
    if not _pays(compute_capability(), grad.dtype, *what) or not _alike(grad, weight):
        return NotImplemented
    whole = len(met) == len(phases)
    out = empty(x_shape, grad.dtype) if whole else full(x_shape, 0.0, grad.dtype)
    grad = contiguous(grad)
    taps = shaped(weight, (groups, weight.shape[0] // groups, *weight.shape[1:]))
    for phase in met:
        part, some = out, taps.permute((0, 2, 1, 3, 4))
        for dim, axis in enumerate(phase):
            part = part.slice(2 + dim, axis.out_at, axis.places, axis.out_step)
            some = some.slice(3 + dim, *_span(axis))
        matrix = shaped(some, (groups, outs, numel(some.shape[2:])))
        if _product(part, grad, phase, matrix) is NotImplemented:
            return NotImplemented
    return out


def _span(axis: Axis) -> tuple[int, int, int]:
    """The taps of an axis as a slice: first, count, step."""
    taps = [tap for tap, _ in axis.taps]
    return taps[0], len(taps), taps[1] - taps[0] if len(taps) > 1 else 1


def conv2d_backward_weight(
    grad: TensorData, x: TensorData, weight_shape: Shape, stride: Pair, padding: Pair,
    dilation: Pair, groups: int,
) -> Any:  # fmt: skip
    """The gradient for weight [O, C/groups, KH, KW] from grad [N, O, OH, OW].

    A product for each image, and their sum, where that is short; else one, for which
    grad is laid out as the columns are: it has one tap.
    """
    phase = forward_phase(x.shape, weight_shape, stride, padding, dilation)
    outs, rows = weight_shape[0] // groups, numel(weight_shape[1:])
    what = x.shape, outs, groups, (phase,)
    if not _pays(compute_capability(), x.dtype, *what) or not _alike(grad, x):
        return NotImplemented
    grad, x = contiguous(grad), contiguous(x)
    total: Any = None
    P, size = numel(grad.shape[2:]), numel(weight_shape)
    apart = P % VECTOR == 0 and 4 * x.shape[0] * size <= SUMS_BYTES
    for span in portions(x.shape[0], 2 * groups * rows * padded(P)):
        pair = (_apart if apart else _joint)(grad, x, phase, groups, span)
        made: Any = matmul_to(*pair, float32)
        del pair  # the next portion has their memory
        if made is NotImplemented:
            return made
        if apart:
            made = reduce(operators.add, made, (0,), 0)
        if total is not None:
            made = elementwise.zip(operators.add, total, made, None, total)
        total = made
    return copy(total, grad.dtype).view(weight_shape)


def _apart(
    grad: TensorData, x: TensorData, phase: Phase, groups: int, span: Pair
) -> tuple[TensorData, TensorData]:
    """[n, groups, O, P] and [n, groups, P, rows]; of one tap, x itself."""
    outs, P = grad.shape[1] // groups, numel(grad.shape[2:])
    a: Any = grad.slice(0, *span).view((span[1], groups, outs, P))
    if is_plain(phase[0]) and is_plain(phase[1]):
        b: Any = x.slice(0, *span).view((span[1], groups, x.shape[1] // groups, P))
    else:
        b = columns_of(x, phase, *span, groups).permute((2, 0, 1, 3))
    return a, b.permute((0, 1, 3, 2))


def _joint(
    grad: TensorData, x: TensorData, phase: Phase, groups: int, span: Pair
) -> tuple[TensorData, TensorData]:
    """[groups, O, n P8] and [groups, n P8, rows]."""
    same = forward_phase(grad.shape, (1, 1, 1, 1), (1, 1), (0, 0), (1, 1))
    a = _lines(columns_of(grad, same, *span, groups))
    b = _lines(columns_of(x, phase, *span, groups))
    return a, b.permute((0, 2, 1))


def _lines(columns: TensorData) -> TensorData:
    """columns [groups, rows, n, P8] -> [groups, rows, n * P8]"""
    groups, rows, count, P8 = columns.shape
    return shaped(columns, (groups, rows, count * P8))
