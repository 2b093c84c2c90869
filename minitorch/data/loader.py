"""With this file one can go through a data set in batches: `DataLoader`.

    >>> loader = DataLoader(dataset, batch_size=64, shuffle=True, seed=1)
    >>> for epoch in range(10):
    ...     for images, labels in loader:
    ...         ...

The order of epoch e is a pure function of (seed, e); or, where PyTorch's are drawn, of
a seed that each epoch takes from the default generator. So a run can stop in the middle
of an epoch, keep `loader.state_dict()`, and later go on with exactly the batches that
were still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from minitorch.backend import get_backend
from minitorch.data.collate import default_collate, pin_memory
from minitorch.data.dataset import (
    BatchDataset,
    Dataset,
    Indices,
    choose_seed,
    reads_batches,
    shuffled,
    whole_number,
)
from minitorch.data.prefetch import Prefetcher
from minitorch.data.sampler import (
    DistributedSampler,
    Draws,
    RandomSampler,
    SequentialSampler,
)
from minitorch.data.workers import WorkerOptions, Workers
from minitorch.random import Generator, PyTorchGenerator, default_generator
from minitorch.warn import warn

_whole_number = partial(whole_number, "DataLoader")

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

# What PyTorch's DataLoader takes and this one does not: PyTorch's default, which is
# accepted since it asks for nothing, and what to do instead.
PYTORCH_ONLY: Mapping[str, tuple[Any, str]] = MappingProxyType(
    {
        "batch_sampler": (None, "give a Subset with the order wanted, and batch_size"),
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

    dataset       has `__getitem__` and `__len__`, see `Dataset`
    batch_size    samples in a batch; the last one may have fewer, unless `drop_last`
    shuffle       a new random order in every epoch
    sampler       a `RandomSampler`, `SequentialSampler` or `DistributedSampler` of the
                  data set, instead of shuffle
    drop_last     leave out the last batch if it is not full
    seed          of the shuffling, 0 or more; or give a generator to draw it from.
                  With neither, after `manual_seed(n, sequence="pytorch")`, the orders
                  are PyTorch's, also those of a `RandomSampler` without a generator
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
        dataset: Dataset[Any],
        batch_size: int = 1,
        shuffle: bool | None = False,
        *,
        sampler: RandomSampler | SequentialSampler | DistributedSampler | None = None,
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
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(
                f"DataLoader: dataset is a {type(dataset).__name__}; expected an "
                "object with __getitem__ and __len__, such as a Dataset"
            )
        self.dataset = dataset
        self.batch_size = _whole_number("batch_size", batch_size, least=1)
        self.shuffle = bool(shuffle)
        self.sampler = _checked(sampler, self.shuffle)
        self.drop_last = bool(drop_last)
        self.seed = choose_seed("DataLoader", seed, generator)
        self._chosen = seed != 0 or generator is not None
        self._as_pytorch = False  # in the order of its loader
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
        self._latest: _Position | None = None
        self._kept: Workers | None = None  # from one epoch to the next

    def __getstate__(self) -> dict[str, Any]:
        """What a copy gets, in a spawned worker, say: all but the processes."""
        return {**self.__dict__, "_kept": None}

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        full, rest = divmod(self._samples(), self.batch_size)
        return full if self.drop_last or rest == 0 else full + 1

    def __iter__(self) -> Iterator[Any]:
        epoch, start = self._next_epoch, self._next_batch
        self._next_epoch, self._next_batch = epoch + 1, 0
        self._draw_seed(start == 0)
        position = _Position(epoch, start)
        self._latest = position
        by_workers = self.workers.count > 0
        batches = (
            self._let_workers_make(epoch, start)
            if by_workers
            else self._make_batches(self.batches_of(epoch), start)
        )
        if self.pin_memory and _can_pin():
            batches = map(pin_memory, batches)
        if self.prefetch > 0 and not by_workers and not self._runs_kernels():
            batches = Prefetcher(batches, self.prefetch)
        return _Pass(batches, position)

    def state_dict(self) -> dict[str, int]:
        """Where the latest pass stands: `epoch`, `batches` that were delivered in it,
        `seed`; and what must be the same to go on in the middle of an epoch. `shuffle`
        is 2 more where the order is PyTorch's."""
        epoch, batches = self._next_epoch, self._next_batch
        if self._latest is not None and not self._latest.finished:
            epoch, batches = self._latest.epoch, self._latest.delivered
        return {
            "epoch": epoch,
            "batches": batches,
            "seed": self.seed,
            "samples": self._samples(),
            "batch_size": self.batch_size,
            "shuffle": int(self.shuffle) + 2 * self._as_pytorch,
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """The next `for` delivers what was left of the epoch when `state` was taken
        (nothing, if that was after its last batch); later ones are whole epochs.

        Errors: ValueError if `state` lacks a key, or was taken in the middle of an
        epoch of another data set, batch size or shuffle.
        """
        own = self.state_dict()
        if state.keys() != own.keys():
            raise ValueError(
                f"DataLoader.load_state_dict: the keys are {sorted(state)}; expected "
                f"{sorted(own)}, as state_dict returns them"
            )
        if state["batches"] > 0:
            own["shuffle"] = int(self.shuffle) + state["shuffle"] // 2 * 2
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
        self._latest, self._as_pytorch = None, state["shuffle"] >= 2

    def batches_of(self, epoch: int) -> Callable[[int], Any]:
        """number -> that batch of the epoch."""
        make, size, order = self._batch_maker(), self.batch_size, self._order(epoch)
        return lambda i: make(order[i * size : (i + 1) * size])

    def _make_batches(self, make: Callable[[int], Any], start: int) -> Iterator[Any]:
        """The batches of an epoch, from number `start` on."""
        for i in range(start, len(self)):
            yield make(i)

    def _let_workers_make(self, epoch: int, start: int) -> Iterator[Any]:
        """The same, made by processes."""
        workers = self._kept
        if workers is None or not workers.usable():
            workers = Workers(self, epoch)
        self._kept = workers if self.workers.persistent else None
        return workers.batches(self, epoch, start)

    def _samples(self) -> int:
        """How many samples an epoch has."""
        return len(self.dataset if self.sampler is None else self.sampler)

    def _order(self, epoch: int) -> Indices | Draws:
        """The indices of all samples in the order of this epoch."""
        if self._as_pytorch and (random := self._random()):
            return random.order_of_pytorch(self.seed)
        if self.sampler is not None:
            return self.sampler.order(self.seed, epoch)
        if self.shuffle:
            return shuffled(len(self.dataset), self.seed, epoch)
        return np.arange(len(self.dataset), dtype=np.int64)

    @property
    def seed_of_order(self) -> tuple[int, bool]:
        """The seed, and whether its order is PyTorch's: what workers are told."""
        return self.seed, self._as_pytorch

    @seed_of_order.setter
    def seed_of_order(self, value: tuple[int, bool]) -> None:
        self.seed, self._as_pytorch = value

    def _random(self) -> RandomSampler | None:
        """What draws an order by the loader's seed, if anything does."""
        if self.shuffle:
            return RandomSampler(self.dataset) if len(self.dataset) else None
        found = self.sampler
        if isinstance(found, RandomSampler) and found.seed is None:
            return found
        return None

    def _draw_seed(self, new: bool) -> None:
        """Where PyTorch's numbers are drawn (`minitorch.manual_seed`), take what its
        loader takes for a new epoch: a number for workers that are started, or would
        be, and the order's seed."""
        if not new:  # the state says whose order it is
            return
        self._as_pytorch = False
        if not self._chosen and isinstance(default_generator, PyTorchGenerator):
            self._as_pytorch = True
            if self._kept is None:
                default_generator.whole()
            if self._random():
                self.seed = default_generator.whole()

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


def _checked(sampler: Any, shuffle: bool) -> Any:
    """A sampler of ours or None; an error for others."""
    if sampler is not None and shuffle:
        raise ValueError("DataLoader: sampler and shuffle=True; give one of them")
    known = (RandomSampler, SequentialSampler, DistributedSampler)
    if sampler is None or isinstance(sampler, known):
        return sampler
    raise ValueError(
        f"DataLoader: sampler is a {type(sampler).__name__}; expected a "
        f"RandomSampler, SequentialSampler or DistributedSampler; use shuffle=True, or "
        f"give a Subset with the order wanted"
    )


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
