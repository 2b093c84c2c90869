"""What an engine brings: groups of ranks, and work that is under way.

With this file one can add an engine: a subclass of `ProcessGroup` moves numbers between
ranks and nothing else. It may trust its arguments, which `collectives.py` has checked.
Roots and peers are numbers of ranks within the group here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minitorch.distributed.rules import ReduceOp
from minitorch.tensor import Tensor

Splits = Sequence[int]


class CheckpointException(RuntimeError):
    """Some ranks could not save or load their part: all ranks get this error.

    Attributes:
        failures: by the number of a rank, what happened there.
    """

    def __init__(self, caller: str, failures: Mapping[int, str]) -> None:
        self.failures = dict(failures)
        told = "; ".join(f"rank {rank}: {text}" for rank, text in failures.items())
        super().__init__(f"{caller}: {told}")


class CannotGoOn(RuntimeError):
    """Ranks cannot go on together: another one has ended, or made another call."""


def told(x: Tensor) -> str:
    """What all ranks must bring to a collective."""
    return f"{x.numel()} of {x.dtype.name}"


def unlike_calls(me: int, call: str, other: int, theirs: str) -> str:
    """What two ranks are told that did not make the same call."""
    return (
        f"rank {me} of the group called {call}, and rank {other} called {theirs}; all "
        f"ranks must make the same calls in the same order"
    )


class Work:
    """Something under way between ranks.

    Args:
        arrive: waits until it is done here, and the results are in place.
        arrived: whether `arrive` would not wait.
        held: what must stay in memory until then.
    """

    def __init__(
        self,
        arrive: Callable[[], Any],
        arrived: Callable[[], bool],
        held: Sequence[Any] = (),
    ) -> None:
        self._arrive: Callable[[], Any] | None = arrive
        self._arrived, self.held = arrived, tuple(held)
        self.sender = -1  # of a message that was received, its rank in the group
        self.results: Sequence[Tensor] = ()  # the tensors that it writes

    def wait(self) -> bool:
        """Wait until the results are in place: on a GPU, those who use them next on the
        current stream wait, and not the host. True; an error if a rank is gone."""
        if self._arrive is not None:
            self._arrive()
            self._arrive, self.held, self.results = None, (), ()
            self._arrived = lambda: True  # the engine's own work holds memory too
        return True

    def is_completed(self) -> bool:
        """Whether `wait` would not wait."""
        return self._arrived()

    def get_future(self) -> Future:
        """Its results, as a list, when they are there; to be asked before `wait`,
        which keeps no tensor."""
        results = list(self.results)

        def finish() -> list[Tensor]:
            self.wait()
            return results

        return Future(finish)


class Future:
    """What work will leave behind, and what is to be done with it then. Nothing is done
    before somebody waits."""

    def __init__(self, finish: Callable[[], Any]) -> None:
        self._finish: Callable[[], Any] | None = finish
        self._value: Any = None

    def wait(self) -> Any:
        """The value."""
        if self._finish is not None:
            self._value, self._finish = self._finish(), None
        return self._value

    value = wait

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """What `callback(this)` will return, which gets the value by `value()`."""

        def finish() -> Any:
            self.wait()
            return callback(self)

        return Future(finish)


class ProcessGroup:
    """Some of the ranks, who work together.

    Attributes:
        ranks: their numbers among all ranks.
        me: which of them this is.
        backend: the name of what moves the numbers.
        closed: whether it was destroyed.
        about: what calls are for at the moment, on which ranks must agree as well.
        shared: how many sets of parameters it has in parts.
    """

    ranks: tuple[int, ...]
    me: int
    backend: str
    closed = False
    about = ""
    shared = 0

    def __reduce__(self) -> Any:
        raise TypeError(
            "a process group is of this process, and cannot be copied or pickled; of a "
            "model in DistributedDataParallel save model.module, or its state_dict(); "
            "copy a model before ranks share its parameters"
        )

    @contextmanager
    def calls_for(self, what: str) -> Iterator[None]:
        """Calls of the block differ from others that move as much."""
        self.about = f" for {what}"
        try:
            yield
        finally:
            self.about = ""

    def rank(self) -> int:
        """Which rank of the group this is."""
        return self.me

    def size(self) -> int:
        """How many ranks the group has."""
        return len(self.ranks)

    def name(self) -> str:
        """The name of what moves the numbers."""
        return self.backend

    def check(self, caller: str, x: Tensor) -> None:
        """Raise a ValueError or TypeError for a tensor that cannot be sent as it is."""

    def subgroup(self, ranks: tuple[int, ...], **options: Any) -> ProcessGroup | None:
        """A group of these ranks (of all ranks); None where this is none of them."""
        raise NotImplementedError

    def beside(self) -> ProcessGroup:
        """The same ranks, for sums that are under way while others compute."""
        return self

    def close(self) -> None:
        """Nothing is sent any more."""
        self.closed = True

    def all_reduce(self, x: Tensor, op: ReduceOp, async_op: bool = True) -> Work:
        """What is returned is waited for at once unless `async_op`."""
        raise NotImplementedError

    def broadcast(self, x: Tensor, root: int) -> Work:
        raise NotImplementedError

    def reduce(self, x: Tensor, root: int, op: ReduceOp) -> Work:
        raise NotImplementedError

    def all_gather(self, outs: Sequence[Tensor], x: Tensor) -> Work:
        raise NotImplementedError

    def all_gather_into(self, out: Tensor, x: Tensor) -> Work:
        raise NotImplementedError

    def reduce_scatter(self, out: Tensor, x: Tensor, op: ReduceOp) -> Work:
        raise NotImplementedError

    def all_to_all(self, out: Tensor, x: Tensor, came: Splits, went: Splits) -> Work:
        """`went[r]` elements of x go to rank r, `came[r]` of out come from it."""
        raise NotImplementedError

    def scatter(self, out: Tensor, parts: Sequence[Tensor], root: int) -> Work:
        """`parts` is empty where this is not the root."""
        raise NotImplementedError

    def gather(self, x: Tensor, outs: Sequence[Tensor], root: int) -> Work:
        """`outs` is empty where this is not the root."""
        raise NotImplementedError

    def send(self, x: Tensor, peer: int, tag: int) -> Work:
        raise NotImplementedError

    def receive(self, x: Tensor, peer: int | None, tag: int) -> Work:
        """From anyone, if `peer` is None; `Work.sender` then says from whom."""
        raise NotImplementedError

    def batch(self, messages: Sequence[tuple[bool, Tensor, int, int]]) -> list[Work]:
        """Messages that go and come together: (whether it goes, tensor, peer, tag)."""
        return [
            self.send(x, peer, tag) if goes else self.receive(x, peer, tag)
            for goes, x, peer, tag in messages
        ]

    def barrier(self) -> Work:
        """Done when all ranks have come here."""
        raise NotImplementedError


class _Here(threading.local):
    """The group of all ranks, of a rank that is a thread."""

    group: ProcessGroup | None = None


class _Everywhere:
    """The group of all ranks, of a rank that is a process."""

    group: ProcessGroup | None = None


here = _Here()
everywhere = _Everywhere()


def world() -> ProcessGroup | None:
    """The group of all ranks, or None."""
    return here.group or everywhere.group
