"""How large tests of kernels may be: `big` on a GPU, small in the simulator.

n = pick(33, 100_003)      # the second on a GPU
@met("lay, more", ["nn", "nt"], [-1, 0, 1])      # all 6 on a GPU, 2 in the simulator
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, TypeVar

import pytest

from helpers import SIMULATED

T = TypeVar("T")
big = not SIMULATED


def pick(small: T, large: T) -> T:
    """`large` on a GPU, `small` in the simulator."""
    return large if big else small


def met(names: str, *values: Sequence[Any]) -> Any:
    """Run a test with all combinations of `values`; in the simulator with fewer.

    There the last value goes round, and another one comes with each of the others: of
    three lists any two values meet, or nearly, but not any three.
    """
    *others, last = values
    found = []
    for places in product(*map(range, map(len, others))):
        them = [x[at] for x, at in zip(others, places)]
        some = last if big else [last[sum(places) % len(last)]]
        found += [(*them, value) for value in some]
    return pytest.mark.parametrize(names, found)
