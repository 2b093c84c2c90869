"""pytest in a workspace: each check of each task is a test, marked task3_1 and so on.

A task's calls are made in a process of their own (see `runner.py`), so that a kernel
that crashes or hangs takes no other task with it. `pytest --here` makes them in the
process of pytest instead, with all of the student's functions, for a debugger.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assignments import report
from assignments.grading import reading
from assignments.grading.examine import NOT_RUN, PASSED, Result
from assignments.runner import Here, Job, Runners
from assignments.workspace import MARK, Workspace, read, syntax_errors


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--here", action="store_true", help="run the checks in this process, for --pdb"
    )


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """The file that makes a folder a workspace stands for its checks."""
    if file_path.name == MARK:
        return CourseFile.from_parent(parent, path=file_path)
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    runners = session.stash.get(_runners, None)
    if runners is not None:
        runners.close()


_runners = pytest.StashKey[Runners]()
_outcomes = pytest.StashKey[dict[tuple[str, str, str], list[Result]]]()


class CourseFile(pytest.File):
    """All checks of the assignment in a workspace."""

    def collect(self) -> Iterator[pytest.Item]:
        workspace = read(self.path.parent)
        broken = syntax_errors(workspace)
        for path, message in broken.items():
            item = BrokenItem.from_parent(self, name=path)
            item.setup_for(workspace.assignment, path, message)
            yield item
        for task in workspace.assignment.tasks:
            if broken.keys() & reading.files_of(workspace.assignment, task):
                continue
            lines = reading.refused(workspace.assignment, workspace.folder, task)
            if lines:
                name = f"{task.id} what is not allowed"
                item = RefusedItem.from_parent(self, name=name)
                item.setup_for(task, lines)
                yield item
            for check in workspace.assignment.checks(task.id):
                for device in check.devices or task.devices:
                    on = "" if device == "python" else f", {device}"
                    name = f"{task.id} {check.name}{on}"
                    item = CheckItem.from_parent(self, name=name)
                    item.setup_for(workspace, task, check, device)
                    yield item


class Failed(Exception):
    """A check failed; its text is all that is shown."""


class CourseItem(pytest.Item):
    """Something that fails with a text for students."""

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, Failed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class BrokenItem(CourseItem):
    """A file that is no Python; it stands for all tasks that are solved in it."""

    def setup_for(self, assignment: Any, path: str, message: str) -> None:
        self.message = message
        for task in assignment.tasks:
            if path in reading.files_of(assignment, task):
                self.add_marker(task.marker)

    def runtest(self) -> None:
        raise Failed(self.message)


class RefusedItem(CourseItem):
    """Lines for which a grader gives no points for a task."""

    def setup_for(self, task: Any, lines: list[str]) -> None:
        self.task, self.lines = task, lines
        self.add_marker(task.marker)

    def runtest(self) -> None:
        outcome = reading.refusal(self.task, "python", self.lines)
        raise Failed("\n".join(report.lines_of(outcome, self.task)))


class CheckItem(CourseItem):
    """One check on one device."""

    def setup_for(
        self, workspace: Workspace, task: Any, check: Any, device: str
    ) -> None:
        self.workspace, self.task = workspace, task
        self.check, self.device = check, device
        self.add_marker(task.marker)

    def runtest(self) -> None:
        outcome = self._outcome()
        if outcome.status == NOT_RUN:
            pytest.skip(f"{self.device}: {outcome.reason}")
        if outcome.status != PASSED:
            raise Failed("\n".join(report.lines_of(outcome, self.task)))

    def _outcome(self) -> Result:
        """This check's part of what its task's process said."""
        stash = self.session.stash
        known = stash.setdefault(_outcomes, {})
        here = self.config.getoption("--here")
        key = self.task.id, self.device, self.check.name if here else ""
        if key not in known:
            if _runners not in stash:
                stash[_runners] = Here() if here else Runners()
            folders = [str(folder) for folder in self.workspace.folders]
            job = Job(self.task.id, self.device, folders, check=key[2])
            known[key] = stash[_runners].run(job)
        named = [result for result in known[key] if result.name == self.check.name]
        return [*named, *known[key]][0]
