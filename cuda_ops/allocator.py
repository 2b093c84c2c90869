"""A caching allocator: GPU memory that is reused without asking the driver.

With this file one can take memory (`take`), see how much is in use and how much is held
(`memory_allocated`, `memory_reserved`), give unused memory back (`empty_cache`), and
let a block of code take its memory from a pool of its own (`use_pool`), as a CUDA graph
has to, whose memory must not be given to anybody else.

`cuMemAlloc` and `cuMemFree` wait for the GPU. So memory comes from the driver in large
segments, and is cut into blocks:

    a request of                 comes from a segment of
    up to 1 MiB                  2 MiB, shared by many
    up to 10 MiB                 20 MiB
    more                         its own size, in multiples of 2 MiB

Sizes are multiples of 512 bytes. A block that is no longer used goes to a bin of blocks
of its size, where the next request of that size finds it with one look-up: the same
sizes come again at every training step. Neighbouring free blocks are merged only when a
request would otherwise need a new segment.

A free block is reused on the stream that it was taken on, and only there. Work on one
stream happens in order, so nobody has to wait until kernels that still use the old
contents are done.

Source: the ideas are those of PyTorch's CUDA caching allocator (PyTorch documentation,
"CUDA semantics", memory management), with the merging put off.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from cuda_ops import device

UNIT = 512  # sizes are multiples of this many bytes
SMALL = 2**20  # the largest request that shares a small segment
SMALL_SEGMENT = 2 * 2**20
MEDIUM = 10 * 2**20  # the largest request that shares a medium segment
MEDIUM_SEGMENT = 20 * 2**20
ROUND = 2 * 2**20  # larger segments are multiples of this


class OutOfMemoryError(RuntimeError):
    """The GPU has too little free memory."""


class Driver:
    """Where segments come from; tests put another one in its place."""

    def allocate(self, size: int) -> int | None:
        """The address of `size` new bytes, None if there are too few."""
        device.require_device()
        with device.between_captures():
            code, pointer = device.driver().cuMemAlloc(size)
            if int(code) == device.INVALID_CONTEXT:  # the first call in this thread
                device.activate()
                code, pointer = device.driver().cuMemAlloc(size)
        if int(code) == 2:  # CUDA_ERROR_OUT_OF_MEMORY
            return None
        if code:
            device.raise_error(code, f"taking {size} bytes of GPU memory")
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Give a segment back; waits for the GPU."""
        with device.between_captures():
            device.call("freeing GPU memory", device.driver().cuMemFree, pointer)

    def available(self) -> tuple[int, int]:
        """Free bytes and all bytes of the GPU."""
        return device.call("asking for free memory", device.driver().cuMemGetInfo)

    def stream(self) -> int:
        """What tells the current stream from others."""
        return device.current.key


class Block:
    """A piece of a segment. Its neighbours are linked, for merging."""

    __slots__ = ("after", "before", "bins", "free", "pointer", "pool", "size")

    def __init__(self, pool: Pool, bins: Bins, pointer: int, size: int) -> None:
        self.pool = pool
        self.bins = bins
        self.pointer = pointer
        self.size = size
        self.free = False
        self.before: Block | None = None
        self.after: Block | None = None

    def free_later(self) -> None:
        """Called when the array is gone, which may be at any moment, in any thread."""
        self.pool.returned.append(self)


class Bins:
    """Free blocks by size, of one stream and of small or large segments."""

    def __init__(self, least_rest: int) -> None:
        self.by_size: dict[int, dict[Block, None]] = {}
        self.sizes: list[int] = []  # those that ever had blocks, in order
        self.least_rest = least_rest  # what is cut off a block is at least this large

    def put(self, block: Block) -> None:
        """Add a free block."""
        found = self.by_size.get(block.size)
        if found is None:
            found = self.by_size[block.size] = {}
            insort(self.sizes, block.size)
        block.free = True
        found[block] = None

    def remove(self, block: Block) -> None:
        """Take this block out."""
        del self.by_size[block.size][block]
        block.free = False

    def exact(self, size: int) -> Block | None:
        """A block of just this size, the one that was put last."""
        found = self.by_size.get(size)
        if not found:
            return None
        block, _ = found.popitem()
        block.free = False
        return block

    def fitting(self, size: int) -> Block | None:
        """The smallest block of at least this size, cut to it if worth while."""
        for place in range(bisect_left(self.sizes, size), len(self.sizes)):
            block = self.exact(self.sizes[place])
            if block is not None:
                if block.size - size >= self.least_rest:
                    self._cut(block, size)
                return block
        return None

    def _cut(self, block: Block, size: int) -> None:
        rest = Block(block.pool, self, block.pointer + size, block.size - size)
        block.size = size
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        self.put(rest)


class Pool:
    """Segments, and who uses which part of them.

    Attributes:
        allocated, reserved: bytes in use, and bytes of all segments.
        peak: the most bytes that were in use.
        graphs: how many CUDA graphs use the memory. They do so at each replay, also
            where no tensor is left, so segments stay as long as there are any.
    """

    def __init__(self, driver: Driver | None = None) -> None:
        self.driver = driver or Driver()
        self.returned: deque[Block] = deque()
        self.segments: list[tuple[int, int, Block]] = []  # address, bytes, first block
        self.bins: dict[tuple[int, bool], Bins] = {}
        self.allocated = self.reserved = self.peak = 0
        self.graphs = 0
        self.lock = Lock()

    def take(self, nbytes: int) -> Block:
        """Memory for `nbytes`, not initialized.

        Raises:
            OutOfMemoryError: the GPU has not so much left.
        """
        size = (nbytes + UNIT - 1) // UNIT * UNIT or UNIT
        with self.lock:
            if self.returned:
                self._collect()
            key = (self.driver.stream(), size <= SMALL)
            bins = self.bins.get(key)
            if bins is None:
                bins = self.bins[key] = Bins(UNIT if size <= SMALL else SMALL)
            block = bins.exact(size) or bins.fitting(size) or self._search(bins, size)
            self.allocated += block.size
            if self.allocated > self.peak:
                self.peak = self.allocated
            return block

    def _collect(self) -> None:
        """Put the blocks that were given back into their bins."""
        returned = self.returned
        while returned:
            block = returned.popleft()
            self.allocated -= block.size
            block.bins.put(block)

    def _search(self, bins: Bins, size: int) -> Block:
        """Merge free neighbours; else take a new segment."""
        self._merge()
        found = bins.fitting(size)
        if found is None:
            self._grow(bins, size)
            found = bins.fitting(size)
        assert found is not None
        return found

    def _merge(self) -> None:
        for _, _, block in self.segments:
            while block.after is not None:
                after = block.after
                if not (block.free and after.free):
                    block = after
                    continue
                block.bins.remove(block)
                block.bins.remove(after)
                block.size += after.size
                block.after = after.after
                if after.after is not None:
                    after.after.before = block
                block.bins.put(block)

    def _grow(self, bins: Bins, size: int) -> None:
        """A new segment that holds a block of `size`."""
        if size <= SMALL:
            wanted = SMALL_SEGMENT
        elif size < MEDIUM:
            wanted = MEDIUM_SEGMENT
        else:
            wanted = (size + ROUND - 1) // ROUND * ROUND
        pointer = self.driver.allocate(wanted)
        if pointer is None:
            self._release_free()
            pointer = self.driver.allocate(wanted)
        if pointer is None:
            raise OutOfMemoryError(self._too_little(size, wanted))
        block = Block(self, bins, pointer, wanted)
        self.segments.append((pointer, wanted, block))
        self.reserved += wanted
        bins.put(block)

    def _too_little(self, size: int, wanted: int) -> str:
        free, total = self.driver.available()
        return (
            f"the GPU is out of memory: {_mib(size)} were asked for, which takes a "
            f"segment of {_mib(wanted)}; {_mib(free)} of {_mib(total)} are free. "
            f"Tensors here use {_mib(self.allocated)}, and {_mib(self.reserved)} are "
            f"held. Use a smaller batch, delete tensors that are not needed (del x), "
            f"or run without gradients (no_grad) where none are needed"
        )

    def _release_free(self) -> None:
        """Give segments of which nothing is used back to the driver."""
        if self.graphs:
            return
        self._merge()
        kept = []
        for pointer, size, block in self.segments:
            if block.free and block.size == size:
                block.bins.remove(block)
                self.driver.free(pointer)
                self.reserved -= size
            else:
                kept.append((pointer, size, block))
        self.segments = kept

    def empty_cache(self) -> None:
        """Give all segments of which nothing is used back to the driver."""
        with self.lock:
            self._collect()
            self._release_free()

    def in_use(self) -> int:
        """Bytes of blocks that are in use."""
        with self.lock:
            self._collect()
            return self.allocated


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


class _Current:
    """The pool that memory is taken from."""

    __slots__ = ("pool",)

    def __init__(self) -> None:
        self.pool = Pool()


MAIN = _Current()  # the pool that everything comes from, but for `use_pool`
DEFAULT = MAIN.pool
_pools = [DEFAULT]


def take(nbytes: int) -> Block:
    """Memory for `nbytes` from the current pool."""
    return MAIN.pool.take(nbytes)


@contextmanager
def use_pool(pool: Pool) -> Iterator[None]:
    """Take memory from `pool` within the block; what was taken goes back there."""
    if pool not in _pools:
        _pools.append(pool)
    before, MAIN.pool = MAIN.pool, pool
    try:
        yield
    finally:
        MAIN.pool = before


@contextmanager
def outside_graphs() -> Iterator[None]:
    """Take memory that no replay of a graph that is being captured writes to.

    A graph's pool hands out again what was given back earlier in the capture; a replay
    would overwrite what has to outlast it.
    """
    with use_pool(DEFAULT):
        yield


def release_pool(pool: Pool) -> None:
    """Forget a pool of `use_pool`, and give its unused segments back."""
    pool.empty_cache()
    if pool in _pools and not pool.segments:
        _pools.remove(pool)


def memory_allocated() -> int:
    """Bytes that tensors use."""
    return sum(pool.in_use() for pool in _pools)


def memory_reserved() -> int:
    """Bytes that are held for tensors, used or not."""
    return sum(pool.reserved for pool in _pools)


def max_memory_allocated() -> int:
    """The most bytes that tensors used at a time since the last reset."""
    memory_allocated()
    return sum(pool.peak for pool in _pools)


def reset_peak_memory_stats() -> None:
    """Let `max_memory_allocated` start from what is used now."""
    memory_allocated()
    for pool in _pools:
        pool.peak = pool.allocated


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver; waits for the GPU."""
    for pool in _pools:
        pool.empty_cache()
