"""With this file one can say in which order a `DataLoader` goes through a data set:
`RandomSampler` draws samples again and again (`replacement=True`), as many as are
wanted, or shuffles them once; `WeightedRandomSampler` draws some more often than
others; `SubsetRandomSampler` shuffles a choice of them; `SequentialSampler` takes them
as they are; `DistributedSampler` deals them out to the ranks of a group. `BatchSampler`
cuts an order into batches, and one's own orders derive from `Sampler`.

As the loader's own orders, that of an epoch is a pure function of the seed and the
number of the epoch, but for those of one's own and those that PyTorch draws
(`manual_seed(n, sequence="pytorch")`). Draws with replacement are made when a slice of
them is asked for, so that there may be any number of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from minitorch.data.dataset import Indices, choose_seed, shuffled, whole_number
from minitorch.executor import advance
from minitorch.random import (
    Generator,
    Mersenne,
    PyTorchGenerator,
    default_generator,
)

BLOCK = 4096  # draws that are made together


class Sampler:
    """An order of one's own: derive from it, and define `__iter__`, which yields the
    indices of an epoch, and `__len__`, which says how many. (It need not be derived
    from: what has both methods will do.)"""

    def __init__(self, data_source: Sized | None = None) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")


class Ordered(Sampler):
    """A sampler whose orders are a function of the seed and the epoch."""

    _epoch = 0

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        """The indices of the next epoch, one by one."""
        drawn = self.drawn()
        order = self.order(0, self._epoch) if drawn is None else drawn
        self._epoch += 1
        for start in range(0, len(self), BLOCK):
            yield from order[start : start + BLOCK].tolist()

    def order(self, seed: int, epoch: int) -> Indices | Draws:
        """The indices of an epoch, or what can be sliced to get them."""
        raise NotImplementedError

    def drawn(self) -> Indices | None:
        """The indices that PyTorch draws for the next epoch; None where its random
        numbers are not drawn, or have no part in it."""
        return None


class SequentialSampler(Ordered):
    """0, 1, ..., len(data_source) - 1."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def order(self, seed: int, epoch: int) -> Indices:
        return np.arange(len(self), dtype=np.int64)


class Drawn(Ordered):
    """`num_samples` draws from a generator, or from the loader's own seed."""

    def __init__(
        self, num_samples: int, generator: Generator | None, least: int = 1
    ) -> None:
        name = type(self).__name__
        self.num_samples = whole_number(name, "num_samples", num_samples, least=least)
        self.generator = generator
        seeded = generator is not None and not isinstance(generator, PyTorchGenerator)
        self.seed = choose_seed(name, 0, generator) if seeded else None

    def __len__(self) -> int:
        return self.num_samples

    def drawn(self) -> Indices | None:
        source = default_generator if self.generator is None else self.generator
        if self.seed is None and isinstance(source, PyTorchGenerator):
            return advance("Generator.drawn", self._as_pytorch, source)
        return None

    def _as_pytorch(self, source: PyTorchGenerator) -> Indices:
        raise NotImplementedError


class RandomSampler(Drawn):
    """Samples of a data set at random.

    data_source   has a length
    replacement   draw each sample from all of them, so that one may come again; else
                  each comes once
    num_samples   how many draws an epoch has; as many as there are samples, if None
    generator     to draw the seed from; a `DataLoader` without it has its own seed

    Errors: ValueError for more samples than there are without replacement.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source, self.replacement = data_source, bool(replacement)
        size = len(data_source)
        if not size:
            raise ValueError("RandomSampler: the data set is empty")
        super().__init__(size if num_samples is None else num_samples, generator)
        if not replacement and self.num_samples > size:
            raise ValueError(
                f"RandomSampler: num_samples is {num_samples}, and there are {size} "
                f"samples; pass replacement=True to let them come again"
            )

    def order(self, seed: int, epoch: int) -> Indices | Draws:
        seed = seed if self.seed is None else self.seed
        if self.replacement:
            return Draws(len(self.data_source), self.num_samples, seed, epoch)
        return shuffled(len(self.data_source), seed, epoch)[: self.num_samples]

    def _as_pytorch(self, source: PyTorchGenerator) -> Indices:
        draw = Mersenne(source.whole()) if self.generator is None else source.twin
        size = len(self.data_source)
        if self.replacement:
            return draw.integers(self.num_samples, 0, size)
        order = draw.permutation(size)
        if self.num_samples == size:
            draw.permutation(size)  # PyTorch begins a second round
        return order[: self.num_samples]


class WeightedRandomSampler(Drawn):
    """Samples 0 to len(weights) - 1 at random, each in proportion to its weight.

    With weights of 1 / (samples of its class), rare classes come as often as others.

    weights       at least 0, not all 0; they need not add up to 1
    num_samples   how many draws an epoch has
    replacement   one may come again; else each comes once
    generator     as for `RandomSampler`

    Errors: ValueError for weights that make no sense, or more samples than have one
    without replacement.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(num_samples, generator)
        self.weights = np.array(listed(weights), np.float64)
        self.replacement = bool(replacement)
        if self.weights.ndim != 1:
            raise ValueError(
                f"WeightedRandomSampler: the weights are {self.weights.shape}; "
                "expected a number for each sample"
            )
        least = 1 if replacement else self.num_samples
        if not (np.isfinite(self.weights) & (self.weights >= 0)).all():
            raise ValueError(
                "WeightedRandomSampler: expected weights that are finite and at least "
                f"0; the least is {self.weights.min()}, the greatest "
                f"{self.weights.max()}"
            )
        if np.count_nonzero(self.weights) < least:
            raise ValueError(
                f"WeightedRandomSampler: {np.count_nonzero(self.weights)} weights are "
                f"above 0; expected {least} or more"
            )

    def order(self, seed: int, epoch: int) -> Indices:
        seed = seed if self.seed is None else self.seed
        count = self.num_samples if self.replacement else len(self.weights)
        source = np.random.SeedSequence(seed, spawn_key=(epoch,))
        u = (np.random.Philox(source).random_raw(count) >> np.uint64(11)) * 2.0**-53
        if self.replacement:
            ends = np.cumsum(self.weights / self.weights.max())
            return np.searchsorted(ends, u * ends[-1], "right")
        # The first in a race of exponential times (Efraimidis and Spirakis, 2006).
        with np.errstate(divide="ignore"):
            times = -np.log1p(-u) / self.weights
        return np.argsort(times, kind="stable")[: self.num_samples]

    def _as_pytorch(self, source: PyTorchGenerator) -> Indices:
        from minitorch.creation import from_numpy

        weights, count = from_numpy(self.weights), self.num_samples
        return weights.multinomial(count, self.replacement, generator=source).numpy()


class SubsetRandomSampler(Drawn):
    """The samples `indices`, each once, in a random order.

    generator: as for `RandomSampler`.
    """

    def __init__(
        self, indices: Sequence[int], generator: Generator | None = None
    ) -> None:
        self.indices = np.array(listed(indices), np.int64)
        super().__init__(len(self.indices), generator, least=0)

    def order(self, seed: int, epoch: int) -> Indices:
        seed = seed if self.seed is None else self.seed
        return self.indices[shuffled(self.num_samples, seed, epoch)]

    def _as_pytorch(self, source: PyTorchGenerator) -> Indices:
        return self.indices[source.twin.permutation(self.num_samples)]


class BatchSampler(Sampler):
    """Batches of what a sampler gives: lists of `batch_size` indices, the last one of
    fewer, unless `drop_last`. For a `DataLoader(batch_sampler=...)`."""

    def __init__(
        self, sampler: Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        self.sampler, self.drop_last = sampler, bool(drop_last)
        self.batch_size = whole_number(
            "BatchSampler", "batch_size", batch_size, least=1
        )

    def __len__(self) -> int:
        extra = 0 if self.drop_last else self.batch_size - 1
        return (len(self.sampler) + extra) // self.batch_size  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch


class DistributedSampler(Ordered):
    """This rank's share of a data set; that of rank r is every n-th sample from r on.

    dataset        has a length
    num_replicas   how many ranks there are, and which this is (rank); those of the
                   process group, if None
    shuffle        a new order in each epoch, the same on all ranks
    seed           of the orders; all ranks must give the same
    drop_last      leave out samples that cannot be dealt evenly; else some come twice

    The epoch is that of the `DataLoader`, unless `set_epoch` says which it is.

    Errors: ValueError for a rank that is none, or an empty data set.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        from minitorch.distributed import get_rank, get_world_size

        name, size = "DistributedSampler", len(dataset)
        n = get_world_size() if num_replicas is None else num_replicas
        self.num_replicas = n = whole_number(name, "num_replicas", n, least=1)
        self.rank = get_rank() if rank is None else rank
        self.rank = whole_number(name, "rank", self.rank, least=0)
        if self.rank >= n or not size:
            raise ValueError(
                f"{name}: rank is {self.rank}, and the data set has {size} samples; "
                f"expected a rank below num_replicas, {n}, and one sample at least"
            )
        self.dataset, self.shuffle, self.drop_last = dataset, shuffle, drop_last
        self.seed = whole_number(name, "seed", seed, least=0)
        self.num_samples = size // n if drop_last else -(-size // n)
        self.epoch: int | None = None

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch from here on."""
        self.epoch = whole_number("set_epoch", "epoch", epoch, least=0)

    def order(self, seed: int, epoch: int) -> Indices:
        """This rank's indices of an epoch."""
        size, epoch = len(self.dataset), epoch if self.epoch is None else self.epoch
        every = np.arange(size)
        if self.shuffle and isinstance(default_generator, PyTorchGenerator):
            every = Mersenne(self.seed + epoch).permutation(size)
        elif self.shuffle:
            every = shuffled(size, self.seed, epoch)
        return np.resize(every, self.num_samples * self.num_replicas)[
            self.rank :: self.num_replicas
        ].astype(np.int64)


def listed(numbers: Any) -> Any:
    """A tensor's numbers as a list; all else as it is."""
    return numbers.tolist() if hasattr(numbers, "tolist") else numbers


class Draws:
    """`count` numbers below n at random, of which slices are made when asked for."""

    def __init__(self, n: int, count: int, seed: int, epoch: int) -> None:
        self.n, self.count, self.key = n, count, (seed, epoch)

    def __getitem__(self, part: slice) -> Indices:
        start, stop, _ = part.indices(self.count)
        blocks = range(start // BLOCK, -(-stop // BLOCK))
        drawn = [_block(self.n, *self.key, block) for block in blocks]
        first = start // BLOCK * BLOCK
        return np.concatenate([np.empty(0, np.int64), *drawn])[
            start - first : stop - first
        ]


@lru_cache(maxsize=4)
def _block(n: int, seed: int, epoch: int, block: int) -> Indices:
    """BLOCK numbers below n; a stream that NumPy never changes, see `shuffled`."""
    source = np.random.SeedSequence(seed, spawn_key=(epoch, block))
    return (np.random.Philox(source).random_raw(BLOCK) % np.uint64(n)).astype(np.int64)
