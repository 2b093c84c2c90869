"""Grade one submission.

With this file one can grade a folder or a zip (`Grader.grade`): every task on every
device of it that this machine has, each in a worker of its own. Whatever a submission
does, the result is a `Report`; what is wrong with the grader itself is an error.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Condition, Lock
from typing import Any

from assignments import answers
from assignments.answers import Answer, Marks
from assignments.catalog import Assignment, Task, points
from assignments.checks import AnyCheck, Check, Properties, Speed
from assignments.grading import (
    intake,
    library,
    reading,
    sandbox,
    timing,
)
from assignments.grading.apart import Refused
from assignments.grading.channel import Failed, Worker
from assignments.grading.earlier import NOTHING, Earlier, merged
from assignments.grading.examine import FAILED, NOT_RUN, Inputs, Result, part
from assignments.grading.executor import STARTING, Executor, Times, broken
from assignments.grading.intake import Intake
from assignments.runner import Job, Runners
from assignments.simulated import simulates
from assignments.workspace import hints_line

ALWAYS = ("python", "simple", "cpu")  # devices that no extra has to be installed for


@dataclass(frozen=True, kw_only=True)
class Settings(Times):
    """How to grade.

    Attributes:
        secret: from which all inputs are drawn; whoever knows it knows the inputs.
        mode: of the sandbox; the best one if "".
        limits: of a worker.
        read_code: whether what `policy` finds counts.
        marks: a teacher's points for answers.
    """

    secret: str
    mode: str = ""
    limits: sandbox.Limits = field(default_factory=sandbox.Limits)
    read_code: bool = True
    marks: Marks = field(default_factory=dict)


ABSENT = "not handed in: "  # begins the note on files that a submission lacks


@dataclass(frozen=True)
class Graded:
    """A task's points on all its devices.

    Attributes:
        task: which.
        points: that were earned.
        results: of its checks, on each device.
    """

    task: Task
    points: float
    results: tuple[Result, ...]

    @property
    def seconds(self) -> float:
        """Time that its checks took."""
        return sum(result.seconds for result in self.results)

    @property
    def possible(self) -> float:
        """The points that could be earned here: none where nothing could run."""
        ran = any(result.status != NOT_RUN for result in self.results)
        return self.task.points if ran else 0.0


@dataclass(frozen=True)
class Report:
    """What a submission has earned.

    Attributes:
        assignment: which.
        name: of the submission.
        digest: of its files.
        mode: of the sandbox.
        tasks: in order.
        problem: why nothing could be graded, "" if all was.
        output: what the student's code printed, the beginning of it.
        seconds: that grading took.
        notes: about the earlier work that was carried along, and hints.
        failure: of the grader itself, for the teacher alone.
        answers: what `answers.md` says, with the points that a teacher gave.
    """

    assignment: Assignment
    name: str
    digest: str
    mode: str
    tasks: tuple[Graded, ...]
    problem: str = ""
    output: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    failure: str = ""
    answers: tuple[Answer, ...] = ()

    @property
    def points(self) -> float:
        """All points, bonus included."""
        given = sum(answer.points for answer in self.marked)
        return sum(graded.points for graded in self.tasks) + given

    @property
    def marked(self) -> list[Any]:
        """The answers that a teacher gave points; others do not count."""
        return [answer for answer in self.answers if answer.points is not None]

    @property
    def unjudged(self) -> list[str]:
        """The tasks of which the machine was too busy to judge a speed."""
        return [
            graded.task.id
            for graded in self.tasks
            if any(r.text.startswith(timing.NOISY) for r in graded.results)
        ]

    @property
    def possible(self) -> float:
        """What could be earned here, without the bonus."""
        marked = sum(answer.possible for answer in self.marked)
        return sum(g.possible for g in self.tasks if not g.task.bonus) + marked


def compiled(assignment: Assignment) -> list[str]:
    """The tasks that run on Numba's kernels for the CPU."""
    return [task.id for task in assignment.tasks if "cpu" in task.devices]


def compile_ahead(assignment: Assignment) -> None:
    """Let the library's own solutions compile what workers will read."""
    with Runners() as runners:
        for task in compiled(assignment):
            runners.run(Job(task, "cpu"))


class Quiet:
    """Lets many grade at the same time, and whoever measures speed be alone."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._working = 0
        self._waiting = 0
        self._alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While others may work, too."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else works."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._alone and not self._working)
            self._waiting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


@dataclass(frozen=True)
class Code:
    """A student's code, as a worker gets it.

    Attributes:
        tree: folder with the library, and the student's files in it.
        output: takes what it prints.
        untouched: the tasks of which nothing is written.
    """

    tree: Path
    output: bytearray
    untouched: Sequence[str] = ()


class Grader(Executor):
    """Grades submissions of one assignment.

    Args:
        assignment: which.
        settings: how.
    """

    def __init__(self, assignment: Assignment, settings: Settings) -> None:
        super().__init__(assignment, settings)
        self.settings = settings
        self.mode = settings.mode or sandbox.best_mode()
        problem = sandbox.why_not(self.mode)
        if problem:
            raise RuntimeError(f"grade: the sandbox {self.mode} fails here: {problem}")
        if self.edition:
            raise RuntimeError(
                f"grade: this library has no solutions of {assignment.id}, as in a "
                f"student edition; grade with the whole library"
            )
        self.quiet = Quiet()
        self._once = Lock()
        self._missing: dict[str, str] = {}
        self._found: dict[str | None, Path] = {}
        self._machine: timing.Machine | None = None
        self._look_at_machine()

    def _look_at_machine(self) -> None:
        """Without a package, or any of its devices, it cannot be graded here."""
        view = self.view(library.bare_tree(), "python", self.checks)
        lacking = sandbox.not_installed(view.packages)
        if lacking:
            raise RuntimeError(f"grade: {lacking}")
        names = {device for task in self.assignment.tasks for device in task.devices}
        why = {name: self.missing(name) for name in sorted(names - {"python"})}
        if why and all(why.values()):
            said = "; ".join(f"{name}: {text}" for name, text in why.items())
            raise RuntimeError(
                f"grade: {self.assignment.id} cannot be graded on this machine ({said})"
            )

    @property
    def weakness(self) -> str:
        """What the sandbox does not keep submissions from; "" if it is a strong one."""
        found = sandbox.WHAT_IS_OPEN.get(self.mode, "")
        return f"sandbox: {self.mode} only; {found}" if found else ""

    # ------------------------------------------------------------------ submissions

    def grade(self, path: Path, carried: Sequence[Earlier] = ()) -> Report:
        """Grade a folder or a zip.

        Args:
            carried: earlier work, which takes the place of the library's.
        """
        path = Path(os.path.abspath(path))  # "." has a name, too
        return self.grade_intake(path.name, self.read(path), carried)

    def read(self, path: Path) -> Intake:
        """What was handed in, opened and read, which no worker is needed for."""
        tasks = [task.id for task in self.assignment.tasks]
        return intake.read(path, self.assignment, self.settings.read_code, tasks)

    def grade_intake(
        self, name: str, taken: Intake, carried: Sequence[Earlier] = ()
    ) -> Report:
        """Grade what was read."""
        start = time.perf_counter()
        earlier = merged(carried)
        if taken.refused:
            tasks = tuple(
                self._nothing(task, taken.refused) for task in self.assignment.tasks
            )
            problem = f"refused: {taken.refused}"
            return Report(self.assignment, name, "", self.mode, tasks, problem)
        gone = [f.path for f in self.assignment.files if f.path not in taken.texts]
        absent = f"{ABSENT}{', '.join(gone)}" if gone else ""
        hints = hints_line(self.assignment, taken.hints)
        output = bytearray()
        graded = tuple(
            self._grade_task(task, taken, output, earlier)
            for task in self.assignment.tasks
        )
        return Report(
            *(self.assignment, name, taken.digest, self.mode, graded),
            output=output.decode(errors="replace"),
            seconds=time.perf_counter() - start,
            notes=(*earlier.notes, *filter(None, [absent, hints])),
            answers=self.answers(name, taken),
        )

    def answers(self, name: str, taken: Intake) -> tuple[Answer, ...]:
        """What was answered, with the teacher's points."""
        found = answers.read(taken.answers, self.assignment)
        return answers.marked(found, self.settings.marks.get(name, {}))

    def _nothing(self, task: Task, why: str) -> Graded:
        results = (Result(task.id, "submission", "", FAILED, text=why),)
        return Graded(task, 0.0, results)

    def _grade_task(
        self,
        task: Task,
        taken: Intake,
        output: bytearray,
        earlier: Earlier,
    ) -> Graded:
        """All devices of a task; equal parts of its points for those that ran.

        A file that cannot be used counts against the tasks that are solved in it; for
        other tasks the library's file takes its place.
        """
        why = "\n".join(
            taken.problems[task.id][file.path]
            for file in self.assignment.files
            if file.path in taken.problems[task.id]
            and reading.belongs(self.assignment, file, task)
        )
        if why:
            return self._nothing(task, why)
        files = taken.usable(task.id)
        results: list[Result] = []
        parts: dict[str, float | None] = {}
        inputs = Inputs(self.seed(taken.digest, earlier))
        links = self.mode in sandbox.STRONG
        try:
            tree = library.student_tree(
                self.assignment, files, task.id, earlier.files, links
            )
        except Refused as error:
            return self._nothing(task, str(error))
        code = Code(tree, output, taken.untouched)
        try:
            for device in task.devices:
                found = self.run(task, device, code, inputs)
                results += found
                parts[device] = part(task, found)
        finally:
            library.remove(tree)
        return Graded(task, points(task, parts), tuple(results))

    # ---------------------------------------------------------------------- workers

    def among(self, timed: bool) -> AbstractContextManager[Any]:
        """While speed is measured, nobody else works."""
        return self.quiet.alone() if timed else self.quiet.shared()

    def unwritten(self, task: Task, code: Code) -> bool:
        return task.id in code.untouched

    @property
    def files(self) -> list[str]:
        """The assignment's files, in the tree."""
        return [library.place(self.assignment, file) for file in self.assignment.files]

    def new_worker(
        self, device: str, checks: Sequence[AnyCheck], code: Code | None
    ) -> Worker:
        """A process in the sandbox."""
        tree = code.tree if code else library.reference_tree(self.assignment)
        kernels = self._kernels(checks[0].task if code else None)
        view = replace(self.view(tree, device, checks), kernels=kernels)
        output = code.output if code else None
        return Worker(view, self.settings.limits, self.mode, output)

    def _kernels(self, task: str | None) -> Path | None:
        """Compiled kernels, which a worker cannot write to; see `library.kernels`."""
        if self.mode not in sandbox.STRONG:
            return None
        with self._once:
            if task not in self._found:
                self._found[task] = library.kernels(self.assignment, task)
            return self._found[task]

    def seed(self, digest: str, earlier: Earlier = NOTHING) -> int:
        """The seed for a submission: no other submission gets the same inputs.

        What a student learns about inputs by printing them is therefore worth nothing.
        """
        key = hashlib.blake2b(self.settings.secret.encode(), digest_size=32).digest()
        text = f"{self.assignment.id} {digest} {earlier.digest}".strip().encode()
        return int.from_bytes(
            hashlib.blake2b(text, key=key, digest_size=7).digest(), "big"
        )

    def view(self, tree: Path, device: str, checks: Sequence[AnyCheck]) -> sandbox.View:
        """What a worker for these checks sees."""
        packages: tuple[str, ...] = sandbox.PACKAGES
        programs: tuple[str, ...] = ()
        environment = {}
        if any(isinstance(check, Properties) for check in checks):
            packages += sandbox.TEST_PACKAGES
        if any(isinstance(check, Check) and check.torch for check in checks):
            packages += sandbox.TORCH_PACKAGES
        if any(isinstance(check, Speed) for check in checks):
            environment["MALLOC_PERTURB_"] = "0"
        gpu = device == "cuda" and not simulates(device)
        if device == "cuda":
            packages += sandbox.CUDA_PACKAGES
            if not gpu:
                environment["NUMBA_ENABLE_CUDASIM"] = "1"
        if device == "mojo":
            packages += sandbox.MOJO_PACKAGES
            programs += sandbox.MOJO_PROGRAMS
        return sandbox.View(tree, packages, programs, gpu, environment)

    def missing(self, device: str) -> str:
        """Why this machine cannot run a device, "" if it can, by the reference.

        Raises:
            RuntimeError: the device's packages are there, and yet it does not work.
        """
        if device == "python":
            return ""
        with self._once:
            if device not in self._missing:
                self._missing[device] = self._look(device)
            return self._missing[device]

    def _look(self, device: str) -> str:
        view = self.view(library.reference_tree(self.assignment), device, [])
        lacking = sandbox.not_installed(view.packages)
        if lacking and device not in ALWAYS:
            return lacking
        with Worker(view, self.settings.limits, self.mode) as worker:
            try:
                worker.request({"do": "device", "device": device}, STARTING)
            except Failed as failure:
                raise broken(device, failure) from None
        return ""

    def machine(self, rival: Worker) -> timing.Machine:
        """This machine's limits, measured once, in a worker with the reference."""
        with self._once:
            if self._machine is None:
                value = rival.request({"do": "limits"}, seconds=120).value
                self._machine = timing.Machine(*value)
            return self._machine
