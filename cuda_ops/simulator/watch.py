"""Watch what simulated kernels do to memory: who races with whom, and what is moved.

With this file one can run kernels in the simulator under watch (`watching`):

    with watching() as watch:
        sum_contiguous(x)           # a race raises an error that says who and where
    watch.moved                     # 32-byte pieces of memory that warps asked for

In the simulator the threads of a block take turns in one and the same order, so a race
may go well. Here it never does: two threads use one element, at least one of them
writes, and no barrier lies between. That is an error in whatever order they come.
Threads of different blocks have no barrier at all. Two threads that write the same
value do no harm, and atomic operations are left out.

A warp's accesses are put together by their number: the third load of each lane is one
request. That holds as long as the lanes of a warp take the same branches.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

PIECE = 32  # bytes that memory delivers at once
WARP = 32


class Thread(NamedTuple):
    """A thread of a grid; `block` is its block's index."""

    block: tuple[int, int, int]
    number: int

    def __str__(self) -> str:
        return f"thread {self.number} of block {self.block}"


class Use(NamedTuple):
    """The last write of an element, or its reads since then.

    Attributes:
        thread: that used it; None if there were several.
        block: None if there were several.
        epoch: how many barriers its block had passed.
    """

    thread: Thread | None
    block: tuple[int, int, int] | None
    epoch: int

    def races_with(self, me: Thread, epoch: int) -> bool:
        """Whether no barrier lies between this use and one of `me`'s."""
        if self.block != me.block:
            return True
        return self.epoch == epoch and self.thread != me


class Watch:
    """What kernels did while they were watched.

    Args:
        warp: threads whose accesses are put together. The simulator's blocks can be
            smaller than a GPU's, with rows that are shorter than a warp.

    Attributes:
        moved: 32-byte pieces of global memory that all warps asked for.
    """

    def __init__(self, warp: int = WARP) -> None:
        self.warp = warp
        self._lock = threading.Lock()
        self._written: dict[int, Use] = {}
        self._read: dict[int, Use] = {}
        self._turns: dict[tuple[Thread, bool], int] = {}
        self._pieces: set[tuple[Any, ...]] = set()
        self._launch = 0

    @property
    def moved(self) -> int:
        return len(self._pieces)

    def begin(self) -> None:
        """A launch begins: it comes after all that the one before has done."""
        self._launch += 1
        self._written.clear()
        self._read.clear()
        self._turns.clear()

    def wrap(self, array: Any, name: str, shared: bool) -> Any:
        """An array whose elements are watched; other arguments as they are."""
        if not isinstance(array, np.ndarray):
            return array
        made = array.view(Watched)
        made.watch, made.name, made.shared = self, name, shared
        made.origin = made.start = _address(made)
        return made

    def forget(self, array: Any) -> None:
        """Shared memory of a new block: what others did to it does not matter."""
        for at in range(array.start, array.start + array.nbytes, array.itemsize):
            self._written.pop(at, None)
            self._read.pop(at, None)

    def on_read(self, array: Watched, index: Any) -> None:
        """Called before an element is read."""
        me, epoch, at = _thread(), _epoch(), array.address(index)
        with self._lock:
            self._note_request(me, array, at, False)
            write = self._written.get(at)
            if write is not None and write.races_with(me, epoch):
                raise _race(me, "reads", array, index, write, "written")
            before = self._read.get(at)
            self._read[at] = _joined(before, me, epoch)

    def on_write(self, array: Watched, index: Any, value: Any) -> None:
        """Called before an element is written."""
        me, epoch, at = _thread(), _epoch(), array.address(index)
        with self._lock:
            self._note_request(me, array, at, True)
            write, reads = self._written.get(at), self._read.get(at)
            if write is not None and write.races_with(me, epoch):
                if not array.holds(index, value):
                    raise _race(me, "writes", array, index, write, "written")
            if reads is not None and reads.races_with(me, epoch):
                raise _race(me, "writes", array, index, reads, "read")
            self._written[at] = Use(me, me.block, epoch)

    def _note_request(self, me: Thread, array: Watched, at: int, store: bool) -> None:
        if array.shared:
            return
        turn = self._turns[me, store] = self._turns.get((me, store), 0) + 1
        warp = me.block, me.number // self.warp
        piece = array.name, (at - array.origin) // PIECE
        self._pieces.add((self._launch, warp, turn, store, piece))


def _joined(before: Use | None, me: Thread, epoch: int) -> Use:
    """The reads of an element, with one more."""
    if before is None or (before.block == me.block and before.epoch < epoch):
        return Use(me, me.block, epoch)
    same_block = before.block == me.block
    thread = me if same_block and before.thread == me else None
    return Use(thread, me.block if same_block else None, epoch)


def _race(
    me: Thread, does: str, array: Watched, index: Any, other: Use, did: str
) -> RuntimeError:
    place = index if isinstance(index, tuple) else (index,)
    numbers = ", ".join(str(int(i)) for i in place)
    if other.block == me.block:
        whom = f"thread {other.thread.number}" if other.thread else "another thread"
        since = "since the last barrier (cuda.syncthreads)"
    else:
        whom, since = "another block", "and no barrier holds for both"
    return RuntimeError(
        f"race: {me} {does} {array.name}[{numbers}], which {whom} has {did} {since}"
    )


class Watched(np.ndarray):
    """An array that tells its watch about each element that is read or written."""

    watch: Watch | None = None
    name = ""
    shared = False
    origin = 0  # address of the whole array
    start: int | None = None  # address of this view

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, Watched):
            self.watch, self.name = other.watch, other.name
            self.shared, self.origin, self.start = other.shared, other.origin, None

    def __getitem__(self, index: Any) -> Any:
        if self.watch is not None and _is_place(index) and not _by_atomic():
            self.watch.on_read(self, index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.watch is not None and _is_place(index) and not _by_atomic():
            self.watch.on_write(self, index, value)
        super().__setitem__(index, value)

    def address(self, index: Any) -> int:
        """Where an element lies."""
        if self.start is None:
            self.start = _address(self)
        place = index if isinstance(index, tuple) else (index,)
        steps = zip(place, self.shape, self.strides)
        return self.start + sum(
            (int(i) + (n if i < 0 else 0)) * step for i, n, step in steps
        )

    def holds(self, index: Any, value: Any) -> bool:
        """Whether an element has a value already."""
        return bool(super().__getitem__(index) == self.dtype.type(value))


def _is_place(index: Any) -> bool:
    """Whether an index is that of one element."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(isinstance(part, (int, np.integer)) for part in parts)


def _by_atomic() -> bool:
    """Whether an array is used by an atomic operation of the simulator."""
    return sys._getframe(2).f_globals.get("__name__", "").endswith("kernelapi")


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _thread() -> Thread:
    here: Any = threading.current_thread()
    at = here.blockIdx
    return Thread((at.x, at.y, at.z), here.thread_id)


def _epoch() -> int:
    """How many barriers the calling thread's block has passed.

    No thread can be behind: a barrier opens when all have come.
    """
    block = getattr(threading.current_thread(), "_manager", None)
    return 0 if block is None else block.round


current: list[Watch] = []  # the innermost is the last


@contextmanager
def watching(warp: int = WARP) -> Iterator[Watch]:
    """Watch all kernels that are simulated within the block.

    Raises:
        RuntimeError: within the block, from the launch of a kernel that has a race.
    """
    watch = Watch(warp)
    current.append(watch)
    try:
        yield watch
    finally:
        current.pop()
