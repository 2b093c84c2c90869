"""Kernels as they are compiled for a real GPU, without one: their PTX, run in NumPy.

The simulator runs the Python of kernels. What only compiled code shows is tried here:
types that a launch has no word for, that Numba cannot compile, or of which it makes
something else. `paper_operations.py` says how one debugs a kernel with it. Each test
has a process of its own, as in test_driver.py.

Three quarters of the time go to Numba and NVVM. `MINITORCH_PAPER="float64 bool" pytest
tests/cuda/test_on_paper.py` runs all operations for these dtypes, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda")
pytest.importorskip("cuda.bindings.nvjitlink")

HERE = Path(__file__).parent
ASKED = os.environ.get("MINITORCH_PAPER", "").split()
# What is not in `edges`: functions of numbers, and kernels of a few families.
FLOATS = (
    "operations float32 exp tanh erf sin pow remainder div rmod gelu where std "
    "nll_loss conv2d quantized_linear_of_four_bits"
)
HALVES = (
    "operations bfloat16 gelu sqrt add mean cross_entropy batch_norm "
    "scaled_dot_product_attention"
)


def on_paper(chip: str, scenarios: str) -> str:
    """What `paper_operations.py` prints of these, for a compute capability."""
    command = [sys.executable, str(HERE / "paper_operations.py"), *scenarios.split()]
    env = {**os.environ, "PAPER_CHIP": chip}
    result = subprocess.run(command, capture_output=True, text=True, env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not result.stderr, result.stderr
    return result.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("chip", "scenarios"),
    [
        ("9.0", "operations int8"),
        ("9.0", "edges"),
        ("8.0", f"faults + tensor_cores + {FLOATS} + {HALVES}"),
        *[("9.0", f"operations {dtype}") for dtype in ASKED],
    ],
)
def test_kernels_compute_what_pytorch_does(chip: str, scenarios: str) -> None:
    said = on_paper(chip, scenarios).splitlines()
    left_out = [line for line in said if "NOT RUN" in line]
    if left_out:
        pytest.skip(f"passed, without what is not run on paper: {'; '.join(left_out)}")
