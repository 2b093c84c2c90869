"""What each collective is: from what all ranks give to what each rank gets.

With this file one can look up a collective. A rule takes the flat arrays of all ranks,
`xs[r]` that of rank r, and returns what each rank has afterwards, again in the order of
ranks; None where a rank gives or gets nothing. `minitorch/distributed/threads.py` runs
these rules, and the transports of other engines are tested against them.

    rank            0        1                    0         1
    all_reduce      a        b        ->        a + b     a + b
    broadcast       a        b        ->          a         a          (root 0)
    reduce          a        b        ->        a + b       b          (root 0)
    all_gather      a        b        ->         a b       a b
    gather          a        b        ->         a b        -          (root 0)
    scatter        a c       -        ->          a         c          (root 0)
    reduce_scatter a c      b d       ->        a + b     c + d
    all_to_all     a c      b d       ->         a b       c d
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import reduce as fold
from types import MappingProxyType
from typing import Any

import numpy as np

Flat = np.ndarray | None
Rule = Callable[[list[Any]], list[Any]]


class ReduceOp(Enum):
    """How the numbers of all ranks become one."""

    SUM = "sum"
    AVG = "avg"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"


COMBINE: Mapping[ReduceOp, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ReduceOp.SUM: np.add,
        ReduceOp.AVG: np.add,
        ReduceOp.MAX: np.maximum,
        ReduceOp.MIN: np.minimum,
        ReduceOp.PRODUCT: np.multiply,
    }
)


def combined(xs: Sequence[np.ndarray], op: ReduceOp) -> np.ndarray:
    """One array of all, element by element, in the order of ranks."""
    total = fold(COMBINE[op], xs)
    return (total / len(xs)).astype(total.dtype) if op is ReduceOp.AVG else total


def all_reduce(xs: list[Any], op: ReduceOp) -> list[Flat]:
    """Each rank gets the reduction of all."""
    return [combined(xs, op)] * len(xs)


def broadcast(xs: list[Any], root: int) -> list[Flat]:
    """Each rank gets what the root has."""
    return [xs[root]] * len(xs)


def reduce(xs: list[Any], root: int, op: ReduceOp) -> list[Flat]:
    """The root gets the reduction of all; the others keep what they have."""
    return [combined(xs, op) if r == root else x for r, x in enumerate(xs)]


def all_gather(xs: list[Any]) -> list[Flat]:
    """Each rank gets all, one behind the other."""
    return [np.concatenate(xs)] * len(xs)


def gather(xs: list[Any], root: int) -> list[Flat]:
    """The root gets all, one behind the other."""
    return [np.concatenate(xs) if r == root else None for r in range(len(xs))]


def scatter(xs: list[Any], root: int) -> list[Flat]:
    """Rank r gets part r of what the root has."""
    return list(np.split(xs[root], len(xs)))


def reduce_scatter(xs: list[Any], op: ReduceOp) -> list[Flat]:
    """Rank r gets part r of the reduction of all."""
    return list(np.split(combined(xs, op), len(xs)))


def all_to_all(xs: list[Any], sizes: list[list[int]]) -> list[Flat]:
    """Rank r gets from each rank s its part r, which has `sizes[s][r]` elements."""
    parts = [np.split(x, np.cumsum(n)[:-1]) for x, n in zip(xs, sizes)]
    return [np.concatenate([part[r] for part in parts]) for r in range(len(xs))]
