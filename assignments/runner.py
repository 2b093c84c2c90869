"""Run the checks of tasks, each task in a process of its own.

With this file `minitorch test`, pytest in a workspace and the tests of the course run a
task (`Runners.run`): a crash or an endless loop of one task is reported, and the others
still run. Numba simulates a GPU for a whole process or not at all, so jobs for "cuda"
go to a process of their own where there is no GPU (`simulated.simulates`).

`python -m assignments.runner` is the process that the tasks' processes come from. It
imports what is slow to import (PyTorch, Numba, Hypothesis) but nothing of the library,
and forks for each task, which has all that already; where there is no fork, a task gets
a fresh process.

A job and its answer are one line of JSON each.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assignments.simulated import simulates
from assignments.testing import (
    CRASHED,
    FAILED,
    HUNG,
    NOT_RUN,
    PASSED,
    Outcome,
    raised,
)

PRELOADED = ("hypothesis", "numpy", "torch", "numba")
PRELOADED_TO_SIMULATE = "numba.cuda"
STARTING = 60.0  # seconds that a process may take to start


@dataclass
class Job:
    """What to check.

    Attributes:
        task: "a3.1".
        device: where; one of the task's.
        workspaces: folders whose files take the place of the library's; the first one
            that has a file wins.
        limit: seconds after which the task's process is stopped.
        together: take the student's functions for all tasks, not for this one alone.
        first_failure: stop after the first check that fails.
    """

    task: str
    device: str
    workspaces: list[str] = field(default_factory=list)
    limit: float = 60.0
    together: bool = False
    first_failure: bool = False


# ------------------------------------------------------------- in the task's process


def run_here(job: Job) -> list[Outcome]:
    """Install the overlay and run the checks of a job in this process."""
    from assignments import catalog, mojo_text, overlay, workspace
    from assignments.testing import run_check

    assignment = catalog.load(job.task.partition(".")[0])
    files = workspace.files_of([Path(folder) for folder in job.workspaces])
    kept = {} if job.together else assignment.others(job.task)
    own = {file.module for file in assignment.files}
    folder = Path(job.workspaces[0] if job.workspaces else ".").resolve()
    mine = {
        name: names
        for name, names in kept.items()
        if name in own and name in files and files[name].parent.is_relative_to(folder)
    }
    overlay.install(files, mine)
    mojo = (
        []
        if not job.workspaces
        else mojo_text.use(assignment, folder, job.task, job.together)
    )
    checks = [
        check
        for check in assignment.checks(job.task)
        if check.devices is None or job.device in check.devices
    ]
    places = [str(path) for path in (*files.values(), *mojo)]
    error = device_error(job.device)
    if error is not None:
        return [_unusable(job, check.name, error, places) for check in checks]
    outcomes = []
    for check in checks:
        outcomes.append(run_check(check, job.device, places))
        last = outcomes[-1]
        if job.first_failure and last.share == 0 and last.status != NOT_RUN:
            break
    return outcomes


def device_error(device: str) -> Exception | None:
    """Why checks cannot run on a device here; None if they can."""
    if device == "python":
        return None
    from minitorch.backend import available_devices, get_backend
    from minitorch.dtypes import float32

    if device not in available_devices():
        return RuntimeError(f"no backend for {device!r} is installed")
    try:
        backend = get_backend(device)
        backend.full((1,), 0.0, float32)
        backend.synchronize()
    except NotImplementedError:
        return None
    except Exception as error:  # whatever keeps a device from working is its problem
        return error
    return None


def _unusable(job: Job, check: str, error: Exception, files: list[str]) -> Outcome:
    """The outcome where a device does not work: a student's mistake, or not."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    problem = raised(error, files)
    if problem.lines:  # it comes from one of the student's files
        found = Outcome(job.task, check, job.device, FAILED, reason=problem.reason)
        found.lines = problem.lines
        return found
    why = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return Outcome(job.task, check, job.device, NOT_RUN, reason=why)


def _answer(job: Job) -> dict[str, Any]:
    try:
        return {"outcomes": [outcome.as_dict() for outcome in run_here(job)]}
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        lines = (str(error).strip().splitlines() or [""])[0]
        where = (
            f" ({error.filename}:{error.lineno})"
            if isinstance(error, SyntaxError)
            else ""
        )
        return {"error": f"{type(error).__name__}: {lines}{where}"}


# --------------------------------------------------------------- in the first process


def serve() -> None:
    """Read jobs from stdin, and write their answers to stdout, until stdin ends."""
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what student code prints goes to stderr
    simulate = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
    for name in (*PRELOADED, *[PRELOADED_TO_SIMULATE] * simulate):
        try:
            __import__(name)
        except (ImportError, AttributeError):  # numba-cuda and NumPy can be at odds
            pass
    gc.freeze()  # what is there by now, no task has to search
    for line in sys.stdin:
        job = Job(**json.loads(line))
        if job.device == "cpu":
            compile_something()
        answer = _in_fork(job) if hasattr(os, "fork") else in_new_process(job)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


@cache
def compile_something() -> None:
    """Let Numba load all that it loads before it first compiles, or reads its cache."""
    from numba import njit

    njit("int64(int64)")(lambda number: number)
    gc.freeze()


def _in_fork(job: Job) -> dict[str, Any]:
    """Run a job in a child process; what it says, or how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        result, output = Path(folder) / "result", Path(folder) / "output"
        child = os.fork()
        if child == 0:
            _be_child(job, result, output)
        status = _wait(child, job.limit)
        return _said(result, output, None if status is None else describe_end(status))


def in_new_process(job: Job) -> dict[str, Any]:
    """The same where there is no fork: all is imported anew for each job."""
    with tempfile.TemporaryDirectory() as folder:
        result, output = Path(folder) / "result", Path(folder) / "output"
        said = json.dumps(asdict(job))
        words = [sys.executable, "-m", "assignments.runner", said, str(result)]
        with output.open("wb") as printed:
            child = subprocess.Popen(words, stdout=printed, stderr=printed)
            try:
                end = f"exit code {child.wait(job.limit + STARTING)}"
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                return _said(result, output, None)
        return _said(result, output, end)


def _said(result: Path, output: Path, end: str | None) -> dict[str, Any]:
    """The answer of a process that ended as `end` says, or (None) had to be stopped."""
    text = output.read_text(errors="replace")[-4000:] if output.exists() else ""
    if end is None:
        return {"hung": True, "output": text}
    if not result.exists():
        return {"crash": end, "output": text}
    return {**json.loads(result.read_text()), "output": text}


def _be_child(job: Job, result: Path, output: Path) -> None:
    try:
        os.setpgid(0, 0)
        printed = os.open(output, os.O_WRONLY | os.O_CREAT, 0o600)
        for descriptor in (1, 2):
            os.dup2(printed, descriptor)
        _answer_into(job, result)
    finally:
        os._exit(0)


def _answer_into(job: Job, result: Path) -> None:
    tempfile.tempdir = str(result.parent)  # removed with all that the task leaves there
    answer = json.dumps(_answer(job))
    sys.stdout.flush()
    part = result.with_suffix(".part")
    part.write_text(answer)
    part.rename(result)


def _wait(child: int, limit: float) -> int | None:
    """The exit status of a child; None if it had to be stopped."""
    done: queue.Queue[int] = queue.Queue()
    waiter = threading.Thread(target=lambda: done.put(os.waitpid(child, 0)[1]))
    waiter.start()
    try:
        status: int | None = done.get(timeout=limit)
    except queue.Empty:
        status = None
    try:
        os.killpg(child, signal.SIGKILL)  # also what it started
    except (ProcessLookupError, PermissionError):
        pass
    waiter.join()
    return status


def describe_end(status: int) -> str:
    """How a process ended, from its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"killed by {signal.Signals(number).name}"
    return f"ended by itself with exit code {os.waitstatus_to_exitcode(status)}"


# ----------------------------------------------------------------- in the parent


class Runner:
    """Runs jobs, one after the other.

    Args:
        simulate: simulate a GPU (Numba reads this when it is imported, so it holds for
            all jobs of a runner).
    """

    def __init__(self, simulate: bool = False) -> None:
        env = {**os.environ, "PYTHONPATH": _search_path(), "OMP_WAIT_POLICY": "passive"}
        if simulate:
            env["NUMBA_ENABLE_CUDASIM"] = "1"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "assignments.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def run(self, job: Job) -> list[Outcome]:
        """The outcomes of a job's checks; one for the whole task if it crashed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(asdict(job)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("runner: the process that runs the checks has ended")
        return _outcomes(job, json.loads(line))

    def close(self) -> None:
        """Stop the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=STARTING)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Runners:
    """Runs jobs for any device: each in the kind of process that it needs.

    A process is started when the first job for it comes.

    Args:
        simulate: simulate a GPU also where there is one.
    """

    def __init__(self, simulate: bool = False) -> None:
        self._simulate = simulate
        self._runners: dict[bool, Runner] = {}

    def run(self, job: Job) -> list[Outcome]:
        """The outcomes of a job's checks, as `Runner.run` gives them."""
        simulate = simulates(job.device) or (self._simulate and job.device == "cuda")
        if simulate not in self._runners:
            self._runners[simulate] = Runner(simulate)
        return self._runners[simulate].run(job)

    def close(self) -> None:
        """Stop all processes."""
        for runner in self._runners.values():
            runner.close()

    def __enter__(self) -> Runners:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _search_path() -> str:
    """The library's folder first, so that a workspace's folders do not hide it."""
    root = str(Path(__file__).resolve().parent.parent)
    rest = os.environ.get("PYTHONPATH")
    return f"{root}{os.pathsep}{rest}" if rest else root


def _outcomes(job: Job, answer: Mapping[str, Any]) -> list[Outcome]:
    if "outcomes" in answer:
        found = [Outcome(**values) for values in answer["outcomes"]]
        for outcome in found:
            outcome.lines = [(a, b) for a, b in outcome.lines or []]
            if answer["output"].strip() and outcome.status != PASSED:
                outcome.lines.append(("printed", answer["output"].strip()))
        return found
    status, reason = CRASHED, str(answer.get("error", ""))
    if answer.get("hung"):
        status, reason = HUNG, f"did not end within {job.limit:g} s: an endless loop?"
    elif "crash" in answer:
        reason = f"the process crashed: {answer['crash']}"
    return [Outcome(job.task, "", job.device, status, 0.0, reason, _tail(answer))]


def _tail(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    text = "\n".join(str(answer.get("output", "")).strip().splitlines()[-8:])
    return [("printed", text)] if text else []


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _answer_into(Job(**json.loads(sys.argv[1])), Path(sys.argv[2]))
    else:
        serve()
