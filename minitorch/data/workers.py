"""With this file a `DataLoader` makes its batches in other processes: `Workers` starts
them and asks for batches, `WorkerOptions` are the arguments that PyTorch has for them.

    the loader's process                          worker w of n
    Workers.batches  -- an epoch's order ->
                     -- number ->          _work: the samples, collated
                     <- (BATCH, batch) --  batches w, w + n, w + 2n, ...

Each worker has a pipe of its own, and answers in the order in which it is asked. So
batches come in order if worker `number % n` is asked for batch `number`; a worker that
dies closes its pipe, which ends the wait for it; and so does the loader's process when
it goes, which ends its workers. An order is sent while its worker has nothing to
answer; requests are a few bytes and fit into the pipe, however long a worker waits for
its answer to be taken. Of a stream each worker makes batches in turn, until it answers
that it has come to its end (DONE).
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import sys
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, tee
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from minitorch.data.loader import DataLoader

BATCH, DONE, FAILED = "batch", "done", "failed"
PATIENCE = 5.0  # seconds that a worker has to finish the sample it is making


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this is (`id`, from 0), of how many (`num_workers`), the `seed` that
    its random numbers began with, and its copy of the data set (`dataset`)."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a `DataLoader`, what it should know; elsewhere None."""
    return _info


class EndOfStream(Exception):
    """A stream has no more batches. (A StopIteration may be anybody's.)"""


class WorkerFailure(Exception):
    """The cause of an error that came from a worker: the traceback there, as text."""

    def __str__(self) -> str:
        return f"in a worker of the DataLoader:\n\n{self.args[0]}"


@dataclass(frozen=True)
class WorkerOptions:
    """PyTorch's arguments of a `DataLoader` that speak of workers.

    Errors: ValueError for a value that makes no sense, or needs workers without any.
    """

    count: int
    timeout: float
    init_fn: Callable[[int], Any] | None
    context: str | BaseContext | None
    prefetch_factor: int | None
    persistent: bool

    def __post_init__(self) -> None:
        if not self.timeout >= 0:
            raise ValueError(
                f"DataLoader: timeout is {self.timeout!r}; expected seconds, or 0 to "
                "wait as long as it takes"
            )
        needing = {
            "timeout": self.timeout != 0,
            "multiprocessing_context": self.context is not None,
            "prefetch_factor": self.prefetch_factor is not None,
            "persistent_workers": self.persistent,
        }
        for name, given in needing.items():
            if given and self.count == 0:
                raise ValueError(
                    f"DataLoader: {name} is for worker processes, and there are none; "
                    "give num_workers, or leave it out"
                )
        names = multiprocessing.get_all_start_methods()
        if isinstance(self.context, str) and self.context not in names:
            raise ValueError(
                f"DataLoader: multiprocessing_context is {self.context!r}; expected "
                f"one of {names}, or a context of multiprocessing"
            )

    def processes(self) -> Any:
        """What starts processes."""
        if isinstance(self.context, BaseContext):
            return self.context
        return multiprocessing.get_context(self.context)


class Workers:
    """The processes that make batches of `loader`.

    They end with `close`, with the last reference, and with this process, however it
    ends. Random numbers of worker w begin with a seed made of (loader.seed, epoch, w).
    """

    def __init__(self, loader: DataLoader, epoch: int) -> None:
        self._options = loader.workers
        self._owner = os.getpid()
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._owed = [0] * self._options.count  # batches asked for, and not yet taken
        self._passes = 0
        self.close = weakref.finalize(
            self, _close, self._pipes, self._processes, self._owner
        )
        _live.add(self)
        for number in range(self._options.count):
            self._start(loader, epoch, number)

    def _start(self, loader: DataLoader, epoch: int, number: int) -> None:
        context = self._options.processes()
        here, there = context.Pipe()
        self._pipes.append(here)
        process = context.Process(
            target=_work,
            args=(there, loader, epoch, number),
            name=f"minitorch-worker-{number}",
            daemon=True,
        )
        process.start()
        self._processes.append(process)
        there.close()  # or its end would not be noticed

    def batches(
        self, order: Any, numbers: Iterable[int], prefetch: int
    ) -> Iterator[Any]:
        """The batches `numbers` of an epoch. Workers begin at once, and stay `prefetch`
        batches ahead, each; a pass that was not finished is over."""
        self._passes += 1
        for number, owed in enumerate(self._owed):
            for _ in range(owed):
                self._take(number)
            self._send(number, order)
        asked, delivered = tee(numbers)
        ahead = prefetch * self._options.count
        self._ask(asked, max(1, ahead))
        return self._deliver(asked, delivered, ahead, self._passes)

    def usable(self) -> bool:
        """Whether the workers run, and are this process's."""
        return self.close.alive and self._owner == os.getpid()

    def _deliver(
        self,
        asked: Iterator[int],
        numbers: Iterator[int],
        ahead: int,
        number_of_pass: int,
    ) -> Iterator[Any]:
        ended: set[int] = set()
        try:
            for number in numbers:
                if self._passes != number_of_pass:
                    raise RuntimeError(
                        "DataLoader: a newer loop over this loader has begun, and with "
                        "persistent_workers=True there is one at a time"
                    )
                worker = number % self._options.count
                kind, value = self._take(worker)
                if kind == FAILED:
                    raise value[0] from WorkerFailure(value[1])
                if kind == DONE:
                    ended.add(worker)
                    if len(ended) == self._options.count:
                        return
                if ahead > 0:
                    self._ask(asked, 1)
                if kind == BATCH:
                    yield value
                if ahead == 0:
                    self._ask(asked, 1)
        finally:
            if not self._options.persistent:
                self.close()

    def _ask(self, numbers: Iterator[int], count: int) -> None:
        """Ask for the next `count` batches, or those that are left."""
        for number in islice(numbers, count):
            worker = number % self._options.count
            self._send(worker, number)
            self._owed[worker] += 1

    def _send(self, worker: int, message: Any) -> None:
        try:
            self._pipes[worker].send(message)
        except OSError:
            self._lost(worker)

    def _take(self, worker: int) -> tuple[str, Any]:
        """The next answer of a worker."""
        pipe, patience = self._pipes[worker], self._options.timeout
        try:
            if patience and not pipe.poll(patience):
                self.close()
                raise RuntimeError(
                    f"DataLoader: worker {worker} made no batch in {patience} seconds; "
                    "give a longer timeout, or 0 to wait as long as it takes"
                )
            answer = pipe.recv()
        except (EOFError, OSError):
            self._lost(worker)
        self._owed[worker] -= 1
        return answer

    def _lost(self, worker: int) -> NoReturn:
        """Raise the error of a worker that is gone."""
        if self._owner != os.getpid():
            raise RuntimeError(
                "DataLoader: the workers of this loop belong to the process from which "
                "this one was forked; begin a new loop here"
            )
        process = self._processes[worker]
        process.join(PATIENCE)
        status = process.exitcode
        self.close()
        raise RuntimeError(
            f"DataLoader: worker {worker} (process {process.pid}) ended with exit code "
            f"{status} before its batch was made. A negative code is the signal that "
            "ended it (-9: often too little memory). A spawned worker must be able to "
            'import the data set, and the program needs `if __name__ == "__main__":`'
        )


def _close(pipes: list[Connection], processes: list[Any], owner: int) -> None:
    """End the workers: their pipes close, and then they do."""
    for pipe in pipes:
        pipe.close()
    if os.getpid() != owner:
        return
    for process in processes:
        process.join(PATIENCE)
        if process.is_alive():
            process.terminate()
            process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()


_live: weakref.WeakSet[Workers] = weakref.WeakSet()


def _after_fork() -> None:
    """A child keeps no pipe open: a worker ends when its pipe has no other end."""
    for workers in list(_live):
        for pipe in workers._pipes:
            pipe.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ----------------------------------------------------------------------- in a worker


def _work(pipe: Connection, loader: DataLoader, epoch: int, number: int) -> None:
    """What the process does: answer requests until nobody is there to make any."""

    failed = _prepare(loader, epoch, number)
    make: Any = None
    try:
        while True:
            request = pipe.recv()
            if isinstance(request, int):
                pipe.send_bytes(failed or _answer(make, request))
            else:
                make = loader.batches_of(request)
    except (EOFError, OSError):
        return  # the loader's process has closed the pipe, or is gone


def _prepare(loader: DataLoader, epoch: int, number: int) -> bytes | None:
    """Signals, seeds, threads, `worker_init_fn`; its error, if it fails."""
    global _info
    # Ctrl-C goes to all processes of a terminal: the loader's decides. What a program
    # does when it is told to end (save, say) is not for its workers to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    key = np.random.SeedSequence(loader.seed, spawn_key=(epoch, number))
    seed = int(key.generate_state(1, np.uint64)[0] >> np.uint64(1))
    _info = WorkerInfo(number, loader.workers.count, seed, loader.dataset)
    try:
        _seed_all(seed)
        _use_one_thread()
        if loader.workers.init_fn is not None:
            loader.workers.init_fn(number)
    except Exception as error:
        return _failure(error)
    return None


def _seed_all(seed: int) -> None:
    from minitorch.random import manual_seed

    random.seed(seed)
    np.random.seed(seed % 2**32)
    manual_seed(seed)


def _use_one_thread() -> None:
    """The workers share the cores, as in PyTorch; `worker_init_fn` may ask for more."""
    for name in ("numba", "mojo_ops.bridge"):
        if name in sys.modules:
            sys.modules[name].set_num_threads(1)
    if "numba" not in sys.modules:
        os.environ.setdefault("NUMBA_NUM_THREADS", "1")


def _answer(make: Callable[[int], Any], number: int) -> bytes:
    """The batch, or the error, as what `Connection.recv` reads."""
    try:
        return pickle.dumps((BATCH, make(number)), pickle.HIGHEST_PROTOCOL)
    except EndOfStream:
        return pickle.dumps((DONE, None))
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> bytes:
    """An error with its traceback; another one for it, if it cannot be sent."""
    text = traceback.format_exc()
    try:
        sent = pickle.dumps((FAILED, (error, text)))
        pickle.loads(sent)
        return sent
    except Exception:
        other = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps((FAILED, (other, text)))
