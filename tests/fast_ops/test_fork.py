"""Threads in children of fork(), and Python threads beside each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import in_child, large_work

from fast_ops import team

# Python 3.12 and later warn of any fork() beside threads, as OpenMP's are.
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
ROOT = Path(__file__).resolve().parents[2]


def same(expected: list[bytes]) -> None:
    for _ in range(3):
        assert large_work() == expected


def test_a_child_has_several_threads() -> None:
    large_work()

    def counted() -> None:
        large_work()
        assert len(os.listdir("/proc/self/task")) > 1

    if sys.platform == "linux" and team.parallel.NUM_THREADS > 1:
        assert in_child(counted) == 0


PROGRAM = """
import os
import sys
from concurrent.futures import ThreadPoolExecutor
import minitorch
from fast_ops import team, threads
from forked import in_child, large_work

def work(x):
    return ((x @ x).sum(0) + x.exp().sum(0)).numpy().tobytes()

def beside_each_other(x, expected):
    with ThreadPoolExecutor(3) as threads:
        assert set(threads.map(work, [x] * 15)) == {expected}

def forked():
    if layer == "workqueue" and sys.platform == "linux":  # one thread has started it
        assert len(os.listdir("/proc/self/task")) > 1
    beside_each_other(x, expected)

def anew():
    assert large_work() and threads.threading_layer() == layer
    assert team._state[team.QUEUE] == (layer == "workqueue")

where, layer = sys.argv[1:]
if where == "before the parent computes":
    assert in_child(anew) == 0
    anew()
else:
    x = minitorch.rand(300, 300)
    expected = work(x)
    assert threads.threading_layer() == layer
    if where == "in a child":
        assert in_child(forked) == 0
    beside_each_other(x, expected)
"""


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
@pytest.mark.parametrize(
    "where", ["in the parent", "in a child", "before the parent computes"]
)
def test_python_threads_beside_each_other(where: str, layer: str) -> None:
    """The workqueue alone would end a program whose threads enter it together."""
    if layer == "omp":
        pytest.importorskip("numba.np.ufunc.omppool")
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    env = {**os.environ, "NUMBA_THREADING_LAYER": layer, "PYTHONPATH": path}
    command = [sys.executable, "-c", PROGRAM, where, layer]
    subprocess.run(command, check=True, env=env, timeout=240)


def test_a_fork_while_the_queue_works_leaves_the_child_one_thread() -> None:
    """Its tasks are half given out then, and nobody comes to take them."""
    expected = large_work()

    def child() -> None:
        before = len(os.listdir("/proc/self/task"))
        same(expected)
        assert len(os.listdir("/proc/self/task")) == before

    try:
        team._state[team.BUSY] = 1
        assert in_child(child) == 0
    finally:
        team._state[team.BUSY] = 0
