"""Calls from Python into Mojo: arguments, errors, threads, and fork()."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import loaded

PROBE = """
from bridge import Arguments, Buffer, Object, done, integer, load_some, store_some
from parallel import Kernel, Team, parallel_for


@export
def weigh(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    var scaled = Float64(arguments.integer(0)) * arguments.number(1)
    return integer(Int(scaled) + arguments.text(2).byte_length() + 1000 * count)


@export
def last_elements(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    var a = arguments.buffer[DType.float32](0)
    var n = arguments.integer(1)
    store_some[DType.float32, 16](a, 0, n, 2 * load_some[DType.float32, 16](a, 0, n))
    return done()


@fieldwise_init
struct Mark(Kernel):
    var a: Buffer[DType.int64]
    var bad: Int

    def run(self, task: Int) raises:
        if task == self.bad:
            raise Error("task " + String(task) + " went wrong")
        for _ in range(100):
            self.a[task] += Int64(task)


@export
def mark(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    var a = arguments.buffer[DType.int64](0)
    var kernel = Mark(a, arguments.integer(2))
    parallel_for(Team(team), arguments.integer(1), kernel)
    return done()
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The functions of PROBE."""
    loaded("mojo")
    from mojo_ops import bridge, build

    file: Path = tmp_path_factory.mktemp("mojo") / "probe.mojo"
    file.write_text(PROBE)
    build.replaced["bridge_probe"] = file
    yield bridge.Library("bridge_probe")
    del build.replaced["bridge_probe"]


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """A number of threads."""
    from mojo_ops import bridge

    before = bridge.get_num_threads()
    bridge.set_num_threads(request.param)
    yield request.param
    bridge.set_num_threads(before)


def marked(kernels: Any, tasks: int, bad: int = -1) -> np.ndarray:
    a = np.zeros(tasks, np.int64)
    kernels.mark(a, tasks, bad)
    return a


def test_numbers_and_texts(kernels: Any) -> None:
    assert kernels.weigh(6, 7.5, "abc") == 45 + 3 + 3000


def test_wrong_arguments_are_errors(kernels: Any) -> None:
    with pytest.raises(TypeError):
        kernels.mark(np.zeros(3, np.int64), "three", -1)


def test_an_unknown_kernel(kernels: Any) -> None:
    with pytest.raises(AttributeError, match="no_such_kernel"):
        _ = kernels.no_such_kernel


@pytest.mark.parametrize("n", [0, 1, 15, 16])
def test_elements_behind_the_last_are_not_touched(kernels: Any, n: int) -> None:
    a = np.ones(20, np.float32)
    kernels.last_elements(a, n)
    assert (a == [2] * n + [1] * (20 - n)).all()


@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 1000])
def test_each_task_is_done_once(kernels: Any, threads: int, tasks: int) -> None:
    for _ in range(50):
        np.testing.assert_array_equal(marked(kernels, tasks), 100 * np.arange(tasks))


def test_an_error_in_a_task(kernels: Any, threads: int) -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError, match="task 57 went wrong"):
            marked(kernels, 100, bad=57)
        assert marked(kernels, 100)[99] == 9900


def test_python_threads_share_the_team(kernels: Any, threads: int) -> None:
    results: list[np.ndarray] = []

    def work() -> None:
        for _ in range(200):
            results.append(marked(kernels, 64))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 600
    assert all((r == 100 * np.arange(64)).all() for r in results)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_starts_its_own_threads(kernels: Any, threads: int) -> None:
    marked(kernels, 1000)  # the parent's threads have started
    child = os.fork()
    if child == 0:
        right = (marked(kernels, 1000) == 100 * np.arange(1000)).all()
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(marked(kernels, 1000), 100 * np.arange(1000))


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_a_number_of_threads_that_is_none(n: Any) -> None:
    loaded("mojo")
    from mojo_ops import bridge

    with pytest.raises(ValueError, match="set_num_threads"):
        bridge.set_num_threads(n)
