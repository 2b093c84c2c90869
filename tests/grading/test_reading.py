"""What the grader refuses is told to the student by `minitorch test`."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from assignments import catalog, workspace
from assignments.grading import allowed, intake, reading, release
from assignments.regions import strip
from minitorch.cli.app import app

A1 = catalog.load("a1")
SCALAR = "minitorch/scalar.py"


@pytest.fixture
def place(tmp_path):
    """A workspace in which all of a1 is solved."""
    folder = tmp_path / "a1"
    workspace.create(A1, folder)
    for path, text in workspace.stripped(A1, []).items():
        (folder / path).write_text(text)
    return folder


def cheat(place):
    """Solve a1.1 rightly, in a way that is not allowed."""
    path = place / "minitorch/autodiff.py"
    text = path.read_text()
    right, other = (
        "above[arg] += epsilon",
        "above.__setitem__(arg, above[arg] + epsilon)",
    )
    wrong = text.replace(right, other)
    assert wrong != text
    path.write_text(wrong)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_test_says_what_the_grader_refuses(place):
    cheat(place)
    result = call("test", "-k", "1.1", "--in", place)
    assert result.exit_code == 1
    said = result.output
    assert "not allowed" in said and "0 / 2" in said and "no points" in said
    assert "minitorch/autodiff.py, line" in said and "uses .__setitem__" in said
    assert said.splitlines()[-1] == "0 of 21 points"
    earned = json.loads((place / workspace.PROGRESS).read_text())
    assert earned["a1.1"] == {"python": 0.0}


def test_pytest_says_it_as_well(place):
    cheat(place)
    words = ["pytest", "-m", "task1_1", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=place, capture_output=True, text=True
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "a1.1 what is not allowed" in done.stdout
    assert "uses .__setitem__" in done.stdout


def test_only_the_task_of_the_lines_is_refused(place):
    assert all(not reading.refused(A1, place, task) for task in A1.tasks)
    cheat(place)
    found = {task.id: reading.refused(A1, place, task) for task in A1.tasks}
    assert [name for name, lines in found.items() if lines] == ["a1.1"]


def test_files_that_are_no_python_are_left_to_the_checks(place):
    (place / SCALAR).write_text("def broken(:\n")
    assert all(not reading.refused(A1, place, task) for task in A1.tasks)


TRIED = """
if __name__ == "__main__":
    import torch
    print(central_difference(open, 1.0))
"""


def test_what_is_tried_out_in_a_main_block_is_not_read_nor_run(place):
    path = place / "minitorch/autodiff.py"
    text = path.read_text()
    path.write_text(text + TRIED)
    (file,) = [f for f in A1.files if f.path == "minitorch/autodiff.py"]
    for task in ("", *[task.id for task in A1.tasks]):
        assert not reading.not_allowed(A1, file, path.read_text(), task)
        assert reading.not_allowed(A1, file, text + TRIED + "else:\n    import os\n")
    taken = intake.read(place, A1, True, ["a1.4"])
    assert not taken.problems["a1.4"]
    assert taken.texts[file.path] == text + "\n" * TRIED.count("\n")
    for other in ("'__main__' == __name__", "True or __name__ == '__main__'"):
        wrong = TRIED.replace('__name__ == "__main__"', other)
        assert "import" in reading.not_allowed(A1, file, text + wrong)


def test_an_import_that_nobody_uses_is_not_read_nor_run(place):
    path = place / "minitorch/autodiff.py"
    text = path.read_text()
    lines = "import random\nimport numpy as np\nfrom os import system\n"
    begin = text.index("from collections")
    more = f"{text[:begin]}{lines}{text[begin:]}"
    path.write_text(more)
    (file,) = [f for f in A1.files if f.path == "minitorch/autodiff.py"]
    for task in ("", *[task.id for task in A1.tasks]):
        assert not reading.not_allowed(A1, file, more, task)
        for use in ("random.seed(1)", "globals()['np']", "(lambda: system)()('ls')"):
            assert reading.not_allowed(A1, file, f"{more}\n{use}\n", task)
    taken = intake.read(place, A1, True, ["a1.4"])
    assert not taken.problems["a1.4"]
    assert taken.texts[file.path] == text[:begin] + "\n" * 3 + text[begin:]


def test_what_an_assignment_allows_is_refused_in_others():
    """And the lines say what is allowed there, once."""
    for name, path, granted in (
        ("a16", "minitorch/scaling.py", True), ("a3", "fast_ops/reduce.py", False),
    ):  # fmt: skip
        assignment = catalog.load(name)
        (file,) = [f for f in assignment.files if f.path == path]
        text = strip(file.source.read_text(), path, ())
        for line in (
            "np.linalg.lstsq(a, np.stack([a]))", "from numpy.linalg import lstsq",
            "import numpy.linalg as la\nla.lstsq(a)", "np.mean(a)",
        ):  # fmt: skip
            used = f"{text}\n{line}\n" + "lstsq(1)\n" * line.startswith("from")
            said = reading.not_allowed(assignment, file, used)
            assert bool(said) is not granted, said
            assert said.count(reading.GRANTED) == (not granted)
        more = f"{text}\nnp.linalg.inv(a)\nnp.dot(a)\nimport numpy.fft\n"
        more += "f = np.linalg\nf.lstsq(a)\nnp.fft.fft(a)\n"
        *said, last = reading.not_allowed(assignment, file, more).splitlines()[1:]
        assert "uses inv of numpy.linalg" in said[0] and "uses dot" in said[1]
        assert len(said) >= 5 and ("linalg.lstsq" in last) is granted
        assert last.startswith(f"  {reading.GRANTED} abs, ") and "float32" not in last
        task = assignment.tasks[0]
        labels = [label for label, _ in reading.refusal(task, "", [last.strip()]).lines]
        assert labels == ["hint", "hint"]


def test_what_assignments_allow_is_there_and_no_name_is_twice():
    for assignment in catalog.load_all():
        for name in assignment.allows:
            module, _, member = name.rpartition(".")
            assert callable(getattr(importlib.import_module(module), member))
            assert member not in allowed.MODULES[module]


def test_references_are_allowed(tmp_path):
    for assignment in catalog.load_all():
        for file in assignment.files:
            text = workspace.stripped(assignment, [])[file.path]
            assert reading.not_allowed(assignment, file, text) == "", file.path


def test_help_names_the_assignments_that_exist():
    for command in ("start", "diff", "grade", "grade-all", "release"):
        said = " ".join(call(command, "--help").output.replace("│", " ").split())
        assert f"{', '.join(catalog.ids())}." in said, said


MOJO = {
    'var x = "#"; external_call["system", Int32]()': "external_call",
    "from std.python import Python": "Python",
    "vectorized(p)": "vectorized",
    "var other = vectorized\nother(p)": "vectorized",
    "def inner(q: Matrices[T]):\n    vectorized(q)\ninner(p)": "vectorized",
    'if False:\n    var external_call = 1\nexternal_call["x"]()': "external_call",
    'var open = 1\nopen("x")': "open",
    "__mlir_op.`x`()": "__mlir_op",
    "if False:\n    var __mlir_op = 1\n__mlir_op.x()": "__mlir_op",
    # Where a reader and the compiler could differ about what is text.
    "var a = '''\n\"\"\"\n'''\nvectorized(p)\nvar b = '''\n\"\"\"\n'''": "vectorized",
    "var r = 1\nvar s = r'\\'; vectorized(p)  # '": "` or letters before a text",
    "var t = 1\nvar s = t'{vectorized(p)}'": "` or letters before a text",
    "var `#` = 1; vectorized(p)": "` or letters before a text",
}


@pytest.mark.parametrize("body", MOJO)
def test_words_of_a_mojo_solution_are_a_list(body):
    assert f"naive may not use {MOJO[body]}" in in_mojo(body)


def test_names_of_ones_own_and_texts_are_free_in_mojo():
    assert (
        in_mojo('var t = "vectorized"  # vectorized\nfor k in range(len(t)):\n    k')
        == ""
    )


def test_a_mojo_function_is_read_by_itself():
    """What stands before it is the library's in the file that is compiled."""
    said = in_mojo('vectorized(p)  # """', before='"""')
    assert "naive may not use vectorized" in said


def test_a_mojo_task_is_read_for_those_that_it_uses():
    said = in_mojo("for task in self:\n    open(task)", "Tiled.run", task="a9.6")
    assert "Tiled.run may not use open" in said


def test_what_ends_lines_for_some_programs_is_refused_in_mojo():
    assert "characters that end lines" in in_mojo('var t = "\u2028"')


def in_mojo(body, function="naive", task="a9.1", before=""):
    """What is said about this body of a function of a9's."""
    a9 = catalog.load("a9")
    file = a9.files[0]
    cut = next(c for r in file.regions() for c in r.cuts if c.function == function)
    lines = file.source.read_text().split("\n")
    body = textwrap.indent(body, " " * cut.indent)
    lines[cut.first : cut.last] = body.split("\n")
    return reading.not_allowed(a9, file, "\n".join([before, *lines]), task)


@pytest.mark.parametrize("name", ["a2", "a3", "a7"])
def test_a_student_edition_refuses_the_same(name, tmp_path, monkeypatch):
    """Its library has no solutions, but it knows what they use."""
    assignment = catalog.load(name)
    right = {
        f.path: workspace.stripped(assignment, [])[f.path] for f in assignment.files
    }
    release.copy_project(tmp_path / "edition")
    release.remove_solutions(assignment, tmp_path / "edition")
    monkeypatch.setattr(catalog, "FOLDER", tmp_path / "edition" / "assignments")
    files = [
        replace(f, source=tmp_path / "edition" / f.source.relative_to(catalog.LIBRARY))
        for f in assignment.files
    ]
    edition = replace(assignment, files=tuple(files))
    assert not any(f.regions() for f in files if name == "a3")
    for file in files:
        for task in ("", *(t.id for t in assignment.tasks)):
            said = reading.not_allowed(edition, file, right[file.path], task)
            assert said == "", said
    if name == "a3":
        right_one = right["fast_ops/matmul.py"]
        blas = right_one.replace("row[n] = 0", "row[n] = matmul_packed(a, b)", 1)
        assert "matmul_packed" in reading.not_allowed(edition, files[3], blas, "a3.3")
