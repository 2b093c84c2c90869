"""`minitorch test` and `minitorch grade` give the same points.

Submissions are made by chance: of each task the solution, nothing, or a wrong solution
of tests/course/wrong. Some are compared here for the assignments that take seconds;

    MINITORCH_AGREE="50 a0 a1" pytest tests/course/test_agreement.py

compares 50 for each of those named. Speed is left out: it is a measurement. The grader
draws other inputs for each submission; `minitorch test` looks for the smallest that
fail, which are always the same, so it is asked once about the same code.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from course.solutions import WRONG, checked, run_task, with_mistake, write_files

from assignments import catalog, workspace
from assignments.catalog import Assignment
from assignments.checks import Speed
from assignments.grading import reading
from assignments.grading.examine import part
from assignments.grading.grade import Grader, Settings

COUNT, *NAMES = os.environ.get("MINITORCH_AGREE", "1 a0 a1").split()
CASES = [(name, number) for name in NAMES for number in range(int(COUNT))]


def partly_right(assignment: Assignment, seed: str) -> dict[str, str]:
    """The files of somebody who has solved some tasks, and others wrongly."""
    chance = random.Random(seed)
    kinds = {
        task.id: chance.choice(("right", "wrong", "none")) for task in assignment.tasks
    }
    nothing = [name for name, kind in kinds.items() if kind == "none"]
    texts = workspace.stripped(assignment, nothing)
    of_task = {name: [wrong for wrong in WRONG if wrong.task == name] for name in kinds}
    wrong = [name for name, kind in kinds.items() if kind == "wrong" and of_task[name]]
    mistakes = [chance.choice(of_task[name]) for name in wrong]
    # Those that are a few lines first: they look for these lines as they were written.
    for mistake in sorted(mistakes, key=lambda wrong: "\nRIGHT = " not in wrong.text):
        texts = with_mistake(mistake, texts)
    return texts


@pytest.fixture(scope="module")
def graders():
    """A grader for each assignment; it looks at the machine once."""
    return {}


@pytest.fixture(scope="module")
def known():
    """What `minitorch test` says of code that was checked for a task."""
    return {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_student_and_teacher_agree(
    name, number, runner, graders, known, monkeypatch, tmp_path
):
    all_checks = Assignment.checks

    def untimed(self, task=None):
        return tuple(c for c in all_checks(self, task) if not isinstance(c, Speed))

    monkeypatch.setattr(Assignment, "checks", untimed)
    assignment, place = catalog.load(name), tmp_path / name
    texts = partly_right(assignment, f"{name} {number}")
    write_files(assignment, place, texts)
    if name not in graders:
        settings = Settings(secret="of the tests", patience=10.0)
        graders[name] = Grader(assignment, settings)
    report = graders[name].grade(place)
    for graded in report.tasks:
        code = graded.task.id, what_runs(assignment, graded.task, texts)
        if code not in known:
            known[code] = student(runner, assignment, graded.task, place)
        points, found = known[code]
        assert points == pytest.approx(graded.points), (found, graded.results)


def what_runs(assignment, task, texts) -> tuple[str, ...]:
    """The code that is checked for a task."""
    files = [file for file in assignment.files if file.regions()]
    return tuple(checked(assignment, task, file, texts) for file in files)


def student(runner, assignment, task, place: Path) -> tuple[float, object]:
    """What `minitorch test` says that a task has earned, and why."""
    refused = reading.refused(assignment, place, task)
    if refused:
        return 0.0, refused
    found = {
        device: run_task(runner, task, device, place, limit=10 * task.seconds)
        for device in task.devices
    }
    parts = {device: part(task, some) for device, some in found.items()}
    return catalog.points(task, parts), found


def test_the_generator_makes_all_kinds():
    """Some of everything."""
    assignment = catalog.load("a1")
    made = [partly_right(assignment, str(n)) for n in range(20)]
    assert len({tuple(texts.values()) for texts in made}) > 15
