"""What reads a student's text does so in a process that may not use up much.

With this file the grader can call a function in a process with limits (`limited`), that
ends instead of the grader. What comes back is JSON. There is one for each task of each
submission: it imports as little as it can, and nothing that is installed.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MEMORY, CPU_SECONDS, SECONDS = 2 << 30, 20, 300.0
STACK = 256 << 20


class Refused(ValueError):
    """A submission that is not opened; says why."""


def limited(call: Callable[..., Any], *arguments: Any) -> Any:
    """What `call` returns in a process of its own, as JSON gives it back.

    Raises:
        Refused: `call` says so, or it takes too much of memory or time.
        FileNotFoundError: `call` says so.
        RuntimeError: any other error of it.
    """
    try:
        run = subprocess.run(
            [sys.executable, "-S", "-m", "assignments.grading.apart"],
            input=pickle.dumps(sys.path) + pickle.dumps((call, arguments)),
            capture_output=True,
            cwd=Path(__file__).resolve().parents[2],
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Refused("it takes too long to read") from None
    try:
        kind, value = json.loads(run.stdout)
    except ValueError:
        if run.returncode > 0:
            said = run.stderr.decode(errors="replace")
            raise RuntimeError(f"grade: nothing can be read here:\n{said}") from None
        raise Refused("reading it takes too much time or memory") from None
    errors = {"refused": Refused, "missing": FileNotFoundError, "failed": RuntimeError}
    if kind in errors:
        raise errors[kind](value)
    return value


# ----------------------------------------------------------- in the limited process


def _answer(call: Callable[..., Any], arguments: Sequence[Any]) -> tuple[str, Any]:
    try:
        return "value", call(*arguments)
    except Refused as error:
        return "refused", str(error)
    except FileNotFoundError as error:
        return "missing", str(error)
    except (RecursionError, MemoryError):
        return "refused", "reading it takes too much memory"
    except BaseException:
        return "failed", traceback.format_exc(limit=-5)


def _serve() -> None:
    """Do what standard input says, with little memory and time and a large stack."""
    sys.path[:] = pickle.load(sys.stdin.buffer)
    call, arguments = pickle.load(sys.stdin.buffer)
    # What is imported takes address space, and the more of it the more cores there are.
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = MEMORY + pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(STACK)

    def work() -> None:
        print(json.dumps(_answer(call, arguments)), flush=True)
        os._exit(0)

    threading.Thread(target=work).start()


if __name__ == "__main__":
    from assignments.grading import apart  # by its name: what raises `Refused` has that

    apart._serve()
