"""Earlier work that is carried along when a submission is graded."""

from __future__ import annotations

import json
import zipfile

import pytest
from typer.testing import CliRunner

from assignments import catalog, workspace
from assignments.grading import earlier, library
from assignments.grading.apart import Refused
from minitorch.cli.app import app

A0, A1, A2 = (catalog.load(name) for name in ("a0", "a1", "a2"))
OPERATORS = "minitorch/operators.py"


def write(assignment, folder, changes=(), tasks=()):
    """A workspace in which all is solved but `tasks`, with some lines replaced."""
    workspace.create(assignment, folder)
    for path, text in workspace.stripped(assignment, list(tasks)).items():
        for old, new in changes:
            text = text.replace(old, new)
        (folder / path).write_text(text)
    return folder


def test_a_mistake_in_earlier_work_shows(tmp_path):
    """a1 is right, but stands on an a0 whose add is wrong: so are sums of scalars."""
    a1 = write(A1, tmp_path / "a1", tasks=["a1.1", "a1.4", "a1.5"])
    a0 = write(A0, tmp_path / "a0", [("return x + y", "return x - y")])
    out, seed = tmp_path / "out", "a secret of the tests"
    words = ("grade", "a1", a1, "--with", a0, "--out", out, "--seed", seed)
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    values = json.loads((out / "results.json").read_text())
    points = {test["number"]: test.get("score") for test in values["tests"]}
    assert points["a1.2"] < A1.task("a1.2").points  # the check of Add is lost
    assert "has wrong values" in values["tests"][1]["output"]
    assert "earlier work of a0: a0" in values["output"]
    assert "earlier work of a0: a0" in result.output


def test_the_first_folder_and_the_graded_assignment_win(tmp_path):
    first = write(A0, tmp_path / "one", [("return x + y", "return 1 + x + y")])
    second = write(A0, tmp_path / "two", [("return x + y", "return 2 + x + y")])
    parts = [earlier.read(str(path), A2) for path in (first, second)]
    both = earlier.merged(parts)
    assert b"1 + x + y" in both.files[OPERATORS]
    assert both.digest not in (parts[0].digest, parts[1].digest)
    assert not {file.path for file in A2.files} & both.files.keys()
    assert not any("properties" in name for name in both.files)
    folder = library.student_tree(A2, {}, "a2.3", both.files)
    try:
        assert "1 + x + y" in (folder / OPERATORS).read_text()
        assert 'todo("a2.3")' in (folder / "minitorch/simple_ops/reduce.py").read_text()
        assert not list((folder / "minitorch").glob("__pycache__/operators.*"))
    finally:
        library.remove(folder)


def test_what_may_not_be_used_is_left_out_and_named(tmp_path):
    cheats = write(A0, tmp_path / "a", [("return x + y", "return eval('x + y')")])
    found = earlier.read(str(cheats), A2)
    assert OPERATORS not in found.files
    assert any("uses eval" in note and OPERATORS in note for note in found.notes)
    (cheats / OPERATORS).write_text("def broken(:\n")
    found = earlier.read(str(cheats), A2)
    assert OPERATORS not in found.files
    assert any("SyntaxError" in note for note in found.notes)


def test_what_it_is_for(tmp_path):
    folder = write(A0, tmp_path / "a0")
    target = tmp_path / "a0.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"handed-in/{path.relative_to(folder)}")
    assert earlier.read(str(target), A2).files.keys() == (
        earlier.read(str(folder), A2).files.keys()
    )
    (folder / workspace.MARK).unlink()
    with pytest.raises(Refused, match="name the assignment: --with a2="):
        earlier.read(str(folder), A2)
    assert OPERATORS in earlier.read(f"a0={folder}", A2).files
    for text in ("= nonsense", 'assignment = "a77"', "assignment = [1]", ""):
        (folder / workspace.MARK).write_text(text)
        with pytest.raises(Refused, match="names no assignment"):
            earlier.read(str(folder), A2)
    with pytest.raises(Refused, match="is a2 itself"):
        earlier.read(f"a2={folder}", A2)
    with pytest.raises(FileNotFoundError, match="expected a folder or a zip"):
        earlier.read(str(tmp_path / "nothing"), A2)


def test_inputs_depend_on_the_earlier_work(tmp_path):
    from grading.mini_course import make_grader

    grader = make_grader()
    one, other = earlier.Earlier(digest="1"), earlier.Earlier(digest="2")
    seeds = {grader.seed("a"), grader.seed("a", one), grader.seed("a", other)}
    assert len(seeds) == 3 and grader.seed("a", one) == grader.seed("a", one)
