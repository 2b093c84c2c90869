"""How large tests of kernels may be: `big` on a GPU, small in the simulator.

n = pick(33, 100_003)      # the second on a GPU
"""

from __future__ import annotations

from typing import TypeVar

from helpers import SIMULATED

T = TypeVar("T")
big = not SIMULATED


def pick(small: T, large: T) -> T:
    """`large` on a GPU, `small` in the simulator."""
    return large if big else small
