"""With this file one can look up how the ten digits are written: `GLYPHS[d]` holds
several ways to write the digit d, each as pen strokes; `curve_weights` turns the few
points that define a stroke into many points along it.

A stroke is a list of points "x,y x,y ..." on a field where y runs from 0 (top) to 100
(bottom) and x from 0 to about 90. Two points make a straight line; more make a smooth
curve through all of them, closed if the last point is the first one again. Strokes
that share an end point stay joined, however the digit is distorted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Glyph = tuple[str, ...]
Floats = npt.NDArray[np.float64]

# Straight pieces by which the length of a stroke is measured, between two points.
PIECES = 24

# For each digit, the ways to write it, whose strokes are separated by " / ".
_WRITTEN = (
    (  # 0
        # Round, and narrow.
        "52,0 22,16 10,55 26,92 52,100 78,86 88,48 78,12 52,0",
        "46,0 26,24 18,62 34,98 58,80 68,34 46,0",
        # Begun at the upper right, with the ends crossing.
        "66,8 40,2 14,34 16,80 46,100 78,78 82,30 58,4 36,10",
        # Almost a circle.
        "50,4 18,20 4,54 20,90 52,98 86,78 94,42 78,12 50,4",
        # Not quite closed.
        "50,4 20,22 12,62 32,96 62,94 82,60 78,20 60,2",
        # Leaning, with a pointed top.
        "70,0 34,22 10,70 26,98 58,84 82,36 70,0",
    ),
    (  # 1
        "50,0 50,100",
        # With a flag, short and long.
        "34,20 54,0 / 54,0 52,100",
        "24,34 42,22 58,0 / 58,0 56,100",
        # With flag and foot.
        "28,24 50,0 / 50,0 50,100 / 24,100 50,100 / 50,100 76,100",
        # Leaning, and bent.
        "68,0 32,100",
        "60,0 52,36 46,70 48,100",
    ),
    (  # 2
        # With a straight base.
        "10,26 26,4 56,0 78,20 68,48 38,76 8,100 / 8,100 86,98",
        # With a loop at the lower left.
        "14,20 40,0 72,12 72,42 46,74 18,96 6,86 20,76 48,90 74,100 94,90",
        # Angular.
        "12,18 38,0 72,8 74,36 / 74,36 8,100 / 8,100 86,100",
        # With a wavy base.
        "8,30 22,6 54,0 78,20 70,48 40,76 10,98 / 10,98 34,88 60,98 90,90",
        # With a hook at its start.
        "24,34 12,22 28,2 60,2 76,24 60,58 32,82 8,98 / 8,98 80,98",
        # With a rounded lower left.
        "16,16 44,0 74,16 66,46 36,72 14,94 30,98 86,96",
    ),
    (  # 3
        # Two bowls that meet in a point.
        "12,12 40,0 72,10 70,36 38,48 / 38,48 74,58 82,82 50,100 10,90",
        # With a flat top.
        "14,2 76,2 / 76,2 42,40 / 42,40 76,52 80,82 48,100 10,90",
        # With a small loop in the middle.
        "12,14 44,0 72,16 60,42 38,52 34,44 48,44 76,62 76,88 44,100 8,90",
        # With a big belly.
        "14,16 34,2 62,4 68,24 52,40 34,44 / 34,44 66,48 86,72 66,98 30,100 6,84",
        # Narrow, and curled at both ends.
        "22,22 28,4 54,0 70,20 56,42 36,46 / 36,46 68,56 70,86 42,100 18,88 22,78",
        # Smooth, without a point.
        "10,10 46,0 76,18 54,46 52,52 80,74 58,98 8,94",
    ),
    (  # 4
        # Open.
        "24,0 18,30 10,58 / 10,58 48,58 90,54 / 72,6 68,100",
        # Closed.
        "62,0 8,66 / 8,66 94,66 / 62,0 62,100",
        # Open and round, in one stroke on the left.
        "18,4 12,38 26,56 56,52 78,40 / 82,0 78,40 / 78,40 70,100",
        # Closed and leaning.
        "76,0 40,32 8,62 / 8,62 86,60 / 76,0 68,50 58,100",
        # Open and square.
        "20,2 20,52 / 20,52 84,52 / 66,14 66,100",
        # Closed, with a bent left side.
        "58,0 30,26 14,54 44,56 84,50 / 58,0 60,50 56,100",
    ),
    (  # 5
        "82,2 26,2 / 26,2 18,44 / 18,44 50,36 80,58 74,88 42,100 8,90",
        # Smooth, much like an S.
        "84,0 50,2 28,10 22,34 44,44 72,58 74,84 46,100 8,94",
        # With the bar put on last, a little apart.
        "30,8 22,42 / 22,42 54,36 80,60 70,90 36,100 8,88 / 32,2 90,0",
        # With a big belly.
        "76,0 22,6 / 22,6 14,42 / 14,42 48,30 86,52 82,88 44,102 4,84",
        # Narrow, with a rising bar.
        "74,0 32,8 / 32,8 30,44 / 30,44 56,46 68,70 50,96 20,98",
        # With a curled end.
        "78,4 28,2 / 28,2 24,42 / 24,42 56,38 76,66 58,96 24,96 14,78",
    ),
    (  # 6
        "70,0 36,24 14,62 24,94 52,100 76,80 64,56 36,56 16,74",
        # With a straight stem and a small loop.
        "58,0 32,38 14,76 34,100 62,92 66,70 44,60 18,78",
        # With a curled top and a big loop.
        "80,10 52,0 22,30 10,66 28,98 62,98 80,72 60,48 28,54 12,72",
        # Narrow and upright.
        "40,0 20,42 14,78 32,100 56,90 56,68 36,60 16,78",
        # With a round, closed loop beside the stem.
        "62,2 28,30 16,70 / 16,70 32,50 66,56 72,82 44,100 18,90 16,70",
        # Flat: the loop lies far to the right.
        "50,0 18,40 12,78 40,100 78,94 84,72 58,66 30,84",
    ),
    (  # 7
        "8,4 84,2 / 84,2 36,100",
        # With a bar through the stem.
        "8,4 84,2 / 84,2 38,100 / 32,54 80,48",
        # With a bent stem.
        "6,8 82,4 / 82,4 60,40 46,70 42,100",
        # With a serif at the left.
        "10,24 12,4 / 12,4 82,4 / 82,4 56,48 44,100",
        # With a wavy top, and a bar.
        "6,16 28,2 56,10 86,2 / 86,2 58,46 42,100 / 32,52 76,52",
        # With a rounded corner.
        "6,12 40,4 74,4 78,20 58,58 46,100",
    ),
    (  # 8
        # One stroke that crosses itself in the middle.
        "50,0 24,16 30,36 50,48 74,64 76,88 48,100 22,88 26,64 50,48 70,34 74,14 50,0",
        # Two circles.
        "50,0 28,8 26,36 50,46 74,36 72,8 50,0"
        " / 50,46 22,58 20,88 50,100 80,88 78,58 50,46",
        # Begun at the upper right, and left open there.
        "76,12 46,0 22,18 48,44 74,72 46,100 20,80 48,50 80,16",
        # Narrow and leaning.
        "64,0 42,10 38,32 48,50 56,74 38,100 20,86 28,64 48,50 74,28 78,8 64,0",
        # With a small head.
        "48,4 34,14 40,32 52,40 78,62 72,92 44,100 16,88 22,60 52,40 62,26 62,10 48,4",
        # With a small foot.
        "50,0 18,14 26,42 50,56 66,74 64,94 48,100 32,92 34,72 50,56 76,40 80,14 50,0",
    ),
    (  # 9
        # With a straight stem.
        "74,4 46,0 18,20 26,46 54,44 74,4 / 74,4 70,50 68,100",
        # With a hook below.
        "76,22 50,0 22,12 18,38 44,50 70,38 76,22 / 76,22 76,60 60,94 32,100 12,90",
        # In one stroke, leaning.
        "70,10 42,0 16,22 30,46 60,38 76,8 / 76,8 66,54 42,100",
        # With a round head and a bent stem.
        "50,0 22,10 20,38 48,50 76,38 76,10 50,0 / 78,24 74,64 54,100",
        # With a small head.
        "66,16 48,2 28,12 30,34 52,36 66,16 / 66,16 62,58 60,100",
        # With an open head.
        "70,2 38,2 16,26 34,48 72,30 / 72,6 72,30 / 72,30 66,100",
    ),
)

GLYPHS: tuple[tuple[Glyph, ...], ...] = tuple(
    tuple(tuple(way.split(" / ")) for way in ways) for ways in _WRITTEN
)


def stroke_points(stroke: str) -> Floats:
    """The points that define a stroke, float64 [K, 2] (x, y), in hundredths of the
    digit's height."""
    pairs = [point.split(",") for point in stroke.split()]
    return np.array(pairs, dtype=np.float64)


def curve_weights(points: Floats, count: int) -> Floats:
    """Weights [count, K] such that `weights @ points` are `count` points along the
    smooth curve through `points` [K, 2], equally far apart, ends included.

    The curve is a Catmull-Rom spline (Catmull and Rom, A class of local interpolating
    splines, 1974). It is linear in the points: so the weights serve for all digits of
    a glyph, wherever each writer puts the points.
    """
    k = len(points)
    fine = np.linspace(0, k - 1, (k - 1) * PIECES + 1)
    track = _spline(points, fine) @ points
    lengths = np.linalg.norm(np.diff(track, axis=0), axis=1)
    walked = np.concatenate([[0.0], np.cumsum(lengths)])
    where = np.interp(np.linspace(0, walked[-1], count), walked, fine)
    return _spline(points, where)


def _spline(points: Floats, where: Floats) -> Floats:
    """Catmull-Rom weights [T, K] at the parameters `where` [T], from 0 to K - 1."""
    k = len(points)
    start = np.minimum(where.astype(np.int64), k - 2)
    t = where - start
    basis = np.stack(
        [
            (-t + 2 * t**2 - t**3) / 2,
            (2 - 5 * t**2 + 3 * t**3) / 2,
            (t + 4 * t**2 - 3 * t**3) / 2,
            (-(t**2) + t**3) / 2,
        ],
        axis=1,
    )
    weights = np.zeros((len(where), k))
    rows = np.arange(len(where))
    closed = k > 2 and bool((points[0] == points[-1]).all())
    for i in range(4):
        neighbour = start + i - 1
        if closed:  # the last point is the first one: go around, past either
            neighbour = neighbour % (k - 1)
        np.add.at(weights, (rows, np.clip(neighbour, 0, k - 1)), basis[:, i])
    return weights
