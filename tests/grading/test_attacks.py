"""Submissions that want points without solving a task: none gets any.

Each file of tests/attacks is one. Where a file says nothing else, it is graded without
a look at its code, so that the sandbox and the protocol have to hold by themselves.
Those that say `CAUGHT_BY = "policy"` compute right values in a way that a task does not
allow, and are found by reading them.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest
from grading.mini_course import (
    LIMITS,
    MINI,
    PATH,
    SOLUTION,
    make_grader,
    write_file,
    write_solution,
)

from assignments.grading import sandbox
from assignments.grading.batch import RESULTS, write
from assignments.grading.channel import Worker, _is_of
from assignments.grading.launch import descendants
from assignments.grading.library import bare_tree, new_folder

FOLDER = Path(__file__).parent.parent / "attacks"
ATTACKS = sorted(path.stem for path in FOLDER.glob("*.py"))
TRACE = "/tmp/minitorch-attack-was-here"  # each test has a place of its own for it
EXIT_SECONDS = 60.0  # that a process which was killed may take to go, on a busy machine


def strong_mode() -> str:
    """A mode in which attacks can do no harm; else the test is skipped."""
    for mode in sandbox.STRONG:
        if not sandbox.why_not(mode):
            return mode
    pytest.skip("no sandbox here keeps attacks from doing harm")


@pytest.fixture(scope="module")
def wall():
    """A grader that relies on the sandbox alone."""
    grader = make_grader(strong_mode(), read_code=False, call_seconds=1.0)
    folder = new_folder("kernels")
    (folder / "any.nbc").touch()
    grader._kernels = lambda whole: folder
    yield grader
    assert [(p.name, p.stat().st_size) for p in folder.iterdir()] == [("any.nbc", 0)]


@pytest.fixture(scope="module")
def reader():
    """A grader that reads the code as well."""
    return make_grader(strong_mode())


def submit(name: str, folder: Path, trace: Path) -> Path:
    """The submission of an attack, which leaves its trace at `trace`."""
    text = (FOLDER / f"{name}.py").read_text().replace(TRACE, str(trace))
    if name.startswith("submission_"):
        (folder / "make.py").write_text(text)
        make = runpy.run_path(str(folder / "make.py"))["make"]
        return make(folder, PATH, SOLUTION)
    submission = write_file(folder / "student", "")
    (submission / PATH).write_text(text)
    return submission


class Left:
    """What a grading leaves behind: processes, threads and users that it brought."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.users: set[int] = set()
        self.processes, self.threads = self._now()
        start = sandbox.start

        def noted(*arguments):
            started = start(*arguments)
            if started.user is not None:
                self.users.add(started.user)
            return started

        monkeypatch.setattr(sandbox, "start", noted)

    @staticmethod
    def _now() -> tuple[set[int], set[threading.Thread]]:
        return set(descendants(os.getpid())), set(threading.enumerate())

    def found(self, seconds: float = EXIT_SECONDS) -> list[object]:
        """What is still there; what was killed gets time to go."""
        end = time.monotonic() + seconds
        while left := self._found():
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        return left

    def _found(self) -> list[object]:
        processes, threads = self._now()
        theirs = [
            name
            for name in os.listdir("/proc")
            if name.isdigit() and any(_is_of(name, user) for user in self.users)
        ]
        # Fixtures of other tests keep processes of theirs for the whole session, which
        # start more of their own at any time: a browser does.
        of_fixtures = {n for old in self.processes for n in descendants(old)}
        processes -= self.processes | of_fixtures
        return [*processes, *(threads - self.threads), *theirs]


@pytest.fixture
def left(monkeypatch) -> Left:
    return Left(monkeypatch)


def test_there_are_enough_attacks():
    assert len(ATTACKS) >= 100


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_earns_nothing(name, request, left, tmp_path, tmp_path_factory):
    earns_nothing(name, request, left, tmp_path, tmp_path_factory)


@pytest.mark.parametrize(
    "name",
    [
        "compute_by_a_helper",
        "fork_bomb",
        "memory_flood_by_many",
        "memory_in_files",
        "memory_shared",
        "spinners_that_wake_each_other",
        "spinners_while_the_rival_runs",
    ],
)
def test_without_control_groups(
    name, request, left, tmp_path, tmp_path_factory, monkeypatch
):
    """Most machines let nobody but root make any."""
    monkeypatch.setattr(sandbox, "new_group", lambda *_: None)
    earns_nothing(name, request, left, tmp_path, tmp_path_factory)


def earns_nothing(name, request, left, tmp_path, tmp_path_factory) -> None:
    """Grade an attack, and look at what it earned and left."""
    text = (FOLDER / f"{name}.py").read_text()
    grader = request.getfixturevalue(
        "reader" if 'CAUGHT_BY = "policy"' in text else "wall"
    )
    trace = tmp_path_factory.mktemp("trace") / "was-here"
    report = grader.grade(submit(name, tmp_path, trace))
    assert report.points == 0
    assert all(result.share < 1 for result in report.tasks[0].results)
    said = "\n".join(
        [report.output, *(r.text for g in report.tasks for r in g.results)]
    )
    assert "breach:" not in said
    assert name != "poison_kernels" or "all ways were tried" in said
    assert all(r.text for g in report.tasks for r in g.results if r.share == 0)
    assert not trace.exists()
    assert left.found() == []
    write(report, tmp_path / "results")  # whatever it said can be written
    for text in texts(json.loads((tmp_path / "results" / RESULTS).read_text())):
        assert all(c.isprintable() or c in "\t\n" for c in text)


def texts(value) -> list[str]:
    """All texts in a value of JSON."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


@pytest.fixture
def fixture_of_others():
    """A process that was there before, and starts another when it is told to."""
    words = ["sh", "-c", "read line; sleep 1000 & echo $!; wait"]
    with subprocess.Popen(
        words, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["process", "thread", "user"])
def test_what_is_left_is_found(kind, wall, fixture_of_others, left):
    """The search above sees what it looks for, and that alone."""
    fixture_of_others.stdin.write("go\n")
    fixture_of_others.stdin.flush()
    assert int(fixture_of_others.stdout.readline()) in descendants(os.getpid())
    assert left.found(0) == []
    ended = threading.Event()
    if kind == "thread":
        threading.Thread(target=ended.wait).start()
        assert len(left.found(0)) == 1
        ended.set()
    elif kind == "process":
        with subprocess.Popen(["sleep", "1000"]) as process:
            assert left.found(0) == [process.pid]
            process.kill()
    else:
        with Worker(sandbox.View(bare_tree()), LIMITS, wall.mode):
            assert left.found(0)
    assert left.found() == []


def test_an_honest_submission_still_gets_all_points(wall, reader, tmp_path):
    path = write_solution(tmp_path / "honest")
    for grader in (wall, reader):
        patient = replace(grader.settings, patience=20.0)  # on a busy machine
        report = type(grader)(MINI, patient).grade(path)
        assert report.points == MINI.points, report.tasks
