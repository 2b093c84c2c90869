"""Run this folder, and the backends' common tests, in Numba's simulator.

A process either simulates or does not, so the simulator gets one of its own. On CI
without a GPU this is what runs the kernels.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import SIMULATED

ROOT = Path(__file__).parents[2]
TESTS = ("tests/cuda", "tests/test_backends.py", "tests/test_backend_protocol.py")
# In the order of time: what the common tests ask of the simulator and what adds little
# there to the tests of this folder.
LEFT_OUT = ("many_elements", "large")
OPTIONS = ("-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider")
SECONDS = 2400  # a few minutes on two free cores


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.skipif(SIMULATED, reason="this is the simulator")
def test_kernels_in_the_simulator() -> None:
    pytest.importorskip("numba_cuda", reason="pip install 'minitorch[cuda13]'")
    chosen = " and ".join(["cuda", *(f"not {part}" for part in LEFT_OUT)])
    result = subprocess.run(
        [sys.executable, *OPTIONS, *TESTS, "-k", chosen],
        cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
