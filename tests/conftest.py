"""What pytest sets up for all tests: `device`, their order, hypothesis profiles.

A test that takes `device` runs once on every installed device, and is skipped, with the
reason, on one that cannot be used here.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

import minitorch
from helpers import DEVICES, EXAMPLES, SIMULATED, loaded

HERE = Path(__file__).parent
CUDA = HERE / "cuda"
# Devices that need an extra; all tests in the folders of their names do, too.
EXTRAS = {"cuda", "mojo"}
# Folders of tests that check solutions as graders do, and of those that grade.
GRADERS = ("course", "grading")

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=EXAMPLES,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
settings.register_profile(
    "thorough",
    parent=settings.get_profile("ci"),
    derandomize=False,
    max_examples=500,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# Threads that wait for each other let others have the core. By default they spin, which
# costs more than the work itself where each of several workers has a thread a core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The programs of tests/fuzz: workers inherit what the first process has set.
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
os.environ.setdefault(
    "MINITORCH_FUZZ_SEED", f"{date.today():%Y%m%d}" if THOROUGH else "0"
)
# A shell's jobs in the background ignore Ctrl+C, and so would programs that tests stop.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So many GPUs has the simulator: tests/cuda/test_devices.py needs two.
os.environ.setdefault("MINITORCH_SIMULATED_GPUS", "2")


def pytest_report_header() -> str:
    """The seed of the fuzzer, to repeat its programs with."""
    return "fuzz: MINITORCH_FUZZ_SEED=" + os.environ["MINITORCH_FUZZ_SEED"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give each test the same random numbers, whichever tests ran before it."""
    minitorch.manual_seed(0)
    torch.manual_seed(0)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """The name of an installed device."""
    loaded(request.param)
    return request.param


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Mark what needs a device that is not everywhere, and put tests in order.

    What is slow starts first: with several processes the last one to end is then not
    far behind the others. The tests of graders come last. Their workers read kernels
    that other tests, and the course's, have compiled by then; what they compile, nobody
    reads after them.
    Apart from that the order is any (pytest-randomly), and the same in all processes,
    which take tests from the front (`--dist=load`).
    """
    for item in items:
        values = _params(item).values()
        if "cuda" in map(str, values):
            item.add_marker(pytest.mark.cuda)
        devices = {str(getattr(value, "device", value)) for value in values}
        if EXTRAS & {*devices, *item.path.parts[len(HERE.parts) :]}:
            item.add_marker(pytest.mark.extras)
    if SIMULATED:
        config.hook.pytest_deselected(items=thinned(items))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> tuple[int, bool]:
    """Tests with the lowest rank run first."""
    place = item.path.parts[len(HERE.parts)]
    late = GRADERS.index(place) + 1 if place in GRADERS else 0
    return late, item.get_closest_marker("slow") is None


def pytest_collection_finish() -> None:
    """Let the garbage collector search less, and less often.

    The tests themselves live to the end, and compilers make objects by the million.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture
def few_objects() -> None:
    """What there is by now is none of the objects that `gc` goes through, from now on:
    compilers leave so many that a search takes a second of a core."""
    gc.collect()
    gc.freeze()


def _params(item: pytest.Item) -> dict[str, Any]:
    """The values that a test gets for its parameters, by name."""
    call = getattr(item, "callspec", None)
    return {} if call is None else call.params


def thinned(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take out tests of the simulator that bring no value of a parameter anew.

    A test of 5 layouts, 2 dtypes and 4 shapes is run 5 times then, not 40 times: each
    layout, each dtype and each shape comes once. Those of tests/cuda are all kept.
    Returns what was taken out.
    """
    seen: dict[str, set[tuple[str, str]]] = defaultdict(set)
    left_out: list[pytest.Item] = []
    for item in items:
        params = _params(item)
        device = params.get("device", params.get("backend"))
        if device != "cuda" or CUDA in item.path.parents:
            continue
        known = seen[item.nodeid.partition("[")[0]]
        values = {(name, repr(value)) for name, value in params.items()}
        if values <= known:
            left_out.append(item)
        known |= values
    gone = set(map(id, left_out))
    items[:] = [item for item in items if id(item) not in gone]
    return left_out
