"""With this file one can draw the classic data sets of 2-D points for binary
classification: `simple`, `diagonal`, `split`, `xor`, `circle`, `spiral` and `moons`,
each a function `(n, seed) -> Points`; `POINT_DATASETS` lists them by name.

    >>> points = POINT_DATASETS["xor"](100, seed=0)
    >>> points.x.shape, points.y.shape
    ((100, 2), (100,))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Points:
    """n points of the unit square and the class of each.

    `x` float32 [n, 2], every coordinate in [0, 1); `y` int64 [n], 0 or 1.
    """

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)


def simple(n: int, seed: int = 0) -> Points:
    """Class 1 left of the middle: one vertical line separates the classes."""
    x = _uniform(n, seed)
    return _labelled(x, x[:, 0] < 0.5)


def diagonal(n: int, seed: int = 0) -> Points:
    """Class 1 below the falling diagonal: linear, but needs both coordinates."""
    x = _uniform(n, seed)
    return _labelled(x, x[:, 0] + x[:, 1] < 1.0)


def split(n: int, seed: int = 0) -> Points:
    """Class 1 in the outer fifths, left and right: needs two parallel lines."""
    x = _uniform(n, seed)
    return _labelled(x, (x[:, 0] < 0.2) | (x[:, 0] > 0.8))


def xor(n: int, seed: int = 0) -> Points:
    """Class 1 in two opposite quarters: what no single layer can learn (Minsky and
    Papert, Perceptrons, 1969)."""
    x = _uniform(n, seed)
    return _labelled(x, (x[:, 0] < 0.5) != (x[:, 1] < 0.5))


def circle(n: int, seed: int = 0) -> Points:
    """Class 1 outside a disc in the middle, whose area is about a third."""
    x = _uniform(n, seed)
    return _labelled(x, ((x - 0.5) ** 2).sum(axis=1) > 0.1)


def spiral(n: int, seed: int = 0) -> Points:
    """Two arms that wind around each other (after Lang and Witbrock, Learning to
    tell two spirals apart, 1988); the arms have n // 2 and n - n // 2 points."""
    rng = _generator(n, seed)
    y = rng.permutation(np.arange(n) % 2).astype(np.int64)
    # The square root puts as many points on each inch of the arm, outside as inside.
    along = np.sqrt(rng.random(n))
    angle = 2 * np.pi * 1.5 * along + np.pi * y
    radius = 0.04 + 0.44 * along
    x = 0.5 + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Points(x.astype(np.float32), y)


def moons(n: int, seed: int = 0) -> Points:
    """Two half rings, each with an end in the other's hollow; they have n // 2 and
    n - n // 2 points."""
    rng = _generator(n, seed)
    y = rng.permutation(np.arange(n) % 2).astype(np.int64)
    angle, radius = np.pi * rng.random(n), 0.85 + 0.3 * rng.random(n)
    ring = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    # Of rings with radius 1, the one of class 1 is turned round and moved by (1, 1/2).
    x = np.where(y[:, None] == 1, [1.0, 0.5] - ring, ring)
    return Points((0.5 + 0.3 * (x - [0.5, 0.25])).astype(np.float32), y)


POINT_DATASETS: Mapping[str, Callable[[int, int], Points]] = MappingProxyType(
    {
        "simple": simple,
        "diagonal": diagonal,
        "split": split,
        "xor": xor,
        "circle": circle,
        "spiral": spiral,
        "moons": moons,
    }
)


def _generator(n: int, seed: int) -> np.random.Generator:
    """The random numbers of one data set. Philox, since its stream is specified."""
    if n < 0:
        raise ValueError(f"points: n is {n}; expected the number of points, 0 or more")
    return np.random.Generator(np.random.Philox(seed))


def _uniform(n: int, seed: int) -> Floats:
    """n points spread evenly over the unit square, float32 [n, 2]."""
    return _generator(n, seed).random((n, 2), dtype=np.float32)


def _labelled(x: Floats, is_one: npt.NDArray[np.bool_]) -> Points:
    return Points(x, is_one.astype(np.int64))
