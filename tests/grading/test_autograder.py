"""Gradescope's side of a release: its scripts, run as there, and what it reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from grading import installed

from assignments import catalog, workspace
from assignments.grading.release import setup, write_autograder

pytestmark = pytest.mark.timeout(1200)  # pip and the grader, on a busy machine
ASSIGNMENT = catalog.load("a1")
SOLVED = workspace.stripped(ASSIGNMENT, ())
PATH = ASSIGNMENT.files[0].path
# "Output format" of Gradescope's autograder specification: fields, and what they hold.
NUMBER = (int, float)
VISIBILITY = ("hidden", "after_due_date", "after_published", "visible")
FORMAT = ("text", "html", "simple_format", "md", "ansi")
RESULTS = {
    "score": NUMBER,
    "execution_time": NUMBER,
    "output": str,
    "output_format": FORMAT,
    "test_output_format": FORMAT,
    "test_name_format": FORMAT,
    "visibility": VISIBILITY,
    "stdout_visibility": VISIBILITY,
    "extra_data": dict,
    "tests": list,
    "leaderboard": list,
}
TEST = {
    "score": NUMBER,
    "max_score": NUMBER,
    "status": ("passed", "failed"),
    "name": str,
    "name_format": FORMAT,
    "number": str,
    "output": str,
    "output_format": FORMAT,
    "tags": list,
    "visibility": VISIBILITY,
    "extra_data": dict,
}


def read_as_gradescope(path: Path) -> dict:
    """The results, if they are as they must be."""
    values = json.loads(path.read_text())
    for entry, fields in [(values, RESULTS), *((t, TEST) for t in values["tests"])]:
        for name, value in entry.items():
            allowed = fields[name]
            if isinstance(allowed, tuple) and isinstance(allowed[0], str):
                assert value in allowed, (name, value)
            else:
                assert isinstance(value, allowed) and value is not True, (name, value)
    # The total stands for itself: Gradescope does not add up, where there is one.
    assert values["score"] == pytest.approx(
        sum(t.get("score", 0) for t in values["tests"])
    )
    return values


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with /autograder and, made by setup.sh, /opt/minitorch."""
    pytest.importorskip("ensurepip", reason="venv needs ensurepip to bring pip along")
    folder = tmp_path_factory.mktemp("gradescope")
    source = folder / "autograder" / "source"
    source.mkdir(parents=True)
    with zipfile.ZipFile(write_autograder(ASSIGNMENT, folder / "a1.zip")) as archive:
        archive.extractall(source)
        for entry in archive.infolist():
            (source / entry.filename).chmod(entry.external_attr >> 16)
    # Gradescope copies it there.
    shutil.copy2(source / "run_autograder", folder / "autograder")
    (folder / "opt").mkdir()
    stand_in(folder / "programs")
    installed.packages(folder / "packages")
    installed.run([source / "setup.sh"], check=True, **environment(folder))
    return folder


def stand_in(folder: Path) -> None:
    """Programs that take the place of the system's: this Python, and no apt."""
    folder.mkdir()
    apt = folder / "apt-get"
    apt.write_text('#!/bin/sh\necho "$@" >> "$ROOT/apt.log"\n')
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for path in (apt, python):
        path.chmod(0o755)


def environment(root: Path) -> dict[str, str | Path]:
    """What pip is asked for, it finds installed here; it has no network."""
    return {
        "ROOT": root,
        "PATH": f"{root / 'programs'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": root / "packages",
        "PIP_NO_INDEX": "1",
    }


def run_autograder(root: Path, files: dict[str, str]) -> dict:
    """Hand files in as Gradescope does; the results."""
    for name in ("submission", "results"):
        shutil.rmtree(root / "autograder" / name, ignore_errors=True)
        (root / "autograder" / name).mkdir()
    for name, text in files.items():
        path = root / "autograder" / "submission" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command: list[str | Path] = [root / "autograder" / "run_autograder"]
    ended = installed.run(command, **environment(root))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return read_as_gradescope(root / "autograder" / "results" / "results.json")


@pytest.mark.slow
def test_setup_makes_an_environment_of_its_own(root):
    said = (root / "apt.log").read_text()
    assert "update" in said and "bubblewrap" in said
    program = "import minitorch, assignments; print(minitorch.__file__)"
    python = root / "opt" / "minitorch" / "bin" / "python"
    found = installed.run([python, "-c", program], check=True, **environment(root))
    assert Path(found.stdout.strip()).is_relative_to(root / "opt" / "minitorch")


@pytest.mark.slow
def test_a_right_submission(root):
    values = run_autograder(root, SOLVED)
    assert values["score"] == ASSIGNMENT.points
    judged = [test for test in values["tests"] if "status" in test]
    assert {test["status"] for test in judged} == {"passed"}
    assert len(judged) == len(ASSIGNMENT.tasks)  # the others are answers


@pytest.mark.slow
def test_an_empty_submission(root):
    values = run_autograder(root, {})
    assert values["score"] == 0
    assert [test["max_score"] for test in values["tests"]] != []
    assert {test.get("status") for test in values["tests"]} <= {"failed", None}
    assert "none of the assignment's files is there" in values["output"]


def test_no_results_where_the_machine_is_at_fault(root):
    """Gradescope then says that the autograder failed, and gives no points."""
    hidden = root / "packages" / "numba"
    (root / "autograder" / "submission").mkdir(exist_ok=True)
    shutil.rmtree(root / "autograder" / "results", ignore_errors=True)
    (root / "autograder" / "results").mkdir()
    hidden.rename(root / "numba")
    try:
        command: list[str | Path] = [root / "autograder" / "run_autograder"]
        ended = installed.run(command, **environment(root))
    finally:
        (root / "numba").rename(hidden)
    assert ended.returncode == 1 and "numba is not installed" in ended.stderr
    assert os.listdir(root / "autograder" / "results") == []


@pytest.mark.parametrize(
    "name, extras, system",
    [
        ("a1", "[test]", ""),
        ("a4", "[test,cuda13]", ""),
        ("a8", "[test,cuda13]", ""),
        ("a9", "[test,mojo]", "gcc"),
    ],
)
def test_setup_installs_what_the_devices_need(name, extras, system):
    text = setup(catalog.load(name))
    assert f'{extras}"' in text and system in text
    assert f"assignments.grading.batch {name}\n" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
