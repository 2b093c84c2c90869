"""What runs inside the sandbox: the student's code, one call at a time.

`python -I -S -B worker.py SOCKET LIMITS` takes requests from the socket that it
inherits and answers each once. It first gives up what it may not have (`_restrict`),
before any file of the student is read. Nothing in this process is trusted: the grader
takes what it sends for the answer to what was asked, and for nothing else.
"""

from __future__ import annotations

import gc
import json
import linecache
import os
import re
import resource
import socket
import sys
from collections.abc import Collection
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEXT_LIMIT = 4000
REQUEST_LIMIT = 1 << 31
CHUNK = 1 << 16  # bytes to read at once; new memory is filled here, which takes time
EXAMPLES = 60  # of each of a student's tests
REMEMBERED = 5_000  # questions that one message may bring along


def _restrict(limits: dict[str, int | None]) -> None:
    """Set the limits of this process and of all that it starts, for good."""
    kinds = {
        "memory": resource.RLIMIT_AS,
        "processes": resource.RLIMIT_NPROC,
        "file_bytes": resource.RLIMIT_FSIZE,
        "open_files": resource.RLIMIT_NOFILE,
        "cpu_seconds": resource.RLIMIT_CPU,
    }
    user = limits.get("user")
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for name, kind in kinds.items():
        value = limits.get(name)
        if value is not None:
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _forbid_new_rights()
    os.umask(0o077)


def _forbid_new_rights() -> None:
    """No program that is started from here gains rights by setuid.

    This process ends with its parent; becoming another user has undone that, if it was
    so before.
    """
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, prctl(2)
    prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL


class Worker:
    """The loop over requests.

    Args:
        connection: the socket to the grader.
    """

    def __init__(self, connection: socket.socket) -> None:
        from assignments import fences
        from assignments.grading import wire

        self.wire, self.fences = wire, fences
        self.connection = connection
        self.module: Any = None
        self.files: set[str] = set()
        self.inputs: Any = None
        self.timed: Any = None
        self.read: Any = None
        self.result: Any = None
        self.questions: dict[str, list[Any]] = {}  # by all runs of a student's tests

    def serve(self) -> None:
        """Answer requests until the grader closes the socket."""
        gc.set_threshold(20_000, 20, 20)  # compilers make objects by the million
        while True:
            request = self.receive()
            if request is None:
                return
            self.send({"id": request["id"], **self.answer(request)})

    def receive(self) -> dict[str, Any] | None:
        """The next message of the grader; None at the end."""
        reader = self.wire.Reader(REQUEST_LIMIT)
        while True:
            data = self.connection.recv(CHUNK)
            if not data:
                return None
            message = reader.feed(data)
            if message is not None:
                return message

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; what cannot be sent is sent as an error."""
        try:
            data = self.wire.encode(message)
        except self.wire.WireError as error:
            text = f"the call returned {error}"
            failed = {"id": message["id"], "is": "error", "type": "TypeError"}
            data = self.wire.encode({**failed, "text": text, "where": ""})
        self.connection.sendall(data)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask the grader for operators' values."""
        self.connection.sendall(self.wire.encode({"is": "ask", **question}))
        reply = self.receive()
        if reply is None:
            raise SystemExit("the grader has gone")
        return reply

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for; any error, SystemExit too, is an answer."""
        try:
            value = self.act(request)
            sys.stdout.flush()
            return {"is": "ok", "value": value}
        except BaseException as error:
            return {"is": "error", **describe(error, self.files)}

    def act(self, request: dict[str, Any]) -> Any:
        """Do one thing."""
        action = request["do"]
        if action == "start":
            self.files = {os.path.join(ROOT, file) for file in request.get("files", ())}
            return self.start(request["module"])
        if action == "call":
            call = getattr(self.module, request["call"])
            with self.fences.watching(request["device"]):
                return call(request["device"], **request["inputs"])
        if action == "load":
            self.inputs = request["inputs"]
            return self.wire.digest(self.inputs)
        if action == "prepare":
            call = getattr(self.module, request["call"])
            self.timed, self.read = call(request["device"], **self.inputs)
            return None
        if action == "go":
            self.result = self.timed()
            return None
        if action == "read":
            result, self.result = self.result, None
            return self.read(result)
        if action == "properties":
            return self.properties(request)
        if action == "device":
            return self.device(request["device"])
        if action == "limits":
            from fast_ops import limits

            return [limits.bandwidth(), limits.peak_flops()]
        raise ValueError(f"worker: no action {action!r}")

    def start(self, module: str) -> None:
        """Import the module whose functions are called."""
        import importlib

        if module:
            self.module = importlib.import_module(module)

    def device(self, name: str) -> None:
        """Raise where a device does not work here."""
        from minitorch.backend import available_devices, get_backend
        from minitorch.dtypes import float32

        if name not in available_devices():
            raise RuntimeError(f"no backend for {name!r} is installed")
        backend = get_backend(name)
        backend.full((1,), 0.0, float32)
        backend.synchronize()

    def properties(self, request: dict[str, Any]) -> Any:
        """Run the student's tests on operators that the grader computes."""
        import importlib

        import hypothesis

        # The first failure is enough, and the same each time: nobody reads the example.
        hypothesis.settings.register_profile(
            "grader",
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            derandomize=True,
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        hypothesis.settings.load_profile("grader")
        names = request["names"]
        proxy = Operators(self, request["id"], names)
        return first_failure(vars(importlib.import_module(request["module"])), proxy)


def first_failure(names: dict[str, Any], ops: Any) -> dict[str, str]:
    """Run tests until one fails: their names, and how it failed."""
    outcome: dict[str, str] = {}
    for name, test in list(names.items()):
        if not name.startswith("test_") or not callable(test):
            continue
        try:
            test(ops)
        except NotImplementedError:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            return {**outcome, name: f"{type(error).__name__}: {lines[0]}"}
        outcome[name] = ""
    return outcome


class Operators:
    """Operators that are computed elsewhere: a call goes to the grader, but once.

    Hypothesis draws the same numbers for each run of the tests, and a message takes
    longer than a test: the first one of a run asks what the runs before it asked.
    """

    def __init__(self, worker: Worker, number: str, names: list[str]) -> None:
        known: dict[str, dict[str, Any]] = {}
        for name in names:
            setattr(self, name, self._ask(worker, number, name, known))

    @staticmethod
    def _ask(
        worker: Worker, number: str, name: str, known: dict[str, dict[str, Any]]
    ) -> Any:
        def ask(*inputs: Any) -> Any:
            key = repr((name, inputs))
            if key not in known:
                earlier = {} if known else worker.questions
                wanted = {**earlier, key: [name, list(inputs)]}
                question = {"id": number, "questions": list(wanted.values())}
                known.update(zip(wanted, worker.ask(question)["answers"]))
                if "value" in known[key] and len(worker.questions) < REMEMBERED:
                    worker.questions[key] = wanted[key]
            reply = known[key]
            if "raises" in reply:
                raise RAISED.get(reply["raises"], RuntimeError)(reply["text"])
            return reply["value"]

        ask.__name__ = ask.__qualname__ = name
        return ask


RAISED: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        ArithmeticError,
        AssertionError,
        AttributeError,
        IndexError,
        KeyError,
        NotImplementedError,
        OverflowError,
        RuntimeError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    )
}


SHOWN_PLACES = 3  # of the lines that an error went through


def describe(error: BaseException, files: Collection[str]) -> dict[str, str]:
    """An error's type, its message, and the last lines of these files it went through:
    the very last one is often a given function's, which says why, but not whose call.

    A line that the files do not have is a library's function in one of them.
    """
    import traceback

    places: dict[str, None] = {}
    for file, number, function, line in getattr(error, "frames", ()):
        if file in files and line:  # of a rank, in a process of its own
            places[f"{os.path.basename(file)}:{number}, in {function}: {line}"] = None
    if isinstance(error, SyntaxError):
        place = f"{os.path.basename(error.filename or '')}:{error.lineno or ''}"
        places = {f"{place}: {(error.text or '').strip()}": None}
    cause: BaseException | None = error
    while cause is not None:
        for frame in traceback.extract_tb(cause.__traceback__):
            if frame.filename in files and frame.line:
                name = f"{os.path.basename(frame.filename)}:{frame.lineno}"
                places[f"{name}, in {frame.name}: {frame.line}"] = None
        cause = cause.__cause__
    try:
        text = str(error)[:TEXT_LIMIT]
    except Exception:
        text = "(its message cannot be had)"
    for path, number in re.findall(r'^File "(.+)", line (\d+):', text, re.M):
        file = next((f for f in files if f.endswith(path.lstrip("./"))), "")
        if file:  # Numba says which line it cannot compile
            line = linecache.getline(file, int(number)).strip()
            places[f"{os.path.basename(file)}:{number}: {line}"] = None
    name = type(error).__name__
    where = "\n".join(list(places)[-SHOWN_PLACES:])
    return {"type": str(name)[:100], "text": text, "where": where[:TEXT_LIMIT]}


def _prepare_numba_cuda(packages: list[str]) -> None:
    """What numba-cuda expects of a Python that was started without -S.

    Its .pth file lets `numba.cuda` be the package numba-cuda, not the old part of
    Numba; and CUDA's libraries are looked for where the module `site` says.
    """
    try:
        import _numba_cuda_redirector  # noqa: F401
    except ImportError:
        return  # no worker for "cuda", or the package is not installed
    import site

    site.ENABLE_USER_SITE, site.USER_SITE = True, packages[0]


def main() -> None:
    """Give up what this process may not have, then serve."""
    del sys.path[0]  # this file's folder
    _restrict(json.loads(sys.argv[2]))
    packages = json.loads(sys.argv[3])
    sys.path[:0] = [ROOT, *packages]
    _prepare_numba_cuda(packages)
    Worker(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
