"""Grade one submission.

With this file one can grade a folder or a zip (`Grader.grade`): every task on every
device of it that this machine has, each in a worker of its own. Whatever a submission
does, the result is a `Report`; what is wrong with the grader itself is an error.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Lock

from assignments.catalog import Assignment, Task, earned
from assignments.checks import AnyCheck, Properties, Speed, why_not
from assignments.grading import (
    examine,
    library,
    reading,
    sandbox,
    submission,
    timing,
)
from assignments.grading.channel import Failed, Worker
from assignments.grading.earlier import NOTHING, Earlier, merged
from assignments.grading.examine import FAILED, NOT_RUN, Clock, Result
from assignments.simulated import simulates
from assignments.workspace import hints_line

ALWAYS = ("python", "simple", "cpu")  # devices that no extra has to be installed for
STARTING = 600.0  # seconds that the reference may take to start, on a busy machine


@dataclass(frozen=True)
class Settings:
    """How to grade.

    Attributes:
        secret: from which all inputs are drawn; whoever knows it knows the inputs.
        mode: of the sandbox; the best one if "".
        limits: of a worker.
        patience: a task, and the start of a worker, may take so many times the seconds
            that are stated for it.
        start_seconds: a worker may take to import the student's files.
        call_seconds: one call may take, or a quarter of its task's seconds.
        read_code: whether what `policy` finds counts.
    """

    secret: str
    mode: str = ""
    limits: sandbox.Limits = field(default_factory=sandbox.Limits)
    patience: float = 1.0
    start_seconds: float = 30.0
    call_seconds: float = 30.0
    read_code: bool = True


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

    @property
    def points(self) -> float:
        """All points, bonus included."""
        return sum(graded.points for graded in self.tasks)

    @property
    def possible(self) -> float:
        """What could be earned here, without the bonus."""
        return sum(g.possible for g in self.tasks if not g.task.bonus)


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


class Grader:
    """Grades submissions of one assignment.

    Args:
        assignment: which.
        settings: how.
    """

    def __init__(self, assignment: Assignment, settings: Settings) -> None:
        self.assignment = assignment
        self.settings = settings
        self.mode = settings.mode or sandbox.best_mode()
        problem = sandbox.why_not(self.mode)
        if problem:
            raise RuntimeError(f"grade: the sandbox {self.mode} fails here: {problem}")
        if not any(file.regions() for file in assignment.files):
            raise RuntimeError(
                f"grade: this library has no solutions of {assignment.id}, as in a "
                f"student edition; grade with the whole library"
            )
        self.checks: tuple[AnyCheck, ...] = assignment.checks()
        self.quiet = Quiet()
        self._once = Lock()
        self._missing: dict[str, str] = {}
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
        start = time.perf_counter()
        earlier = merged(carried)
        try:
            handed_in = submission.read(path, self.assignment)
        except submission.Refused as error:
            tasks = tuple(
                self._nothing(task, str(error)) for task in self.assignment.tasks
            )
            problem = f"refused: {error}"
            return Report(self.assignment, path.name, "", self.mode, tasks, problem)
        broken = submission.unreadable(handed_in.files)
        hints = hints_line(self.assignment, handed_in.hints)
        output = bytearray()
        graded = tuple(
            self._grade_task(task, handed_in, broken, output, earlier)
            for task in self.assignment.tasks
        )
        return Report(
            *(self.assignment, handed_in.name, handed_in.digest, self.mode, graded),
            output=output.decode(errors="replace"),
            seconds=time.perf_counter() - start,
            notes=(*earlier.notes, *filter(None, [hints])),
        )

    def _nothing(self, task: Task, why: str) -> Graded:
        results = (Result(task.id, "submission", "", FAILED, text=why),)
        return Graded(task, 0.0, results)

    def _grade_task(
        self,
        task: Task,
        handed_in: submission.Submission,
        broken: dict[str, str],
        output: bytearray,
        earlier: Earlier,
    ) -> Graded:
        """All devices of a task; equal parts of its points for those that ran."""
        files, why = self._files_for(task, handed_in, broken)
        if why:
            return self._nothing(task, why)
        results: list[Result] = []
        shares: list[list[float]] = []
        seed = self.seed(handed_in.digest, earlier)
        for device in task.devices:
            why = self.missing(device)
            if why:
                results.append(Result(task.id, "device", device, NOT_RUN, text=why))
                continue
            found = self._on_device(task, device, files, seed, output, earlier)
            results += found
            shares.append([r.share for r in found if r.status != NOT_RUN])
        ran = [found for found in shares if found]
        points = sum(earned(task.points / len(ran), s, task.partial) for s in ran)
        return Graded(task, points, tuple(results))

    def _files_for(
        self, task: Task, handed_in: submission.Submission, broken: dict[str, str]
    ) -> tuple[dict[str, bytes], str]:
        """The files with which a task is graded, and why it cannot be.

        A file that is no Python, or has what is not allowed, counts against the tasks
        that are solved in it; for other tasks the library's file takes its place.
        """
        files, problems = dict(handed_in.files), []
        for file in self.assignment.files:
            if file.path not in files:
                continue
            problem = broken.get(file.path, "")
            if not problem and self.settings.read_code:
                text = files[file.path].decode()
                problem = reading.not_allowed(self.assignment, file, text, task.id)
            if not problem:
                continue
            del files[file.path]
            if reading.belongs(self.assignment, file, task):
                problems.append(problem)
        return files, "\n".join(problems)

    def _on_device(
        self,
        task: Task,
        device: str,
        files: dict[str, bytes],
        seed: int,
        output: bytearray,
        earlier: Earlier = NOTHING,
    ) -> list[Result]:
        """The results of a task's checks on a device.

        Speed is measured in a worker of its own: in the others the allocator fills
        memory with garbage, which takes time.
        """
        checks = [
            check
            for check in self.checks
            if check.task == task.id and device in (check.devices or (device,))
        ]
        reasons = {check.name: why_not(check, device) for check in checks}
        results = [
            Result(task.id, name, device, NOT_RUN, text=why)
            for name, why in reasons.items()
            if why
        ]
        checks = [check for check in checks if not reasons[check.name]]
        if not checks:
            return results
        fast = [check for check in checks if isinstance(check, Speed)]
        others = [check for check in checks if not isinstance(check, Speed)]
        links = self.mode in sandbox.STRONG
        folder = library.student_tree(
            self.assignment, files, task.id, earlier.files, links
        )
        try:
            if others:
                with self.quiet.shared():
                    results += self._run(others, device, folder, seed, output)
            if fast:
                with self.quiet.alone():
                    results += self._run(fast, device, folder, seed, output)
        finally:
            library.remove(folder)
        return results

    def _run(
        self,
        checks: Sequence[AnyCheck],
        device: str,
        folder: Path,
        seed: int,
        output: bytearray,
    ) -> list[Result]:
        """Run checks in a new worker."""
        task = self.assignment.task(checks[0].task)
        results = []
        view = self.view(folder, device, checks)
        with Worker(view, self.settings.limits, self.mode, output) as worker:
            try:
                start = {"do": "start", "module": self.calls}
                seconds = self.settings.start_seconds * self.settings.patience
                worker.request(start, seconds)
            except Failed as failure:
                with self._reference(device, checks):
                    pass  # it can be imported, so this is no fault of the machine
                text = examine.describe(failure, {})
                return [
                    Result(c.task, c.name, device, FAILED, text=text) for c in checks
                ]
            clock = self._clock(task)
            for check in checks:
                if isinstance(check, Speed):
                    results.append(self._time(check, device, worker, seed, clock))
                else:
                    results.append(examine.examine(check, device, worker, seed, clock))
        return results

    def _clock(self, task: Task) -> Clock:
        """A call may take a quarter of its task's time: the first one compiles."""
        seconds = task.seconds * self.settings.patience
        return Clock(seconds, max(self.settings.call_seconds, seconds / 4))

    def _time(
        self, check: Speed, device: str, worker: Worker, seed: int, clock: Clock
    ) -> Result:
        with self._reference(device, [check]) as rival:
            machine = self.machine(rival) if device == "cpu" else None
            return timing.examine(check, device, worker, rival, machine, seed, clock)

    # ---------------------------------------------------------------------- workers

    @property
    def calls(self) -> str:
        """The module with the calls, as a worker knows it."""
        return f"assignments.{self.assignment.slug}.calls"

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

    @contextmanager
    def _reference(self, device: str, checks: Sequence[AnyCheck]) -> Iterator[Worker]:
        """A worker with the reference, ready to be called.

        Raises:
            RuntimeError: it does not start, so no submission can be blamed either.
        """
        view = self.view(library.reference_tree(self.assignment), device, checks)
        with Worker(view, self.settings.limits, self.mode) as rival:
            try:
                rival.request({"do": "start", "module": self.calls}, STARTING)
            except Failed as failure:
                raise _broken(device, failure) from None
            yield rival

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
                raise _broken(device, failure) from None
        return ""

    def machine(self, rival: Worker) -> timing.Machine:
        """This machine's limits, measured once, in a worker with the reference."""
        with self._once:
            if self._machine is None:
                value = rival.request({"do": "limits"}, seconds=120).value
                self._machine = timing.Machine(*value)
            return self._machine


def _broken(device: str, failure: Failed) -> RuntimeError:
    """The error where the machine, not a submission, is at fault."""
    text = examine.describe(failure, {}).partition("\n  inputs:")[0]
    return RuntimeError(
        f"grade: not even the reference works here on {device}: {text}\n"
        f"Nothing was graded. `minitorch doctor` looks at this machine"
    )
