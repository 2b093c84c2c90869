"""The caching allocator (without a GPU: on a make-believe driver), copies, plans."""

from __future__ import annotations

import gc
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from helpers import array_of, make, quick
from minitorch.backend.host.memory import merged
from minitorch.tensor_data import contiguous_strides, iter_positions

pytest.importorskip("numba_cuda")
from cuda_ops.memory import plan
from cuda_ops.runtime import allocator, device
from cuda_ops.runtime.allocator import (
    MEDIUM_SEGMENT,
    SMALL,
    SMALL_SEGMENT,
    UNIT,
    Block,
    Books,
    Driver,
    OutOfMemoryError,
    Pool,
)

MIB = 2**20


class PaperDriver(Driver):
    """A driver of a GPU with `total` bytes that only keeps books."""

    def __init__(self, total: int = 100 * MIB) -> None:
        self.total = total
        self.held: dict[int, int] = {}
        self.next = 1 << 30

    def allocate(self, size: int) -> int | None:
        if sum(self.held.values()) + size > self.total:
            return None
        pointer = self.next
        self.next += size
        self.held[pointer] = size
        return pointer

    def free(self, pointer: int) -> None:
        del self.held[pointer]

    def available(self) -> tuple[int, int]:
        return self.total - sum(self.held.values()), self.total


def paper_pool(total: int = 100 * MIB) -> Pool:
    return Pool(Books(PaperDriver(total)))


def test_small_requests_share_a_segment() -> None:
    pool = paper_pool()
    blocks = [pool.take(1000) for _ in range(10)]
    assert pool.reserved == SMALL_SEGMENT and pool.allocated == 10 * 1024
    pointers = [block.pointer for block in blocks]
    assert pointers == list(range(pointers[0], pointers[0] + 10 * 1024, 1024))


@pytest.mark.parametrize(
    "size, segment",
    [
        (1, SMALL_SEGMENT),
        (SMALL, SMALL_SEGMENT),
        (SMALL + 1, MEDIUM_SEGMENT),
        (10 * MIB - UNIT, MEDIUM_SEGMENT),
        (10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB),
    ],
)
def test_segments(size: int, segment: int) -> None:
    pool = paper_pool()
    pool.take(size)
    assert pool.reserved == segment


def test_a_freed_block_is_used_again() -> None:
    pool = paper_pool()
    first = pool.take(5000)
    pointer = first.pointer
    first.free_later()
    assert pool.take(4700).pointer == pointer  # both are 5120 bytes
    assert pool.in_use() == 5120 and pool.books.peak == 5120


def test_blocks_go_back_and_forth_without_new_memory() -> None:
    pool = paper_pool()
    kept, returned = pool.take(600), pool.take(600)
    for size in (600, 600, 5000, 600):  # the second fits what was given back last
        returned.free_later()
        returned = pool.take(size)
        assert returned is not kept and returned.size == -(-size // UNIT) * UNIT
    assert pool.in_use() == pool.books.allocated == 2 * 1024
    assert pool.reserved == SMALL_SEGMENT


def test_blocks_are_not_shared_between_streams() -> None:
    pool = paper_pool()
    block = pool.take(5000)
    block.free_later()
    assert pool.take(5000, stream=7).pointer != block.pointer
    assert pool.take(5000).pointer == block.pointer


def test_neighbours_merge_before_a_new_segment_is_taken() -> None:
    pool = paper_pool()
    for block in [pool.take(MIB // 2) for _ in range(4)]:
        block.free_later()
    assert pool.take(MIB).size == MIB and pool.reserved == SMALL_SEGMENT


def test_out_of_memory_gives_unused_segments_back_first() -> None:
    driver = PaperDriver(total=50 * MIB)
    pool = Pool(Books(driver))
    block = pool.take(30 * MIB)
    block.free_later()
    pool.take(40 * MIB)  # does not fit beside the 30
    assert pool.reserved == 40 * MIB == sum(driver.held.values())
    with pytest.raises(OutOfMemoryError) as raised:
        pool.take(20 * MIB)
    for part in (
        "20.0 MiB were asked",
        "10.0 MiB of 50.0 MiB are free",
        "use 40.0 MiB",
    ):
        assert part in str(raised.value)
    assert isinstance(raised.value, RuntimeError)


def test_empty_cache_keeps_what_is_in_use() -> None:
    driver = PaperDriver()
    pool = Pool(Books(driver))
    kept, freed = pool.take(20 * MIB), pool.take(30 * MIB)
    freed.free_later()
    pool.empty_cache()
    assert pool.reserved == 20 * MIB and pool.in_use() == kept.size
    kept.free_later()
    pool.empty_cache()
    assert (pool.reserved, pool.in_use(), driver.held) == (0, 0, {})


def test_out_of_memory_gives_segments_of_all_pools_back_first() -> None:
    driver = PaperDriver(total=100 * MIB)
    books = Books(driver)
    one, other, captured = Pool(books), Pool(books), Pool(books)
    captured.graphs = 1
    held = [pool.take(20 * MIB) for pool in (one, other, captured)]
    for block in held:
        block.free_later()
    assert one.take(70 * MIB).size == 70 * MIB
    assert (one.reserved, other.reserved) == (70 * MIB, 0)
    assert captured.reserved == 20 * MIB  # replays write there
    assert books.pools == [captured, one]


def test_the_error_counts_all_pools() -> None:
    books = Books(PaperDriver(total=100 * MIB))
    one, other, captured = Pool(books), Pool(books), Pool(books)
    captured.graphs = 1
    captured.take(10 * MIB).free_later()
    kept = [one.take(40 * MIB), other.take(30 * MIB), other.take(4 * MIB)]
    with pytest.raises(OutOfMemoryError) as raised:
        one.take(11 * MIB + 1)
    for part in (
        "11.0 MiB were asked for, which takes a segment of 12.0 MiB",
        "0.0 MiB of 100.0 MiB are free",
        "Tensors here use 74.0 MiB, and 100.0 MiB are held",
        "(10.0 MiB belong to CUDA graphs)",
        "26.0 MiB are cached",
    ):
        assert part in str(raised.value)
    assert books.allocated == sum(block.size for block in kept)


def test_nothing_is_given_back_while_a_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    books = Books(PaperDriver(total=50 * MIB))
    one, other = Pool(books), Pool(books)
    one.take(30 * MIB).free_later()
    monkeypatch.setattr(device.current, "capture", object())
    with pytest.raises(OutOfMemoryError):
        other.take(30 * MIB)
    monkeypatch.undo()
    other.take(30 * MIB)


def test_the_peak_is_that_of_all_pools_together() -> None:
    books = Books(PaperDriver())
    one, other = Pool(books), Pool(books)
    one.take(20 * MIB).free_later()
    other.take(30 * MIB).free_later()  # not at the same time
    assert books.peak == 30 * MIB
    first, second = one.take(10 * MIB), other.take(25 * MIB)
    assert books.peak == 35 * MIB
    first.free_later()
    assert books.memory_allocated() == second.size == 25 * MIB
    assert books.memory_reserved() == 50 * MIB
    books.reset_peak()
    assert books.peak == 25 * MIB
    second.free_later()
    books.empty_cache()
    assert books.memory_reserved() == 0 and not books.pools


@quick
@given(st.lists(st.tuples(st.integers(0, 3 * MIB), st.booleans()), max_size=60))
def test_blocks_never_overlap(steps: list[tuple[int, bool]]) -> None:
    pool = paper_pool(2**40)
    used: list[Block] = []
    for size, free in steps:
        used.append(pool.take(size))
        if free:
            used.pop(len(used) // 2).free_later()
        spans = sorted((b.pointer, b.pointer + b.size) for b in used)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert pool.in_use() == sum(b.size for b in used)
        assert all(b.pointer % UNIT == 0 and b.size % UNIT == 0 for b in used)
    for block in used:
        block.free_later()
    pool.empty_cache()
    assert pool.reserved == 0


# ------------------------------------------------------------ sizes that vary


@contextmanager
def steps_of_the_allocator() -> Iterator[Counter[str]]:
    """Count the lines of cuda_ops/runtime/allocator.py that are run."""
    count: Counter[str] = Counter()

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != allocator.__file__:
            return None
        count["lines"] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("largest", [SMALL, 64 * MIB])
def test_a_request_takes_few_steps_after_100_000_sizes(largest: int) -> None:
    """Whatever has been there before: 20 blocks are in use, of sizes that vary."""
    pool, live = paper_pool(2**40), deque[Block]()
    sizes = np.random.default_rng(0).permutation(100_000) * (largest / 100_000)
    peak = 0
    for number, some in enumerate(np.split(sizes.astype(int), 100), 1):
        counted = number % 10 == 0  # which takes most of the time
        with steps_of_the_allocator() if counted else nullcontext({}) as count:
            for size in some.tolist():
                live.append(pool.take(size))
                if len(live) > 20:
                    live.popleft().free_later()
        assert not counted or count["lines"] / len(some) < 150
        peak = max(peak, pool.in_use())
    for bins in pool.bins.values():
        assert bins.sizes == sorted(bins.by_size) and len(bins.sizes) < 5000
    assert pool.reserved < 3 * peak + MEDIUM_SEGMENT


def test_sizes_that_do_not_come_again_are_forgotten() -> None:
    """Also where no search comes past them: each block is found at the first look."""
    pool = paper_pool(2**40)
    for size in range(10 * MIB, 10 * MIB + 20_000 * UNIT, UNIT):
        pool.take(size).free_later()
        pool.in_use()  # into its bin, and out again
        pool.take(size).free_later()
        if pool.reserved > 2**33:
            pool.empty_cache()
    (bins,) = pool.bins.values()
    assert len(bins.sizes) == len(bins.by_size) < 5000


def test_many_holes_do_not_make_a_request_slower() -> None:
    """Free blocks that cannot be merged are looked at once, not at each request."""
    pool = paper_pool(2**40)
    blocks = [pool.take(UNIT) for _ in range(50_000)]
    for block in blocks[::2]:
        block.free_later()
    pool.in_use()
    with steps_of_the_allocator() as count:
        kept = [pool.take(SMALL) for _ in range(2000)]
    assert count["lines"] / len(kept) < 200


class Allocations(RuleBasedStateMachine):
    """Any order of requests and returns, on two streams, from two pools.

    One pool belongs to a graph: its segments stay.
    """

    @initialize()
    def begin(self) -> None:
        self.driver = PaperDriver(total=200 * MIB)
        self.books = Books(self.driver)
        self.pools = Pool(self.books), Pool(self.books)
        self.pools[1].graphs = 1
        self.live: list[tuple[Block, int]] = []

    @rule(
        nbytes=st.one_of(st.integers(0, 3 * MIB), st.integers(0, 80 * MIB)),
        stream=st.integers(0, 1),
        which=st.integers(0, 1),
    )
    def take(self, nbytes: int, stream: int, which: int) -> None:
        try:
            block = self.pools[which].take(nbytes, stream)
        except OutOfMemoryError as error:
            free, _ = self.driver.available()
            assert f"{free / MIB:,.1f} MiB of 200.0 MiB are free" in str(error)
            used = sum(block.size for block, _ in self.live)
            assert f"use {used / MIB:,.1f} MiB" in str(error)
        else:
            assert block.size >= nbytes and block.bins.stream == stream
            self.live.append((block, which))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.live) - 1))
        self.live.pop(place)[0].free_later()

    @rule()
    def empty_cache(self) -> None:
        self.books.empty_cache()
        for bins in self.pools[0].bins.values():
            free = [block for found in bins.by_size.values() for block in found]
            for block in free:  # else its segment would be gone, or it be larger
                beside = [b for b in (block.before, block.after) if b is not None]
                assert beside and not any(b.free for b in beside)

    @invariant()
    def no_byte_is_used_twice(self) -> None:
        spans = sorted((b.pointer, b.pointer + b.size) for b, _ in self.live)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        used = sum(block.size for block, _ in self.live)
        assert self.books.memory_allocated() == used <= self.books.peak

    @invariant()
    def every_byte_is_in_one_block(self) -> None:
        for pool in self.pools:
            for pointer, size, first in pool.segments:
                block: Block | None = first
                while block is not None:
                    assert block.pointer == pointer and block.pool is pool
                    found = block.bins.by_size.get(block.size, {})
                    assert block.free == (block in found)
                    assert block.after is None or block.after.before is block
                    pointer, size = pointer + block.size, size - block.size
                    block = block.after
                assert size == 0

    def teardown(self) -> None:
        while self.live:
            self.live.pop()[0].free_later()
        self.pools[1].graphs = 0
        self.books.empty_cache()
        assert not self.driver.held and not self.books.pools
        assert self.books.memory_allocated() == 0


Allocations.TestCase.settings = settings(quick, stateful_step_count=40)
TestAllocations: Any = Allocations.TestCase


def test_statistics_of_tensors() -> None:
    import minitorch

    gc.collect()
    before = minitorch.cuda.memory_allocated()
    minitorch.cuda.reset_peak_memory_stats()
    x = minitorch.zeros(100, 30, device="cuda")
    held = minitorch.cuda.memory_allocated() - before
    assert held in (0, 12_288)  # nothing in the simulator
    del x
    assert minitorch.cuda.memory_allocated() == before
    assert minitorch.cuda.max_memory_allocated() >= before + held
    minitorch.cuda.empty_cache()


# --------------------------------------------------------------------------- plans

dims = st.lists(st.sampled_from((1, 2, 3, 5)), max_size=6).map(tuple)


@quick
@given(dims, st.data())
def test_a_plan_visits_the_same_elements(shape: tuple[int, ...], data: Any) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    strides = tuple(contiguous_strides(tuple(shape[i] for i in order)))
    strides = tuple(strides[order.index(i)] for i in range(len(shape)))
    way = plan(shape, strides)
    visited = [
        position
        for sizes, (offset,) in way.launches
        for position in iter_positions(sizes, way.strides[0], offset)
    ]
    assert visited == list(iter_positions(shape, strides, 0))


def test_dimensions_merge() -> None:
    dims = zip((2, 3, 5), zip((15, 5, 1), (0, 0, 1)))
    assert merged(dims) == [(6, (5, 0)), (5, (1, 1))]
    assert merged(zip((4, 1, 7), zip((7, 0, 1)))) == [(28, (1,))]


def test_a_plan_for_more_elements_than_32_bits_count() -> None:
    way = plan((2**20, 2**13), (1, 2**20))
    assert len(way.launches) == 8
    assert sum(int(np.prod(sizes)) for sizes, _ in way.launches) == 2**33
    assert {offset for _, (offset,) in way.launches} == {k * 2**17 for k in range(8)}


def test_slices_share_memory() -> None:
    a = make(np.arange(10, dtype=np.float32), "cuda")
    part = a.slice(0, 2, 3)
    assert array_of(part).tolist() == [2, 3, 4]
    from minitorch.backend import get_backend

    get_backend("cuda").copy_into(part, make(np.full(3, 9, np.float32), "cuda"))
    assert array_of(a).tolist() == [0, 1, 9, 9, 9, 5, 6, 7, 8, 9]
