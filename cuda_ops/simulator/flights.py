"""Copies to shared memory that are under way (`cp.async`), for the simulator.

A GPU may read and write what is copied at any time from the start of a copy until the
thread that started it waits for its group. So here what is under way is garbage: it
overwrites at once what others still want to read, and has what it shall have no sooner
than its thread has waited for it. To the watch that is a write at the start and another
one at the end, and no other use of the place may lie between them.

    start_copy ... start_copy, close        a group
    wait(n)                                 all groups but the newest n have arrived

What no `close` came behind is in no group, and nobody can wait for it.

Source: "PTX ISA", on cp.async.wait_group.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from types import FrameType
from typing import Any

import numpy as np

from cuda_ops.simulator.block import current_thread
from cuda_ops.simulator.watch import Watch, Watched, here

Flight = tuple[Any, Any, list[Any]]  # array, index, what will be there from it on


class Flights:
    """The copies of a thread that are under way: those in no group yet, and groups."""

    def __init__(self) -> None:
        self.open: list[Flight] = []
        self.groups: deque[list[Flight]] = deque()


def _mine() -> Flights:
    thread: Any = current_thread()
    if thread.flights is None:
        thread.flights = Flights()
    flights: Flights = thread.flights
    return flights


def start_copy(
    to: Any, at: Any, source: Any, i: Any, count: int, frame: FrameType
) -> None:
    """Start to[at], ... = source[i], ..., `count` of them; zeros without a source."""
    values: list[Any] = [0] * count
    other = None
    if source is not None:
        values = [np.ndarray.__getitem__(source, i + k) for k in range(count)]
        other = source, i
        if (watch := _watch_of(source)) is not None:
            watch.on_use(source, i, count, None, frame, (to, at))
    if (watch := _watch_of(to)) is not None:
        watch.on_use(to, at, count, values, frame, other)
        watch.take_off(to, at, count)
    garbage = _garbage(to.dtype)
    np.ndarray.__setitem__(to, at + count - 1, garbage)
    if count > 1:
        np.ndarray.__setitem__(to, slice(at, at + count), garbage)
    _mine().open.append((to, at, values))


def _watch_of(array: Any) -> Watch | None:
    return array.watch if isinstance(array, Watched) else None


@cache
def _garbage(kind: np.dtype) -> Any:
    """An element of which each byte is full, as those of a new block are."""
    return np.full(kind.itemsize, 0xFF, np.uint8).view(kind)[0]


def close() -> None:
    """End a group of copies; it may have none."""
    flights = _mine()
    flights.groups.append(flights.open)
    flights.open = []


def wait(pending: int, frame: FrameType) -> None:
    """Let all groups but the newest `pending` arrive."""
    groups, me = _mine().groups, here()
    while len(groups) > pending:
        for to, at, values in groups.popleft():
            if (watch := _watch_of(to)) is not None:
                watch.land(me, to, at, values, frame)
            for k, value in enumerate(values):
                np.ndarray.__setitem__(to, at + k, value)
