"""When tests of this folder run: on a GPU, or in Numba's simulator.

Without either they are skipped, but for those that only compile, or have a driver on
paper. The normal suite runs this folder in another process with the simulator
(test_in_simulator.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import SIMULATED
from minitorch.cuda import is_available

NO_GPU = (
    "test_compile.py", "test_driver.py", "test_fused_compiles.py", "test_inspect.py",
    "test_in_simulator.py", "test_on_paper.py",
)  # fmt: skip
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    usable = is_available()
    for item in items:
        if HERE not in item.path.parents:
            continue
        if item.path.name in NO_GPU:
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


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch
