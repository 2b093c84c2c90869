"""Mojo's kernels compile for NVIDIA GPUs, on a machine that has none, and fit the chip.

What can be said without a GPU: the PTX has a kernel for each launcher, the assembler
takes it, nothing is kept in local memory, and loads are as wide as they should be. What
the kernels compute is tested in `test_gpu_kernels.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import minitorch as mt

pytest.importorskip("numba_cuda", reason="pip install -e '.[cuda13]'")
from cuda_ops.runtime.compiler import to_cubin
from cuda_ops.runtime.occupancy import limits, occupancy
from cuda_ops.simulator import SIMULATED
from mojo_ops import build, gpu
from mojo_ops.gpu import compile as mojo
from mojo_ops.gpu.kernels import ALL, MojoKernel


def _missing() -> str:
    """Why nothing can be compiled here, or nothing."""
    if SIMULATED:
        return "the simulator cannot compile"
    try:
        mojo.check_compiler()
    except RuntimeError as error:
        return str(error)
    return ""


compiles = pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")


# ----------------------------------------------------------------- what is compiled


@compiles
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.entry)
def test_kernel_compiles_and_fits(kernel: MojoKernel) -> None:
    chip = (9, 0)
    made = to_cubin(kernel.ptx("", chip), chip, entry=kernel.entry)
    assert made.entry == kernel.entry
    assert made.spills == 0, f"{made.spills} bytes spilled"
    assert made.local == 0, f"{made.local} bytes of local memory"
    assert made.shared <= 48 * 1024
    assert made.shared <= limits(chip).block_shared
    assert occupancy(chip, kernel.threads, made.registers, made.shared).blocks >= 1


@compiles
@pytest.mark.timeout(600)
def test_compiles_for_an_older_chip() -> None:
    ptx = mojo.ptx("reduce", (8, 0))
    assert ".target sm_80" in ptx
    assert to_cubin(ptx, (8, 0), entry="sum_pieces").spills == 0


@compiles
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("entry", "instruction", "count"),
    [
        ("relu_large", "ld.global.v4", 4),
        ("relu_large", "st.global.v4", 4),
        ("add_large", "ld.global.v4", 4),
        ("sum_pieces", "shfl.sync", 8),
        ("matmul_pipelined_4", "cp.async.cg.shared.global", 12),
    ],
)
def test_instructions(entry: str, instruction: str, count: int) -> None:
    body = _body(entry)
    assert body.count(instruction) == count


@compiles
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.entry)
def test_no_float64(kernel: MojoKernel) -> None:
    assert not re.findall(r"\.f64\b", _body(kernel.entry))


def _body(entry: str) -> str:
    """The PTX of one kernel."""
    kernel = next(kernel for kernel in ALL if kernel.entry == entry)
    found = re.search(rf"\.entry {entry}\(.*?^\}}", kernel.ptx(), re.DOTALL | re.M)
    assert found, f"no kernel {entry}"
    return found.group()


# --------------------------------------------------------------------- the build


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MINITORCH_MOJO_CACHE", str(tmp_path))
    yield tmp_path


def test_ptx_in_the_cache_needs_no_compiler(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> Path:
        raise ModuleNotFoundError("the Mojo compiler is not installed", name="mojo")

    monkeypatch.setattr(build, "compiler", nothing)
    with pytest.raises(RuntimeError, match=r"mojo-gpu"):
        mojo.ptx("reduce")
    build.named(mojo.place("reduce"), b"the kernels").write_text("the kernels")
    assert mojo.ptx("reduce") == "the kernels"


def test_without_the_part_for_gpus(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = empty_cache / "modular" / "bin" / "mojo"
    monkeypatch.setattr(build, "compiler", lambda: program)
    with pytest.raises(RuntimeError, match=r"without max-core.*pip install.*mojo-gpu"):
        mojo.ptx("reduce")


def test_the_key_is_of_sources_and_chip(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mojo.sources("elementwise").keys() >= {
        "elementwise", "intrinsics", "operators", "scalar_math",
    }  # fmt: skip
    first = mojo.place("elementwise", (9, 0))
    assert first != mojo.place("elementwise", (8, 0))
    other = empty_cache / "operators.mojo"
    other.write_text("from scalar_math import exp\n")
    monkeypatch.setitem(build.replaced, "operators", other)
    assert first != mojo.place("elementwise", (9, 0))


@compiles
def test_an_error_in_a_source(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_cache / "broken.mojo").write_text("def f() -> Int:\n    return nothing\n")
    monkeypatch.setattr(mojo, "FOLDER", empty_cache)
    with pytest.raises(RuntimeError, match=r"broken\.mojo does not compile"):
        mojo.ptx("broken")
    assert not list(empty_cache.glob("*.ptx"))


# ------------------------------------------------------------- what is not accepted


@pytest.mark.skipif(SIMULATED, reason="there, no tensor is accepted")
def test_a_tensor_on_another_device() -> None:
    a = mt.ones(3, 3).raw
    for call in (gpu.relu, gpu.sum_all, lambda x: gpu.matmul(x, x)):
        with pytest.raises(ValueError, match=r'on "cpu".*\.to\("cuda"\)'):
            call(a)


def test_the_simulator_is_named() -> None:
    text = (
        "import minitorch as mt\n"
        "from mojo_ops import gpu\n"
        "try:\n"
        "    gpu.relu(mt.ones(3, device='cuda').raw)\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    run = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True
    )
    assert "simulator runs Python" in run.stdout, run.stderr
