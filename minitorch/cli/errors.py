"""How a command ends when something is wrong.

With this file one can run the body of a command (`friendly`) so that what the user can
mend is told in a few words: exit code 2 for a wrong option, 1 for a failure, 130 for
Ctrl-C, 143 for SIGTERM, which stops a command as Ctrl-C does. With `--debug`, and for
errors in minitorch itself, the traceback is shown.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

USAGE, FAILURE, STOPPED = 2, 1, 130
RANK = os.environ.get("RANK", "0")  # which of the processes of torchrun this is
LONELY = "RANK" not in os.environ
PATIENCE = 10.0  # seconds


def complain(message: str) -> None:
    """Print a message about an error to stderr."""
    print(f"minitorch: {message}", file=sys.stderr, flush=True)


@contextmanager
def friendly(debug: bool | None, command: str) -> Iterator[None]:
    """Turn errors of the body into messages and exit codes.

    Args:
        debug: let errors through, with their traceback; None if there is no --debug.
        command: what the user called, for the advice how to call it again.
    """
    try:
        with _terminable():
            yield
    except (typer.Exit, typer.Abort):  # RuntimeErrors, but no errors
        raise
    except KeyboardInterrupt as stop:
        if RANK == "0" and (LONELY or hasattr(stop, "folder")):
            _explain_stop(stop, command)
        signum = getattr(stop, "signum", STOPPED - 128)
        raise typer.Exit(128 + signum) from None
    except (ValueError, RuntimeError, OSError) as error:
        # Who closed the pipe, as `head` does, has read enough: click ends then.
        passed = isinstance(error, (RecursionError, BrokenPipeError))
        missing = isinstance(error, NotImplementedError)  # a task's code is no bug
        if debug or passed or (missing and not str(error).startswith("task a")):
            raise
        from minitorch.distributed.group import CannotGoOn, CheckpointException
        from minitorch.train.config import ConfigError

        common = isinstance(error, (ConfigError, CheckpointException))
        if (common and RANK != "0") or isinstance(error, CannotGoOn):
            # If rank 0 has told what all found, or another rank is gone, the launcher
            # ends this one now. (It would end rank 0, if this one went first.)
            time.sleep(PATIENCE)
        if isinstance(error, ConfigError):
            complain(f"--{error}\n(`{command} --help` lists all options)")
            raise typer.Exit(USAGE) from None
        if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
            error = OSError(f"{error.args[0][0][1]}: {error.args[0][0][2]}")  # of many
        hint = "" if debug is None else "\n(--debug shows where this comes from)"
        complain(f"{error}{hint}")
        raise typer.Exit(FAILURE) from None


def need_fork(command: str) -> None:
    """Raises RuntimeError where a process cannot fork, as checks of the course do."""
    if not hasattr(os, "fork"):
        raise RuntimeError(
            f"{command}: keeps the code that it checks in processes of its own, by "
            f"fork, which this system lacks; on Windows use WSL: `wsl --install` in a "
            f"terminal, and in the Linux that it starts install minitorch again"
        )


class Terminated(KeyboardInterrupt):
    """SIGTERM came; what stands in `finally` is done, as after Ctrl-C."""

    signum = signal.SIGTERM


@contextmanager
def _terminable() -> Iterator[None]:
    """Within this, SIGTERM raises `Terminated`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _explain_stop(stop: KeyboardInterrupt, command: str) -> None:
    from minitorch.train.running import Interrupted

    if isinstance(stop, Interrupted):
        complain(
            f"stopped; a checkpoint was written. To go on:\n"
            f"  {command} --resume {shlex.quote(str(stop.folder))}"
        )
    elif command.startswith("minitorch train"):
        complain("stopped at once; --resume goes on from the last checkpoint, if any")
    else:
        complain("stopped")
