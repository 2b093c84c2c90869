"""Children of fork() on a GPU; tests/test_fork.py has the simulator."""

from __future__ import annotations

import os
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest
from forked import in_child

import minitorch
from helpers import SIMULATED

pytest.importorskip("numba_cuda")
from cuda_ops.runtime import device

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def test_the_error_of_a_child_says_what_to_do(monkeypatch: Any) -> None:
    class Result(IntEnum):
        CUDA_ERROR_NOT_INITIALIZED = device.NOT_INITIALIZED

    fake = SimpleNamespace(
        cuGetErrorName=lambda code: (0, code.name.encode()),
        cuGetErrorString=lambda code: (0, b"initialization error"),
    )
    monkeypatch.setattr(device, "driver", lambda: fake)
    message = r"CUDA_ERROR_NOT_INITIALIZED.* fork\(\).*get_context\(\"spawn\"\)"
    with pytest.raises(device.CudaError, match=message):
        device.raise_error(Result(device.NOT_INITIALIZED), "a launch")


@pytest.mark.skipif(SIMULATED, reason="needs a GPU, not the simulator")
def test_a_child_cannot_use_the_gpu_of_its_parent() -> None:
    x = minitorch.ones(1000, device="cuda")
    x.sum().item()

    def child() -> None:
        for use in (
            lambda: x + 1,
            lambda: x.numpy(),
            lambda: minitorch.zeros(10**8, device="cuda"),
        ):
            with pytest.raises(RuntimeError, match=r"get_context\(\"spawn\"\)"):
                use()
                minitorch.cuda.synchronize()
        assert minitorch.ones(1000).sum().item() == 1000

    assert in_child(child) == 0
    assert x.sum().item() == 1000
