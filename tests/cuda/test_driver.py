"""The calls of the driver for several GPUs, on paper: no GPU, and not the simulator.

Each scenario of `tests/cuda/paper_driver.py` has a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda")
pytest.importorskip("cuda.bindings.nvjitlink")

HERE = Path(__file__).parent


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "scenario",
    "alone several copies streams outlasting fences buckets calls".split(),
)
def test_everything_is_used_where_it_belongs(scenario: str) -> None:
    command = [sys.executable, str(HERE / "paper_driver.py"), scenario]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not result.stderr, result.stderr
