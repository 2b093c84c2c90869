"""Inputs for checks, from a seed, and smaller ones of the same kind.

With this file a check describes its inputs as a function of a `Draw`. `SeededDraw`
makes them from a seed, the same in every process, and keeps what it chose; `Replay`
makes them from such choices, so that whoever changes the choices has other inputs
(`shrink.py` looks for small ones in this way).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

T = TypeVar("T")

LAYOUTS = ("contiguous", "offset", "permuted", "stepped", "negative")
# In arrays up to this size some numbers are round, and so some are 0 or equal.
SMALL = 48
ROUND = 0.25  # the share of numbers and of small arrays that are round


@dataclass(frozen=True)
class Choice:
    """What was drawn at one place.

    Attributes:
        value: a number, or an array.
        simplest: number that it could be.
    """

    value: Any
    simplest: float = 0.0


class Draw(Protocol):
    """What a check may ask for."""

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""

    def number(self, low: float = -2.0, high: float = 2.0) -> float:
        """A float from `low` to `high` that is short to print."""

    def choice(self, options: Sequence[T]) -> T:
        """One of the options; the first one is the simplest."""

    def array(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        low: float = -2.0,
        high: float = 2.0,
    ) -> np.ndarray:
        """An array with elements from `low` to `high`."""


def layout(draw: Draw) -> str:
    """How the elements of an operand lie in memory; see `calling.operand`."""
    return draw.choice(LAYOUTS)


class SeededDraw:
    """Draws from a generator that depends on nothing but its seed.

    Attributes:
        made: what was chosen, in order.
    """

    def __init__(self, *seed: int | str) -> None:
        words = [zlib.crc32(s.encode()) if isinstance(s, str) else s for s in seed]
        self.random = np.random.default_rng(words)
        self.made: list[Choice] = []

    def integer(self, low: int, high: int) -> int:
        value = int(self.random.integers(low, high, endpoint=True))
        return self._keep(value, _simplest(low, high))

    def number(self, low: float = -2.0, high: float = 2.0) -> float:
        fine, coarse = self.random.uniform(low, high, 2)
        is_round = self.random.uniform() < ROUND
        value = _eighths(coarse, low, high) if is_round else round(float(fine), 3)
        return self._keep(float(value), _simplest(low, high))

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def array(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        low: float = -2.0,
        high: float = 2.0,
    ) -> np.ndarray:
        made = _random_array(self.random, shape, dtype, low, high)
        if made.dtype.kind == "f" and made.size <= SMALL:
            if self.random.uniform() < ROUND:
                made = np.asarray(_eighths(made, low, high)).astype(dtype)
        return self._keep(made, _simplest(low, high))

    def _keep(self, value: T, simplest: float) -> T:
        self.made.append(Choice(value, simplest))
        return value


class Replay:
    """Draws what is given, as far as it fits; after that the simplest there is.

    Args:
        given: choices of an earlier draw, changed or not.
    """

    def __init__(self, given: Sequence[Choice]) -> None:
        self.given = given
        self.made: list[Choice] = []

    def integer(self, low: int, high: int) -> int:
        return int(self._one(low, high, math.floor))

    def number(self, low: float = -2.0, high: float = 2.0) -> float:
        return float(self._one(low, high, float))

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def array(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        low: float = -2.0,
        high: float = 2.0,
    ) -> np.ndarray:
        simplest = _simplest(low, high)
        value = np.asarray(self._next(simplest), np.float64)
        values = np.resize(value if value.size else np.array(simplest), tuple(shape))
        limits = (low, high) if dtype.startswith("float") else (int(low), int(high))
        kept = values > 0 if dtype == "bool" else np.clip(values, *limits)
        made = np.asarray(kept).astype(dtype)
        self.made.append(Choice(made, simplest))
        return made

    def _one(self, low: float, high: float, kind: Callable[[float], float]) -> float:
        simplest = _simplest(low, high)
        given = self._next(simplest)
        value = simplest if isinstance(given, np.ndarray) else given
        kept = kind(min(max(value, low), high))
        self.made.append(Choice(kept, simplest))
        return kept

    def _next(self, simplest: float) -> Any:
        at = len(self.made)
        return self.given[at].value if at < len(self.given) else simplest


def _simplest(low: float, high: float) -> float:
    """0, or the number from `low` to `high` that is nearest to it."""
    return min(max(0, low), high)


def _eighths(values: Any, low: float, high: float) -> Any:
    """Numbers rounded to eighths between `low` and `high`."""
    return np.clip(np.round(values * 8), math.ceil(8 * low), math.floor(8 * high)) / 8


def _random_array(
    random: np.random.Generator,
    shape: Sequence[int],
    dtype: str,
    low: float,
    high: float,
) -> np.ndarray:
    if dtype == "bool":
        return random.integers(0, 2, tuple(shape)).astype(bool)
    if dtype.startswith("int"):
        return random.integers(int(low), int(high), tuple(shape), endpoint=True).astype(
            dtype
        )
    return random.uniform(low, high, tuple(shape)).astype(dtype)
