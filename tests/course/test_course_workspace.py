"""Workspaces, `minitorch start | test | status | diff`, and pytest in a workspace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from course.solutions import reference, run_task
from typer.testing import CliRunner

from assignments import catalog, report, workspace
from assignments.testing import CRASHED, FAILED, HUNG, PASSED, UNWRITTEN
from minitorch.cli.app import app

SOLVED = """
    above, below = list(values), list(values)
    above[arg] += epsilon
    below[arg] -= epsilon
    return (f(*above) - f(*below)) / (2.0 * epsilon)
"""


@pytest.fixture
def place(tmp_path):
    """An untouched workspace for a1."""
    workspace.create(catalog.load("a1"), tmp_path / "a1")
    return tmp_path / "a1"


def solve(place, task, body):
    """Put code in the place of the first todo of a task."""
    for path in place.rglob("*.py"):
        text = path.read_text()
        line = f'    todo("{task}")\n'
        if line in text:
            path.write_text(text.replace(line, body.lstrip("\n"), 1))
            return path
    raise ValueError(f"no todo of {task}")


def call(*words, code=0):
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == code, result.output
    return result.output


# ---------------------------------------------------------------------------- start


def test_start_makes_a_workspace(tmp_path):
    said = call("start", "a1", tmp_path / "mine")
    assert "a1 Scalar autodiff" in said and "README.md" in said
    made = {p.relative_to(tmp_path / "mine").as_posix() for p in tmp_path.rglob("*.*")}
    assert {
        "README.md",
        "workspace.toml",
        "conftest.py",
        "course.py",
        "minitorch/autodiff.py",
        "minitorch/scalar.py",
        "xor.py",
    } <= made
    assert not any("checks" in name or "calls" in name for name in made)


def test_start_does_not_overwrite(tmp_path):
    call("start", "a1", tmp_path / "mine")
    (tmp_path / "mine" / "xor.py").write_text("my work\n")
    said = call("start", "a1", tmp_path / "mine", code=1)
    assert "not empty" in said or "not empty" in str(said)
    assert (tmp_path / "mine" / "xor.py").read_text() == "my work\n"
    call("start", "a1", tmp_path / "mine", "--force")
    (backup,) = tmp_path.glob("mine-backup-*")
    assert (backup / "xor.py").read_text() == "my work\n"
    assert "todo" in (tmp_path / "mine" / "xor.py").read_text()


def test_start_names_the_assignments(tmp_path):
    call("start", "a17", tmp_path / "mine", code=1)
    with pytest.raises(ValueError, match=r"there is no assignment 'a17'; there are a0"):
        catalog.load("a17")


def test_a_task_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"no task '1.9'; the tasks are a1.1"):
        catalog.load("a1").task("1.9")


# --------------------------------------------------------------------- test, status


def test_solving_a_task_turns_it_green(place):
    said = call("test", "-k", "1.1", "--in", place, code=1)
    assert "not written yet" in said and "0 / 2" in said
    assert said.splitlines()[-1] == "0 of 21 points"
    solve(place, "a1.1", SOLVED)
    said = call("test", "-k", "1.1", "--in", place)
    assert "2 / 2" in said and "passed" in said and "2 of 21 points" in said
    said = call("status", "--in", place)
    line = next(s for s in said.splitlines() if s.startswith("a1"))
    assert "[#....] 2 of 21 points, next: a1.2" in line
    assert "not started" in next(s for s in said.splitlines() if s.startswith("a0"))


def test_a_failure_is_explained(place, runner):
    solve(place, "a1.1", "    return (f(*values) - 1.0) / epsilon\n")
    task = catalog.load("a1").task("1.1")
    outcome = run_task(runner, task, "python", place)[0]
    assert outcome.status == FAILED
    text = "\n".join(report.lines_of(outcome, task))
    for part in (
        "smallest input",
        "fn = 'identity'",
        "came out",
        "PyTorch says",
        "hint",
    ):
        assert part in text
    assert "Traceback" not in text and len(text.splitlines()) < 15


def test_an_exception_points_at_the_line(place, runner):
    solve(place, "a1.1", "    return values[arg + 10]\n")
    task = catalog.load("a1").task("1.1")
    outcome = run_task(runner, task, "python", place)[0]
    text = "\n".join(report.lines_of(outcome, task))
    assert "raised IndexError: tuple index out of range" in text
    assert "autodiff.py" in text and "return values[arg + 10]" in text


def test_marks_that_editors_leave_are_no_mistake(tmp_path):
    """A byte order mark, form feeds, blank lines at the end."""
    a0 = catalog.load("a0")
    workspace.create(a0, tmp_path / "a0")
    for path, text in workspace.stripped(a0, []).items():
        data = b"\xef\xbb\xbf" + f"{text}\x0c\n# a\u2028b\n\n".encode()
        (tmp_path / "a0" / path).write_bytes(data)
    said = call("test", "-k", "0.1", "--in", tmp_path / "a0")
    assert "passed" in said and "not allowed" not in said


def test_temporary_files_are_removed(place, runner):
    make = "import tempfile; raise ValueError(tempfile.mkdtemp())"
    solve(place, "a1.1", f"    {make}\n")
    outcome = run_task(runner, catalog.load("a1").task("1.1"), "python", place)[0]
    made = Path(outcome.reason.partition("ValueError: ")[2])
    assert made.is_absolute() and not made.exists() and not made.parent.exists()


def test_hanging_crashing_and_broken_files(place, runner, tmp_path):
    tasks = catalog.load("a1").tasks
    path = solve(place, "a1.1", "    while True:\n        pass\n")
    (outcome,) = run_task(runner, tasks[0], "python", place, limit=3)
    assert outcome.status == HUNG and "endless" in outcome.reason
    text = path.read_text()
    path.write_text(text.replace("while True:\n        pass", "import os; os.abort()"))
    (outcome,) = run_task(runner, tasks[0], "python", place)
    assert outcome.status == CRASHED and "SIGABRT" in outcome.reason
    path.write_text(text.replace("while True:\n        pass", "import os; os._exit(0)"))
    (outcome,) = run_task(runner, tasks[0], "python", place)
    assert outcome.status == CRASHED and "ended by itself" in outcome.reason
    others = run_task(runner, tasks[1], "python", place)
    assert {o.status for o in others} == {UNWRITTEN}
    path.write_text("def broken(:\n")
    outcome = run_task(runner, tasks[0], "python", place)[0]
    assert outcome.status == FAILED and "SyntaxError" in outcome.reason
    assert ("raised at", "autodiff.py:1: def broken(:") in outcome.lines


@pytest.mark.parametrize("line", ["gone = nowhere", "from numba import gone"])
def test_a_backend_that_a_student_broke_fails(tmp_path, runner, line):
    """It is no device that is missing here."""
    place = tmp_path / "a3"
    workspace.create(catalog.load("a3"), place)
    path = place / "fast_ops" / "elementwise.py"
    path.write_text(path.read_text() + f"\n\n{line}\n")
    task = catalog.load("a3").task("3.1")
    outcome = run_task(runner, task, "cpu", place)[0]
    assert outcome.status == FAILED and "gone" in str(outcome.lines)
    assert "elementwise.py" in outcome.lines[0][1]


def test_without_fork(place):
    """Where a process cannot fork, each job has one of its own."""
    from assignments.runner import Job, in_new_process

    solve(place, "a1.1", SOLVED)
    answer = in_new_process(Job("a1.1", "python", [str(place)]))
    assert [o["status"] for o in answer["outcomes"]] == [PASSED, PASSED]


def test_earlier_work_is_used(tmp_path, runner):
    """a2's workspace together with a wrong a0: the mistake shows."""
    early, late = tmp_path / "a0", tmp_path / "a2"
    workspace.create(catalog.load("a0"), early)
    texts = reference(catalog.load("a0"))
    wrong = texts["minitorch/operators.py"].replace("return x + y", "return x - y")
    (early / "minitorch/operators.py").write_text(wrong)
    workspace.create(catalog.load("a2"), late, [early])
    assert workspace.read(late).earlier == (early,)
    for path, text in reference(catalog.load("a2")).items():
        (late / path).write_text(text)
    task = catalog.load("a2").task("2.3")
    alone = run_task(runner, task, "simple", late)
    assert {o.status for o in alone} == {PASSED}
    both = run_task(runner, task, "simple", late, early)
    assert {o.check for o in both if o.status == FAILED} >= {"zip", "reduce"}


def test_diff_asks_first(place):
    said = CliRunner().invoke(app, ["diff", "a1", "--in", str(place)], input="n\n")
    assert said.exit_code == 1 and "- f(*below)" not in said.output
    said = call("diff", "a1", "--in", place, "--yes")
    assert "+    return (f(*above) - f(*below)) / (2.0 * epsilon)" in said
    assert "SOLUTION" not in said


# ---------------------------------------------------------------------------- pytest


def test_pytest_in_a_workspace(place):
    solve(place, "a1.1", SOLVED)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "task1_1 or task1_3",
            "-p",
            "no:cacheprovider",
        ],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout, done.stdout
    assert "a1.3 is not implemented yet" in done.stdout
    assert "Traceback" not in done.stdout and ".py:" not in done.stdout
