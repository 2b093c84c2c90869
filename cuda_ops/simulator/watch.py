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

An index that a kernel has computed must not be negative, in no kind of memory. Numba
adds the size to one whose type is signed, as Python does, so that on a GPU another
element is used and nothing fails; it does not to one that is unsigned, nor is the size
added twice, nor does CUDA C add it: these use memory of others. Only a written `a[-1]`
is what it looks like, in Numba as well.

What is counted has the names of Nsight Compute (`Traffic`). A *request* is one
instruction of a warp with at least one active lane that uses memory. The instruction is
told by its place in the code and by how often its thread has come there since the last
barrier: so far lanes of a warp may go different ways. Addresses count from the begin of
the allocation, which on a GPU is a multiple of 256 bytes.
"""

from __future__ import annotations

import dis
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import add
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from cuda_ops.simulator.block import current_thread

SECTOR, WARP = 32, 32  # bytes that memory delivers at once; threads that go together
LINE = 128  # bytes with one tag, and those of a turn of shared memory
VECTOR = 16  # bytes of the widest access of a lane
BANKS, WORD = 32, 4  # of shared memory; bytes of a word, which each has
BEGUN = "begun to copy"  # and the copy has not arrived
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


class Launch(NamedTuple):
    """A kernel that is launched.

    Attributes:
        name, fn: of the kernel.
        blocks, threads: the sizes of the grid and of a block.
        shared: bytes of dynamic shared memory.
        args: its arguments.
    """

    name: str
    fn: Any
    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]
    shared: int
    args: tuple[Any, ...]


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
            several = self.warp == -1
            return self if several else Lane(me.block, -1, -1, me.epoch, 0)
        if self.warp_epoch != me.warp_epoch or self.thread == me.thread:
            return me
        if self.thread == -1:
            return self
        return Lane(me.block, me.warp, -1, me.epoch, me.warp_epoch)


def here() -> Lane:
    """The calling thread. Barriers open when all have come, so nobody is behind."""
    thread: Any = current_thread()
    at, number = thread.blockIdx, thread.thread_id
    warp = number // WARP
    block = getattr(thread, "_manager", None)
    epoch = 0 if block is None else block.round
    known = None if block is None else block.warps.get(warp)
    return Lane(
        (at.x, at.y, at.z), warp, number, epoch, 0 if known is None else known.round
    )


class Request(NamedTuple):
    """An instruction of a warp. Each lane's first byte counts from that of `origin`.

    Attributes:
        others: of a copy past the registers, the other end of each lane.
    """

    line: Line
    array: str
    shared: bool
    write: bool
    width: int  # bytes of a lane
    lanes: dict[int, tuple[int, int]]  # origin, first byte
    others: dict[int, tuple[int, int]]

    def traffic(self) -> Traffic:
        """What it costs."""
        ends = [(self.lanes[lane], other) for lane, other in self.others.items()]
        copies = ends if self.width == VECTOR else []
        if self.shared:
            firsts = {lane: first for lane, (_, first) in self.lanes.items()}
            taken, ideal = wavefronts(firsts, self.width, self.write)
            if copies:
                taken = past_registers((source, to) for to, source in copies)[1]
            return Traffic(shared_requests=1, wavefronts=taken, ideal_wavefronts=ideal)
        places = set(self.lanes.values())
        touched = {
            (origin, sector)
            for origin, first in places
            for sector in range(first // SECTOR, (first + self.width - 1) // SECTOR + 1)
        }
        sectors = past_registers(copies)[0] if copies else len(touched)
        return Traffic(1, sectors, -(-len(places) * self.width // SECTOR))


def past_registers(
    ends: Iterable[tuple[tuple[int, int], tuple[int, int]]],
) -> tuple[int, int]:
    """The sectors and turns of a warp's `cp.async` of 16 bytes a lane.

    A turn stores what comes from one line of 128 bytes and goes to one line of shared
    memory. Where sectors begin in the middle of shared memory's, their halves take
    turns of their own; and counted are the sectors of shared memory that a line fills.

    Args:
        ends: for each lane where it reads and where it writes: origin, first byte.

    Source: read off what Nsight Compute counted on an H200, by instruction, of
    `matmul_vectorized`; it holds for `matmul_tensor_core` as well.
    """
    sectors, turns = set(), set()
    for (origin, first), (_, to) in ends:
        half = first % SECTOR if (first - to) % SECTOR else 0
        sectors.add((origin, first // LINE, to // SECTOR))
        turns.add((origin, first // LINE, to // LINE, half))
    return len(sectors), len(turns)


def wavefronts(
    firsts: dict[int, int], width: int, write: bool = False
) -> tuple[int, int]:
    """In how many turns shared memory serves a request, and how many it needs at least.

    Word w of 4 bytes is in bank w % 32. In one turn each bank gives one word, to all
    lanes that want it. Lanes with 8 bytes each are served by halves of a warp, those
    with 16 bytes by quarters, since a turn has 128 bytes. Twice as many are served of a
    load in which all lanes n and n ^ 1, or all lanes n and n ^ 2, want the same.

    Args:
        firsts: for each active lane, the first byte that it uses.
        width: how many bytes a lane uses.

    Source: an engineer of NVIDIA's on LDS.128, forums.developer.nvidia.com/t/77228.
    """
    together = served_together(firsts, width, write)
    groups: dict[int, set[int]] = defaultdict(set)
    for lane, first in firsts.items():
        words = range(first // WORD, (first + width - 1) // WORD + 1)
        groups[lane // together].update(words)
    banks = [Counter(word % BANKS for word in words) for words in groups.values()]
    return sum(max(words.values()) for words in banks), len(banks)


def served_together(firsts: dict[int, int], width: int, write: bool = False) -> int:
    """How many lanes of a warp shared memory serves in a turn (see `wavefronts`)."""
    together = min(WARP, BANKS * WORD // width)
    if not write and any(_in_pairs(firsts, step) for step in (1, 2)):
        together = min(WARP, 2 * together)
    return together


def _in_pairs(firsts: dict[int, int], step: int) -> bool:
    """Whether all lanes n and n ^ step use the same, as far as both are active."""
    return all(firsts.get(lane ^ step, at) == at for lane, at in firsts.items())


class Watch:
    """What kernels did while they were watched.

    Who wants to see more overrides `sample`, `followed`, `place`, `on_request` and
    `on_race` (`cuda_ops/simulator/xray.py`).

    Attributes:
        lines: what was asked for by each line of the kernels.
        busiest: how many places of memory a single thread used, in one launch.
    """

    def __init__(self) -> None:
        self._lines: dict[Line, Traffic] = {}
        self._kernel: CodeType | None = None
        self.threads = (1, 1, 1)  # of a block
        self._block: tuple[int, int, int] | None = None
        self._written: dict[int, Lane] = {}
        self._read: dict[int, Lane] = {}
        self._under_way: dict[int, Lane] = {}  # who copies to an element
        self._turns: dict[tuple[Any, ...], int] = {}
        self._requests: dict[tuple[Any, ...], Request] = {}
        self._starts: dict[int, list[int]] = {}  # for the code with an id
        self._busiest = 0

    @property
    def lines(self) -> dict[Line, Traffic]:
        self._count()
        return self._lines

    @property
    def busiest(self) -> int:
        self._count()
        return self._busiest

    @property
    def total(self) -> Traffic:
        """What all lines asked for."""
        return sum(self.lines.values(), Traffic())

    def begin(self, launch: Launch) -> None:
        """A launch begins: it comes after all that the one before has done."""
        self._count()
        self._kernel, self.threads = launch.fn.__code__, launch.threads
        self._written.clear()
        self._read.clear()
        self._under_way.clear()

    def sample(self) -> Sequence[Any] | None:
        """The indices of the blocks that shall run; None for all."""
        return None

    @contextmanager
    def followed(self, run: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
        """Within this, what a thread runs in the place of `run`, the kernel's call."""
        yield run

    def on_race(self, line: Line, error: RuntimeError) -> None:
        """Called when a race was found at a line."""
        raise error

    def on_request(
        self, request: Request, traffic: Traffic, place: tuple[Any, ...]
    ) -> None:
        """Called with each request when its block has come to its end.

        Args:
            place: of its instruction, as `self.place` told it.
        """
        self._add(request.line, traffic)

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
        self._under_way.clear()

    def on_use(
        self, array: Watched, index: Any, count: int, values: Any, frame: FrameType,
        other: tuple[Any, Any] | None = None,
    ) -> None:  # fmt: skip
        """Called before `count` neighbouring elements are read or written at once.

        Args:
            index: of the first one.
            values: what is written; None if they are read.
            frame: the instruction.
            other: array and index of a copy's other end.
        """
        me, at = here(), array.address(index)
        write, width = values is not None, count * array.itemsize
        request = self._note_request(me, array, at, width, write, frame)
        if other is not None and isinstance(other[0], Watched):
            end = other[0].address(other[1]) - other[0].origin
            request.others[me.thread % WARP] = other[0].origin, end
        for i in range(count):
            value = None if values is None else values[i]
            self.look_for_race(me, array, at, index, i, value, frame)
            at += array.itemsize

    def look_for_race(
        self, me: Lane, array: Watched, at: int, index: Any, i: int, value: Any,
        frame: FrameType,
    ) -> None:  # fmt: skip
        """Note the use of element index + i, which is at `at`, and a race with it."""
        race = self._found_race(me, array, at, index, i, value)
        if race is not None:
            self._add(_line(frame), Traffic(races=1))
            self.on_race(_line(frame), race)

    def _found_race(
        self, me: Lane, array: Watched, at: int, index: Any, i: int, value: Any
    ) -> RuntimeError | None:
        """Note the use of element index + i, which is at `at`; the race, if it is."""
        place, race = index + i if i else index, None
        if self._under_way and at in self._under_way:
            does, other = "reads" if value is None else "writes", self._under_way[at]
            return _race(me, does, array, place, other, BEGUN)
        write, reads = self._written.get(at), self._read.get(at)
        if write is not None and write.races_with(me):
            if value is None:
                race = _race(me, "reads", array, place, write, "written")
            elif not array.holds(place, value):
                race = _race(me, "writes", array, place, write, "written")
        if value is None:
            self._read[at] = me if reads is None else reads.joined(me)
            return race
        if race is None and reads is not None and reads.races_with(me):
            race = _race(me, "writes", array, place, reads, "read")
        self._written[at] = me
        return race

    def take_off(self, array: Watched, index: Any, count: int) -> None:
        """The caller has started a copy to `count` elements, and noted a write."""
        me, at = here(), array.address(index)
        for place in range(at, at + count * array.itemsize, array.itemsize):
            self._under_way[place] = me

    def land(
        self, me: Lane, array: Watched, index: Any, values: Sequence[Any],
        frame: FrameType,
    ) -> None:  # fmt: skip
        """A copy of `me` arrives: a write, of which the request was counted."""
        at = array.address(index)
        for i, value in enumerate(values):
            self._under_way.pop(at, None)
            self.look_for_race(me, array, at, index, i, value, frame)
            at += array.itemsize

    def _note_request(
        self, me: Lane, array: Watched, at: int, width: int, write: bool,
        frame: FrameType,
    ) -> Request:  # fmt: skip
        if me.block != self._block:  # the block before has come to its end
            self._count()
            self._block = me.block
        place = me.warp, me.epoch, me.warp_epoch, *self.place(frame)
        mine = me.thread, place
        turn = self._turns[mine] = self._turns.get(mine, 0) + 1
        request = self._requests.get((turn, place))
        if request is None:
            line = _line(frame)
            request = Request(line, array.name, array.shared, write, width, {}, {})
            self._requests[turn, place] = request
        request.lanes[me.thread % WARP] = array.origin, at - array.origin
        return request

    def place(self, frame: FrameType | None) -> tuple[Any, ...]:
        """An instruction: where it is in its function, where that is called, ..."""
        found: list[Any] = []
        while frame is not None:
            found += id(frame.f_code), self.start_of(frame)
            frame = None if frame.f_code is self._kernel else frame.f_back
        return tuple(found)

    def start_of(self, frame: FrameType) -> int:
        """Where the instruction begins that a function is at."""
        code = frame.f_code  # whose own hash takes as long as all of this
        found = self._starts.get(id(code))
        if found is None:
            found = self._starts[id(code)] = starts(code)
        return found[frame.f_lasti // 2]

    def _count(self) -> None:
        """Add what a block asked for to the lines."""
        used: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        for (_, place), request in self._requests.items():
            self.on_request(request, request.traffic(), place[3:])
            for lane, where in request.lanes.items():
                used[place[0], lane].add(where)
        self._busiest = max(self._busiest, *map(len, used.values()), 0)
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


@cache
def starts(code: CodeType) -> list[int]:
    """For each two bytes of a code, where their instruction begins.

    Python's interpreter can stand behind it, in what it has noted of the instruction.
    """
    found = {i.offset for i in dis.get_instructions(code)}
    begins: list[int] = []
    for at in range(0, len(code.co_code), 2):
        begins.append(at if at in found else begins[-1])
    return begins


def _race(
    me: Lane, does: str, array: Watched, index: Any, other: Lane, did: str
) -> RuntimeError:
    if other.block == me.block:
        whom = _thread(other.thread) if other.thread >= 0 else "another thread"
        since = "since the last barrier (cuda.syncthreads)"
        if did == BEGUN:  # whenever that was
            since = "and not waited for"
    else:
        whom, since = "another block", "and no barrier holds for both"
    return RuntimeError(
        f"race: {_what(me, does, array, index)}, which {whom} has {did} {since}"
    )


def _outside(array: Named, index: Any, does: str) -> IndexError:
    what = _what(here(), does, array, index)
    size = f"size {array.size}" if array.ndim == 1 else f"shape {array.shape}"
    flat = " and one dimension" if array.ndim == 1 and isinstance(index, tuple) else ""
    return IndexError(f"{what}, but {array.name} has the {size}{flat}")


def refuse_negative(array: Named, index: Any, does: str) -> None:
    """Raise an error for an element that is counted from the end, unless by a literal.

    Called from where the array is used.
    """
    if isinstance(index, int) and index >= 0:  # the most common
        return
    place = index if isinstance(index, tuple) else (index,)
    if min(place, default=0) < 0 and not _is_literal(sys._getframe(2), place):
        raise IndexError(
            f"{_what(here(), does, array, index)}: below 0, Numba counts from the end "
            f"and CUDA C leaves the array; guard it, or write the index that you mean"
        )


def _is_literal(frame: FrameType, place: tuple[Any, ...]) -> bool:
    """Whether the negative parts of an index stand in the code, just before its use."""
    code = list(dis.get_instructions(frame.f_code))
    use = max(n for n, i in enumerate(code) if i.offset <= frame.f_lasti)
    written = [i.argval for i in code[max(0, use - len(place) - 1) : use]]
    return all(part >= 0 or part in written or place in written for part in place)


def _what(me: Lane, does: str, array: Named, index: Any) -> str:
    """ "thread 1 of block (0, 0, 0) reads a[5]" """
    place = index if isinstance(index, tuple) else (index,)
    numbers = ", ".join(map(str, place))
    return f"{_thread(me.thread)} of block {me.block} {does} {array.name}[{numbers}]"


def _thread(number: int) -> str:
    """ "thread 4"; of a block with rows, by its indices: "thread (0, 1, 0)"."""
    x, y, z = current[-1].threads if current else (number + 1, 1, 1)
    place = number % x, number // x % y, number // (x * y)
    return f"thread {number if y * z == 1 else place}"


class Named(np.ndarray):
    """An array that knows its name; alone, a thread's own, whose use nobody sees."""

    name = ""

    def __array_finalize__(self, other: Any) -> None:
        self.name = getattr(other, "name", "")

    def __getitem__(self, index: Any) -> Any:
        if self.is_place(index):
            refuse_negative(self, index, "reads")
            self.use(index, None)
        try:
            return super().__getitem__(index)
        except IndexError:
            raise _outside(self, index, "reads") from None

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.is_place(index):
            refuse_negative(self, index, "writes")
            if isinstance(value, str):  # which NumPy would read as a number
                what = _what(here(), "writes", self, index)
                raise TypeError(f"{what} = {value!r}; kernels know numbers, no text")
            self.use(index, [value])
        try:
            super().__setitem__(index, value)
        except IndexError:
            raise _outside(self, index, "writes") from None

    def is_place(self, index: Any) -> bool:
        """Whether an index is that of one element; a row of a matrix is a view."""
        if isinstance(index, int):
            return self.ndim == 1
        parts = index if isinstance(index, tuple) else (index,)
        whole = all(isinstance(part, (int, np.integer)) for part in parts)
        return whole and len(parts) == self.ndim

    def use(self, index: Any, values: Any) -> None:
        """Called before an element is read or written; see `Watch.on_use`."""


class Watched(Named):
    """An array that tells its watch about each element that is read or written."""

    watch: Watch | None = None
    shared = False
    origin = 0  # address of the whole allocation
    start: int | None = None  # address of this view

    def __array_finalize__(self, other: Any) -> None:
        super().__array_finalize__(other)
        if isinstance(other, Watched):
            self.watch, self.shared = other.watch, other.shared
            self.origin, self.start = other.origin, None

    def use(self, index: Any, values: Any) -> None:
        if self.watch is not None and not _by_atomic():
            self.watch.on_use(self, index, 1, values, sys._getframe(2))

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
        old = np.ndarray.__getitem__(self, index)
        new = np.asarray(value).astype(self.dtype)
        return bool(old == new or (old != old and new != new))


def read(array: Any, i: Any, count: int, frame: FrameType) -> list[Any]:
    """array[i], ..., array[i + count - 1] by one instruction, the one of `frame`."""
    if isinstance(array, Watched) and array.watch is not None:
        array.watch.on_use(array, i, count, None, frame)
    return [np.ndarray.__getitem__(array, i + k) for k in range(count)]


def load_and_store(
    to: Any, at: Any, source: Any, i: Any, count: int, frame: FrameType
) -> None:
    """to[at], ... = source[i], ..., by way of registers; zeros without a source."""
    values = [0] * count if source is None else read(source, i, count, frame)
    write(to, at, values, frame)


def note_reads(array: Any, places: Iterable[int], count: int) -> None:
    """The caller reads `count` neighbours at each of `places`, in a way of its own."""
    if isinstance(array, Watched):
        for i in places:
            read(array, i, count, sys._getframe(1))


def note_fetches(array: Any, places: Any) -> None:
    """Units read elements for the caller: no request of its own, but races count."""
    if isinstance(array, Watched) and array.watch is not None:
        for i in np.unique(places).tolist():
            at, frame = array.address(i), sys._getframe(1)
            array.watch.look_for_race(here(), array, at, i, 0, None, frame)


def write(array: Any, i: Any, values: Sequence[Any], frame: FrameType) -> None:
    """array[i], array[i + 1], ... = values by one instruction, the one of `frame`."""
    if isinstance(array, Watched) and array.watch is not None:
        array.watch.on_use(array, i, len(values), values, frame)
    for k, value in enumerate(values):
        np.ndarray.__setitem__(array, i + k, value)


def _by_atomic() -> bool:
    """Whether an array is used by an atomic operation of the simulator."""
    return sys._getframe(3).f_globals.get("__name__", "").endswith("kernelapi")


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
