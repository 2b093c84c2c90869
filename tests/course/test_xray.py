"""`minitorch xray`, and the x-rays of `minitorch test`, with the sizes of a GPU."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
from course.solutions import WRONG, Wrong, reference, with_mistake, write_files
from typer.testing import CliRunner

from assignments import catalog, workspace, xrays
from assignments.grading.examine import PASSED, UNWRITTEN, Result
from minitorch.cli import course
from minitorch.cli.app import app

pytest.importorskip("numba_cuda", reason="pip install -e '.[cuda13]'")

DOCS = Path(xrays.__file__).parents[1] / "docs"
MEASURED = DOCS.parent / "tests" / "cuda" / "measured"
FILE = """
import math
import numpy as np
from numba import cuda

@cuda.jit(device=True)
def half(x):
    return x * 0.5

@cuda.jit
def shift(a, out):
    i = cuda.grid(1)
    if i + 1 < a.shape[0]:
        a[i] = a[i + 1]
        out[i, 0] = math.sqrt(half(a[i]))

def xray():
    a, out = np.ones(1 << 12, np.float32), np.zeros((1 << 12, 4), np.float32)
    shift[16, 256](a, out)
"""


def invoke(*arguments: str) -> Any:
    runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, list(arguments))


def lines_of(scene: dict[str, Any]) -> list[dict[str, Any]]:
    return [line for function in scene["functions"] for line in function["lines"]]


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The scene of one of the library's kernels, as the command prints it."""
    where = ["--in", str(tmp_path_factory.mktemp("empty")), "--arch", "sm_80"]
    result = invoke("xray", "transpose_tiled", "--json", *where)
    assert result.exit_code == 0, result.output
    scene: dict[str, Any] = json.loads(result.output)
    return scene


def test_one_of_the_librarys_kernels(tiled: dict[str, Any]) -> None:
    assert tiled["kernel"] == "transpose_tiled[float32]"
    assert tiled["launch"]["blocks"] == [4096, 1, 1]
    (load,) = [x["shared load"] for x in lines_of(tiled) if "shared load" in x]
    assert (load["requests"], load["wavefronts"], load["ideal"]) == (96, 3072, 96)
    static = tiled["static"]
    assert static["static_shared_bytes"] == 4096 and static["spilled_bytes"] == 0
    assert 16 <= static["registers"] <= 64 and 0 < static["occupancy"] <= 1
    full = static["blocks_per_sm"] * static["sms"]
    assert static["waves"] == pytest.approx(4096 / full) and static["sms"] == 108


def test_the_program_that_compares_with_ncu(
    tiled: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With an ncu that says what it should, but for the turns of shared memory."""
    program = runpy.run_path(str(DOCS / "xray_ncu.py"))
    metrics = {**program["METRICS"], **program["MORE"]}
    warps = 2048 * 2048 // 32
    said = {
        "load requests": warps, "load sectors": 4 * warps, "store requests": warps,
        "store sectors": 4 * warps, "wavefronts": 34 * warps,
        "ideal wavefronts": 2 * warps, "registers": tiled["static"]["registers"],
        "occupancy": 100 * tiled["static"]["occupancy"], "copies": 0, "blocks": 4096,
    }  # fmt: skip
    head = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *metrics.values()))
    row = ",".join(f'"{n}"' for n in ("0", "tile_kernel", *(said[m] for m in metrics)))
    ncu = tmp_path / "ncu"
    ncu.write_text(f"#!/bin/sh\necho '{head}'\necho '\"\",\"\"'\necho '{row}'\n")
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(xrays, "scene_of", lambda *_: tiled)
    program["compare"]("transpose_tiled", program["ours"]("transpose_tiled", (8, 0)))
    differs = [x for x in capsys.readouterr().out.splitlines() if "DIFFERS" in x]
    assert [line.split()[0] for line in differs] == ["wavefronts"]


@pytest.mark.parametrize(
    "name", ["sum_several", "softmax_two_passes", "matmul_vectorized"]
)
def test_xrays_are_what_ncu_measured(name: str) -> None:
    """On an H200; registers, and with them occupancy, are those of its compiler."""
    ours = runpy.run_path(str(DOCS / "xray_ncu.py"))["ours"](name, (9, 0))
    for what, count in json.loads((MEASURED / "ncu.json").read_text())[name].items():
        assert what in ("registers", "occupancy") or ours[what] == count


ROW = (
    "| {rung} | {load requests:,.0f}, {store requests:,.0f} | {load sectors:,.0f}, "
    "{store sectors:,.0f} | {wavefronts:,.0f} | {ideal wavefronts:,.0f} | "
    "{registers:g} | {occupancy:g} % |\n"
)


def test_the_pages_table_is_what_ncu_measured() -> None:
    page = (DOCS / "gpu_kernels.md").read_text()
    measured = json.loads((MEASURED / "ncu.json").read_text())
    ladders = runpy.run_path(str(DOCS / "xray_ncu.py"))["LADDERS"]
    rungs = [name for name in xrays.names() if name.startswith(ladders)]
    for rung in {*rungs} - {"sum_of_three"}:  # which is a puzzle
        assert ROW.format(rung=rung, **measured[rung]) in page


def test_races_are_those_of_racecheck() -> None:
    """A barrier is taken out of a copy of the library."""
    program = runpy.run_path(str(DOCS / "xray_races.py"))
    rows = json.loads((MEASURED / "races.json").read_text())
    assert all(row["xray"] == row["racecheck"] for row in rows)
    found = [
        program["judge"](c, False)["xray"] for c in program["cases"]("dot_product")
    ]
    known = [r["racecheck"] for r in rows if r["case"].startswith("dot_product ")]
    assert found == known == [False, True]


def test_a_kernel_of_ones_own(tmp_path: Path) -> None:
    """Numba's decorator, two dimensions, a race, float64 by accident."""
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    result = invoke("xray", f"{file}:shift", "--in", str(tmp_path))
    assert result.exit_code == 1  # it has a race
    said = " ".join(result.output.split())
    assert "a[i] = a[i + 1]" in said and "global load" in said and "16 sectors" in said
    assert "race in line 14" in said and "uses float64" in said and "mine.py:15" in said
    assert "registers a thread" in said and "not claimed: cache hits" in said


def test_a_command_that_fails(tmp_path: Path) -> None:
    result = invoke("xray", "nothing", "--in", str(tmp_path))
    assert result.exit_code == 1 and "there is no kernel 'nothing'" in result.output
    result = invoke("xray", "nothing.py:shift", "--in", str(tmp_path))
    assert result.exit_code == 1 and "there is no file nothing.py" in result.output


def test_every_task_names_kernels_that_can_be_looked_at() -> None:
    known = xrays.names()
    named = [k for one in catalog.load_all() for t in one.tasks for k in t.xray]
    assert set(named) <= set(known)
    assert {"transpose_padded", "adam_chunks", "bias_rows", "attention_tiled"} <= set(
        named
    )
    assert [len(t.xray) for t in catalog.load("a4w").tasks] == [1] * 10


def test_a_kernel_made_by_a_template_of_another_file_is_compiled() -> None:
    request = {
        "file": "",
        "module": "cuda_ops.elementwise",
        "kernel": "bias_rows[gelu]",
    }
    try:
        assert xrays._compiled_kernel(request).name == "bias_rows[gelu]"
    except RuntimeError as error:
        assert "in the simulator" in str(error)


def mistake(name: str) -> Wrong:
    return next(wrong for wrong in WRONG if wrong.name == name)


def edit(task: str, path: str, right: str, wrong: str) -> Wrong:
    text = f"RIGHT = {right!r}\nWRONG = {wrong!r}\n"
    return Wrong(f"{task}-edit", task, path, "a race", text)


RACES = {
    "transpose_padded": mistake("a4-transpose_without_barrier"),
    "matmul_tiled": mistake("a5-one_barrier"),
    "csr_row_a_warp": edit(
        "a7.2", "cuda_ops/ladders/sparse.py",
        "    if lane == 0 and i * n < out.size:\n        out[i] = total\n",
        "    if i * n < out.size:\n        out[i] = total + lane\n",
    ),
    "layer_norm_rows": edit(
        "a8.3", "cuda_ops/norm.py",
        "        variance = total_of(total, t, more_cells) / kind(n)\n",
        "        variance = total_of(total, t, cells) / kind(n)\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kernel", RACES)
def test_races_in_a_workspace_are_found(kernel: str, tmp_path: Path) -> None:
    wrong = RACES[kernel]
    write_files(wrong.assignment, tmp_path / "ws", with_mistake(wrong))
    scene = xrays.scene_of(kernel, workspace.read(tmp_path / "ws"))
    raced = [line for line in lines_of(scene) if "race" in line]
    assert raced, scene["error"]
    # In the student's file, but for what a function of the library's does for it.
    assert any(f["file"].startswith(str(tmp_path)) for f in scene["functions"])


def test_minitorch_test_shows_the_lines_of_a_student(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.create(catalog.load("a4"), tmp_path / "ws")
    place = workspace.read(tmp_path / "ws")
    task = place.assignment.task("a4.6")
    passed, nothing = (
        [Result(task.id, "", "cuda", status)] for status in (PASSED, UNWRITTEN)
    )
    course._look_inside(place, [(task, "cuda", nothing)], True)
    assert not capsys.readouterr().out
    course._look_inside(place, [(task, "cuda", passed)], False)
    assert "`minitorch xray sum_shuffle` shows" in capsys.readouterr().out
    for path, text in reference(place.assignment).items():
        (place.folder / path).write_text(text)
    course._look_inside(place, [(task, "cuda", passed)], True)
    said = " ".join(capsys.readouterr().out.split())
    assert "sum_shuffle_blocks: 512 blocks" in said and "theoretical occupancy" in said
