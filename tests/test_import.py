"""What `import minitorch` costs, and what it must not bring along."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("numba", "torch", "typer", "rich", "matplotlib", "safetensors", "fast_ops")

PROBE = """
import sys, time
start = time.process_time()  # not the wall's: other work on the machine must not count
import numpy
middle = time.process_time()
import minitorch
print(middle - start, time.process_time() - start)
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


def run(code: str) -> str:
    kept = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # byte code, as for users
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=kept,
    )  # fmt: skip
    return done.stdout


def test_import_is_light():
    _, modules = run(PROBE).splitlines()
    assert not set(HEAVY) & set(modules.split())


def test_import_takes_less_than_twice_as_long_as_numpy():
    """About as long, 0.08 s; NumPy, which comes first, measures the machine."""
    times = [map(float, run(PROBE).splitlines()[0].split()) for _ in range(7)]
    numpy_alone, both = (min(column) for column in zip(*times))
    assert both < 3.0 * numpy_alone, f"NumPy took {numpy_alone:.3f} s of {both:.3f}"


@pytest.mark.parametrize("device", ["simple", "cpu"])
def test_a_backend_is_loaded_when_a_tensor_asks_for_it(device):
    loaded = run(
        "import sys, minitorch\n"
        f"minitorch.zeros(2, device={device!r})\n"
        "print('numba' in sys.modules, 'minitorch.simple_ops' in sys.modules)"
    )
    assert loaded.split() == [str(device == "cpu"), str(device == "simple")]


def test_nothing_imports_torch_but_the_tests():
    code = (
        "import sys, minitorch, minitorch.nn, minitorch.optim, minitorch.data\n"
        "import minitorch.train, minitorch.cli, minitorch.serialization\n"
        "import minitorch.distributed, minitorch.distributed.classroom\n"
        "import minitorch.distributed.fsdp, minitorch.distributed.optim\n"
        "x = minitorch.randn(3, requires_grad=True)\n"
        "minitorch.nn.Linear(3, 2)(x).sum().backward()\n"
        "print('torch' in sys.modules)"
    )
    assert run(code).strip() == "False"


def test_utils_data_needs_no_import_of_its_own():
    """`torch.utils.data.DataLoader` is spelled out in many programs; so are models."""
    names = "minitorch.utils.data.DataLoader.__name__, minitorch.models.GPT.__name__"
    code = f"import minitorch; print({names})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout.strip() == "DataLoader GPT", out.stderr
