"""Grading folders of submissions."""

from __future__ import annotations

import csv
import json
import os
import shutil
import zipfile
from dataclasses import replace

import pytest
from grading.mini_course import (
    PATH,
    SOLUTION,
    UNTIMED,
    make_grader,
    write_file,
    write_solution,
)

from assignments.grading import batch, sandbox
from assignments.grading import report as reports
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
    assert "the grader failed" in first["status"] and second["points"] == "10"
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


FOREVER = "while True:\n        "
BROKEN = {
    # name: text, points
    "crash": (CRASHING, "0"),
    "wait": (WAITING, "6"),
    "print": (FLOODING, "6"),
    "exit": (in_scale("os._exit(0)"), "6"),
    "half": (HALF, "6"),
    "flood": (in_scale("out = bytearray(b'x' * (99 << 30))"), "6"),
    "share": (
        in_scale(f"{FOREVER}os.write(os.memfd_create('x'), bytes(1 << 20))"),
        "6",
    ),
    "spin": (in_scale(f"os.fork(), os.fork(), os.setsid()\n    {FOREVER}pass"), "6"),
    "deep": (f"{SOLUTION}x = {' + '.join('1' * 50_000)}\n", "0"),
}
ODD_NAMES = (batch.TABLE, "a\nb\x1b[2J", os.fsdecode(b"\xff\xfe"), "n" * 200)


def hand_in(folder, number: int) -> tuple[str, str]:
    """Write one of a hundred submissions; its name and the points that are right."""
    name, note = f"student-{number:03}", f"# {number}\n"
    if number < 3 * len(BROKEN):
        text, points = list(BROKEN.values())[number % len(BROKEN)]
        write_file(folder / name, text + note)
    elif number < 3 * len(BROKEN) + 3:
        points, name = "0", f"{name}.zip"
        methods = (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
        damaged_zip(folder / name, methods[number % 3], note)
    elif number == 50:
        points = "0"
        deep_folder(folder / name)
    else:
        points = "10"
        name = ODD_NAMES[number - 90] if 90 <= number < 94 else name
        write_file(folder / name, SOLUTION + note)
    return reports.label(name), points


def damaged_zip(target, method: int, note: str) -> None:
    """A zip whose list of contents is right, and whose contents are not."""
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.writestr(PATH, SOLUTION * 20 + note)
    data = bytearray(target.read_bytes())
    first = 30 + len(PATH) + 10
    data[first : first + 200] = b"\xff" * 200
    target.write_bytes(data)


def deep_folder(folder) -> None:
    """A folder that is deeper than any path may be long."""
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 20, dir_fd=handle)
        deeper = os.open("d" * 20, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(handle)


@pytest.mark.slow
def test_a_hundred_of_which_thirty_are_broken(tmp_path):
    mode = next((m for m in sandbox.STRONG if not sandbox.why_not(m)), None)
    if mode is None:
        pytest.skip("no sandbox here keeps submissions from doing harm")
    (tmp_path / "s").mkdir()
    expected = dict(hand_in(tmp_path / "s", number) for number in range(100))
    assert sum(points != "10" for points in expected.values()) == 31
    grader = make_grader(mode, read_code=False, call_seconds=1.0, assignment=UNTIMED)
    before = set(descendants(os.getpid()))
    entries = batch.grade_all(grader, tmp_path / "s", tmp_path / "g", jobs=2)
    assert [entry.name for entry in entries if entry.failed] == []
    found = {row["submission"]: row["points"] for row in read_table(tmp_path / "g")}
    assert found == expected
    assert set(descendants(os.getpid())) <= before
