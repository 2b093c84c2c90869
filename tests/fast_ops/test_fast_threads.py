"""How many threads kernels use, and the disk cache of kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from fast_ops import launch, threads


def test_set_and_get() -> None:
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(1)
        assert threads.get_num_threads() == 1
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("n", [0, -1, 10**6])
def test_numbers_out_of_range(n: int) -> None:
    with pytest.raises(ValueError, match="NUMBA_NUM_THREADS"):
        threads.set_num_threads(n)


def test_other_types() -> None:
    with pytest.raises(TypeError, match="expected an int"):
        threads.set_num_threads(1.0)  # type: ignore[arg-type]


def test_layer_has_a_name() -> None:
    assert threads.threading_layer() in ("omp", "tbb", "workqueue")


def test_a_notice_where_only_workqueue_exists(monkeypatch: Any) -> None:
    monkeypatch.setattr(threads, "has_fast_threads", lambda: False)
    with pytest.warns(RuntimeWarning, match="workqueue"):
        threads.warn_if_slow()
    monkeypatch.setattr(threads, "has_fast_threads", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads.warn_if_slow()


@pytest.mark.parametrize("said, spins", [({}, 3000), ({"GOMP_SPINCOUNT": "77"}, 77)])
def test_threads_that_wait_spin_for_a_moment(said: dict[str, str], spins: int) -> None:
    """And no longer, so that programs can share cores; unless someone says how long."""
    pool = pytest.importorskip("numba.np.ufunc.omppool")
    if pool.openmp_vendor != "GNU":
        pytest.skip(f"the OpenMP here is {pool.openmp_vendor}'s; expected GNU's")
    code = "import os, fast_ops.backend; print(os.environ.get('GOMP_SPINCOUNT'))"
    waits = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {k: v for k, v in os.environ.items() if k not in waits}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env={**environment, **said, "OMP_DISPLAY_ENV": "verbose"},
    )  # fmt: skip
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr
    assert done.stdout.strip() == str(said.get("GOMP_SPINCOUNT"))  # left as it was


def test_import_compiles_nothing() -> None:
    code = (
        "import fast_ops.backend, numba.core.dispatcher as d, gc\n"
        "made = [x for x in gc.get_objects() if isinstance(x, d.Dispatcher)]\n"
        "ours = [x for x in made if x.py_func.__module__.startswith('fast_ops')]\n"
        "assert ours and not any(x.overloads for x in ours)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_kernels_are_kept_apart_by_function_and_kind() -> None:
    def template(fn: Any) -> Any:
        def loop(a: Any, out: Any) -> None:
            for i in range(out.size):
                out[i] = fn(a[i])

        return loop

    def double(x: float) -> float:
        return x + x

    serial = launch.specialize(template, double)
    assert launch.specialize(template, double) is serial
    assert launch.specialize(template, double, True) is not serial


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
@pytest.mark.parametrize(
    "given, before, threads",
    [
        ({}, "", "1 1"),
        ({"NUMBA_NUM_THREADS": "1"}, "", "1 1"),
        ({}, "import numba", "1 1"),
        ({}, "import numba; numba.set_num_threads(2)", "None 2"),
    ],
)
def test_ranks_of_a_machine_share_its_cores(
    given: Any, before: str, threads: str
) -> None:
    """Also if Numba was there first; not if its threads have started."""
    text = f"""
import os
{before}
import fast_ops, numba
numba.config.reload_config()
print(os.environ.get("NUMBA_NUM_THREADS"), min(2, numba.config.NUMBA_NUM_THREADS))
"""
    known = {k: v for k, v in os.environ.items() if k != "NUMBA_NUM_THREADS"}
    known |= {"LOCAL_WORLD_SIZE": "4096", **given}
    run = [sys.executable, "-c", text]
    assert subprocess.check_output(run, env=known, text=True).strip() == threads


BENCH = """
from minitorch.bench import run

run.machine_limits = lambda: run.Limits(1.0, 1.0, 1.0, 1.0)
run.bench_on("cpu", 1)
print(*{line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_bench_leaves_pytorch_its_own_openmp() -> None:
    """With that of the system its exp takes 4 ms in place of 70 us, and we shine."""
    words = [sys.executable, "-c", BENCH]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    own = [*Path(torch.__file__).parent.glob("lib/libgomp*")]
    assert not own or any(str(path) in found for path in own), found
