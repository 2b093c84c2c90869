"""When tests of this folder run: on a GPU, or in Numba's simulator.

Without either they are skipped, but for those that only compile. The normal suite runs
this folder in a second process with the simulator (test_in_simulator.py), and beside it
tests of other folders on the device "cuda". Of those a few combinations of parameters
are enough there (`thinned`).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from helpers import SIMULATED
from minitorch.cuda import is_available

COMPILE_ONLY = ("test_compile.py", "test_inspect.py", "test_in_simulator.py")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    usable = is_available()
    for item in items:
        if HERE not in item.path.parents:
            continue
        if item.path.name in COMPILE_ONLY:
            if SIMULATED:
                item.add_marker(pytest.mark.skip(reason="the simulator cannot compile"))
            continue
        item.add_marker(pytest.mark.cuda)
        if not usable:
            item.add_marker(
                pytest.mark.skip(
                    reason="no GPU, and NUMBA_ENABLE_CUDASIM is not 1 here"
                )
            )
    if SIMULATED:
        left_out = thinned(items)
        config.hook.pytest_deselected(items=left_out)


def thinned(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take out tests of other folders that bring no value of a parameter anew.

    A test of 5 layouts, 2 dtypes and 4 shapes is run 5 times then, not 40 times: each
    layout, each dtype and each shape comes once. Returns what was taken out.
    """
    seen: dict[str, set[tuple[str, str]]] = defaultdict(set)
    left_out: list[pytest.Item] = []
    for item in items:
        call = getattr(item, "callspec", None)
        if HERE in item.path.parents or call is None:
            continue
        if call.params.get("device", call.params.get("backend")) != "cuda":
            continue
        known = seen[item.nodeid.partition("[")[0]]
        values = {(name, repr(value)) for name, value in call.params.items()}
        if values <= known:
            left_out.append(item)
        known |= values
    gone = set(map(id, left_out))
    items[:] = [item for item in items if id(item) not in gone]
    return left_out
