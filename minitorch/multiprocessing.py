"""Processes that a program starts by itself, where `torchrun` does not.

With this file a program can be its own ranks: `spawn(fn, args, nprocs)`, as in
torch.multiprocessing. Python's own `Process`, `Queue`, `get_context` and
`set_start_method` are here, too.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Process as Process
from multiprocessing import Queue as Queue
from multiprocessing import get_context as get_context
from multiprocessing import set_start_method as set_start_method
from multiprocessing.connection import wait
from typing import Any


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Call `fn(i, *args)` in process i of `nprocs`, and wait until all have ended.

    Args:
        daemon: end them when this process ends.
        start_method: "spawn", where each imports the program anew; "fork".

    Raises:
        RuntimeError: one has failed; its traceback stands in the message. The others
            are ended.
    """
    if not join:
        raise ValueError("spawn: join=False is not offered; start a Process for each")
    context: Any = get_context(start_method)
    running = {}
    for i in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        given = fn, i, args, theirs
        process = context.Process(target=_run, args=given, daemon=daemon)
        process.start()
        theirs.close()
        running[i] = process, ours
    while running:
        wait([process.sentinel for process, _ in running.values()])
        for i, (process, pipe) in list(running.items()):
            if process.exitcode:
                for other, _ in running.values():
                    other.terminate()
                    other.join()
                said = ""
                with suppress(EOFError):  # it was ended, or has ended itself
                    said = pipe.recv() if pipe.poll() else ""
                raise RuntimeError(
                    f"spawn: process {i} has failed, with exit code "
                    f"{process.exitcode}:\n{said}"
                )
            if process.exitcode == 0:
                del running[i]


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], pipe: Any) -> None:
    try:
        fn(i, *args)
    except Exception:
        pipe.send(traceback.format_exc()[-4000:])  # what a pipe has room for
        raise SystemExit(1) from None
