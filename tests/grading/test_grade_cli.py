"""`minitorch grade` and `grade-all`, on an assignment of the course."""

from __future__ import annotations

import csv
import json
import re

import pytest
from typer.testing import CliRunner

from assignments import catalog, workspace
from minitorch.cli.app import app

A1 = catalog.load("a1")


def write(folder, tasks):
    """A submission in which all is solved but `tasks`."""
    for path, text in workspace.stripped(A1, tasks).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_grade(tmp_path):
    folder = write(tmp_path / "ada", ["a1.2"])
    (folder / "answers.md").write_text("## 2. (2 points)\n\n3 ms, on this machine.\n")
    marks, out = tmp_path / "marks.csv", tmp_path / "out"
    marks.write_text("submission,question,points,comment\nada,2,1,why?\n")
    seed = "a secret of the tests"
    result = run("grade", "a1", folder, "--out", out, "--seed", seed, "--marks", marks)
    assert result.exit_code == 0, result.output
    values = json.loads((out / "results.json").read_text())
    assert values["score"] == A1.points - A1.task("a1.2").points + 1
    assert "answer 2: 5 words; 1 of 2 points; why?" in result.output
    assert "answer 1: no answer; not marked, 3 possible" in result.output
    assert (out / "junit.xml").exists()
    assert "a1.2" in result.output and "not implemented" in result.output


def test_grade_all(tmp_path):
    write(tmp_path / "s" / "ada", ())
    write(tmp_path / "s" / "bob", [task.id for task in A1.tasks])
    (tmp_path / "s" / "bob" / "xor.py").rename(tmp_path / "s" / "bob" / "Xor.py")
    (tmp_path / "s" / "cleo.zip").write_text("no zip")
    (tmp_path / "s" / "dora.py").write_text("")
    out, marks = tmp_path / "out", tmp_path / "marks.csv"
    marks.write_text("submission,question,points\nada,2,1\nBob,2,1\n")
    arguments = ("grade-all", "a1", tmp_path / "s", "--out", out, "--jobs", 2)
    result = run(*arguments, "--seed", "a secret of the tests", "--marks", marks)
    assert result.exit_code == 0, result.output
    assert "neither folders nor zips: dora.py" in result.stderr
    assert "marks for what is no submission there: Bob" in result.stderr
    with open(out / "grades.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["points"] for row in rows] == [f"{A1.points + 1:g}", "0", "0"], rows
    assert "not handed in: xor.py" in rows[1]["status"]
    assert "refused" in rows[2]["status"]


@pytest.mark.parametrize("command", ["grade", "grade-all"])
def test_nothing_is_written_about_a_path_that_is_not_there(command, tmp_path):
    out = tmp_path / "out"
    result = run(command, "a1", tmp_path / "TYPO", "--out", out, "--seed", "a" * 16)
    said = re.sub(r"[\s│]", "", result.output)  # it stands in a box, in short lines
    assert result.exit_code == 2 and "doesnotexist" in said
    assert not out.exists()


def test_a_mistake_of_the_graders_own_is_no_success(tmp_path, monkeypatch):
    write(tmp_path / "s" / "ada", ())

    def grade(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("assignments.grading.grade.Grader.grade_intake", grade)
    out = tmp_path / "out"
    arguments = ("grade-all", "a1", tmp_path / "s", "--out", out)
    result = run(*arguments, "--seed", "a secret of the tests")
    assert result.exit_code == 1
    assert "the grader failed" in (out / "grades.csv").read_text()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("grade", "a77", "."), "there is no assignment"),
        (("grade", "a1", ".", "--sandbox", "jail"), "no mode 'jail'"),
        (("grade", "a1", ".", "--patience", "0"), "above 0"),
    ],
)
def test_errors_are_short(arguments, message, capfd):
    result = run(*arguments, "--seed", "a secret of the tests")
    assert result.exit_code != 0
    said = result.output + capfd.readouterr().err
    assert message in said and "Traceback" not in said
