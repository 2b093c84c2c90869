"""Run a program on several ranks, and say of ranks that wait for ever who waits.

With this file the `calls.py` of an assignment runs a function on n ranks
(`run("gloo", 3, program)`): as processes that talk by Gloo, or as threads of this one
("threads"), which take turns. The processes are forks of a worker, so they are shut in
with it: they share its network, a loopback that no one else has, its limits, and its
end.

One that fails ends all, and its error is that of the call. Ranks that all wait, and no
message moves, are given up after a few seconds; a rank that computes is waited for.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

LOOK_EVERY = 0.05  # seconds between two looks at what ranks wait for
STUCK = 40  # looks at which all were found waiting, and none had moved
SLOT = 256  # bytes in which a rank says that
WATCHED = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into",
    "reduce_scatter", "all_to_all", "scatter", "gather", "barrier", "send", "receive",
)  # fmt: skip

# Errors that are made of a text alone.
PLAIN = (
    ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, NameError,
    RecursionError, RuntimeError, TypeError, ValueError, ZeroDivisionError,
    UnboundLocalError,
)  # fmt: skip

# For each call [name, elements, the other rank or None, whether it was waited for].
Log = list[list[Any]]
Program = Callable[[Log], Any]


class Deadlock(RuntimeError):
    """All processes wait for each other."""


def run(engine: str, size: int, program: Program) -> list[Any]:
    """What `program(log)` returns on each of `size` ranks.

    `log` has what the rank has sent and received so far.

    Raises:
        NotImplementedError: a rank has called what is not written.
        RuntimeError: all ranks wait; the message says for what. (`Deadlock`, of
            processes: it took seconds to see that.)
        Exception: any other of a rank, with the rank's number.
    """
    return {"threads": _threads, "gloo": _processes}[engine](size, program)


def _threads(size: int, program: Program) -> list[Any]:
    from minitorch.distributed import get_rank, spawn_threads
    from minitorch.distributed.group import here

    failed: list[tuple[int, BaseException]] = []

    def on_rank() -> Any:
        try:
            return program(observe(here.group, lambda what: None))
        except BaseException as error:
            failed.append((get_rank(), error))
            raise

    try:
        return spawn_threads(on_rank, size)
    except RuntimeError as error:
        if not failed:
            raise
        rank, first = failed[0]
        cause = error.__cause__  # where all wait, it says for what; `first` says where
        raise named(rank, type(cause).__name__, str(cause)) from first


def observe(group: Any, say: Callable[[str], None], log: Log | None = None) -> Log:
    """A list of what a rank's group, and those that are made of it, are asked for from
    now on; `say` hears what the rank waits for, and "" when it goes on."""
    log = [] if log is None else log

    def watched(name: str, start: Callable[..., Any], *args: Any) -> Any:
        sends = name in ("send", "receive")
        call = [name, _elements(args), args[1] if sends else None, False]
        log.append(call)
        work = start(*args)
        arrive, what = work._arrive, told(name, args, group.ranks)

        def waits() -> None:
            say(what)
            arrive()
            say("")
            call[3] = True

        work._arrive = waits
        return work

    def subgroup(*args: Any, **options: Any) -> Any:
        made = divide(*args, **options)
        if made is not None:
            observe(made, say, log)
        return made

    for name in WATCHED:
        setattr(group, name, partial(watched, name, getattr(group, name)))
    divide, group.subgroup = group.subgroup, subgroup
    return log


def _elements(args: Sequence[Any]) -> int:
    return args[0].numel() if args and hasattr(args[0], "numel") else 0


def told(name: str, args: Sequence[Any], ranks: Sequence[int]) -> str:
    """What a rank waits for that has called this in a group of these ranks."""
    if name == "send":
        return f"rank {ranks[args[1]]} to receive"
    if name == "receive":
        sender = "anyone" if args[1] is None else f"rank {ranks[args[1]]}"
        return f"a message from {sender}"
    return f"{name}({_elements(args)})"


def named(rank: int, kind: str, text: str) -> Exception:
    """A rank's error, of the same type if Python has it."""
    if kind == "RankLost":
        return RuntimeError(text.replace("no rank can go on", "all ranks wait"))
    if kind == "NotImplementedError":
        return NotImplementedError(text)
    for found in PLAIN:
        if found.__name__ == kind:
            return found(f"rank {rank}: {text}")
    return RuntimeError(f"rank {rank}: {kind}: {text}")


# ------------------------------------------------------------------------- processes


def _processes(size: int, program: Program) -> list[Any]:
    import minitorch.distributed.transport  # noqa: F401  imports torch, before the fork

    with tempfile.TemporaryDirectory() as folder:
        ranks = Processes(size, program, f"file://{folder}/meeting")
        try:
            return ranks.results()
        finally:
            ranks.close()


class Processes:
    """Forks of this process, one for each rank.

    Attributes:
        board: memory that all share, where each has a slot for what it waits for.
        pipes: through which each says, once, what came out.
    """

    def __init__(self, size: int, program: Program, meeting: str) -> None:
        self.board = mmap.mmap(-1, size * SLOT)
        self.pids: list[int] = []
        self.pipes: list[int] = []
        sys.stdout.flush()
        for rank in range(size):
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                _be_rank(rank, size, program, meeting, self.board, theirs)
            os.close(theirs)
            self.pids.append(pid)
            self.pipes.append(ours)

    def results(self) -> list[Any]:
        """What came out on each; the first error, if there was one."""
        found: dict[int, Any] = {}
        data = [bytearray() for _ in self.pids]
        seen, still = b"", 0
        while len(found) < len(self.pids):
            missing = [p for r, p in enumerate(self.pipes) if r not in found]
            for pipe in select.select(missing, [], [], LOOK_EVERY)[0]:
                rank = self.pipes.index(pipe)
                chunk = os.read(pipe, 1 << 20)
                data[rank] += chunk
                if not chunk:
                    found[rank] = self._result(rank, bytes(data[rank]))
                seen = b""
            moved = self.board[:] != seen or not self._all_wait(found)
            seen, still = self.board[:], 0 if moved else still + 1
            if still > STUCK:
                raise Deadlock(f"all ranks wait: {self._waiting(found)}")
        return [found[rank] for rank in range(len(self.pids))]

    def _result(self, rank: int, data: bytes) -> Any:
        if not data:
            _, status = os.waitpid(self.pids[rank], 0)
            self.pids[rank] = 0
            code = os.waitstatus_to_exitcode(status)
            raise RuntimeError(f"rank {rank}: its process ended with code {code}")
        good, value = pickle.loads(data)
        if good:
            return value
        error = named(rank, *value[:2])
        error.frames = value[2]  # type: ignore[attr-defined]
        raise error

    def _said(self, rank: int) -> str:
        slot = self.board[rank * SLOT : (rank + 1) * SLOT]
        return slot.rstrip(b"\0").decode().partition(" ")[2]

    def _all_wait(self, ended: Any) -> bool:
        return all(r in ended or self._said(r) for r in range(len(self.pids)))

    def _waiting(self, ended: Any) -> str:
        return "; ".join(
            f"rank {r} has ended" if r in ended else
            f"rank {r} waits for {self._said(r)}"
            for r in range(len(self.pids))
        )  # fmt: skip

    def close(self) -> None:
        """End all."""
        for pid in filter(None, self.pids):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for pipe in self.pipes:
            os.close(pipe)


def _be_rank(
    rank: int, size: int, program: Program, meeting: str, board: mmap.mmap, out: int
) -> None:
    """Run the program, say what came out, and wait for the end: who goes would break
    the connections of those that still wait."""
    try:
        try:
            reply = True, program(_meet(rank, size, meeting, board))
        except BaseException as error:
            frames = [tuple(f)[:4] for f in _frames(error)]
            reply = False, (type(error).__name__, str(error), frames)
        sys.stdout.flush()
        with os.fdopen(out, "wb") as pipe:
            pickle.dump(reply, pipe)
        signal.pause()
    finally:
        os._exit(1)


def _frames(error: BaseException | None) -> list[traceback.FrameSummary]:
    found: list[traceback.FrameSummary] = []
    while error is not None:
        found += traceback.extract_tb(error.__traceback__)
        error = error.__cause__
    return found


def _meet(rank: int, size: int, meeting: str, board: mmap.mmap) -> Log:
    """Join the group of all ranks, by the loopback."""
    from minitorch.distributed import init_process_group
    from minitorch.distributed.group import everywhere

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    init_process_group("gloo", meeting, 600, size, rank)
    steps = 0

    def say(what: str) -> None:
        nonlocal steps
        steps += 1
        text = f"{steps} {what}".encode()[: SLOT - 1]
        board[rank * SLOT : (rank + 1) * SLOT] = text.ljust(SLOT, b"\0")

    return observe(everywhere.group, say)
