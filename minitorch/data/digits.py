"""With this file one can draw handwritten-looking digits where there is no MNIST:
`drawn_digits` returns as many as wanted, 28 x 28 grey pictures and their labels.

    >>> images, labels = drawn_digits(1000, seed=0)
    >>> images.shape, labels.shape
    ((1000, 28, 28), (1000,))

Each digit is a pen stroke picture (see `glyphs`), which is bent, slanted and inked at
random, and put into the field as MNIST's are: within 20 x 20 pixels, with the centre
of mass in the middle. They are easier than MNIST, and no substitute for it where
accuracies are to be compared with those of others.

The picture is never distorted, only the stroke; so lines keep their width.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minitorch.data.glyphs import GLYPHS, Glyph, curve_weights, stroke_points

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

SIDE = 28  # pixels
BOX = 20  # pixels that the ink spans, the longer way
EDGE = 0.9  # pixels by which soft ink reaches beyond the line's width
POINTS = 112  # points along a digit: 0.6 pixels apart in the longest of them
CHUNK = 500  # digits that share a stream of random numbers
INK_AT_ONCE = 4  # digits whose distances to the strokes fit into the cache together

# How much writers differ, as standard deviations unless said otherwise.
JITTER = 0.025  # of the points that define a stroke, in digit heights
ROTATION = 0.11  # radians
SLANT_MEAN, SLANT = 0.12, 0.22  # sideways per upwards
STRETCH = 0.2  # of the logarithm of width / height
RADIUS = (0.8, 1.75)  # pixels, half a line's width, from .. to
BEND_SIGMA, BEND_ALPHA = 4.0, 26.0  # pixels; Simard's names, his values: 4 and 34
LIMIT = 2.2  # no writer is further off than so many standard deviations
BLUR = 0.42  # pixels
CONTRAST = 1.12
FAINT = 10  # grey values below are background: the outskirts of the blur

MIDDLE = np.float32((SIDE - 1) / 2)


def drawn_digits(n: int, seed: int = 0, train: bool = True) -> tuple[Bytes, Bytes]:
    """n digits: images uint8 [n, 28, 28] (0 is background, 255 ink), labels uint8 [n].

    The same seed gives the same digits, and the first n of them are the same for any
    larger n. `train` picks one of two streams of random numbers that have nothing in
    common. Every 500 digits hold 50 of each class.

    They stay in memory until the program ends (the latest few sets).

    Errors: ValueError for n or seed below 0.
    """
    if n < 0 or seed < 0:
        raise ValueError(f"drawn_digits: n is {n}, seed is {seed}; expected 0 or more")
    images, labels = _draw(n, seed, bool(train))
    return images.copy(), labels.copy()


@functools.lru_cache(maxsize=4)
def _draw(n: int, seed: int, train: bool) -> tuple[Bytes, Bytes]:
    images = np.empty((n, SIDE, SIDE), np.uint8)
    labels = np.empty(n, np.uint8)
    for chunk, start in enumerate(range(0, n, CHUNK)):
        source = np.random.SeedSequence(seed, spawn_key=(0 if train else 1, chunk))
        rng = np.random.Generator(np.random.Philox(source))
        end = min(start + CHUNK, n)
        labels[start:end], strokes, radii = _write(rng, end - start)
        parts = range(0, end - start, INK_AT_ONCE)
        ink = [
            _ink(strokes[i : i + INK_AT_ONCE], radii[i : i + INK_AT_ONCE])
            for i in parts
        ]
        images[start:end] = _develop(np.concatenate(ink))
    return images, labels


def _write(rng: np.random.Generator, n: int) -> tuple[Bytes, Floats, Floats]:
    """The pen's way for the first n digits of a chunk: labels [n], points [n, P, 2] in
    pixels, half line widths [n].

    Random numbers are drawn for the whole chunk, whatever n is.
    """
    pen = _pen()
    labels = rng.permutation(np.arange(CHUNK) % len(GLYPHS))
    variant = (rng.random(CHUNK) * pen.variants[labels]).astype(np.int64)
    glyph = pen.first[labels] + variant
    jitter = _normal(rng, CHUNK, pen.controls.shape[1], 2) * JITTER
    affine = _affine(rng)
    bends = _bends(rng)
    radii = rng.uniform(*RADIUS, CHUNK).astype(np.float32)

    points = pen.weights[glyph[:n]] @ (pen.controls[glyph] + jitter)[:n]
    points = (points - points.mean(axis=1, keepdims=True)) @ affine[:n]
    points = _bend(points, bends[:n])
    return labels[:n].astype(np.uint8), _fit(points, radii[:n]), radii[:n]


def _affine(rng: np.random.Generator) -> Floats:
    """A matrix [2, 2] for each digit of a chunk, to be multiplied from the right:
    stretch, then slant, then rotation."""
    stretch = np.exp(_normal(rng, CHUNK) * STRETCH / 2)
    slant = SLANT_MEAN + _normal(rng, CHUNK) * SLANT
    angle = _normal(rng, CHUNK) * ROTATION
    one, zero = np.ones_like(angle), np.zeros_like(angle)
    steps = (
        ((stretch, zero), (zero, 1 / stretch)),
        ((one, zero), (-slant, one)),  # y grows downwards: lean to the right
        ((np.cos(angle), np.sin(angle)), (-np.sin(angle), np.cos(angle))),
    )
    first, second, third = (np.moveaxis(np.array(s), 2, 0) for s in steps)
    return (first @ second @ third).astype(np.float32)


def _bends(rng: np.random.Generator) -> Floats:
    """Smooth random displacements [chunk, 2, 28, 28] in pixels: the elastic distortion
    of Simard, Steinkraus and Platt, Best practices for convolutional neural networks
    applied to visual document analysis, 2003: noise, blurred, times alpha."""
    noise = rng.random((CHUNK, 2, SIDE, SIDE), dtype=np.float32) * 2 - 1
    blur = _gaussian(BEND_SIGMA)
    return (blur @ noise @ blur.T) * np.float32(BEND_ALPHA)


def _bend(points: Floats, bends: Floats) -> Floats:
    """Moves points [n, P, 2], in digit heights around (0, 0), by the displacements
    that hold where they are; between grid points by linear interpolation."""
    scale = np.float32(20.0)  # pixels in a digit height
    where = np.clip(points * scale + SIDE / 2, 0, SIDE - 1.001)
    cell = where.astype(np.int64)
    x, y = np.moveaxis(where - cell, 2, 0).astype(np.float32)
    column, row = np.moveaxis(cell, 2, 0)
    digit = np.arange(len(points))[:, None]
    # A slice between index arrays goes last: [n, P, 2].
    moved = (
        bends[digit, :, row, column].T * ((1 - x) * (1 - y)).T
        + bends[digit, :, row, column + 1].T * (x * (1 - y)).T
        + bends[digit, :, row + 1, column].T * ((1 - x) * y).T
        + bends[digit, :, row + 1, column + 1].T * (x * y).T
    ).T
    return (points * scale + moved).astype(np.float32)


def _fit(points: Floats, radii: Floats) -> Floats:
    """Scales points [n, P, 2] so that the inked digit spans BOX pixels the longer way,
    and puts it into the middle of the field."""
    low, high = points.min(axis=1), points.max(axis=1)
    wanted = BOX - 2 * (radii + EDGE)
    scale = wanted / (high - low).max(axis=1)
    middle = (low + high) / 2
    return (points - middle[:, None]) * scale[:, None, None] + MIDDLE


def _ink(points: Floats, radii: Floats) -> Floats:
    """Draws lines along points [n, P, 2] in pixels, radii [n] -> [n, 28, 28], 0 to 1.

    A pixel's ink follows from its distance to the nearest point. The square of that is
    a sum of two squares, of which one is the same for a whole row of pixels, and the
    other for a whole column.
    """
    axis = np.arange(SIDE, dtype=np.float32)
    across, down = np.moveaxis((points[:, :, :, None] - axis) ** 2, 2, 0)
    squares = (down[:, :, :, None] + across[:, :, None, :]).min(axis=1)
    edge = (radii + np.float32(0.5))[:, None, None]
    return np.clip(edge - np.sqrt(squares), 0, 1)


def _develop(ink: Floats) -> Bytes:
    """Ink [n, 28, 28] -> grey values: a slight blur, and the centre of mass moved by
    whole pixels to row and column 14, where MNIST has it."""
    blur = _gaussian(BLUR)
    grey = np.minimum((blur @ ink @ blur.T) * (255 * CONTRAST), 255)
    grey[grey < FAINT] = 0
    mass, axis = grey.sum(axis=(1, 2)), np.arange(SIDE)
    down = np.rint(SIDE / 2 - (grey.sum(axis=2) @ axis) / mass).astype(np.int64)
    right = np.rint(SIDE / 2 - (grey.sum(axis=1) @ axis) / mass).astype(np.int64)
    # What moves out on one side comes back in on the other. It must be background, so
    # move at most by the margin.
    margin = (SIDE - BOX) // 2
    rows = (axis - np.clip(down, -margin, margin)[:, None]) % SIDE
    columns = (axis - np.clip(right, -margin, margin)[:, None]) % SIDE
    digit = np.arange(len(ink))[:, None, None]
    return np.rint(grey[digit, rows[:, :, None], columns[:, None]]).astype(np.uint8)


@functools.cache
def _gaussian(sigma: float) -> Floats:
    """[28, 28]: multiplied from the left, it blurs along the columns."""
    axis = np.arange(SIDE)
    weights = np.exp(-((axis[:, None] - axis) ** 2) / (2 * sigma**2))
    # As if the field went on forever: rows near the edge lose what falls outside.
    return (weights / weights.sum(axis=1).max()).astype(np.float32)


def _normal(rng: np.random.Generator, *shape: int) -> Floats:
    """Standard normal numbers, with the rare far ones pulled in to LIMIT."""
    return np.clip(rng.standard_normal(shape, dtype=np.float32), -LIMIT, LIMIT)


@dataclass(frozen=True)
class _Pen:
    """All glyphs, ready to be written; G glyphs with at most K distinct points.

    first [10], variants [10]: where a digit's glyphs start, and how many there are.
    controls float32 [G, K, 2]: the distinct points, in digit heights.
    weights float32 [G, P, K]: weights @ controls is the pen's way.
    """

    first: npt.NDArray[np.int64]
    variants: npt.NDArray[np.int64]
    controls: Floats
    weights: Floats


@functools.cache
def _pen() -> _Pen:
    ready = [_prepare(glyph) for digit in GLYPHS for glyph in digit]
    most = max(len(controls) for controls, _ in ready)
    controls = np.zeros((len(ready), most, 2), np.float32)
    weights = np.zeros((len(ready), POINTS, most), np.float32)
    for i, (own, own_weights) in enumerate(ready):
        controls[i, : len(own)] = own / 100
        weights[i, :, : len(own)] = own_weights
    variants = np.array([len(digit) for digit in GLYPHS])
    return _Pen(np.cumsum(variants) - variants, variants, controls, weights)


def _prepare(glyph: Glyph) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The distinct points of a glyph [K, 2], and the weights [P, K] of its way.

    A point that several strokes share is one point: so the strokes stay joined when
    the points are moved at random.
    """
    strokes = [stroke_points(stroke) for stroke in glyph]
    controls, index = np.unique(np.concatenate(strokes), axis=0, return_inverse=True)
    picks = np.eye(len(controls))[index.reshape(-1)]
    rows, start = [], 0
    for stroke, count in zip(strokes, _shares(strokes), strict=True):
        end = start + len(stroke)
        rows.append(curve_weights(stroke, count) @ picks[start:end])
        start = end
    return controls, np.concatenate(rows)


def _shares(strokes: list[npt.NDArray[np.float64]]) -> Iterator[int]:
    """Deals POINTS out to the strokes by their lengths; all are dealt."""
    lengths = [np.linalg.norm(np.diff(s, axis=0), axis=1).sum() for s in strokes]
    ends = np.rint(np.cumsum(lengths) / sum(lengths) * POINTS).astype(int)
    yield from np.diff(ends, prepend=0).tolist()
