"""Inputs for checks: written once, drawn in two ways.

With this file a check describes its inputs as a function of a `Draw`. `SeededDraw`
makes them from a seed, the same in every process (the grader's way);
`HypothesisDraw` makes them from Hypothesis, which looks for the smallest that fail
(the student's way).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

T = TypeVar("T")

LAYOUTS = ("contiguous", "offset", "permuted", "stepped", "negative")
# Arrays up to this size are drawn element by element, so that they can be made smaller.
ONE_BY_ONE = 48


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
    """Draws from a generator that depends on nothing but its seed."""

    def __init__(self, *seed: int | str) -> None:
        words = [zlib.crc32(s.encode()) if isinstance(s, str) else s for s in seed]
        self.random = np.random.default_rng(words)

    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high, endpoint=True))

    def number(self, low: float = -2.0, high: float = 2.0) -> float:
        return round(float(self.random.uniform(low, high)), 3)

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def array(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        low: float = -2.0,
        high: float = 2.0,
    ) -> np.ndarray:
        return _random_array(self.random, shape, dtype, low, high)


class HypothesisDraw:
    """Draws by Hypothesis: pass `data.draw` of a test with `st.data()`."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        from hypothesis import strategies as st

        return self.draw(st.integers(low, high))

    def number(self, low: float = -2.0, high: float = 2.0) -> float:
        return self.draw(_eighths(low, high)) / 8

    def choice(self, options: Sequence[T]) -> T:
        from hypothesis import strategies as st

        return self.draw(st.sampled_from(options))

    def array(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        low: float = -2.0,
        high: float = 2.0,
    ) -> np.ndarray:
        size = int(np.prod(shape, dtype=np.int64))
        if size > ONE_BY_ONE:
            random = np.random.default_rng(self.integer(0, 2**16))
            return _random_array(random, shape, dtype, low, high)
        from hypothesis import strategies as st

        whole = (
            st.integers(0, 1) if dtype == "bool" else st.integers(int(low), int(high))
        )
        floating = dtype.startswith("float")
        one = _eighths(low, high) if floating else whole
        elements = np.array(self.draw(st.lists(one, min_size=size, max_size=size)))
        return (elements / 8 if floating else elements).astype(dtype).reshape(shape)


def _eighths(low: float, high: float) -> Any:
    """Whole numbers from 8 low to 8 high, of which 0 is the simplest."""
    from hypothesis import strategies as st

    return st.integers(math.ceil(8 * low), math.floor(8 * high))


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
