"""A caching allocator: GPU memory that is reused without asking the driver.

With this file one can take memory of a GPU (`Pool.take`), see how much is in use and
how much is held (`Books.memory_allocated`, `memory_reserved`), give unused memory back
(`empty_cache`), and let a block of code take its memory from a pool of its own
(`use_pool`), as a CUDA graph has to, whose memory must not be given to anybody else.

`cuMemAlloc` and `cuMemFree` wait for the GPU. So memory comes from the driver in large
segments, and is cut into blocks:

    a request of                 comes from a segment of
    up to 1 MiB                  2 MiB, shared by many
    up to 10 MiB                 20 MiB
    more                         its own size, in multiples of 2 MiB

Sizes are multiples of 512 bytes. A block that is no longer used goes to a bin of blocks
of its size, where the next request of that size finds it with one look-up: the same
sizes come again at every training step. Often a request even fits the block that was
given back just before, which then changes hands without any books being kept. Other
requests look for the next larger size in a sorted list, by bisection, and cut off what
they do not need. Neighbouring free blocks are merged only when a request would
otherwise need a new segment, and only blocks that were put back since the last time are
looked at. So whatever sizes come, a request takes O(log n) steps on average, for n
sizes of free blocks (and a moment to move the tail of the list, which Python does as
one block of memory).

A free block is reused on the stream that it was taken on, and only there. Work on one
stream happens in order, so nobody has to wait until kernels that still use the old
contents are done.

When the GPU has no memory left, the unused segments of all pools are given back before
the request is refused.

Source: the ideas are those of PyTorch's CUDA caching allocator (PyTorch documentation,
"CUDA semantics", memory management), with the merging put off.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from cuda_ops.runtime import device

UNIT = 512  # sizes are multiples of this many bytes
SMALL = 2**20  # the largest request that shares a small segment
SMALL_SEGMENT = 2 * 2**20
MEDIUM = 10 * 2**20  # the largest request that shares a medium segment
MEDIUM_SEGMENT = 20 * 2**20
ROUND = 2 * 2**20  # larger segments are multiples of this


class OutOfMemoryError(RuntimeError):
    """The GPU has too little free memory."""


class Driver:
    """Where a GPU's segments come from; tests put another one in its place."""

    def __init__(self, gpu: device.Gpu) -> None:
        self.gpu = gpu

    def allocate(self, size: int) -> int | None:
        """The address of `size` new bytes, None if there are too few."""
        with device.on(self.gpu), device.between_captures():
            device.activate()  # torch may have left another GPU's context here
            code, pointer = device.driver().cuMemAlloc(size)
        if int(code) == 2:  # CUDA_ERROR_OUT_OF_MEMORY
            return None
        if code:
            device.raise_error(code, f"taking {size} bytes of GPU memory")
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Give a segment back; waits for the GPU."""
        with device.on(self.gpu), device.between_captures():
            device.call("freeing GPU memory", device.driver().cuMemFree, pointer)

    def available(self) -> tuple[int, int]:
        """Free bytes and all bytes of the GPU."""
        with device.on(self.gpu):
            return device.call("asking for free memory", device.driver().cuMemGetInfo)


class Block:
    """A piece of a segment. Its neighbours are linked, for merging.

    Attributes:
        free: whether it lies in its bins.
        loose: whether `Bins.merge` is going to look at it.
    """

    __slots__ = ("after", "before", "bins", "free", "loose", "pointer", "pool", "size")

    def __init__(self, pool: Pool, bins: Bins, pointer: int, size: int) -> None:
        self.pool = pool
        self.bins = bins
        self.pointer = pointer
        self.size = size
        self.free = self.loose = False
        self.before: Block | None = None
        self.after: Block | None = None

    def free_later(self) -> None:
        """Called when the array is gone, which may be at any moment, in any thread."""
        self.pool.returned.append(self)


class Bins:
    """Free blocks by size, of one stream and of small or large segments.

    A size stays when its last block is taken, since most come again, until a search
    comes past it or there are too many of them.
    """

    def __init__(self, stream: int, least_rest: int) -> None:
        self.stream = stream
        self.by_size: dict[int, dict[Block, None]] = {}
        self.sizes: list[int] = []  # the keys of `by_size`, in order
        self.most_sizes = 1024  # so many, and those without blocks go
        self.loose: list[Block] = []  # put back since the last merge
        self.least_rest = least_rest  # what is cut off a block is at least this large

    def put(self, block: Block) -> None:
        """Add a free block."""
        found = self.by_size.get(block.size)
        if found is None:
            found = self._new_size(block.size)
        found[block] = None
        block.free = True
        if not block.loose:
            block.loose = True
            self.loose.append(block)

    def _new_size(self, size: int) -> dict[Block, None]:
        if len(self.sizes) >= self.most_sizes:
            self.by_size = {size: b for size, b in self.by_size.items() if b}
            self.sizes = sorted(self.by_size)
            self.most_sizes = 2 * len(self.sizes) + 1024
        insort(self.sizes, size)
        found = self.by_size[size] = {}
        return found

    def fitting(self, size: int) -> Block | None:
        """The smallest block of at least this size, cut to it if worth while."""
        sizes, by_size = self.sizes, self.by_size
        place = end = bisect_left(sizes, size)
        while end < len(sizes) and not by_size[sizes[end]]:
            del by_size[sizes[end]]
            end += 1
        del sizes[place:end]
        if place == len(sizes):
            return None
        block, _ = by_size[sizes[place]].popitem()  # the one that was put last
        block.free = False
        if block.size - size >= self.least_rest:
            self._cut(block, size)
        return block

    def _cut(self, block: Block, size: int) -> None:
        rest = Block(block.pool, self, block.pointer + size, block.size - size)
        block.size = size
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        self.put(rest)

    def merge(self) -> None:
        """Make one block of free neighbours, everywhere.

        No two of the blocks that were left by the last merge are neighbours, so one of
        those put back since then is in every pair.
        """
        loose, self.loose = self.loose, []
        for block in loose:
            block.loose = False
            if not block.free:  # taken again, or part of another one by now
                continue
            first = block
            while first.before is not None and first.before.free:
                first = first.before
            if first.after is not None and first.after.free:
                self._join(first)

    def _join(self, first: Block) -> None:
        """Add all free blocks behind this one to it."""
        size = 0
        block: Block | None = first
        while block is not None and block.free:
            del self.by_size[block.size][block]
            block.free = False
            size += block.size
            block = block.after
        first.size, first.after = size, block
        if block is not None:
            block.before = first
        self.put(first)


class Books:
    """What the pools of one GPU share.

    Attributes:
        driver: where their segments come from.
        pools: those that have segments.
        allocated: bytes in use in all of them.
        peak: the most bytes that were in use.
        lock: for whoever takes memory or gives segments back, from any pool.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.pools: list[Pool] = []
        self.allocated = self.peak = 0
        self.lock = Lock()

    def new_peak(self) -> None:
        """More bytes than ever before may be in use."""
        self.collect()  # what was given back to another pool is not in use
        self.peak = max(self.peak, self.allocated)

    def collect(self) -> None:
        """Take note of all blocks that were given back."""
        for pool in self.pools:
            pool.collect()

    def release_free(self) -> None:
        """Give segments of which nothing is used back to the driver, from all pools."""
        self.collect()
        for pool in tuple(self.pools):
            pool.release_free()

    def memory_allocated(self) -> int:
        """Bytes that tensors use."""
        with self.lock:
            self.collect()
            return self.allocated

    def memory_reserved(self) -> int:
        """Bytes that are held for tensors, used or not."""
        return sum(pool.reserved for pool in tuple(self.pools))

    def reset_peak(self) -> None:
        """Let `peak` start from what is used now."""
        with self.lock:
            self.collect()
            self.peak = self.allocated

    def empty_cache(self) -> None:
        """Give memory that no tensor uses back to the driver; waits for the GPU."""
        with self.lock:
            self.release_free()

    def too_little(self, size: int, wanted: int) -> str:
        """The message of an `OutOfMemoryError`."""
        free, total = self.driver.available()
        reserved = self.memory_reserved()
        graphs = sum(pool.reserved for pool in self.pools if pool.graphs)
        kept = f" ({_mib(graphs)} belong to CUDA graphs)" if graphs else ""
        return (
            f"the GPU is out of memory: {_mib(size)} were asked for, which takes a "
            f"segment of {_mib(wanted)}; {_mib(free)} of {_mib(total)} are free. "
            f"Tensors here use {_mib(self.allocated)}, and {_mib(reserved)} are "
            f"held{kept}, so {_mib(reserved - self.allocated)} are cached in pieces "
            f"that do not fit. Use a smaller batch, delete tensors that are not needed "
            f"(del x), or run without gradients (no_grad) where none are needed"
        )


class Pool:
    """Segments, and who uses which part of them.

    Attributes:
        allocated, reserved: bytes in use, and bytes of all segments.
        graphs: how many CUDA graphs use the memory. They do so at each replay, also
            where no tensor is left, so segments stay as long as there are any.
    """

    def __init__(self, books: Books | None = None) -> None:
        self.books: Books = books or device.current.gpu.pool.books
        self.returned: deque[Block] = deque()
        self.segments: list[tuple[int, int, Block]] = []  # address, bytes, first block
        self.bins: dict[tuple[int, bool], Bins] = {}
        self.allocated = self.reserved = 0
        self.graphs = 0

    def take(self, nbytes: int, stream: int = 0) -> Block:
        """Memory for `nbytes`, not initialized, for work on the stream of this key.

        `deque.pop` is atomic, so the block that was given back last (or first) belongs
        to nobody else; and as it counts as used until `collect` sees it, no sum changes
        if it fits. So this needs no lock.

        Raises:
            OutOfMemoryError: the GPU has not so much left.
        """
        size = (nbytes + UNIT - 1) & -UNIT or UNIT
        books, returned = self.books, self.returned
        if returned:
            try:
                block = returned.pop()
                if block.size == size and block.bins.stream == stream:
                    return block
                returned.append(block)
                block = returned.popleft()  # an operation may have two results
                if block.size == size and block.bins.stream == stream:
                    return block
                returned.appendleft(block)
            except IndexError:  # another thread was faster
                pass
        with books.lock:
            if returned:
                self.collect()
            bins = self.bins.get((stream, size <= SMALL)) or self._new_bins(
                stream, size
            )
            found = bins.by_size.get(size)
            if found:
                block, _ = found.popitem()
                block.free = False
            else:
                block = bins.fitting(size) or self._search(bins, size)
            self.allocated += block.size
            books.allocated += block.size
            if books.allocated > books.peak:
                books.new_peak()
            return block

    def _new_bins(self, stream: int, size: int) -> Bins:
        """Bins for blocks of this size on a stream that had none."""
        bins = Bins(stream, UNIT if size <= SMALL else SMALL)
        self.bins[stream, size <= SMALL] = bins
        return bins

    def collect(self) -> None:
        """Put the blocks that were given back into their bins."""
        returned = self.returned
        while returned:
            try:
                block = returned.popleft()
            except IndexError:  # another thread has taken the last one
                return
            self.allocated -= block.size
            self.books.allocated -= block.size
            block.bins.put(block)

    def _search(self, bins: Bins, size: int) -> Block:
        """Merge free neighbours; else take a new segment."""
        bins.merge()
        found = bins.fitting(size)
        if found is None:
            self._grow(bins, size)
            found = bins.fitting(size)
        assert found is not None
        return found

    def _grow(self, bins: Bins, size: int) -> None:
        """A new segment that holds a block of `size`."""
        if size <= SMALL:
            wanted = SMALL_SEGMENT
        elif size < MEDIUM:
            wanted = MEDIUM_SEGMENT
        else:
            wanted = (size + ROUND - 1) // ROUND * ROUND
        books = self.books
        pointer = books.driver.allocate(wanted)
        if pointer is None and device.current.capture is None:
            books.release_free()
            pointer = books.driver.allocate(wanted)
        if pointer is None:
            raise OutOfMemoryError(books.too_little(size, wanted))
        if self not in books.pools:
            books.pools.append(self)
        block = Block(self, bins, pointer, wanted)
        self.segments.append((pointer, wanted, block))
        self.reserved += wanted
        bins.put(block)

    def release_free(self) -> None:
        """Give segments of which nothing is used back to the driver."""
        if self.graphs:
            return
        for bins in self.bins.values():
            bins.merge()
        kept = []
        for pointer, size, block in self.segments:
            if block.free and block.size == size:
                del block.bins.by_size[size][block]
                block.free = False
                self.books.driver.free(pointer)
                self.reserved -= size
            else:
                kept.append((pointer, size, block))
        self.segments = kept
        if not kept and self in self.books.pools:
            self.books.pools.remove(self)

    def empty_cache(self) -> None:
        """Give all segments of which nothing is used back to the driver."""
        with self.books.lock:
            self.collect()
            self.release_free()

    def in_use(self) -> int:
        """Bytes of blocks that are in use."""
        with self.books.lock:
            self.collect()
            return self.allocated


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _main_pool(gpu: device.Gpu) -> Pool:
    return Pool(Books(Driver(gpu)))


device.Gpu.parts["pool"] = _main_pool  # that all comes from, but for `use_pool`


@contextmanager
def use_pool(pool: Pool) -> Iterator[None]:
    """Take memory from `pool` within the block; what was taken goes back there."""
    before, device.current.pool = device.current.pool, pool
    try:
        yield
    finally:
        device.current.pool = before


@contextmanager
def outside_graphs() -> Iterator[None]:
    """Take memory that no replay of a graph that is being captured writes to.

    A graph's pool hands out again what was given back earlier in the capture; a replay
    would overwrite what has to outlast it.
    """
    with use_pool(device.current.gpu.pool):
        yield
