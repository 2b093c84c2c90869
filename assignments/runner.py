"""Run the checks of tasks on the student's own machine, without a sandbox.

With this file `minitorch test`, pytest in a workspace and the tests of the course run a
task (`Runners.run`), as a grader does (`grading/executor.py`): its calls are made in a
worker, so that a crash or an endless loop is reported, and the other tasks still run.

`python -m assignments.runner` is the process that workers come from. It imports what is
slow to import but nothing of the library, and forks for each worker, which has all that
already. Numba simulates a GPU for a whole process or not at all, so workers for "cuda"
come from a process of their own where there is no GPU (`simulated.simulates`).
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import Any

from assignments import catalog, mojo_text, oracles, overlay, syntax, workspace
from assignments.checks import AnyCheck, Check, Speed
from assignments.grading import reading, sandbox
from assignments.grading.channel import Answer, Ask, Failed, Worker
from assignments.grading.examine import FAILED, Result
from assignments.grading.executor import STARTING, Executor, Times
from assignments.grading.worker import Worker as Loop
from assignments.simulated import simulates
from assignments.testing import Search

PRELOADED = ("hypothesis", "numpy", "numba")
PRELOADED_TO_SIMULATE = "numba.cuda"
PRELOADED_FOR_RANKS = "torch.distributed"  # where processes talk by Gloo
PROC = os.path.isdir("/proc/self")  # says what processes use; Linux alone has it
LOOK_EVERY = 0.005  # seconds between two looks at whether a process has ended


@dataclass
class Job:
    """What to check.

    Attributes:
        task: "a3.1".
        device: where; one of the task's.
        workspaces: folders whose files take the place of the library's; the first one
            that has a file wins.
        limit: seconds after which the task is stopped; the task's own if 0.
        together: take the student's functions for all tasks, not for this one alone.
        first_failure: stop after the first check that fails.
        check: the name of the only check to run; "" for all.
    """

    task: str
    device: str
    workspaces: list[str] = field(default_factory=list)
    limit: float = 0.0
    together: bool = False
    first_failure: bool = False
    check: str = ""


# ------------------------------------------------------------------- in the worker


class OwnLoop(Loop):
    """Answers requests in a process that sees all of the machine."""

    def act(self, request: dict[str, Any]) -> Any:
        """Do one thing; the first is to use the student's files."""
        if request["do"] != "use":
            return super().act(request)
        tempfile.tempdir = request["folder"]  # removed with all that is left there
        if request["garbage"]:
            _fill_new_memory()
        files = {name: Path(path) for name, path in request["files"].items()}
        overlay.install(files, request["kept"])
        if request["mojo"]:
            from mojo_ops import build

            paths = request["mojo"].items()
            build.replaced.update({name: Path(path) for name, path in paths})
        return None


def _fill_new_memory() -> None:
    """Let glibc fill memory, as it does for a grader's workers: mallopt(3), M_PERTURB.

    What a kernel does not write is then not zero.
    """
    import ctypes

    try:
        ctypes.CDLL(None).mallopt(-6, 1)
    except (AttributeError, OSError, TypeError):
        pass  # another C library


def _be_worker(link: int, out: int, err: int) -> None:
    """Answer requests in a fork, until there are no more."""
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        OwnLoop(socket.socket(fileno=link)).serve()
    finally:
        os._exit(0)


# --------------------------------------------------------------- in the first process


def serve(control: socket.socket, *more: str) -> None:
    """Start workers, and say how they ended, until nobody asks any more.

    Args:
        more: modules to import besides.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks hears it, too
    simulate = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
    for name in (*PRELOADED, *[PRELOADED_TO_SIMULATE] * simulate, *more):
        try:
            __import__(name)
        except (ImportError, AttributeError):  # numba-cuda and NumPy can be at odds
            pass
    gc.freeze()  # what is there by now, no worker has to search
    alive: set[int] = set()
    while True:
        data, given, *_ = socket.recv_fds(control, 1 << 10, 3)
        if not data:
            break
        question = json.loads(data)
        if given:
            alive.add(number := _fork(control, question["device"], given))
        answer = number if given else _code(question["ended"], alive)
        control.sendall(json.dumps(answer).encode() + b"\n")
    for number in alive:
        _end(number)


def _fork(control: socket.socket, device: str, given: list[int]) -> int:
    """The number of a new worker with these connections."""
    if device == "cpu":
        compile_something()
    number = os.fork()
    if number == 0:
        control.close()
        _be_worker(*given)
    for descriptor in given:
        os.close(descriptor)
    return number


def _code(number: int, alive: set[int]) -> int | None:
    """The exit code of a worker that has ended, as subprocess has it, or None."""
    found, status = os.waitpid(number, os.WNOHANG)
    if not found:
        return None
    alive.discard(number)
    return os.waitstatus_to_exitcode(status)


def _end(number: int) -> None:
    """Kill a worker, and what it has started."""
    try:
        os.killpg(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


@cache
def compile_something() -> None:
    """Let Numba load all that it loads before it first compiles, or reads its cache."""
    from numba import njit

    njit("int64(int64)")(lambda number: number)
    gc.freeze()


# ----------------------------------------------------------------- in the parent


class Server:
    """The process that workers are forked from.

    Args:
        simulate: simulate a GPU (Numba reads this when it is imported, so it holds for
            all workers of a server).
        torch: import PyTorch for all workers.
    """

    def __init__(self, simulate: bool = False, torch: bool = False) -> None:
        self._ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "assignments.runner", str(theirs.fileno())),
                *[PRELOADED_FOR_RANKS] * torch,
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=_environment(simulate),
        )
        theirs.close()
        self._answers = self._ours.makefile()

    def ask(self, question: dict[str, Any], given: Sequence[int] = ()) -> Any:
        """Ask the process for something, and give it open files."""
        data = json.dumps(question).encode()
        if given:
            socket.send_fds(self._ours, [data], given)
        else:
            self._ours.sendall(data)
        line = self._answers.readline()
        if not line:
            raise RuntimeError("runner: the process that starts workers has ended")
        return json.loads(line)

    def close(self) -> None:
        """Stop the process, and all workers."""
        self._answers.close()
        self._ours.close()
        self.process.wait(timeout=STARTING)


class Forked:
    """A worker's process, as `subprocess.Popen` shows one; its server waits for it."""

    def __init__(self, server: Server, device: str, link: socket.socket) -> None:
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        given = link.fileno(), out_end, err_end
        self._server = server
        self._code: int | None = None
        self.pid: int = server.ask({"device": device}, given)
        self.stdout, self.stderr = open(out, "rb", 0), open(err, "rb", 0)
        self.stdin = open(os.devnull, "wb")
        os.close(out_end)
        os.close(err_end)

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        if self._code is None:
            self._code = self._server.ask({"ended": self.pid})
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for it to end."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            time.sleep(LOOK_EVERY)
        return code

    def kill(self) -> None:
        """End it, and what it has started."""
        _end(self.pid)

    terminate = kill


class OwnWorker(Worker):
    """A worker without a sandbox.

    Args:
        server: what it is forked from.
        device: for which.
        folder: for its temporary files; removed with it.
    """

    def __init__(self, server: Server, device: str, folder: str) -> None:
        self._server, self._device, self._folder = server, device, folder
        super().__init__(sandbox.View(Path(folder)), sandbox.Limits(), "none")

    def _start(
        self, view: sandbox.View, limits: sandbox.Limits, mode: str
    ) -> sandbox.Started:
        ours, theirs = socket.socketpair()
        with theirs:
            process: Any = Forked(self._server, self._device, theirs)
        return sandbox.Started(process, ours, None)

    def _deadline(self, seconds: float) -> Callable[[], float]:
        end = time.perf_counter() + seconds
        return super()._deadline(seconds) if PROC else lambda: end - time.perf_counter()

    def freeze(self) -> float:
        return super().freeze() if PROC else 0.0

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Runners:
    """Runs jobs for any device: each in the kind of process that it needs.

    A process is started when the first job for it comes.

    Args:
        simulate: simulate a GPU also where there is one.
        say: takes what is known before a job has ended.
    """

    def __init__(
        self, simulate: bool = False, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self._simulate, self.say = simulate, say
        self._servers: dict[tuple[bool, bool], Server] = {}
        self.missing: dict[str, str] = {}
        self.read: dict[tuple[str, str, str], str] = {}  # texts, for all devices

    def run(self, job: Job) -> list[Result]:
        """The results of a job's checks."""
        return Own(self, job).results()

    def simulates(self, device: str) -> bool:
        """Whether this device's kernels run in Numba's simulator."""
        return simulates(device) or (self._simulate and device == "cuda")

    def server(self, device: str, torch: bool = False) -> Server:
        """The process from which workers for a device come."""
        kind = self.simulates(device), torch
        if kind not in self._servers:
            self._servers[kind] = Server(*kind)
        return self._servers[kind]

    def worker(self, device: str, folder: str, torch: bool = False) -> Worker:
        """A new worker, which may use a folder for its temporary files."""
        return OwnWorker(self.server(device, torch), device, folder)

    def close(self) -> None:
        """Stop all processes."""
        for server in self._servers.values():
            server.close()

    def __enter__(self) -> Runners:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Own(Executor):
    """Runs one job, with the files of workspaces in the place of the library's."""

    def __init__(self, runners: Runners, job: Job) -> None:
        starting = max(Times.start_seconds, job.limit)
        assignment = catalog.load(job.task.partition(".")[0])
        super().__init__(assignment, Times(start_seconds=starting), runners.say)
        self.runners, self.job = runners, job
        self.folders = [Path(folder).resolve() for folder in job.workspaces]
        self.paths = workspace.files_of(self.folders)
        mine = (check for check in self.checks if check.task == job.task)
        self.checks = tuple(c for c in mine if job.check in ("", c.name))
        self.task = self.assignment.task(job.task)
        self.problem = self._leave_out() if job.workspaces else None

    def results(self) -> list[Result]:
        """The results of the job's checks."""
        if self.problem is not None:
            return [self.problem]
        job = self.job
        if any(getattr(check, "oracle", "") == "PyTorch" for check in self.checks):
            Thread(target=_load_pytorch).start()
        task = replace(self.task, seconds=job.limit or self.task.seconds)
        run = partial(self.run, task, job.device, job, Search(), job.first_failure)
        found: list[Result] = []
        try:
            found = run()
        except RuntimeError:
            if not self._look(job.device):
                raise
        # Where all that ran was right, or wrong, the device works.
        failed = any(result.status == FAILED for result in found)
        return run() if (failed or not found) and self._look(job.device) else found

    def _leave_out(self) -> Result | None:
        """Leave out what a grader leaves out; why the task cannot be looked at, if so.

        A file that is no Python counts against the tasks that are solved in it, as one
        with what is not allowed does, of which `reading.refused` tells; for others the
        library's file takes its place.
        """
        for file in self.assignment.files:
            path = self.paths.get(file.module)
            if path is None or not path.is_relative_to(self.folders[0]):
                continue
            wrong = _why_not_python(path)
            if reading.belongs(self.assignment, file, self.task):
                if wrong is not None:
                    what = self.task.id, "", self.job.device, FAILED
                    place = f"{path.name}:{wrong.lineno}: {(wrong.text or '').strip()}"
                    lines = (("raised at", place),) if wrong.text else ()
                    return Result(*what, text=f"SyntaxError: {wrong.msg}", lines=lines)
            elif wrong is not None or self._not_allowed(file, path):
                del self.paths[file.module]
        return None

    def _not_allowed(self, file: catalog.File, path: Path) -> str:
        """What is in a file and may not be; it is read once, not for each device."""
        text = syntax.text_of(path.read_bytes())
        key = self.task.id, file.path, text
        if key not in self.runners.read:
            found = reading.not_allowed(self.assignment, file, text, self.task.id)
            self.runners.read[key] = found
        return self.runners.read[key]

    @property
    def files(self) -> list[str]:
        """The student's files."""
        own = [f.path for f in self.assignment.files if f.is_mojo]
        mojo = [str(folder / path) for folder in self.folders[:1] for path in own]
        return [*map(str, self.paths.values()), *mojo]

    def simulates(self, device: str) -> bool:
        return self.runners.simulates(device)

    def missing(self, device: str) -> str:
        """Why the library itself cannot use a device here, if `_look` has found it."""
        return self.runners.missing.get(device, "")

    def _look(self, device: str) -> str:
        """Look whether the library itself can use a device here: `missing`, once."""
        if device != "python" and device not in self.runners.missing:
            self.runners.missing[device] = self._try(device)
        return self.missing(device)

    def _try(self, device: str) -> str:
        with self._worker(device, False, False) as worker:
            try:
                worker.request({"do": "device", "device": device}, STARTING)
            except Failed as failure:
                # In a student edition, what a device needs can be a task.
                unwritten = failure.type == "NotImplementedError"
                return "" if unwritten else failure.text.partition("\n")[0]
        return ""

    def new_worker(
        self, device: str, checks: Sequence[AnyCheck], code: Job | None
    ) -> Worker:
        """A process that sees all of the machine."""
        garbage = not any(isinstance(check, Speed) for check in checks)
        used = bool(self.folders) and (code is not None or self.edition)
        return self._worker(device, garbage, used)

    def _worker(self, device: str, garbage: bool, used: bool) -> Worker:
        """A worker with the files of the workspaces, or with the library alone."""
        folder = Path(tempfile.mkdtemp(prefix="minitorch-worker-"))
        ranks = any(isinstance(each, Check) and each.torch for each in self.checks)
        worker = self.runners.worker(device, str(folder), ranks)
        files, kept = self.sources(folder) if used else ({}, {})
        request = {
            "do": "use",
            "folder": str(folder),
            "garbage": garbage,
            "files": files,
            "kept": kept,
            "mojo": self._mojo(folder) if used else {},
        }
        worker.request(request, STARTING)
        return worker

    def sources(self, folder: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
        """The files that take the place of modules, and what in them is the library's.

        `folder` takes what has to be made for that.
        """
        files = {**self._gone(folder), **self.paths}
        return {name: str(path) for name, path in files.items()}, self._kept(files)

    def _gone(self, folder: Path) -> dict[str, Path]:
        """Files of the assignment that a workspace lacks, as they were handed out."""
        files = self.assignment.files
        gone = [f for f in files if f.module and f.module not in self.paths]
        texts = workspace.stripped(self.assignment) if gone else {}
        for file in gone:
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / file.path).write_text(texts[file.path])
        return {file.module: folder / file.path for file in gone}

    def _kept(self, files: Collection[str]) -> dict[str, list[str]]:
        """For each module of this assignment, the functions that are the library's."""
        if self.job.together:
            return {}
        kept = self.assignment.others(self.job.task)
        return {name: sorted(kept[name]) for name in files if name in kept}

    def _mojo(self, folder: Path) -> dict[str, str]:
        """Mojo files, with the student's functions for the task."""
        made = {}
        for file in self.assignment.files:
            path = self.folders[0] / file.path
            if file.is_mojo and path.is_file():
                try:
                    text = syntax.text_of(path.read_bytes())
                except ValueError:
                    if reading.belongs(self.assignment, file, self.task):
                        raise
                    continue  # as a file that is no Python: the library's is used
                words = file, text, self.assignment, self.job.task, self.job.together
                (folder / path.name).write_text(mojo_text.as_checked(*words))
                made[path.stem] = str(folder / path.name)
        return made


def _load_pytorch() -> None:
    """That takes a second, and so does the start of a worker."""
    with suppress(ImportError, RuntimeError):  # who needs it will tell; or all ends
        oracles.load()


def _why_not_python(path: Path) -> SyntaxError | None:
    data = path.read_bytes()
    try:
        syntax.text_of(data)
        overlay.compiled(data, str(path))
    except SyntaxError as error:
        return error
    except ValueError as error:
        return SyntaxError(str(error), (str(path), 1, 1, ""))
    return None


# ------------------------------------------------------------------- for a debugger


class HereLoop(Loop):
    """Answers requests in the process that asks."""

    def __init__(self) -> None:
        super().__init__(socket.socket())
        self.asked: Ask | None = None

    def act(self, request: dict[str, Any]) -> Any:
        """Do one thing; who debugs has imported the student's files already."""
        return None if request["do"] == "use" else super().act(request)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.asked is not None
        return {"answers": self.asked(question["questions"])}


class HereWorker(Worker):
    """A worker that is no process of its own."""

    def __init__(self, folder: str) -> None:
        self._loop, self._folder, self.output = HereLoop(), folder, bytearray()
        self.dead = ""

    def request(
        self,
        message: dict[str, Any],
        seconds: float,
        answer_bytes: int = 0,
        ask: Ask | None = None,
    ) -> Answer:
        self._loop.asked = ask
        start = time.perf_counter()
        reply = self._loop.answer({"id": "", **message})
        if reply["is"] == "error":
            raise Failed("raised", reply["text"], reply["type"], reply["where"])
        return Answer(reply["value"], time.perf_counter() - start)

    def close(self) -> None:
        self._loop.connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Here(Runners):
    """Makes all calls in this process, so that a debugger can stop in them."""

    def worker(self, device: str, folder: str, torch: bool = False) -> Worker:
        return HereWorker(folder)


def _environment(simulate: bool) -> dict[str, str]:
    """The library's folder first, so that a workspace's folders do not hide it."""
    root = str(Path(__file__).resolve().parent.parent)
    rest = os.environ.get("PYTHONPATH")
    path = f"{root}{os.pathsep}{rest}" if rest else root
    env = {**os.environ, "PYTHONPATH": path, "OMP_WAIT_POLICY": "passive"}
    return {**env, "NUMBA_ENABLE_CUDASIM": "1"} if simulate else env


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:])
