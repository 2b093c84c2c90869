"""Grading folders of submissions."""

from __future__ import annotations

import csv
import json
import os
import shutil
from dataclasses import replace

import pytest
from grading.hand_ins import FOREVER, SUM, Course
from grading.mini_course import (
    PATH,
    SOLUTION,
    UNTIMED,
    make_grader,
    write_file,
    write_solution,
)

from assignments.grading import batch, sandbox
from assignments.grading.intake import Intake
from assignments.grading.launch import descendants

CRASHING = SOLUTION.replace(
    "import numpy as np", "import ctypes\n\nimport numpy as np"
).replace("out = np.empty_like(x)", "ctypes.string_at(1)\n    out = np.empty_like(x)")
WAITING = SOLUTION.replace(
    "import numpy as np", "import threading\n\nimport numpy as np"
).replace("out = np.empty_like(x)", "threading.Event().wait()", 1)
FLOODING = SOLUTION.replace(
    "out = np.empty_like(x)", "while True:\n        print('x' * 9999)", 1
)
HALF = SOLUTION.replace("2 * x[i] + 1", "2 * x[i]")


def read_table(out):
    with open(out / batch.TABLE, newline="") as file:
        return list(csv.DictReader(file))


def test_resume_and_table(tmp_path):
    folder, out = tmp_path / "submissions", tmp_path / "grades"
    write_solution(folder / "ada")
    write_file(folder / "bob", HALF)
    shutil.make_archive(str(folder / "cleo"), "zip", folder / "ada")
    (folder / "notes.txt").write_text("no submission")
    grader = make_grader(assignment=UNTIMED)
    entries = batch.grade_all(grader, folder, out, jobs=2)
    assert [entry.name for entry in entries] == ["ada", "bob", "cleo.zip"]
    assert all(entry.again for entry in entries)
    rows = read_table(out)
    assert [row["points"] for row in rows] == ["10", "6", "10"]
    assert [row["a99.1"] for row in rows] == ["4", "0", "4"]
    assert json.loads((out / "bob" / batch.RESULTS).read_text())["score"] == 6.0
    write_solution(tmp_path / "better", note="second try")
    shutil.copytree(tmp_path / "better", folder / "bob", dirs_exist_ok=True)
    (out / "cleo.zip" / batch.STATE).write_text('{"mark": ')
    entries = batch.grade_all(make_grader(assignment=UNTIMED), folder, out)
    assert [entry.again for entry in entries] == [False, True, True]
    assert [row["points"] for row in read_table(out)] == ["10", "10", "10"]


def test_a_mistake_in_the_grader_costs_one_submission(tmp_path, monkeypatch):
    for name in ("a", "b"):
        write_solution(tmp_path / "s" / name)
    grader = make_grader(assignment=UNTIMED)
    honest = grader.grade_intake

    def grade(name, taken):
        if name == "a":
            raise ZeroDivisionError("a bug")
        return honest(name, taken)

    monkeypatch.setattr(grader, "grade_intake", grade)
    batch.grade_all(grader, tmp_path / "s", tmp_path / "g", jobs=2)
    first, second = read_table(tmp_path / "g")
    assert first["status"] == "the grader failed: ZeroDivisionError: a bug"
    assert second["points"] == "10"
    values = json.loads((tmp_path / "g" / "a" / batch.RESULTS).read_text())
    assert "ZeroDivisionError" not in values["output"]  # which is for the student
    assert "ZeroDivisionError" in values["extra_data"]["failure"]
    monkeypatch.setattr(grader, "grade_intake", honest)
    entries = batch.grade_all(grader, tmp_path / "s", tmp_path / "g")
    assert [entry.again for entry in entries] == [True, False]


def test_names_that_nobody_expects(tmp_path, monkeypatch):
    """Each has a folder of its own in the results, and a row that can be printed."""
    names = [
        "grades.csv",
        "a\nb",
        "a\rb",
        "x\x1b[31m",
        "=1+1",
        "\udcff\udcfe",
        "é" * 120,
    ]
    names += ["state.json", "a" * 250, "%", "~", "\u202eabc"]
    for number, name in enumerate(names):
        write_file(tmp_path / "s" / name, f"{SOLUTION}# {number}\n")
    grader = make_grader(assignment=UNTIMED)
    honest = grader.grade_intake

    def grade(name, taken):  # the grading itself is not what is tested
        report = honest(name, Intake("", refused="only read"))
        return replace(report, digest=taken.digest)

    monkeypatch.setattr(grader, "grade_intake", grade)
    entries = batch.grade_all(grader, tmp_path / "s", tmp_path / "g", jobs=2)
    assert len(entries) == len(names)
    rows = read_table(tmp_path / "g")
    assert len({row["digest"] for row in rows}) == len(rows) == len(names)
    assert all(entry.name.isprintable() and not entry.failed for entry in entries)
    folders = [path for path in (tmp_path / "g").iterdir() if path.is_dir()]
    assert len(folders) == len(names)
    assert all((folder / batch.RESULTS).is_file() for folder in folders)


def in_scale(line: str, imports: str = "os") -> str:
    """The solution, in whose first function something else happens first."""
    text = SOLUTION.replace("import numpy", f"import {imports}\n\nimport numpy", 1)
    return text.replace("out = np.empty_like(x)", line, 1)


MINE, REST = {"a99.1": "0"}, {"a99.1": "0", "a99.2": "0"}
FILL = "os.write(os.memfd_create('x'), bytes(1 << 20))"
BROKEN = [
    (CRASHING, REST),
    (WAITING, MINE),
    (FLOODING, MINE),
    (in_scale("os._exit(0)"), MINE),
    (HALF, MINE),
    (in_scale("out = bytearray(b'x' * (99 << 30))"), MINE),
    (in_scale(f"{FOREVER}{FILL}"), MINE),
    (in_scale(f"os.fork(), os.fork(), os.setsid()\n    {FOREVER}pass"), MINE),
    (f"{SOLUTION}x = {SUM}\n", REST),
]


def test_submissions_that_the_sandbox_has_to_hold(tmp_path):
    """What reading would refuse runs here; test_installed.py has the whole course."""
    mode = next((m for m in sandbox.STRONG if not sandbox.why_not(m)), None)
    if mode is None:
        pytest.skip("no sandbox here keeps submissions from doing harm")
    (tmp_path / "s").mkdir()
    broken = [(PATH, text, points) for text, points in BROKEN]
    course = Course(UNTIMED, {PATH: SOLUTION}, broken)
    numbers = [*range(len(broken) + 3), 50, *range(90, 94)]
    expected = dict(course.hand_in(tmp_path / "s", number) for number in numbers)
    grader = make_grader(mode, read_code=False, call_seconds=1.0, assignment=UNTIMED)
    before = set(descendants(os.getpid()))
    entries = batch.grade_all(grader, tmp_path / "s", tmp_path / "g", jobs=2)
    assert [entry.name for entry in entries if entry.failed] == []
    assert course.graded(tmp_path / "g") == expected
    assert set(descendants(os.getpid())) <= before
