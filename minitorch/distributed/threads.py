"""The simple engine: ranks that are threads of one process.

With this file one can run and debug a program of several ranks in one process, without
torch:

    def program():
        x = minitorch.ones(3) * get_rank()
        all_reduce(x)
        return x

    spawn_threads(program, 4)

Ranks take turns: one runs until it has to wait for others, then the next one that can
go on does. So a program is done the same way each time, ranks never get into each
other's way in kernels, and where nobody can go on, all are told who waits for what.
Each rank has its own place in the default generator's sequence.

A collective is a `Meeting`: each rank leaves a copy of what it gives, and the rule of
the collective (`rules.py`) says what each takes away. Who sends a message waits until
it is received: a program that relies on less would hang elsewhere.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import minitorch.distributed.rules as rules
from minitorch.autodiff import grad_mode
from minitorch.creation import from_numpy
from minitorch.distributed.group import (
    ProcessGroup,
    Splits,
    Work,
    here,
    told,
    unlike_calls,
    world,
)
from minitorch.distributed.rules import ReduceOp, Rule
from minitorch.executor import host_read
from minitorch.random import default_generator
from minitorch.tensor import Tensor


class RankLost(RuntimeError):
    """This rank cannot go on, because another one failed or all wait."""


def spawn_threads(fn: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
    """What `fn(*args)` returns on each of `world_size` ranks.

    Raises:
        RuntimeError: a rank failed (its error is the cause), or all ranks wait.
    """
    if world_size < 1:
        raise ValueError(f"spawn_threads: world_size is {world_size}; expected >= 1")
    if world() is not None:
        raise RuntimeError("spawn_threads: there is a process group here already")
    return World(world_size).run(partial(fn, *args))


class World:
    """The ranks, and whose turn it is.

    Attributes:
        waiting: of each rank, what it waits for and whether that has come.
        meetings: by the key of a group and the number of the collective in it.
        mail: by the key of a group, receiver and tag.
    """

    def __init__(self, size: int) -> None:
        self.size, self.turn = size, 0
        self.changed = threading.Condition()
        start: tuple[str, Callable[[], bool]] = ("its start", lambda: True)
        self.waiting: list[tuple[str, Callable[[], bool]]] = [start] * size
        self.random = [default_generator.get_state()] * size
        self.ended: set[int] = set()
        self.failed: tuple[int, BaseException] | None = None
        self.results: list[Any] = [None] * size
        self.meetings: dict[tuple[Any, int], Meeting] = {}
        self.mail: defaultdict[Any, Mailbox] = defaultdict(Mailbox)

    def run(self, fn: Callable[[], Any]) -> list[Any]:
        """Let all ranks run `fn`."""
        mode, state = (grad_mode.enabled, grad_mode.autocast), self.random[0]
        threads = [
            threading.Thread(target=self._run_rank, args=(r, fn, mode), daemon=True)
            for r in range(self.size)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        default_generator.set_state(state)
        if self.failed is not None:
            rank, error = self.failed
            told = f"{type(error).__name__}: {error}"
            raise RuntimeError(f"spawn_threads: rank {rank} failed: {told}") from error
        return self.results

    def _run_rank(self, rank: int, fn: Callable[[], Any], mode: Any) -> None:
        everyone = tuple(range(self.size))
        here.group = ThreadGroup(self, everyone, rank, ())
        grad_mode.enabled, grad_mode.autocast = mode
        try:
            self._take_turn(rank)
            self.results[rank] = fn()
        except BaseException as error:
            if self.failed is None:
                self.failed = rank, error
        self.waiting[rank] = ("nothing: it has ended", lambda: False)
        self.ended.add(rank)
        self._hand_on(rank)

    def wait_for(self, rank: int, what: str, ready: Callable[[], bool]) -> None:
        """Let others have their turns until `ready`."""
        if not ready():
            self.waiting[rank] = (what, ready)
            self._hand_on(rank)
            self._take_turn(rank)
        self.look_out(rank, what)

    def look_out(self, rank: int, what: str) -> None:
        """Stop if a rank has failed."""
        if self.failed is not None:
            other, error = self.failed
            raise RankLost(
                f"{what}: rank {rank} cannot go on, since rank {other} failed: {error}"
            )

    def pause(self, rank: int) -> None:
        """Let others have a turn."""
        self.waiting[rank] = ("another turn", lambda: True)
        self._hand_on(rank)
        self._take_turn(rank)

    def _take_turn(self, rank: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.turn == rank)
        default_generator.set_state(self.random[rank])

    def _hand_on(self, rank: int) -> None:
        """The turn goes to the next rank that can go on; after a failure, to each."""
        self.random[rank] = default_generator.get_state()
        following = [(rank + i) % self.size for i in range(1, self.size + 1)]
        alive = [r for r in following if r not in self.ended]
        able = [r for r in alive if self.failed is not None or self.waiting[r][1]()]
        if alive and not able:
            told = "; ".join(
                f"rank {r} waits for {what}" for r, (what, _) in enumerate(self.waiting)
            )
            self.failed = alive[0], RankLost(f"no rank can go on: {told}")
            able = alive
        with self.changed:
            self.turn = able[0] if able else -1
            self.changed.notify_all()


class Meeting:
    """One collective of a group: what each rank has given, and what they call it."""

    def __init__(self, size: int) -> None:
        self.given: list[Any] = [None] * size
        self.calls: dict[int, str] = {}
        self.left = size

    def join(self, me: int, call: str, given: Any) -> None:
        """Leave what rank `me` of the group gives.

        Raises:
            RuntimeError: others came here with another call.
        """
        for other, theirs in self.calls.items():
            if theirs != call:
                raise RuntimeError(unlike_calls(me, call, other, theirs))
        self.calls[me], self.given[me] = call, given


class ThreadGroup(ProcessGroup):
    """Some of the threads."""

    backend = "threads"

    def __init__(
        self, world: World, ranks: tuple[int, ...], rank: int, key: tuple[Any, ...]
    ) -> None:
        self.world, self.ranks, self.me = world, ranks, ranks.index(rank)
        self.key, self.count, self.made = key, 0, 0

    def subgroup(self, ranks: tuple[int, ...], **options: Any) -> ThreadGroup | None:
        self.made += 1  # all ranks make all groups, in the same order
        where = (("new_group", *self.key), self.made)
        meeting = self.world.meetings.setdefault(where, Meeting(self.size()))
        meeting.join(self.me, f"new_group({list(ranks)})", ranks)
        rank = self.ranks[self.me]
        if rank not in ranks:
            return None
        return ThreadGroup(self.world, ranks, rank, (*self.key, self.made))

    # -------------------------------------------------------------------- meetings

    def _meet(
        self,
        call: str,
        rule: Rule,
        given: Any,
        outs: Sequence[Tensor],
    ) -> Work:
        """Take part in the group's next collective.

        Args:
            call: must be that of all ranks.
            rule: from what all have given to what each takes away.
            given: what this rank gives.
            outs: where its result is written.
        """
        call += self.about
        self.world.look_out(self.ranks[self.me], call)
        where = (self.key, self.count)
        self.count += 1
        meeting = self.world.meetings.setdefault(where, Meeting(self.size()))
        meeting.join(self.me, call, given)

        def take_away() -> None:
            meeting.left -= 1
            if meeting.left == 0:
                del self.world.meetings[where]
            write(outs, rule(meeting.given)[self.me])

        return self._work(call, take_away, lambda: len(meeting.calls) == self.size())

    def _work(
        self, call: str, take: Callable[[], Any], ready: Callable[[], bool]
    ) -> Work:
        rank = self.ranks[self.me]

        def arrive() -> None:
            self.world.wait_for(rank, call, ready)
            take()

        def arrived() -> bool:
            if not ready():
                self.world.pause(rank)
            return ready()

        return Work(arrive, arrived)

    def all_reduce(self, x: Tensor, op: ReduceOp, async_op: bool = True) -> Work:
        rule = partial(rules.all_reduce, op=op)
        return self._meet(f"all_reduce({told(x)}, {op.name})", rule, flat(x), [x])

    def broadcast(self, x: Tensor, root: int) -> Work:
        rule = partial(rules.broadcast, root=root)
        return self._meet(f"broadcast({told(x)}, src={root})", rule, flat(x), [x])

    def reduce(self, x: Tensor, root: int, op: ReduceOp) -> Work:
        rule = partial(rules.reduce, root=root, op=op)
        call = f"reduce({told(x)}, dst={root}, {op.name})"
        return self._meet(call, rule, flat(x), [x])

    def all_gather(self, outs: Sequence[Tensor], x: Tensor) -> Work:
        return self._meet(f"all_gather({told(x)})", rules.all_gather, flat(x), outs)

    def all_gather_into(self, out: Tensor, x: Tensor) -> Work:
        return self.all_gather([out], x)

    def reduce_scatter(self, out: Tensor, x: Tensor, op: ReduceOp) -> Work:
        rule = partial(rules.reduce_scatter, op=op)
        return self._meet(f"reduce_scatter({told(x)}, {op.name})", rule, flat(x), [out])

    def all_to_all(self, out: Tensor, x: Tensor, came: Splits, went: Splits) -> Work:
        def rule(given: list[Any]) -> list[Any]:
            sizes = [sizes for _, sizes in given]
            theirs = [row[self.me] for row in sizes]
            if theirs != list(came):
                raise ValueError(
                    f"all_to_all_single: rank {self.me} of the group expects {came} "
                    f"elements from each rank, and they send {theirs}"
                )
            return rules.all_to_all([x for x, _ in given], sizes)

        given = flat(x), list(went)
        return self._meet(f"all_to_all_single({x.dtype.name})", rule, given, [out])

    def scatter(self, out: Tensor, parts: Sequence[Tensor], root: int) -> Work:
        given = np.concatenate([flat(x) for x in parts]) if parts else None
        rule = partial(rules.scatter, root=root)
        return self._meet(f"scatter({told(out)}, src={root})", rule, given, [out])

    def gather(self, x: Tensor, outs: Sequence[Tensor], root: int) -> Work:
        rule = partial(rules.gather, root=root)
        return self._meet(f"gather({told(x)}, dst={root})", rule, flat(x), outs)

    def barrier(self) -> Work:
        return self._meet("barrier()", lambda given: given, None, [])

    # -------------------------------------------------------------------- messages

    def send(self, x: Tensor, peer: int, tag: int) -> Work:
        self.world.look_out(self.ranks[self.me], "send")
        message = Message(self.me, flat(x))
        box = self.world.mail[self.key, peer, tag]
        box.sent.append(message)
        box.hand_over()
        what = f"rank {self.ranks[peer]} to receive"
        return self._work(what, lambda: None, lambda: message.arrived)

    def receive(self, x: Tensor, peer: int | None, tag: int) -> Work:
        message = Message(peer)
        box = self.world.mail[self.key, self.me, tag]
        box.wanted.append(message)
        box.hand_over()

        def take() -> None:
            numbers, sender = message.numbers, message.sender
            if (numbers.size, numbers.dtype) != (x.numel(), x.dtype.numpy):
                raise RuntimeError(
                    f"recv: rank {sender} of the group sent {numbers.size} of "
                    f"{numbers.dtype}; expected {told(x)}"
                )
            work.sender = sender if sender is not None else -1
            write([x], numbers)

        who = "anyone" if peer is None else f"rank {self.ranks[peer]}"
        what = f"a message from {who}"
        work = self._work(what, take, lambda: message.arrived)
        return work


@dataclass(eq=False)
class Message:
    """Numbers on their way; a receiver who takes those of anyone names no sender."""

    sender: int | None
    numbers: Any = None
    arrived: bool = False


class Mailbox:
    """Messages of one tag to one rank: sent before they are wanted, or the reverse."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.wanted: list[Message] = []

    def hand_over(self) -> None:
        """Give whoever waited longest what was sent first."""
        for wanted in tuple(self.wanted):
            for sent in self.sent:
                if wanted.sender in (None, sent.sender):
                    wanted.sender, wanted.numbers = sent.sender, sent.numbers
                    wanted.arrived = sent.arrived = True
                    self.sent.remove(sent)
                    self.wanted.remove(wanted)
                    break


def flat(x: Tensor) -> np.ndarray:
    """A copy of the numbers, as a flat array."""
    return np.array(host_read("distributed", x.raw)).reshape(-1)


def write(outs: Sequence[Tensor], values: np.ndarray | None) -> None:
    """Put the numbers into the tensors, one behind the other."""
    start = 0
    for out in outs if values is not None else ():
        part = values[start : start + out.numel()].reshape(out.shape)  # type: ignore[index]
        out.detach().copy_(from_numpy(part, out.raw.device))
        start += out.numel()
