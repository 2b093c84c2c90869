"""Untouched workspaces earn nothing, the reference all, wrong solutions lose theirs."""

from __future__ import annotations

import pytest
from course.solutions import (
    WRONG,
    Wrong,
    checked,
    reference,
    run_task,
    run_to_failure,
    with_mistake,
    write_files,
)

from assignments import catalog, report, workspace
from assignments.catalog import Assignment, Task
from assignments.checks import Speed
from assignments.grading import examine
from assignments.grading.examine import (
    CRASHED,
    FAILED,
    NOT_RUN,
    UNWRITTEN,
    part,
)
from assignments.grading.timing import NOISY

ASSIGNMENTS = catalog.load_all()
PLACES = [
    pytest.param(a, t, device, id=f"{t.id}-{device}")
    for a in ASSIGNMENTS
    for t in a.tasks
    for device in t.devices
]


@pytest.mark.parametrize(("assignment", "task", "device"), PLACES)
def test_untouched_earns_nothing(assignment, task, device, runner, tmp_path):
    workspace.create(assignment, tmp_path / "a")
    # Mojo is compiled, which takes seconds: with nothing written in the whole file, the
    # tasks of a file share the result.
    together = device == "mojo"
    outcomes = run_task(runner, task, device, tmp_path / "a", together=together)
    _skip_where_it_cannot_run(outcomes)
    assert outcomes and all(o.share == 0 for o in outcomes), outcomes
    # Some checks need the simulator, and others a GPU.
    assert {o.status for o in outcomes} <= {UNWRITTEN, examine.WRONG, FAILED, NOT_RUN}
    assert UNWRITTEN in {o.status for o in outcomes}


@pytest.mark.parametrize(("assignment", "task", "device"), PLACES)
def test_reference_earns_all(assignment, task, device, runner):
    timed = any(isinstance(check, Speed) for check in assignment.checks(task.id))
    for _ in range(2 if timed else 1):  # other programs can only make it slower
        outcomes = run_task(runner, task, device)
        if all(outcome.share == 1 for outcome in outcomes):
            break
    _skip_where_it_cannot_run(outcomes)
    said = "\n".join(line for o in outcomes for line in report.lines_of(o, task))
    assert part(task, outcomes) == 1, said


def _skip_where_it_cannot_run(outcomes):
    """Nor where the machine is too busy to judge a speed, which takes no points."""
    busy = [o.reason for o in outcomes if o.text.startswith(NOISY)]
    if busy:
        assert all(o.share == 1 or o.status == NOT_RUN for o in outcomes), outcomes
        pytest.skip(busy[0])
    if outcomes and outcomes[0].status == NOT_RUN:
        pytest.skip(outcomes[0].reason)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_wrong_solution_loses_its_task(wrong: Wrong, simulator, tmp_path):
    task = wrong.assignment.task(wrong.task)
    write_files(wrong.assignment, tmp_path / "a", with_mistake(wrong))
    outcomes = run_to_failure(simulator, task, wrong.device, tmp_path / "a")
    _skip_where_it_cannot_run(outcomes)
    lost = [o for o in outcomes if o.share < 1]
    assert lost, f"{wrong.what}: not noticed"
    if not task.partial:
        assert part(task, outcomes) == 0
    for outcome in lost:
        assert outcome.reason
        if outcome.status != CRASHED:  # reading outside of an array may end a process
            assert outcome.status in (examine.WRONG, FAILED)
            assert outcome.lines, "a failure says with which input"


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_wrong_solution_loses_only_its_task(wrong: Wrong):
    """For all other tasks, the code that is checked is the reference's."""
    texts = with_mistake(wrong)
    for task in wrong.assignment.tasks:
        if task.id != wrong.task and wrong.task not in task.uses:
            assert _same_as_reference(wrong.assignment, task, texts)
    assert not _same_as_reference(
        wrong.assignment, wrong.assignment.task(wrong.task), texts
    )


@pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=lambda a: a.id)
def test_a_restored_region_is_the_reference(assignment: Assignment):
    """With its own region alone back, what is checked for a task is the reference."""
    tasks = [task.id for task in assignment.tasks]
    for task in assignment.tasks:
        rest = [name for name in tasks if name not in (task.id, *task.uses)]
        assert _same_as_reference(
            assignment, task, workspace.stripped(assignment, rest)
        )


def _same_as_reference(
    assignment: Assignment, task: Task, texts: dict[str, str]
) -> bool:
    right = reference(assignment)
    return all(
        texts[file.path] == right[file.path]
        or checked(assignment, task, file, texts)
        == checked(assignment, task, file, right)
        for file in assignment.files
        if file.regions()
    )


def test_every_assignment_has_wrong_solutions():
    for assignment in ASSIGNMENTS:
        found = [w for w in WRONG if w.assignment.id == assignment.id]
        assert len(found) >= 5
