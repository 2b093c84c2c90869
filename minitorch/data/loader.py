"""With this file one can go through a data set in batches: `DataLoader`.

    >>> loader = DataLoader(dataset, batch_size=64, shuffle=True, seed=1)
    >>> for epoch in range(10):
    ...     for images, labels in loader:
    ...         ...

The order of epoch e is a pure function of (seed, e); or else, where a sampler of one's
own makes it or PyTorch's random numbers do, it is part of the loader's state. So a run
can stop in the middle of an epoch, keep `loader.state_dict()`, and later go on with
exactly the batches that were still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from minitorch.backend import get_backend
from minitorch.data.collate import default_collate, pin_memory
from minitorch.data.dataset import (
    BatchDataset,
    Dataset,
    Indices,
    IterableDataset,
    choose_seed,
    reads_batches,
    whole_number,
)
from minitorch.data.prefetch import Prefetcher
from minitorch.data.sampler import (
    Draws,
    Ordered,
    RandomSampler,
    SequentialSampler,
)
from minitorch.data.workers import EndOfStream, WorkerOptions, Workers
from minitorch.random import Generator, PyTorchGenerator, default_generator
from minitorch.warn import warn

# The indices of an epoch, or those of each batch; None: a stream's.
Order = Indices | Draws | list[Indices] | None

_whole_number = partial(whole_number, "DataLoader")

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

# What PyTorch's DataLoader takes and this one does not: PyTorch's default, which is
# accepted since it asks for nothing, and what to do instead.
PYTORCH_ONLY: Mapping[str, tuple[Any, str]] = MappingProxyType(
    {
        "pin_memory_device": ("", "leave it out, and use tensor.to(device)"),
        "in_order": (True, "leave it out: batches always come in order"),
    }
)


@dataclass
class _Position:
    """How far one pass has come. Kept apart from the iterator, so that the loader
    can know it without keeping an abandoned iterator (and its thread) alive."""

    epoch: int
    delivered: int
    kept: Any = None  # the order, where (seed, epoch) do not say it again
    finished: bool = False


class _Pass(Iterator[Any]):
    """The batches of one pass, which counts what it hands out."""

    def __init__(self, batches: Iterator[Any], position: _Position) -> None:
        self._batches = batches
        self._position = position

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._position.finished = True
            raise
        self._position.delivered += 1
        return batch


class DataLoader:
    """Batches of a data set, in order or shuffled.

    dataset       has `__getitem__` and `__len__`, see `Dataset`; or is a stream, an
                  `IterableDataset`, which has no other order than its own
    batch_size    samples in a batch; the last one may have fewer, unless `drop_last`
    shuffle       a new random order in every epoch
    sampler       what yields the indices of an epoch, and has a length, such as a
                  `RandomSampler`; instead of shuffle
    batch_sampler what yields the indices of each batch, and has a length, such as a
                  `BatchSampler`; instead of batch_size, shuffle, sampler, drop_last
    drop_last     leave out the last batch if it is not full
    seed          of the shuffling, 0 or more; or give a generator to draw it from.
                  With neither, or such a generator, after `manual_seed(n,
                  sequence="pytorch")` the orders are PyTorch's, also those of samplers
    prefetch      batches to make ahead, in a thread or by each worker; 0: make them
                  when asked for
    collate_fn    list of samples -> batch; default `default_collate`
    pin_memory    put batches into pinned memory (`Tensor.pin_memory`), from which
                  `x.to("cuda", non_blocking=True)` copies while the program goes on
    num_workers   processes that make the batches; 0: this one makes them

    For workers only, as in PyTorch: `prefetch_factor`, its name for `prefetch`;
    `timeout`, seconds to wait for a batch; `worker_init_fn(id)`, called first in each;
    `multiprocessing_context`, "fork", "spawn", "forkserver" or a context;
    `persistent_workers`, keep them from one epoch to the next.

    Each `for` over the loader is a new epoch: one that was left early does not go
    on. Other than in PyTorch, arguments after `shuffle` must be named.

    With `prefetch`, the data set and `collate_fn` run in another thread than the one
    that computes. Pass `prefetch=0` if they are not made for that; if they compute
    with tensors themselves, say. (Batches of a `TensorDataset` whose tensors are on a
    GPU are made when asked for, in any case.)

    With `num_workers`, no thread runs: each worker has a copy of the data set, computes
    on one thread, and begins its random numbers with a seed made of (seed, epoch, id);
    see `minitorch.utils.data.get_worker_info`. Batches come in order and are sent as
    bytes, tensors as their numbers. A forked worker cannot use "cuda" if this process
    did. What a spawned one gets must be importable, and the program's own beginning be
    under `if __name__ == "__main__":`.

    Errors: TypeError, ValueError for arguments that make no sense, and for PyTorch's
    arguments that do not exist here; the message says what to use instead. An error in
    a worker is raised here, after the batches before it, with the worker's traceback as
    its cause; RuntimeError for a worker that was killed, or took longer than `timeout`.
    """

    def __init__(
        self,
        dataset: Dataset[Any] | IterableDataset[Any],
        batch_size: int = 1,
        shuffle: bool | None = False,
        *,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        drop_last: bool = False,
        seed: int = 0,
        prefetch: int = 2,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        pin_memory: bool = False,
        generator: Generator | None = None,
        num_workers: int = 0,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        **pytorch_only: Any,
    ) -> None:
        _refuse(pytorch_only)
        streams = isinstance(dataset, IterableDataset)
        if not (streams or _has(dataset, "__getitem__", "__len__")):
            raise TypeError(
                f"DataLoader: dataset is a {type(dataset).__name__}; expected an "
                "object with __getitem__ and __len__, such as a Dataset"
            )
        self.dataset: Any = dataset
        self.batch_size = _whole_number("batch_size", batch_size, least=1)
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        orders = {"shuffle=True": self.shuffle, "sampler": sampler is not None}
        if streams:
            _alone("an IterableDataset", orders | {"batch_sampler": batch_sampler})
        if batch_sampler is not None:
            sizes = {"batch_size": batch_size != 1, "drop_last": self.drop_last}
            _alone("batch_sampler", orders | sizes)
        if sampler is not None:
            _alone("sampler", {"shuffle=True": self.shuffle})
        self.sampler = _checked("sampler", sampler)
        self.batch_sampler = _checked("batch_sampler", batch_sampler)
        as_pytorch = isinstance(generator, PyTorchGenerator)
        self.generator = generator if as_pytorch else None
        self.seed = choose_seed("DataLoader", seed, None if as_pytorch else generator)
        self._seeded = seed != 0 or not (generator is None or as_pytorch)
        self.prefetch = _whole_number("prefetch", prefetch, least=0)
        self.workers = WorkerOptions(
            _whole_number("num_workers", num_workers, least=0),
            timeout,
            worker_init_fn,
            multiprocessing_context,
            prefetch_factor,
            bool(persistent_workers),
        )
        if prefetch_factor is not None:
            self.prefetch = _whole_number("prefetch_factor", prefetch_factor, least=1)
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self.pin_memory = bool(pin_memory)
        # Where the next pass starts; the position of the latest pass, if any.
        self._next_epoch = 0
        self._next_batch = 0
        self._next_order: Any = None
        self._latest: _Position | None = None
        self._kept: Workers | None = None  # from one epoch to the next

    def __getstate__(self) -> dict[str, Any]:
        """What a copy gets, in a spawned worker, say: all but the processes."""
        return {**self.__dict__, "_kept": None}

    def __len__(self) -> int:
        """The number of batches in an epoch.

        Errors: TypeError for a stream that has no length.
        """
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        full, rest = divmod(self._samples(), self.batch_size)
        return full if self.drop_last or rest == 0 else full + 1

    def __iter__(self) -> Iterator[Any]:
        epoch, start, order = self._next_epoch, self._next_batch, self._next_order
        self._next_epoch, self._next_batch, self._next_order = epoch + 1, 0, None
        order, keep = (order, True) if order is not None else self._order(epoch, start)
        position = _Position(epoch, start, order if keep else None)
        self._latest = position
        numbers: Iterable[int] = count() if self._streams() else range(start, len(self))
        by_workers = self.workers.count > 0
        batches = (
            self._let_workers_make(epoch, order, numbers)
            if by_workers
            else _made(self.batches_of(order), numbers)
        )
        if self._streams():  # what was delivered before is read again
            batches = islice(batches, start, None)
        if self.pin_memory and _can_pin():
            batches = map(pin_memory, batches)
        if self.prefetch > 0 and not by_workers and not self._runs_kernels():
            batches = Prefetcher(batches, self.prefetch)
        return _Pass(batches, position)

    def state_dict(self) -> dict[str, Any]:
        """Where the latest pass stands: `epoch`, `batches` that were delivered in it,
        `seed`; what must be the same to go on in the middle of an epoch; and `order`,
        the epoch's indices, if the seed does not say them."""
        epoch, batches, order = self._next_epoch, self._next_batch, self._next_order
        if self._latest is not None and not self._latest.finished:
            latest = self._latest
            epoch, batches, order = latest.epoch, latest.delivered, latest.kept
        state = {
            "epoch": epoch,
            "batches": batches,
            "seed": self.seed,
            "samples": 0 if self._streams() else self._samples(),
            "batch_size": self.batch_size,
            "shuffle": int(self.shuffle),
        }
        if order is None:
            return state
        if isinstance(order, list):
            return state | {"order": [batch.tolist() for batch in order]}
        return state | {"order": order.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next `for` delivers what was left of the epoch when `state` was taken
        (nothing, if that was after its last batch); later ones are whole epochs.

        Errors: ValueError if `state` lacks a key, or was taken in the middle of an
        epoch of another data set, batch size or shuffle.
        """
        own = self.state_dict()
        if state.keys() | {"order"} != own.keys() | {"order"}:
            raise ValueError(
                f"DataLoader.load_state_dict: the keys are {sorted(state)}; expected "
                f"{sorted(own)}, as state_dict returns them"
            )
        if state["batches"] > 0:
            for key in ("samples", "batch_size", "shuffle"):
                if state[key] != own[key]:
                    raise ValueError(
                        f"DataLoader.load_state_dict: {key} was {state[key]}, and is "
                        f"{own[key]} in this loader; it must be the same to go on "
                        f"after {state['batches']} batches of an epoch"
                    )
        self.seed = _whole_number("seed", state["seed"], least=0)
        self._next_epoch = _whole_number("epoch", state["epoch"], least=0)
        self._next_batch = _whole_number("batches", state["batches"], least=0)
        order = state.get("order")
        if order is not None:
            order = (
                np.array(order, np.int64)
                if self.batch_sampler is None
                else [np.array(batch, np.int64) for batch in order]
            )
        self._latest, self._next_order = None, order

    def batches_of(self, order: Order) -> Callable[[int], Any]:
        """number -> that batch of an epoch with this order; of a stream, the next one.

        Errors: EndOfStream behind a stream's last batch.
        """
        if order is None:
            stream = self._streamed()

            def following(number: int) -> Any:
                for batch in stream:
                    return batch
                raise EndOfStream

            return following
        make, size = self._batch_maker(), self.batch_size
        if isinstance(order, list):
            return lambda i: make(order[i])
        return lambda i: make(order[i * size : (i + 1) * size])

    def _streamed(self) -> Iterator[Any]:
        """The batches of a stream."""
        samples = iter(self.dataset)
        while batch := list(islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)

    def _let_workers_make(
        self, epoch: int, order: Order, numbers: Iterable[int]
    ) -> Iterator[Any]:
        """The batches, made by processes."""
        workers = self._kept
        if workers is None or not workers.usable():
            workers = Workers(self, epoch)
        self._kept = workers if self.workers.persistent else None
        return workers.batches(order, numbers, self.prefetch)

    def _samples(self) -> int:
        """How many samples an epoch has, or batches, where a batch_sampler deals."""
        source = self.sampler if self.batch_sampler is None else self.batch_sampler
        return len(self.dataset if source is None else source)

    def _streams(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def _order(self, epoch: int, start: int) -> tuple[Order, bool]:
        """The order of an epoch, and whether it is to be kept, since (seed, epoch) do
        not say it again.

        Where PyTorch's numbers are drawn, a new epoch takes what PyTorch's loader
        takes: a number for workers that are started, or would be, and the order.
        """
        source = default_generator if self.generator is None else self.generator
        new = start == 0 and not self._seeded
        if new and isinstance(source, PyTorchGenerator) and self._kept is None:
            self.seed = source.whole()
        if self._streams():
            return None, False
        if self.batch_sampler is not None:
            return [np.array(list(b), np.int64) for b in self.batch_sampler], True
        sampler = self.sampler
        if self.shuffle and len(self.dataset):
            sampler = RandomSampler(self.dataset, generator=self.generator)
        elif sampler is None:
            sampler = SequentialSampler(self.dataset)
        if not isinstance(sampler, Ordered):
            return np.fromiter(islice(sampler, len(sampler)), np.int64), True
        order = sampler.drawn() if new else None
        if order is not None:
            return order, True
        return sampler.order(self.seed, epoch), False

    def _batch_maker(self) -> Callable[[Indices], Any]:
        """indices [B] -> batch, by the quickest way that this data set offers."""
        dataset, collate = self.dataset, self.collate_fn
        if self._reads_batches() and isinstance(dataset, BatchDataset):
            return dataset.get_batch
        return lambda indices: collate([dataset[i] for i in indices.tolist()])

    def _reads_batches(self) -> bool:
        return self.collate_fn is default_collate and reads_batches(self.dataset)

    def _runs_kernels(self) -> bool:
        return isinstance(self.dataset, BatchDataset) and self.dataset.runs_kernels()


def _has(value: Any, *methods: str) -> bool:
    return all(hasattr(value, name) for name in methods)


def _checked(name: str, sampler: Any) -> Any:
    """A sampler that has what a loader needs, or None."""
    if sampler is None or _has(sampler, "__iter__", "__len__"):
        return sampler
    raise TypeError(
        f"DataLoader: {name} is a {type(sampler).__name__}; expected an object with "
        f"__iter__ and __len__, such as a RandomSampler"
    )


def _alone(name: str, others: Mapping[str, Any]) -> None:
    """Raise unless none of these is given beside an argument that says the order."""
    if given := [other for other, value in others.items() if value]:
        raise ValueError(
            f"DataLoader: {name} says which samples come when; leave out "
            f"{', '.join(given)}"
        )


def _made(make: Callable[[int], Any], numbers: Iterable[int]) -> Iterator[Any]:
    """The batches with these numbers."""
    for number in numbers:
        try:
            batch = make(number)
        except EndOfStream:
            return
        yield batch


def _can_pin() -> bool:
    """Whether memory can be pinned; a warning that says why if not."""
    try:
        get_backend("cuda")
    except (RuntimeError, ValueError) as error:
        warn(
            f"DataLoader: pin_memory=True has no effect, and batches stay in ordinary "
            f"memory: {error}"
        )
        return False
    return True


def _refuse(given: Mapping[str, Any]) -> None:
    """Raises for arguments that this DataLoader does not have."""
    for name, value in given.items():
        if name not in PYTORCH_ONLY:
            raise TypeError(f"DataLoader: there is no argument {name!r}")
        default, instead = PYTORCH_ONLY[name]
        if value != default or type(value) is not type(default):
            raise ValueError(
                f"DataLoader: {name}={value!r} is PyTorch's, and not supported here: "
                f"{instead}"
            )
