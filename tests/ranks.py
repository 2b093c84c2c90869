"""Ranks for tests that are processes, with Gloo, and are started once.

With this file a test can run one function after the other on each of n ranks
(`Processes(n)`): functions of a module that processes can import, such as
`rank_checks.py`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 120  # after which a test gives up; a machine may be busy


class Processes:
    """n processes in one group; `processes(fn, *args)` is what fn returns on each.

    They are children of one that has imported torch, which takes its time.
    """

    def __init__(self, n: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        pipes = [context.Pipe() for _ in range(n)]
        self.pipes = [ours for ours, _ in pipes]
        theirs = [theirs for _, theirs in pipes]
        meeting = f"file://{self.folder.name}/meeting"
        self.parent = context.Process(target=parent, args=(theirs, meeting))
        self.parent.start()
        for pipe in theirs:
            pipe.close()
        self.pids: list[int] = []
        try:
            self.pids += [self.answer(rank) for rank in range(n)]
        except AssertionError:
            self.close()
            raise

    def send(self, fn: Callable[..., Any], *args: Any) -> None:
        """Let all begin."""
        for pipe in self.pipes:
            pipe.send((fn, args))

    def answer(self, rank: int, seconds: float = SECONDS) -> Any:
        """What the rank returned; its error, as an AssertionError."""
        if not self.pipes[rank].poll(seconds):
            raise AssertionError(f"rank {rank} did not answer in {seconds} s")
        good, result = self.pipes[rank].recv()
        if not good:
            raise AssertionError(f"rank {rank}: {result}")
        return result

    def __call__(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        self.send(fn, *args)
        return [self.answer(rank) for rank in range(len(self.pipes))]

    def kill(self, rank: int) -> None:
        """End one at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pids[rank], signal.SIGKILL)

    def close(self) -> None:
        """End all."""
        for rank in range(len(self.pids)):
            self.kill(rank)
        for pipe in self.pipes:
            pipe.close()
        self.parent.kill()
        self.parent.join(10)
        self.folder.cleanup()


def parent(pipes: list[Connection], meeting: str) -> None:
    """Let ranks begin, and wait for their end."""
    from minitorch.distributed import transport

    # Ranks that look for each other would take the cores from other tests.
    transport.LOOKED_FOR = 0.0
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=work, args=(pipes, meeting, rank))
        for rank in range(len(pipes))
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()


def work(pipes: list[Connection], meeting: str, rank: int) -> None:
    """A rank: do what is asked for, again and again, and end at the first error."""
    from minitorch import distributed

    for other, pipe in enumerate(pipes):
        if other != rank:
            pipe.close()
    pipe = pipes[rank]
    pipe.send((True, os.getpid()))
    distributed.init_process_group("gloo", meeting, SECONDS, len(pipes), rank)
    with suppress(EOFError):
        while True:
            fn, args = pipe.recv()
            try:
                pipe.send((True, fn(*args)))
            except BaseException:
                pipe.send((False, traceback.format_exc()))
                return
