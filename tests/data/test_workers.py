"""Worker processes of a DataLoader: order, errors, seeds, and that none is left."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_data
from forked import in_child
from worker_data import Numbers

import minitorch
from minitorch.data import DataLoader, TensorDataset
from minitorch.data import workers as workers_module
from minitorch.utils.data import get_worker_info

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

METHODS = multiprocessing.get_all_start_methods()
QUICK = "fork" if "fork" in METHODS else "spawn"
with_methods = pytest.mark.parametrize("method", sorted({QUICK, "spawn"}))


@pytest.fixture(autouse=True)
def _none_is_left(few_objects: None) -> Any:
    yield
    gc.collect()
    assert multiprocessing.active_children() == []


def load(sample: Any = int, n: int = 20, method: str = QUICK, **options: Any) -> Any:
    options = {"batch_size": 2, "num_workers": 2, **options}
    return DataLoader(Numbers(n, sample), multiprocessing_context=method, **options)


def listed(loader: Any) -> list[Any]:
    return [
        [part.tolist() for part in batch] if isinstance(batch, list) else batch.tolist()
        for batch in loader
    ]


# ------------------------------------------------------------------ the same batches


@pytest.mark.parametrize("method", METHODS)
def test_same_batches_as_without_workers(method: str) -> None:
    plain = DataLoader(Numbers(20), 2, shuffle=True)
    assert listed(load(method=method, shuffle=True)) == listed(plain)


def test_epochs() -> None:
    options: Any = {"batch_size": 3, "shuffle": True, "drop_last": True, "seed": 4}
    loader, plain = load(**options), DataLoader(Numbers(20), **options)
    for _ in range(3):
        assert listed(loader) == listed(plain)


def test_any_number_of_workers_and_batches() -> None:
    for n, count, prefetch in [(0, 1, 2), (1, 3, 2), (7, 3, 0), (20, 3, 1), (9, 1, 4)]:
        loader = load(n=n, num_workers=count, prefetch=prefetch)
        assert listed(loader) == listed(DataLoader(Numbers(n), 2))


def test_the_default_method_and_prefetch_factor() -> None:
    loader = DataLoader(Numbers(9), 2, num_workers=2, prefetch_factor=3)
    assert loader.prefetch == 3
    assert listed(loader) == listed(DataLoader(Numbers(9), 2))


def test_tensors_and_large_batches() -> None:
    x = minitorch.rand(40, 30, 30)
    data = TensorDataset(x, minitorch.arange(40))
    loader = DataLoader(data, 16, num_workers=2)
    batches = list(loader)
    assert all(type(batch) is list for batch in batches)
    np.testing.assert_array_equal(
        np.concatenate([images.numpy() for images, _ in batches]), x.numpy()
    )
    large = load(worker_data.large_at_once, 12, prefetch_factor=4)
    assert [batch[1, 0, 0].item() for batch in large] == [1, 3, 5, 7, 9, 11]


@with_methods
def test_workers_compute_what_the_parent_does(method: str) -> None:
    """Large operations, after the parent's threads have started."""
    expected = [worker_data.large_product(i).tolist() for i in range(6)]
    loader = load(worker_data.large_product, 6, method)
    assert [row for batch in listed(loader) for row in batch] == expected


def test_a_restored_loader_delivers_what_was_left() -> None:
    loader = load(shuffle=True)
    running = iter(loader)
    for _ in range(3):
        next(running)
    state = loader.state_dict()
    assert state["batches"] == 3
    left = [batch.tolist() for batch in running]
    after = listed(loader)
    for persistent in (False, True):
        other = load(shuffle=True, seed=9, persistent_workers=persistent)
        next(iter(other))
        other.load_state_dict(state)
        assert listed(other) == left
        assert listed(other) == after


# --------------------------------------------------------------------------- errors


@with_methods
def test_an_error_comes_after_the_batches_before_it(method: str) -> None:
    running = iter(load(worker_data.fails_at_5, method=method))
    assert [next(running).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="sample 5") as caught:
        next(running)
    assert "in fails_at_5" in str(caught.value.__cause__)
    with pytest.raises(StopIteration):
        next(running)


def test_errors_that_cannot_be_sent_and_stray_stops() -> None:
    with pytest.raises(RuntimeError, match="Odd: odd one") as caught:
        listed(load(worker_data.fails_oddly))
    assert "in fails_oddly" in str(caught.value.__cause__)
    with pytest.raises(RuntimeError, match="StopIteration"):
        listed(load(worker_data.stops))


@with_methods
def test_a_worker_that_dies(method: str) -> None:
    with pytest.raises(RuntimeError, match=r"worker 0 \(process \d+\) .* exit code 7"):
        listed(load(worker_data.dies_at_5, method=method))


def test_a_worker_that_is_killed_between_epochs() -> None:
    loader = load(persistent_workers=True)
    first = listed(loader)
    child = multiprocessing.active_children()[0]
    child.kill()
    child.join()
    with pytest.raises(RuntimeError, match="exit code -9"):
        listed(loader)
    assert listed(loader) == first  # with new ones


def test_a_worker_that_takes_too_long(monkeypatch: Any) -> None:
    monkeypatch.setattr(workers_module, "PATIENCE", 0.1)
    with pytest.raises(RuntimeError, match=r"no batch in 0\.5 seconds"):
        listed(load(worker_data.sleeps, timeout=0.5))


# ------------------------------------------------------------------ what workers know


@with_methods
def test_each_worker_knows_itself(method: str) -> None:
    assert get_worker_info() is None
    batches = listed(load(worker_data.about_worker, method=method, num_workers=3))
    assert [ids[0] for ids, _, _ in batches] == [i % 3 for i in range(10)]
    assert {count for _, counts, _ in batches for count in counts} == {3}
    processes = {process for _, _, many in batches for process in many}
    assert len(processes) == 3 and os.getpid() not in processes


def test_random_numbers_differ_by_worker_and_epoch_and_repeat() -> None:
    def epochs(seed: int) -> list[Any]:
        loader = load(worker_data.random_numbers, 8, batch_size=1, seed=seed)
        return [listed(loader) for _ in range(2)]

    made = epochs(1)
    numbers = [number for epoch in made for batch in epoch for [number] in batch]
    assert len(set(numbers)) == len(numbers)
    assert made == epochs(1) and made != epochs(2)


def test_worker_init_fn() -> None:
    loader = load(worker_data.level, 4, worker_init_fn=worker_data.set_level)
    assert listed(loader) == [[10, 10], [11, 11]]


def test_a_worker_init_fn_that_fails() -> None:
    with pytest.raises(ZeroDivisionError, match="no start"):
        listed(load(worker_init_fn=worker_data.broken_start))


# --------------------------------------------------------------------- ends of workers


@with_methods
def test_persistent_workers_stay(method: str) -> None:
    loader = load(worker_data.about_worker, method=method, persistent_workers=True)
    first = listed(loader)
    for _ in loader:
        break  # what was asked for and not taken is not delivered later
    assert listed(loader) == first
    assert len(multiprocessing.active_children()) == 2


def test_persistent_workers_serve_one_loop_at_a_time() -> None:
    loader = load(persistent_workers=True)
    older, newer = iter(loader), iter(loader)
    assert next(newer).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="a newer loop"):
        next(older)
    assert next(newer).tolist() == [2, 3]


def test_two_loops_at_once() -> None:
    loader = load(shuffle=True)
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(loader, loader)]
    plain = DataLoader(Numbers(20), 2, shuffle=True)
    assert [a for a, _ in pairs] == listed(plain)
    assert [b for _, b in pairs] == listed(plain)


@pytest.mark.parametrize("sample", [int, worker_data.large_at_once])
def test_leaving_early_ends_the_workers_though_the_loader_lives(sample: Any) -> None:
    """A worker may be waiting for its answer to be taken."""
    loader, other = load(sample, 200), load(sample, 200, persistent_workers=True)
    for _ in loader:
        next(iter(other))
        break
    gc.collect()
    assert len(multiprocessing.active_children()) == 2  # those of `other`
    iter(loader)  # never begun
    gc.collect()
    assert len(multiprocessing.active_children()) == 2


@pytest.mark.skipif("fork" not in METHODS, reason="this system has no fork()")
def test_a_child_of_fork_starts_workers_of_its_own() -> None:
    loader = load(persistent_workers=True)
    expected = listed(loader)
    running = iter(loader)
    next(running)

    def child() -> None:
        with pytest.raises(RuntimeError, match="begin a new loop here"):
            next(running)
        assert listed(loader) == expected
        loader._kept.close()

    assert in_child(child) == 0
    assert listed(loader) == expected


PROGRAM = """
import multiprocessing, sys, time
from minitorch.data import DataLoader
from worker_data import Numbers
if __name__ == "__main__":
    loader = DataLoader(Numbers(1000), num_workers=2, persistent_workers=True,
                        multiprocessing_context=sys.argv[1])
    for batch in loader:
        break
    print(*(p.pid for p in multiprocessing.active_children()), flush=True)
    if sys.argv[2] == "wait":
        time.sleep(600)
    if sys.argv[2] == "fail":
        raise SystemExit(3)
"""


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or ") Z " not in stat.read_text()
    return False


@pytest.mark.parametrize("end", ["fail", "wait"])
@with_methods
def test_no_worker_outlives_the_program(method: str, end: str, tmp_path: Path) -> None:
    """Whether it ends by itself or is killed."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    running = subprocess.Popen(
        [sys.executable, str(program), method, end],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    children = [int(word) for word in running.stdout.readline().split()]
    assert len(children) == 2
    if end == "wait":
        running.kill()
    status = {"fail": 3, "wait": -signal.SIGKILL}[end]
    assert running.wait(60) == status
    running.stdout.close()
    deadline = time.monotonic() + 60
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))


# ------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "num_workers is -1; expected a whole number >= 0"),
        ({"num_workers": 1, "timeout": -1}, "timeout is -1; expected seconds"),
        ({"timeout": 3}, "timeout is for worker processes, and there are none"),
        ({"persistent_workers": True}, "persistent_workers is for worker processes"),
        ({"prefetch_factor": 2}, "prefetch_factor is for worker processes"),
        ({"multiprocessing_context": QUICK}, "multiprocessing_context is for worker"),
        ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor is 0; expected"),
        ({"num_workers": 1, "multiprocessing_context": "x"}, "'x'; expected one of"),
    ],
)
def test_refused_values(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(Numbers(3), **options)


def test_contexts_and_copies() -> None:
    context = multiprocessing.get_context("spawn")
    loader = DataLoader(Numbers(3), num_workers=1, multiprocessing_context=context)
    assert listed(loader) == [[0], [1], [2]]
    loader = load(persistent_workers=True)
    first = listed(loader)
    assert listed(pickle.loads(pickle.dumps(loader))) == first


def test_a_loader_without_workers_leaves_the_start_method_open() -> None:
    code = (
        "import multiprocessing\n"
        "from minitorch.data import DataLoader\n"
        "list(DataLoader([1, 2]))\n"
        "multiprocessing.set_start_method('spawn')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=env)
