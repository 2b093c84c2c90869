"""The handouts' pictures are what their programs draw, and can be read by all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from xml.etree import ElementTree

import pytest

from assignments import catalog
from assignments.pictures import programs, said
from assignments.pictures.tables import TABLE, anew
from minitorch.scenes import part, render

SVG = "{http://www.w3.org/2000/svg}"
WITHOUT = (
    "numba-cuda is not installed; all but pictures of simulated kernels were tried"
)


@pytest.mark.extras
def test_each_picture_is_what_its_program_draws():
    done = subprocess.run(
        [sys.executable, "-m", "assignments.pictures", "--check"],
        cwd=catalog.LIBRARY,
        env={**os.environ, "PYTHONPATH": str(catalog.LIBRARY)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (
        f"{done.stdout}{done.stderr}\n`python -m assignments.pictures` draws them again"
    )
    if not find_spec("numba_cuda"):
        pytest.skip(WITHOUT)


@pytest.mark.extras
def test_each_picture_is_shown_and_each_that_is_shown_is_drawn():
    shown = set(said())
    there = {*catalog.FOLDER.glob("a*_*/*.svg"), *catalog.LIBRARY.glob("docs/*/*.svg")}
    assert there == shown >= set(programs())
    if not find_spec("numba_cuda"):
        pytest.skip(WITHOUT)
    assert shown == set(programs())


def test_pictures_have_text_fit_a_page_and_know_dark_ones():
    for path, text in said().items():
        root = ElementTree.parse(path).getroot()
        title = root.find(f"{SVG}title")
        assert title is not None and title.text == text and len(text) > 40, path
        assert path.stat().st_size <= 20_000 and float(root.attrib["width"]) <= 830, (
            path
        )
        assert "prefers-color-scheme:dark" in (root.findtext(f"{SVG}style") or "")


def test_a_scene_is_drawn_as_written_and_its_text_is_escaped():
    cells = [[["<1>", 1], None], [["2", -1], ["", 3]]]
    text = render([[part("grid", "a & b", cells=cells, rows=["x", "y"])]], "a < b")
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert words == ["a & b", "<1>", "2", "x", "y"]
    assert root.findtext(f"{SVG}title") == "a < b"
    fills = [e.attrib["class"] for e in root.iter(f"{SVG}path")]
    assert fills == ["kn", "k1", "k3"]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_each_rung_of_the_pages_tables_is_in_their_pictures(device):
    page = (catalog.LIBRARY / "docs" / f"bench_{device}.md").read_text()
    for row, ladder in (("matmul", "matmul"), ("sum", "reduce")):
        path = catalog.LIBRARY / "docs" / "pictures" / f"ladder_{ladder}_{device}.svg"
        words = [text.text for text in ElementTree.parse(path).iter(f"{SVG}text")]
        rungs = re.findall(rf"^\| {row}_(\w+)(?:: WRONG RESULT)? \|", page, re.M)
        assert len(rungs) >= 5 and {n.replace("_", " ") for n in rungs} <= {*words}


def test_a_quoted_row_is_that_of_the_page_or_an_error():
    page = (catalog.LIBRARY / "docs" / "bench_cpu.md").read_text()
    (row,) = re.findall(r"^\| relu 1e7 \|.*\n", page, re.M)
    text = "<!-- rows of docs/bench_cpu.md -->\n| what | ours |\n| --- | --- |\n"
    assert TABLE.sub(anew, f"{text}| relu 1e7 | old |\n") == text + row
    with pytest.raises(ValueError, match="has no row 'gone' any more"):
        TABLE.sub(anew, f"{text}| gone | 1 |\n")
