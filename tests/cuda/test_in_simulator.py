"""Run this folder, and other tests of the device "cuda", in Numba's simulator.

A process either simulates or does not, so the simulator gets three of its own. On CI
without a GPU these are what runs the kernels: the tests of this folder, those that all
backends share, and those of tensors, networks and optimizers. Of the last two kinds a
few combinations of parameters are enough here (`thinned` in tests/conftest.py), and
what takes the simulator longest is left out. On a GPU `pytest -m cuda` runs all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import SIMULATED

ROOT = Path(__file__).parents[2]
ATTENTION = ("tests/cuda/test_attention.py", "tests/backends/test_attention.py")
# Three processes, of which none takes much longer than another.
PARTS = {
    "attention": (*ATTENTION, "tests/cuda/test_decode.py"),
    "kernels": (
        "tests/cuda",
        *(f"--ignore={file}" for file in ATTENTION),
        "--ignore=tests/cuda/test_decode.py",
        "tests/test_autograd.py",
        "tests/test_compiler.py",
        "tests/test_dropout_residual_layer_norm.py",
        "tests/test_functions_fused.py",
        "tests/test_linear.py",
        "tests/test_nn_layers.py",
        "tests/test_nn_loss.py",
        "tests/test_optim.py",
        "tests/test_sparse.py",
    ),
    "tensors": (
        "tests/fuzz",
        "tests/test_backend_protocol.py",
        "tests/backends",
        "tests/serving/test_engine.py",
        *(f"--ignore={file}" for file in ATTENTION),
        "tests/test_in_place_views.py",
        "tests/test_operations.py",
        "tests/test_tensor_create.py",
        "tests/test_tensor_data.py",
        "tests/test_tensor_elementwise.py",
        "tests/test_tensor_index.py",
        "tests/test_tensor_matmul.py",
        "tests/test_tensor_movement.py",
        "tests/test_tensor_reduce.py",
    ),
}
# Names of tests on large inputs, and of reductions that differ from others only in the
# shape which the library gives the kernel's result.
LEFT_OUT = ("many_elements", "large", "keepdim")
# Gradients by differences, whose kernels run twice for each number of the input and are
# those of the other tests; and a few on matrices too large for a simulator.
TOO_LONG = (
    "tests/test_functions_fused.py::test_conv_gradients_by_differences",
    "tests/test_functions_fused.py::test_norm_gradients_by_differences",
    "tests/test_functions_fused.py::test_pool_gradients_by_differences",
    "tests/test_linear.py::test_backends_add_a_bias",
    "tests/test_linear.py::test_backends_add_a_bias_in_place",
    "tests/test_linear.py::test_backends_carry_a_gradient_through",
    "tests/test_linear.py::test_linear_twice",
    "tests/test_operations.py::test_differences",
    "tests/test_sparse.py::test_gradients_of_products",
    "tests/test_sparse.py::test_gradients_of_the_other_operations",
    "tests/test_sparse.py::test_products_at_the_edges",
)
OPTIONS = ("-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider")
SECONDS = 600  # about a minute and a half of one core


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.skipif(SIMULATED, reason="this is the simulator")
@pytest.mark.parametrize("part", PARTS)
def test_kernels_in_the_simulator(part: str, pytestconfig: pytest.Config) -> None:
    pytest.importorskip("numba_cuda", reason="pip install -e '.[cuda13]'")
    chosen = " and ".join(["cuda", *(f"not {name}" for name in LEFT_OUT)])
    left_out = [f"--deselect={test}" for test in TOO_LONG]
    seed = pytestconfig.getoption("randomly_seed", None)  # the same order each time
    order = [] if seed is None else [f"--randomly-seed={seed}"]
    result = subprocess.run(
        [sys.executable, *OPTIONS, *PARTS[part], "-k", chosen, *left_out, *order],
        cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


@pytest.mark.parametrize("test", TOO_LONG)
def test_what_is_left_out_exists(test: str) -> None:
    file, name = test.split("::")
    assert f"def {name}(" in (ROOT / file).read_text()
