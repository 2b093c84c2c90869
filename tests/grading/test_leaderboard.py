"""`minitorch leaderboard`: a page from graded results, in which nothing is a tag."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from assignments import catalog
from assignments.grading import batch, leaderboard
from assignments.grading.examine import PASSED, Result
from assignments.grading.grade import Graded, Report
from minitorch.cli.app import app

A3 = catalog.load("a3")
EVIL = "<script>alert(1)</script>&\"'"
SPEEDS = {"ada": (12.3456, 0.61), "bob": (4.4312, None), EVIL.replace("/", ""): (5, 2)}


@pytest.fixture
def grades(tmp_path):
    """The results of three submissions, and of one without a speed."""
    for number, (name, (ratio, limit)) in enumerate(SPEEDS.items()):
        found = [
            Result("a3.5", "matmul", "cpu", PASSED, 1.0, ratio=ratio, limit=limit),
            Result("a3.5", "sum", "cpu", PASSED, 1.0, ratio=1.25),
            Result("a3.1", "map", "cpu", PASSED, 1.0),
        ]
        write(tmp_path / name, f"{number}" * 32, found)
    write(tmp_path / "dora", "e" * 32, [])
    return tmp_path


def write(folder, digest, results):
    graded = Graded(A3.task("a3.5"), 4.0, tuple(results))
    batch.write(Report(A3, folder.name, digest, "limits", (graded,)), folder)


class Reader(HTMLParser):
    """Texts of cells, and which tags are open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")
        assert not {"src", "href"} & dict(attributes).keys()  # nothing is loaded

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open:
            self.cells[-1] += data


def make(grades, *options):
    out = grades / "page.html"
    result = CliRunner().invoke(
        app, ["leaderboard", str(grades), "--out", str(out), *options]
    )
    assert result.exit_code == 0, result.output
    return out.read_text(encoding="utf-8")


def test_the_fastest_comes_first(grades):
    page = Reader(make(grades))
    assert not page.open and "script" not in page.tags
    rows = [page.cells[i : i + 5] for i in range(0, len(page.cells), 5)]
    evil = EVIL.replace("/", "")
    assert rows[:3] == [
        ["1", "ada", "", "12.35", "61%"],
        ["2", evil, "", "5.00", "200%"],
        ["3", "bob", "", "4.43", ""],
    ]
    assert [row[0] for row in rows[3:]] == ["1", "1", "1"]  # equal speeds
    assert page.tags.count("section") == 2


def test_names_can_be_left_out(grades):
    text = make(grades, "--anonymous")
    assert "ada" not in text and "bob" not in text and "alert" not in text
    assert ">000000<" in text and ">111111<" in text


def test_results_without_speed_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="has a measured speed"):
        leaderboard.read(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps({"extra_data": []}))
    with pytest.raises(ValueError, match="is no result"):
        leaderboard.read(tmp_path)
