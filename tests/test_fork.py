"""Children of fork(), and of other start methods, compute what their parent does."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest
from forked import in_child, large_work

from helpers import SIMULATED

# Python 3.12 and later warn of any fork() beside threads, as those of kernels are.
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
SIZES = {"cpu": 300, "mojo": 300}  # large enough for several threads


@pytest.fixture
def work(device: str) -> tuple[str, int]:
    """Arguments of `large_work`."""
    if device == "cuda" and not SIMULATED:
        pytest.skip("a GPU does not go along; tests/cuda/test_fork.py has its error")
    return device, SIZES.get(device, 12)


def test_a_child_computes_what_its_parent_does(work: tuple[str, int]) -> None:
    expected = large_work(*work)

    def child() -> None:
        for _ in range(3):
            assert large_work(*work) == expected

    assert in_child(child) == 0
    child()


def test_children_of_children(work: tuple[str, int]) -> None:
    expected = large_work(*work)

    def grandchild() -> None:
        assert large_work(*work) == expected

    def child() -> None:
        assert in_child(grandchild) == 0  # whose parent did not compute
        assert large_work(*work) == expected
        assert in_child(grandchild) == 0

    assert in_child(child) == 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool(method: Any, work: tuple[str, int]) -> None:
    expected = large_work(*work)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(large_work, [work] * 4) == [expected] * 4
