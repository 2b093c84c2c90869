"""`minitorch inspect`: what it says about kernels; theoretical occupancy."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers import SIMULATED
from minitorch.cli.app import app

pytest.importorskip("numba_cuda")
from cuda_ops.runtime.occupancy import occupancy

pytest.importorskip("numba_cuda", reason="pip install -e '.[cuda13]'")


def invoke(*arguments: str) -> Any:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, ["inspect", *arguments])


def facts(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\s*(\S[^\n]*?)\s{2,}(\S.*?)\s*$", text, re.MULTILINE))


def test_a_kernel_with_vector_loads() -> None:
    result = invoke("zip_large[add]", "--arch", "sm_80")
    assert result.exit_code == 0, result.output
    found = facts(result.output)
    assert found["spilled bytes"] == "0"
    assert int(found["vector loads"]) >= 4 and int(found["vector stores"]) >= 2
    assert 10 < int(found["registers a thread"]) < 64
    assert "%, limited by" in found["occupancy"]


def test_list_and_ptx() -> None:
    names = invoke("--list").output.split("\n")
    assert {"zip_large[add]", "copy_strided"} <= set(names)
    assert ".visible .entry" in invoke("fill_flat", "--ptx").output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nothing"], "there is no kernel 'nothing'"),
        (["fill_flat", "--arch", "sm_35"], "sm_35 is not known"),
        (["fill_flat", "--arch", "new"], "--arch is 'new'"),
    ],
)
def test_errors(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert message in result.output + str(result.exception or "")


@pytest.mark.parametrize(
    "arch, threads, registers, shared, expected",
    [
        ((9, 0), 256, 32, 0, (8, 1.0, "threads")),
        ((9, 0), 256, 64, 0, (4, 0.5, "registers")),
        ((9, 0), 256, 32, 99 * 1024, (2, 0.25, "shared memory")),
        ((7, 5), 32, 16, 0, (16, 0.5, "blocks")),
        ((8, 0), 1024, 33, 0, (1, 0.5, "registers")),
        # 15,564 bytes with what the system takes: 15 blocks, but they come in 128s.
        ((9, 0), 128, 32, 14_540, (14, 0.875, "shared memory")),
        ((8, 6), 128, 32, 99 * 1024 + 1, (0, 0.0, "shared memory")),
        ((9, 0), 1024, 72, 0, (0, 0.0, "registers")),
        ((9, 0), 1056, 16, 0, (0, 0.0, "threads")),
    ],
)
def test_occupancy(
    arch: tuple[int, int], threads: int, registers: int, shared: int, expected: Any
) -> None:
    assert occupancy(arch, threads, registers, shared) == expected


def test_the_simulator_is_not_mistaken_for_a_compiler() -> None:
    if not SIMULATED:
        pytest.skip("about the simulator")
    assert "unset NUMBA_ENABLE_CUDASIM" in str(invoke("fill_flat").output)
