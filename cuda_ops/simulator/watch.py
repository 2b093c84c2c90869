"""Watch what simulated kernels do to memory: who races with whom, and what is moved.

With this file one can run kernels in the simulator under watch (`watching`):

    with watching() as watch:
        sum_contiguous(x)           # a race raises an error that says who and where
    watch.total.sectors             # 32-byte sectors of memory that warps asked for
    watch.lines                     # the same, and more, for each line of the kernels

In the simulator the threads of a block take turns in one and the same order, so a race
may go well. Here it never does: two threads use one element, at least one of them
writes, and no barrier lies between. That is an error in whatever order they come.
Threads of one warp have `cuda.syncwarp` as well; threads of different blocks have no
barrier at all. Two threads that write the same value do no harm, and atomic operations
are left out, here and below.

What is counted has the names of Nsight Compute (`Traffic`). A *request* is one
instruction of a warp with at least one active lane that uses memory. The instruction is
told by its place in the code and by how often its thread has come there since the last
barrier: so far lanes of a warp may go different ways. Addresses count from the begin of
the allocation, which on a GPU is a multiple of 256 bytes.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

SECTOR = 32  # bytes that memory delivers at once
WARP = 32
BANKS = 32  # of shared memory, of
WORD = 4  # bytes each
# Modules of functions that stand in for instructions: what they do is their callers'.
STAND_INS = {"numba.cuda.simulator.kernel"}


@dataclass
class Traffic:
    """What warps asked memory for.

    Attributes:
        requests: for global memory.
        sectors: 32-byte sectors that these requests touch, each for itself.
        ideal_sectors: how many would hold the bytes that are used, side by side.
        shared_requests: for shared memory.
        wavefronts: turns that these take (`wavefronts`).
        ideal_wavefronts: turns if no two words were in one bank.
        races: between threads.
    """

    requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    races: int = 0

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts beyond the ideal."""
        return self.wavefronts - self.ideal_wavefronts

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*map(add, vars(self).values(), vars(other).values()))


class Line(NamedTuple):
    """A line of a kernel, or of a function that it calls."""

    file: str
    number: int


class Lane(NamedTuple):
    """A thread of a grid, and what it has waited for.

    Attributes:
        block: its block's index; None stands for several.
        warp: its warp's number in the block; -1 stands for several.
        thread: its number in the block; -1 stands for several.
        epoch: how many barriers its block has passed.
        warp_epoch: how many barriers of its own (`cuda.syncwarp`) its warp has passed.
    """

    block: tuple[int, int, int] | None
    warp: int
    thread: int
    epoch: int
    warp_epoch: int

    def races_with(self, me: Lane) -> bool:
        """Whether no barrier lies between a use of this lane's, or of one of these
        lanes', and a later one of `me`'s."""
        if self.block != me.block:
            return True
        if self.epoch != me.epoch:
            return False
        if self.warp != me.warp:
            return True
        return self.warp_epoch == me.warp_epoch and self.thread != me.thread

    def joined(self, me: Lane) -> Lane:
        """This use and a later one, as one: what was before a barrier is forgotten,
        since whoever races with it races with the later one or is behind it, too."""
        if self.block != me.block:
            return Lane(None, -1, -1, 0, 0)
        if self.epoch != me.epoch:
            return me
        if self.warp != me.warp:
            return me._replace(warp=-1, thread=-1)
        if self.warp_epoch != me.warp_epoch or self.thread == me.thread:
            return me
        return me._replace(thread=-1)


def here() -> Lane:
    """The calling thread. Barriers open when all have come, so nobody is behind."""
    thread: Any = threading.current_thread()
    at, number = thread.blockIdx, thread.thread_id
    warp = number // WARP
    block = getattr(thread, "_manager", None)
    epoch = 0 if block is None else block.round
    known = None if block is None else block.warps.get(warp)
    return Lane(
        (at.x, at.y, at.z), warp, number, epoch, 0 if known is None else known.round
    )


class Request(NamedTuple):
    """An instruction of a warp. Each lane's first byte counts from that of `origin`."""

    line: Line
    shared: bool
    width: int  # bytes of a lane
    lanes: dict[int, tuple[int, int]]  # origin, first byte

    def traffic(self) -> Traffic:
        """What it costs."""
        if self.shared:
            firsts = {lane: first for lane, (_, first) in self.lanes.items()}
            taken, ideal = wavefronts(firsts, self.width)
            return Traffic(shared_requests=1, wavefronts=taken, ideal_wavefronts=ideal)
        places = set(self.lanes.values())
        touched = {
            (origin, sector)
            for origin, first in places
            for sector in range(first // SECTOR, (first + self.width - 1) // SECTOR + 1)
        }
        return Traffic(1, len(touched), -(-len(places) * self.width // SECTOR))


def wavefronts(firsts: dict[int, int], width: int) -> tuple[int, int]:
    """In how many turns shared memory serves a request, and how many it needs at least.

    Word w of 4 bytes is in bank w % 32. In one turn each bank gives one word, to all
    lanes that want it. Lanes with 8 bytes each are served by halves of a warp, those
    with 16 bytes by quarters, since a turn has 128 bytes.

    Args:
        firsts: for each active lane, the first byte that it uses.
        width: how many bytes a lane uses.
    """
    together = min(WARP, BANKS * WORD // width)
    groups: dict[int, set[int]] = defaultdict(set)
    for lane, first in firsts.items():
        words = range(first // WORD, (first + width - 1) // WORD + 1)
        groups[lane // together].update(words)
    banks = [Counter(word % BANKS for word in words) for words in groups.values()]
    return sum(max(words.values()) for words in banks), len(banks)


class Watch:
    """What kernels did while they were watched.

    Attributes:
        lines: what was asked for by each line of the kernels.
    """

    def __init__(self) -> None:
        self._lines: dict[Line, Traffic] = {}
        self._kernel: CodeType | None = None
        self._block: tuple[int, int, int] | None = None
        self._written: dict[int, Lane] = {}
        self._read: dict[int, Lane] = {}
        self._turns: dict[tuple[Any, ...], int] = {}
        self._requests: dict[tuple[Any, ...], Request] = {}
        self._starts: dict[int, list[int]] = {}  # for the code with an id

    @property
    def lines(self) -> dict[Line, Traffic]:
        self._count()
        return self._lines

    @property
    def total(self) -> Traffic:
        """What all lines asked for."""
        return sum(self.lines.values(), Traffic())

    def begin(self, kernel: CodeType) -> None:
        """A launch begins: it comes after all that the one before has done."""
        self._count()
        self._kernel = kernel
        self._written.clear()
        self._read.clear()

    def wrap(self, array: Any, name: str, shared: bool) -> Any:
        """An array whose elements are watched; other arguments as they are."""
        if not isinstance(array, np.ndarray):
            return array
        made = array.view(Watched)
        made.watch, made.name, made.shared = self, name, shared
        made.origin, made.start = _address(_allocation(array)), _address(made)
        return made

    def forget(self, array: Any) -> None:
        """Shared memory of a new block: what others did to it does not matter."""
        for at in range(array.start, array.start + array.nbytes, array.itemsize):
            self._written.pop(at, None)
            self._read.pop(at, None)

    def on_use(
        self, array: Watched, index: Any, count: int, values: Any, frame: FrameType
    ) -> None:
        """Called before `count` neighbouring elements are read or written at once.

        Args:
            index: of the first one.
            values: what is written; None if they are read.
            frame: the instruction.
        """
        me, at = here(), array.address(index)
        self._note_request(me, array, at, count * array.itemsize, frame)
        try:
            for i in range(count):
                value = None if values is None else values[i]
                self._look_for_races(me, array, at, index, i, value)
                at += array.itemsize
        except RuntimeError:
            self._add(_line(frame), Traffic(races=1))
            raise

    def _look_for_races(
        self, me: Lane, array: Watched, at: int, index: Any, i: int, value: Any
    ) -> None:
        """Note the use of element index + i, which is at `at`."""
        place = index + i if i else index
        write, reads = self._written.get(at), self._read.get(at)
        if write is not None and write.races_with(me):
            if value is None:
                raise _race(me, "reads", array, place, write, "written")
            if not array.holds(place, value):
                raise _race(me, "writes", array, place, write, "written")
        if value is None:
            self._read[at] = me if reads is None else reads.joined(me)
            return
        if reads is not None and reads.races_with(me):
            raise _race(me, "writes", array, place, reads, "read")
        self._written[at] = me

    def _note_request(
        self, me: Lane, array: Watched, at: int, width: int, frame: FrameType
    ) -> None:
        if me.block != self._block:  # the block before has come to its end
            self._count()
            self._block = me.block
        place = me.warp, me.epoch, me.warp_epoch, *self._place(frame)
        turn = self._turns.get((me.thread, place), 0) + 1
        self._turns[me.thread, place] = turn
        request = self._requests.get((turn, place))
        if request is None:
            request = Request(_line(frame), array.shared, width, {})
            self._requests[turn, place] = request
        request.lanes[me.thread % WARP] = array.origin, at - array.origin

    def _place(self, frame: FrameType | None) -> Iterator[tuple[int, int]]:
        """An instruction: where it is in its function, where that is called, ..."""
        while frame is not None:
            code = frame.f_code
            if id(code) not in self._starts:
                self._starts[id(code)] = _starts(code)
            yield id(code), self._starts[id(code)][frame.f_lasti // 2]
            frame = None if code is self._kernel else frame.f_back

    def _count(self) -> None:
        """Add what a block asked for to the lines."""
        for request in self._requests.values():
            self._add(request.line, request.traffic())
        self._requests.clear()
        self._turns.clear()
        self._block = None

    def _add(self, line: Line, traffic: Traffic) -> None:
        self._lines[line] = self._lines.get(line, Traffic()) + traffic


def _line(frame: FrameType) -> Line:
    """The line of a kernel that an instruction belongs to."""
    while frame.f_globals["__name__"] in STAND_INS and frame.f_back is not None:
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno)


def _starts(code: CodeType) -> list[int]:
    """For each two bytes of a code, where their instruction begins.

    Python's interpreter can stand behind it, in what it has noted of the instruction.
    """
    found = {i.offset for i in dis.get_instructions(code)}
    starts: list[int] = []
    for at in range(0, len(code.co_code), 2):
        starts.append(at if at in found else starts[-1])
    return starts


def _race(
    me: Lane, does: str, array: Watched, index: Any, other: Lane, did: str
) -> RuntimeError:
    place = index if isinstance(index, tuple) else (index,)
    numbers = ", ".join(str(int(i)) for i in place)
    if other.block == me.block:
        whom = f"thread {other.thread}" if other.thread >= 0 else "another thread"
        since = "since the last barrier (cuda.syncthreads)"
    else:
        whom, since = "another block", "and no barrier holds for both"
    return RuntimeError(
        f"race: thread {me.thread} of block {me.block} {does} {array.name}[{numbers}], "
        f"which {whom} has {did} {since}"
    )


class Watched(np.ndarray):
    """An array that tells its watch about each element that is read or written."""

    watch: Watch | None = None
    name = ""
    shared = False
    origin = 0  # address of the whole allocation
    start: int | None = None  # address of this view

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, Watched):
            self.watch, self.name = other.watch, other.name
            self.shared, self.origin, self.start = other.shared, other.origin, None

    def __getitem__(self, index: Any) -> Any:
        if self.watch is not None and _is_place(index) and not _by_atomic():
            self.watch.on_use(self, index, 1, None, sys._getframe(1))
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.watch is not None and _is_place(index) and not _by_atomic():
            self.watch.on_use(self, index, 1, [value], sys._getframe(1))
        super().__setitem__(index, value)

    def address(self, index: Any) -> int:
        """Where an element lies."""
        if self.start is None:
            self.start = _address(self)
        if isinstance(index, int) and index >= 0 and self.ndim == 1:  # the most common
            return self.start + index * self.strides[0]
        place = index if isinstance(index, tuple) else (index,)
        steps = zip(place, self.shape, self.strides)
        return self.start + sum(
            (int(i) + (n if i < 0 else 0)) * step for i, n, step in steps
        )

    def holds(self, index: Any, value: Any) -> bool:
        """Whether an element has a value already; NaN is NaN."""
        old, new = super().__getitem__(index), np.asarray(value).astype(self.dtype)
        return bool(old == new or (old != old and new != new))


def read(array: Any, i: Any, count: int, frame: FrameType) -> list[Any]:
    """array[i], ..., array[i + count - 1] by one instruction, the one of `frame`."""
    if isinstance(array, Watched) and array.watch is not None:
        array.watch.on_use(array, i, count, None, frame)
    return [np.ndarray.__getitem__(array, i + k) for k in range(count)]


def note_reads(array: Any, places: Iterable[int], count: int) -> None:
    """The caller reads `count` neighbours at each of `places`, in a way of its own."""
    if isinstance(array, Watched):
        for i in places:
            read(array, i, count, sys._getframe(1))


def write(array: Any, i: Any, values: Sequence[Any], frame: FrameType) -> None:
    """array[i], array[i + 1], ... = values by one instruction, the one of `frame`."""
    if isinstance(array, Watched) and array.watch is not None:
        array.watch.on_use(array, i, len(values), values, frame)
    for k, value in enumerate(values):
        np.ndarray.__setitem__(array, i + k, value)


def _is_place(index: Any) -> bool:
    """Whether an index is that of one element."""
    if isinstance(index, int):
        return True
    parts = index if isinstance(index, tuple) else (index,)
    return all(isinstance(part, (int, np.integer)) for part in parts)


def _by_atomic() -> bool:
    """Whether an array is used by an atomic operation of the simulator."""
    return sys._getframe(2).f_globals.get("__name__", "").endswith("kernelapi")


def _allocation(array: np.ndarray) -> np.ndarray:
    """The array that has the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


current: list[Watch] = []  # the innermost is the last


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch all kernels that are simulated within the block.

    Raises:
        RuntimeError: within the block, from the launch of a kernel that has a race.
    """
    watch = Watch()
    current.append(watch)
    try:
        yield watch
    finally:
        current.pop()
