"""The one executor: runs the checks of a task on a device, in workers.

With this file a grader and a student's `minitorch test` run the same checks in the same
way (`Executor.run`). They differ in how a worker is started, `Executor.new_worker`, and
in where inputs come from, `examine.Inputs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from assignments.catalog import Assignment, Task
from assignments.checks import AnyCheck, Speed, why_not
from assignments.grading import examine, timing
from assignments.grading.channel import Failed, Worker
from assignments.grading.examine import CRASHED, NOT_RUN, PASSED, Clock, Inputs, Result
from assignments.simulated import simulates

STARTING = 600.0  # seconds that the reference may take to start, on a busy machine


@dataclass(frozen=True)
class Times:
    """What a task may take.

    Attributes:
        patience: so many times the seconds that are stated for it, or for a worker.
        start_seconds: a worker may take to import the student's files.
        call_seconds: one call may take, or a quarter of its task's seconds.
    """

    patience: float = 1.0
    start_seconds: float = 30.0
    call_seconds: float = 30.0

    def clock(self, task: Task) -> Clock:
        """A call may take a quarter of its task's time: the first one compiles."""
        seconds = task.seconds * self.patience
        return Clock(seconds, max(self.call_seconds, seconds / 4))


class Executor(ABC):
    """Runs the checks of an assignment's tasks.

    Args:
        assignment: which.
        times: what a task may take.
        say: takes what is known before a task has been checked.
    """

    def __init__(
        self,
        assignment: Assignment,
        times: Times,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.assignment = assignment
        self.times = times
        self.say = say
        self.checks: tuple[AnyCheck, ...] = assignment.checks()

    @abstractmethod
    def new_worker(self, device: str, checks: Sequence[AnyCheck], code: Any) -> Worker:
        """A process in which these checks' calls can be made.

        Args:
            code: a student's, as `run` was given it; None for the reference.
        """

    @abstractmethod
    def missing(self, device: str) -> str:
        """Why nothing can run on a device here, "" if it can."""

    def simulates(self, device: str) -> bool:
        """Whether a device's kernels run in Numba's simulator."""
        return simulates(device)

    def machine(self, rival: Worker) -> timing.Machine | None:
        """What this machine can do at most, where somebody looks at it."""
        return None

    def among(self, timed: bool) -> AbstractContextManager[Any]:
        """While checks run: who measures speed may want to be alone."""
        return nullcontext()

    def unwritten(self, task: Task, code: Any) -> bool:
        """Whether it is known, without a run, that nothing of a task is written."""
        return False

    @property
    def calls(self) -> str:
        """The module with the calls, as a worker knows it."""
        return f"assignments.{self.assignment.slug}.calls"

    def run(
        self,
        task: Task,
        device: str,
        code: Any,
        inputs: Inputs,
        first_failure: bool = False,
    ) -> list[Result]:
        """The results of a task's checks on a device.

        Speed is measured in a worker of its own: in the others the allocator fills
        memory with garbage, which takes time.

        Args:
            first_failure: stop after the first check that earns nothing.
        """
        why = self.missing(device)
        if why:
            return [Result(task.id, "device", device, NOT_RUN, text=why)]
        results, ready = [], []
        for check in self.checks:
            if check.task == task.id and device in (check.devices or (device,)):
                why = why_not(check, device, self.simulates(device))
                if why:
                    what = task.id, check.name, device, NOT_RUN
                    results.append(Result(*what, text=why))
                else:
                    ready.append(check)
        if ready and self.unwritten(task, code):
            return [*results, examine.unwritten(task.id, device)]
        for timed in (False, True):
            some = [check for check in ready if isinstance(check, Speed) == timed]
            stop = first_failure and any(_lost(result) for result in results)
            if some and not stop:
                with self.among(timed):
                    results += self._run(
                        task, some, device, code, inputs, first_failure
                    )
        return timing.uncounted(results, task.partial)

    def _run(
        self,
        task: Task,
        checks: Sequence[AnyCheck],
        device: str,
        code: Any,
        inputs: Inputs,
        first_failure: bool,
    ) -> list[Result]:
        """Run checks in a new worker."""
        results: list[Result] = []
        with self.new_worker(device, checks, code) as worker:
            try:
                seconds = self.times.start_seconds * self.times.patience
                worker.request(self._start(), seconds)
            except Failed as failure:
                with self.reference(device, checks):
                    pass  # it can be imported, so this is no fault of the machine
                problem = examine.describe(failure)
                return [problem.result(check, device) for check in checks]
            clock = self.times.clock(task)
            timed = isinstance(checks[0], Speed)
            with self.reference(device, checks) if timed else nullcontext() as rival:
                for check in checks:
                    results.append(
                        self._one(check, device, worker, rival, inputs, clock)
                    )
                    if first_failure and _lost(results[-1]):
                        break
        return results

    def _start(self) -> dict[str, Any]:
        """The first request: what is imported, and which files are a student's."""
        return {"do": "start", "module": self.calls, "files": self.files}

    @property
    @abstractmethod
    def files(self) -> list[str]:
        """The student's files, absolute or in the tree, to point at lines of them."""

    def _one(
        self,
        check: AnyCheck,
        device: str,
        worker: Worker,
        rival: Worker | None,
        inputs: Inputs,
        clock: Clock,
    ) -> Result:
        if worker.dead:
            return examine.Problem(CRASHED, worker.dead).result(check, device)
        before = len(worker.output)
        if isinstance(check, Speed):
            assert rival is not None
            result = self._speed(check, device, worker, rival, inputs, clock)
        else:
            result = examine.examine(check, device, worker, inputs, clock)
        printed = bytes(worker.output[before:]).decode(errors="replace").strip()
        lines = [*result.lines]
        if result.status in (examine.WRONG, examine.FAILED) and check.hint:
            lines.append(("hint", check.hint))
        if result.status != PASSED and printed:
            lines.append(("printed", printed))
        return replace(result, lines=tuple(lines))

    def _speed(
        self,
        check: Speed,
        device: str,
        worker: Worker,
        rival: Worker,
        inputs: Inputs,
        clock: Clock,
    ) -> Result:
        """Points are lost only where the library's own solution does not lose them.

        It is timed after the student's, which is then timed again: a machine that was
        slow for a while costs nobody points.
        """
        machine = self.machine(rival) if device == "cpu" else None
        what = f"{check.task} on {device}: {check.name}"
        right = partial(self.say, f"{what}: the result is right; timing it ...")
        result = timing.examine(
            check, device, worker, rival, machine, inputs.seed, clock, right
        )
        if result.ratio is None or result.share == 1 or self.edition:
            return result

        def later(worker: Worker, machine: timing.Machine | None) -> Result:
            clock = self.times.clock(self.assignment.task(check.task))
            return timing.examine(
                check, device, worker, rival, machine, inputs.seed, clock
            )

        with self.reference(device, [check]) as library:
            best = later(library, None)
        if best.share == 1:
            again = later(worker, machine)
            if again.ratio is None or again.share >= result.share:
                result = again
        return timing.beside(result, best)

    @property
    def edition(self) -> bool:
        """Whether this is a student edition, whose rungs are the student's own."""
        return not any(file.regions() for file in self.assignment.files)

    @contextmanager
    def reference(self, device: str, checks: Sequence[AnyCheck]) -> Iterator[Worker]:
        """A worker with the reference, ready to be called.

        Raises:
            RuntimeError: it does not start, so no submission can be blamed either.
        """
        with self.new_worker(device, checks, None) as rival:
            try:
                rival.request(self._start(), STARTING)
            except Failed as failure:
                raise broken(device, failure) from None
            yield rival


def _lost(result: Result) -> bool:
    return result.share == 0 and result.status != NOT_RUN


def broken(device: str, failure: Failed) -> RuntimeError:
    """The error where the machine, not a submission, is at fault."""
    said = examine.describe(failure)
    where = "".join(f"; {label} {text}" for label, text in said.lines)
    return RuntimeError(
        f"grade: not even the reference works here on {device}: {said.reason}{where}\n"
        f"Nothing was graded. `minitorch doctor` looks at this machine"
    )
