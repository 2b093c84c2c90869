"""What `minitorch bench` draws: each rung has its name, and its own units' limit."""

from __future__ import annotations

import json
from math import log10
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from minitorch.bench import ladder, roofline
from minitorch.bench.report import Limits, Result
from minitorch.cli.bench import _write
from minitorch.scenes import render, write

SVG = "{http://www.w3.org/2000/svg}"
LIMITS = Limits(60e12, 4e12, 4e12, 0.0, tensor=480e12)


def rung(name: str, ours: float, tensor: bool = False, **more: Any) -> Result:
    """2e12 operations on 1e10 bytes; PyTorch takes 40 ms."""
    about = {"family": "matmul", "goal": 1.0, "flops": 2e12, "bytes": 1e10} | more
    share = 2e12 / ours / (480e12 if tensor else 60e12)
    return Result(
        name=name, ours=ours, torch=0.04, ratio=ours / 0.04, share=share, rounds=1,
        discarded=0, tensor=tensor, **about,
    )  # fmt: skip


RUNGS = [
    rung("matmul_naive", 4.0),
    rung("matmul_tiled", 0.101),
    rung("matmul_coarsened", 0.1),
    rung("matmul_racy", 0.1, wrong=True),
    rung("matmul_tensor_core", 0.01, tensor=True),
]


def words(scene: Any) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(render(json.loads(json.dumps(scene)), "a picture"))
    return {text.text or "": text for text in root.iter(f"{SVG}text")}


def test_a_ladder_has_the_limit_of_each_rungs_units() -> None:
    _, (bars,) = ladder(RUNGS, LIMITS)
    rows = {row[0]: row for row in bars["rows"]}
    assert list(rows) == ["naive", "tiled", "coarsened", "racy", "tensor core"]
    _, [[speed, _]], [theirs, limit], texts = rows["tensor core"]
    assert speed == pytest.approx(200) and theirs[0] == pytest.approx(50)
    assert limit[0] == pytest.approx(480) and texts == ["200", "42 %"]
    assert rows["naive"][2][1][0] == pytest.approx(60)
    assert rows["racy"][1][0][1] == -1 and rows["racy"][3][1] == "wrong"
    assert bars["end"] >= 480


def test_a_roofline_has_both_roofs_and_names_each_rung() -> None:
    others = [rung("1024 x 1024", 0.05), rung("conv", 0.1, family="conv", bytes=1e12)]
    (legend,), (steps,), (rest,) = roofline(others, RUNGS, LIMITS)
    kinds = [item[0] for item in legend["items"]]
    assert kinds == ["matmul", "matmul on tensor cores", "conv", "hollow: PyTorch"]
    roofs = [one for one in steps["series"] if one.get("text")]
    assert [one["text"] for one in roofs] == ["60 TFLOP/s", "480 TFLOP/s"]
    for one, peak in zip(roofs, (60e12, 480e12)):
        ridge = one["points"][1]
        assert ridge == pytest.approx([log10(peak / 4e12), log10(peak)])
        assert one["dash"] == (peak > 60e12)
    assert len([one for one in rest["series"] if one.get("text")]) == 1
    for x, y in (p for one in steps["series"] for p in one["points"]):
        assert steps["x"][0] <= x <= steps["x"][1]
        assert steps["y"][0] <= y <= steps["y"][1]


def test_names_of_rungs_that_are_as_fast_stand_below_each_other() -> None:
    said = words(roofline([], RUNGS, LIMITS))
    places = [float(said[name].attrib["y"]) for name in ("coarsened 20", "tiled 19.8")]
    assert places[1] - places[0] >= 14
    assert "naive 0.5" in said and "tensor core 200" in said


def test_what_has_no_operations_is_in_no_roofline(tmp_path: Path) -> None:
    sums = [rung("sum_serial", 0.1, family="reduce", flops=0.0)]
    assert roofline(sums, sums, LIMITS) == []
    _write(tmp_path, [], sums, LIMITS, {"gpu": "a GPU"})
    assert not (tmp_path / "roofline.svg").exists()
    root = ElementTree.parse(tmp_path / "ladder_reduce.svg").getroot()
    assert "serial" in [text.text for text in root.iter(f"{SVG}text")]


def test_a_picture_of_a_scene_is_an_svg_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ladder\.png.*call it .*ladder\.svg"):
        write(ladder(RUNGS, LIMITS), tmp_path / "ladder.png", "a ladder")
