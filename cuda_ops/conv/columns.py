"""An image of halves unfolded: what meets each tap at all positions, side by side.

With this file `unfolded.py` writes the windows of images as columns (`columns_of`),
some images at a time (`portions`). All lines begin at multiples of 16 bytes, as copies
for tensor cores want.
"""

from __future__ import annotations

from collections.abc import Iterator

from numba import cuda, int32, int64, uint16

from cuda_ops.block.intrinsics import device, load, store2
from cuda_ops.conv.plan import FAR, Axis, magic
from cuda_ops.conv.tiles import divide, inside
from cuda_ops.half import bits
from cuda_ops.memory import contiguous, empty
from cuda_ops.runtime.launch import TINY, ceil_div, kernel
from minitorch.tensor_data import Shape, TensorData

Phase = tuple[Axis, Axis]

THREADS = 16 if TINY else 128
# Lines of columns are multiples of this long: of 16 bytes.
VECTOR = 8
# Of the columns that exist at a time; those of one image may be more.
COLUMN_BYTES = 1 << 28
# Columns of a tile of a product: images of much fewer positions share tiles.
TILE = 16 if TINY else 128


@device
def corner(p, P, down, right, magics):
    """Where the window of position p begins; behind the last, far from the image."""
    oh = divide(p, magics[2], magics[3])
    y = oh * down[1] + down[2] if p < P else int64(FAR)
    return int32(y), int32((p - oh * magics[4]) * right[1] + right[2])


@device
def pixel(image, plane, y, x, H, W):
    """The word of a pixel, 0 around the image; what is loaded is always inside."""
    meets = inside(y, H) and inside(x, W)
    word = load(image, plane + (int64(y) * W + x if meets else int64(0)))
    return word if meets else uint16(0)


@kernel(examples=["uint16[] uint16[] 6*int64 5*int64 5*int64 5*int64"], threads=THREADS)
def unfold(image, columns, sizes, down, right, magics):
    """Write the windows of images side by side.

    # image [N, C, H, W] -> columns [C * KH * KW, n, P8]
    # sizes: first image, C, H * W, P, P8 / 2, n * P8 / 2
    # down: H, step, base, reach, KH; right: W, ...; magics: of P8 / 2, of OW, and OW

        for c, kh, kw, n, oh, ow:
            columns[c, kh, kw, n, oh * OW + ow] = image[first + n, c,
                oh * step + base + kh * reach, ow * step + base + kw * reach]

    with zeros around the image and behind the P positions. A thread makes two
    neighbouring positions, for all taps of a channel: it divides once, and its
    pixels stay in the first-level cache from tap to tap. A warp writes a cache line at
    once, and reads little more than one for each of its two loads: with more positions
    a thread, these would be spread over several lines.
    """
    first, C, plane, P, pairs, total = sizes
    i = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
    if i >= total:
        return
    c, n = int64(cuda.blockIdx.y), divide(i, magics[0], magics[1])
    p = (i - n * pairs) * 2
    y0, left0 = corner(p, P, down, right, magics)
    y1, left1 = corner(p + 1, P, down, right, magics)
    start = ((first + n) * C + c) * plane
    at = (c * down[4] * right[4] * total + i) * 2
    for _ in range(down[4]):
        x0, x1 = left0, left1
        for _ in range(right[4]):
            word0 = pixel(image, start, y0, x0, down[0], right[0])
            word1 = pixel(image, start, y1, x1, down[0], right[0])
            store2(columns, at, word0, word1)
            x0, x1 = int32(x0 + right[3]), int32(x1 + right[3])
            at += total * 2
        y0, y1 = int32(y0 + down[3]), int32(y1 + down[3])


def padded(count: int) -> int:
    """The length of a line of so many numbers."""
    return ceil_div(count, VECTOR) * VECTOR


def _steps(axis: Axis) -> tuple[int, ...]:
    """What the kernel takes of an axis, whose taps are equally far apart."""
    first, taps = axis.taps[0][1], len(axis.taps)
    return axis.size, axis.step, axis.base + first, axis.apart, taps


def columns_of(
    image: TensorData, phase: Phase, first: int, count: int, groups: int
) -> TensorData:
    """image [N, C, H, W], of which `count` -> [groups, rows, count, P8]."""
    (h, w), (_, C, H, W) = phase, image.shape
    down, right, P = _steps(h), _steps(w), h.places * w.places
    P8, rows = padded(P), C // groups * down[-1] * right[-1]
    total = count * P8 // 2
    out = empty((groups, rows, count, P8), image.dtype)
    unfold[(ceil_div(total, THREADS), C), THREADS](
        bits(image.flat()), bits(out.flat()), (first, C, H * W, P, P8 // 2, total),
        down, right, (*magic(P8 // 2), *magic(w.places), w.places),
    )  # fmt: skip
    return out


def portions(images: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """(first, count): the images whose columns, `nbytes` each, exist at a time."""
    parts = ceil_div(images, max(1, COLUMN_BYTES // max(1, nbytes)))
    most = ceil_div(images, parts)
    for first in range(0, images, most):
        yield first, min(most, images - first)


def shaped(a: TensorData, shape: Shape) -> TensorData:
    """The elements of `a` in another shape; a copy if it has to be."""
    found = a.view(shape)
    return TensorData(contiguous(a).storage, shape) if found is None else found
