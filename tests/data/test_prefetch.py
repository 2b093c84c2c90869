"""The background thread: order, bounds, errors, and that it ends."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitorch.data.prefetch import Prefetcher

ROOT = Path(__file__).resolve().parents[2]


@given(items=st.lists(st.integers(), max_size=30), depth=st.integers(1, 5))
def test_same_items_in_the_same_order(items: list[int], depth: int) -> None:
    assert list(Prefetcher(iter(items), depth)) == items


def test_end_is_final() -> None:
    prefetcher = Prefetcher(iter([1]), 2)
    assert next(prefetcher) == 1
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(prefetcher)


@pytest.mark.parametrize("depth", [1, 3])
def test_never_more_than_depth_ahead(depth: int) -> None:
    made = 0

    def source() -> Iterator[int]:
        nonlocal made
        for i in range(100):
            made += 1
            yield i

    prefetcher = Prefetcher(source(), depth)
    for taken in range(5):
        # It works while nobody asks for items, ...
        deadline = time.monotonic() + 5
        while made < taken + depth and time.monotonic() < deadline:
            time.sleep(0.001)
        # ... and then it waits.
        time.sleep(0.01)
        assert made == taken + depth
        next(prefetcher)
    prefetcher.close()


def failing() -> Iterator[int]:
    yield 1
    raise KeyError("a broken sample")


def test_an_error_comes_after_the_items_before_it_with_its_traceback(
    wait_until_no_threads: Callable[[], None],
) -> None:
    prefetcher = Prefetcher(failing(), 4)
    assert next(prefetcher) == 1
    with pytest.raises(KeyError, match="a broken sample") as caught:
        next(prefetcher)
    frames = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "failing"
    with pytest.raises(StopIteration):
        next(prefetcher)
    wait_until_no_threads()


def test_exits_travel_too() -> None:
    def source() -> Iterator[int]:
        raise SystemExit(3)
        yield 0

    with pytest.raises(SystemExit):
        next(Prefetcher(source(), 1))


def test_an_abandoned_loop_ends_the_thread(
    wait_until_no_threads: Callable[[], None],
) -> None:
    for item in Prefetcher(iter(range(1000)), 2):
        if item == 3:
            break
    wait_until_no_threads()


def test_a_prefetcher_in_a_cycle_ends_its_thread_when_collected(
    wait_until_no_threads: Callable[[], None],
) -> None:
    holder: dict[str, object] = {}
    holder["prefetcher"] = Prefetcher(iter(range(1000)), 2)
    holder["self"] = holder
    dead = weakref.ref(holder["prefetcher"])  # type: ignore[arg-type]
    del holder
    gc.collect()
    assert dead() is None
    wait_until_no_threads()


def test_close_waits_and_may_be_repeated(
    threads: Callable[[], list[threading.Thread]],
) -> None:
    prefetcher = Prefetcher(iter(range(1000)), 2)
    prefetcher.close()
    assert threads() == []
    prefetcher.close()
    with pytest.raises(StopIteration):
        next(prefetcher)


def test_the_thread_keeps_no_item(wait_until_no_threads: Callable[[], None]) -> None:
    class Item:
        pass

    prefetcher = Prefetcher((Item() for _ in range(3)), 1)
    items = [weakref.ref(next(prefetcher)) for _ in range(3)]
    assert list(prefetcher) == []
    wait_until_no_threads()
    assert [item() for item in items] == [None] * 3


PROGRAM = """
import time
from minitorch.data.prefetch import Prefetcher
def source():
    for i in range(1000):
        yield i
        time.sleep({pause})
kept = Prefetcher(source(), 2)
print(next(kept))
"""


@pytest.mark.parametrize("pause", [0, 60])
def test_a_program_ends_though_the_thread_waits_or_works(pause: int) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(pause=pause)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert time.monotonic() - started < 30


def test_depth() -> None:
    with pytest.raises(ValueError, match="depth is 0"):
        Prefetcher(iter([]), 0)
