"""Submissions that want points without solving a task: none gets any.

Each file of tests/attacks is one. Where a file says nothing else, it is graded without
a look at its code, so that the sandbox and the protocol have to hold by themselves.
Those that say `CAUGHT_BY = "policy"` compute right values in a way that a task does not
allow, and are found by reading them.
"""

from __future__ import annotations

import os
import runpy
import threading
import time
from pathlib import Path

import pytest
from grading.mini_course import (
    MINI,
    PATH,
    SOLUTION,
    make_grader,
    write_file,
    write_solution,
)

from assignments.grading import sandbox
from assignments.grading.batch import write
from assignments.grading.channel import _is_of
from assignments.grading.launch import descendants

FOLDER = Path(__file__).parent.parent / "attacks"
ATTACKS = sorted(path.stem for path in FOLDER.glob("*.py"))
TRACE = Path("/tmp/minitorch-attack-was-here")


def strong_mode() -> str:
    """A mode in which attacks can do no harm; else the test is skipped."""
    for mode in sandbox.STRONG:
        if not sandbox.why_not(mode):
            return mode
    pytest.skip("no sandbox here keeps attacks from doing harm")


@pytest.fixture(scope="module")
def wall():
    """A grader that relies on the sandbox alone."""
    return make_grader(strong_mode(), read_code=False, call_seconds=1.0)


@pytest.fixture(scope="module")
def reader():
    """A grader that reads the code as well."""
    return make_grader(strong_mode())


def submit(name: str, folder: Path) -> Path:
    """The submission of an attack."""
    if name.startswith("submission_"):
        make = runpy.run_path(str(FOLDER / f"{name}.py"))["make"]
        return make(folder, PATH, SOLUTION)
    submission = write_file(folder / "student", "")
    (submission / PATH).write_bytes((FOLDER / f"{name}.py").read_bytes())
    return submission


def test_there_are_enough_attacks():
    assert len(ATTACKS) >= 30


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_earns_nothing(name, request, tmp_path):
    text = (FOLDER / f"{name}.py").read_text()
    grader = request.getfixturevalue(
        "reader" if 'CAUGHT_BY = "policy"' in text else "wall"
    )
    TRACE.unlink(missing_ok=True)
    threads = threading.active_count()
    report = grader.grade(submit(name, tmp_path))
    assert report.points == 0
    assert all(result.share < 1 for result in report.tasks[0].results)
    said = "\n".join(
        [report.output, *(r.text for g in report.tasks for r in g.results)]
    )
    assert "breach:" not in said
    assert all(r.text for g in report.tasks for r in g.results if r.share == 0)
    assert not TRACE.exists()
    assert descendants(os.getpid()) == []
    assert threading.active_count() == threads
    write(report, tmp_path / "results")  # whatever it said can be written


def test_nobody_is_left(wall):
    """Workers that other tests have started meanwhile end within seconds."""
    left = [name for name in os.listdir("/proc") if name.isdigit() and _left(name)]
    end = time.monotonic() + 20
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left = [name for name in left if _left(name)]
    assert left == []


def _left(name: str) -> bool:
    """Whether a process belongs to one of the users that workers are."""
    try:
        status = Path(f"/proc/{name}/status").read_text()
    except OSError:
        return False
    user = int(status.partition("Uid:")[2].split()[0])
    return 20_000 <= user < 60_000 and _is_of(name, user)


def test_an_honest_submission_still_gets_all_points(wall, reader, tmp_path):
    path = write_solution(tmp_path / "honest")
    for grader in (wall, reader):
        report = grader.grade(path)
        assert report.points == MINI.points, report.tasks
