"""Collectives made of messages alone, and what they cost.

With this file one can see how n ranks that can only send and receive add up their
tensors. A message of b bytes takes `latency + b / bandwidth` seconds; each function has
its formula beside it. All ranks of the group call the same function; tensors are
contiguous and change in place.

    for n ranks and b bytes     steps              bytes that a rank sends
    ring_all_reduce             2 (n - 1)          2 b (n - 1) / n      large tensors
    recursive_doubling          log2 n             b log2 n             small tensors
    tree_all_reduce             2 log2 n           2 b log2 n, at most  the simplest

Ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009. The others:
Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH", 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.distributed.collectives import Group, irecv, isend, recv, send
from minitorch.distributed.rules import ReduceOp
from minitorch.distributed.setup import get_process_group_ranks, get_rank
from minitorch.functions.choice import maximum, minimum
from minitorch.tensor import Tensor

COMBINE: Mapping[ReduceOp, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ReduceOp.SUM: lambda a, b: a + b,
        ReduceOp.PRODUCT: lambda a, b: a * b,
        ReduceOp.MAX: maximum,
        ReduceOp.MIN: minimum,
    }
)


def _combining(op: ReduceOp) -> Callable[[Any, Any], Any]:
    if op not in COMBINE:
        raise ValueError(
            f"{op}: two means do not make the mean of all; use ReduceOp.SUM and divide "
            f"by get_world_size()"
        )
    return COMBINE[op]


class Ring:
    """This rank's place among n, who sit in a circle and pass parts of a tensor on."""

    def __init__(self, x: Tensor, group: Group) -> None:
        self.ranks = get_process_group_ranks(group)
        self.n, self.me, self.group = len(self.ranks), get_rank(group), group
        flat = x.detach().view(-1)
        ends = [flat.numel() * i // self.n for i in range(self.n + 1)]
        self.parts = [flat[start:end] for start, end in pairwise(ends)]

    def step(self, goes: int, comes: int) -> Tensor:
        """Part `goes` to the right; what came from the left, as long as `comes`."""
        # BEGIN SOLUTION a13.1
        right, left = (self.ranks[(self.me + d) % self.n] for d in (1, -1))
        going, came = self.parts[goes % self.n], self.parts[comes % self.n].clone()
        works = [isend(going, right, self.group)] if going.numel() else []
        works += [irecv(came, left, self.group)] if came.numel() else []
        for work in works:
            work.wait()  # type: ignore[union-attr]
        return came
        # END SOLUTION a13.1


@no_grad()
def ring_reduce_scatter(
    x: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """Rank r's view of part r of x, which is the reduction of all; the rest is scratch.

    Each part goes once around, and each rank adds its own numbers.
    """
    ring, combine = Ring(x, group), _combining(op)
    # BEGIN SOLUTION a13.1
    # Part p starts at rank p + 1, and rank p is the last. For three ranks:
    #     step 1   0 sends part 2 to 1;   1 sends 0 to 2;   2 sends 1 to 0
    #     step 2   0 sends part 1 to 1;   1 sends 2 to 2;   2 sends 0 to 0
    for i in range(1, ring.n):
        comes = ring.me - i - 1
        came = ring.step(ring.me - i, comes)
        part = ring.parts[comes % ring.n]
        part.copy_(combine(came, part))
    # END SOLUTION a13.1
    return ring.parts[ring.me]


@no_grad()
def ring_all_gather(x: Tensor, group: Group = None) -> None:
    """Part r of x becomes that of rank r, everywhere: each part goes once around."""
    ring = Ring(x, group)
    # BEGIN SOLUTION a13.1
    for i in range(ring.n - 1):
        came = ring.step(ring.me - i, ring.me - i - 1)
        ring.parts[(ring.me - i - 1) % ring.n].copy_(came)
    # END SOLUTION a13.1


def ring_all_reduce(
    x: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> None:
    """x becomes the reduction of all: reduce-scatter, then all-gather.

    Each number goes around twice, which no method can do with less for large tensors.
    """
    ring_reduce_scatter(x, op, group)
    ring_all_gather(x, group)


def ring_seconds(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """2 (n - 1) latency + 2 (n - 1) / n * nbytes / bandwidth; half of it for each of
    the two parts."""
    return 2 * (n - 1) * (latency + nbytes / n / bandwidth)


@no_grad()
def tree_all_reduce(
    x: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> None:
    """x becomes the reduction of all: up a tree to rank 0, and down again.

    up    1 -> 0, 3 -> 2      then 2 -> 0         what has come is added
    down  0 -> 2              then 0 -> 1, 2 -> 3
    """
    ranks, me = get_process_group_ranks(group), get_rank(group)
    x = x.detach().view(-1)
    n, came, combine = len(ranks), x.clone(), _combining(op)
    distances = [2**i for i in range(math.ceil(math.log2(n)))]
    for d in distances:
        if me % (2 * d) == d:
            send(x, ranks[me - d], group)
        elif me % (2 * d) == 0 and me + d < n:
            recv(came, ranks[me + d], group)
            x.copy_(combine(x, came))
    for d in reversed(distances):
        if me % (2 * d) == d:
            recv(x, ranks[me - d], group)
        elif me % (2 * d) == 0 and me + d < n:
            send(x, ranks[me + d], group)


def tree_seconds(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """2 ceil(log2 n) (latency + nbytes / bandwidth)."""
    return 2 * math.ceil(math.log2(n)) * (latency + nbytes / bandwidth)


@no_grad()
def recursive_doubling(
    x: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> None:
    """x becomes the reduction of all: pairs exchange, of which each is twice as far.

        0 <-> 1, 2 <-> 3          then 0 <-> 2, 1 <-> 3

    If n is no power of two, the ranks above the largest one that fits give their
    numbers away first, and get the result last.
    """
    ranks, me = get_process_group_ranks(group), get_rank(group)
    x = x.detach().view(-1)
    came, combine = x.clone(), _combining(op)
    power = 2 ** int(math.log2(len(ranks)))
    if me >= power:
        send(x, ranks[me - power], group)
        recv(x, ranks[me - power], group)
        return
    extra = me + power < len(ranks)
    if extra:
        recv(came, ranks[me + power], group)
        x.copy_(combine(x, came))
    d = 1
    while d < power:
        peer = me ^ d
        work = isend(x, ranks[peer], group)
        recv(came, ranks[peer], group)
        work.wait()  # type: ignore[union-attr]
        first, second = (x, came) if me < peer else (came, x)  # the same on both sides
        x.copy_(combine(first, second))
        d *= 2
    if extra:
        send(x, ranks[me + power], group)


def doubling_seconds(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """log2 n (latency + nbytes / bandwidth), and two steps more where n is no power of
    two."""
    steps = int(math.log2(n)) + 2 * (n & (n - 1) != 0)
    return steps * (latency + nbytes / bandwidth)
