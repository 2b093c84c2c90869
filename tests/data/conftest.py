"""Fixtures for the tests of data sets and loaders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

Threads = Callable[[], list[threading.Thread]]


@pytest.fixture
def threads() -> Threads:
    """The loaders' threads that this test started and that still run. (One of a test
    before may still be ending.)"""

    def running() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name == "minitorch-prefetch"]

    others = running()
    return lambda: [t for t in running() if t not in others]


@pytest.fixture
def wait_until_no_threads(threads: Threads) -> Callable[[], None]:
    """Waits until none of them runs; fails if that takes a minute."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while threads() and time.monotonic() < deadline:
            time.sleep(0.005)
        assert threads() == []

    return wait
