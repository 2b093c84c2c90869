"""With this file one can say in which order a `DataLoader` goes through a data set:
`RandomSampler` draws samples again and again (`replacement=True`), as many as are
wanted, or shuffles them once; `SequentialSampler` takes them as they are;
`DistributedSampler` deals them out to the ranks of a group.

As the loader's own orders, that of an epoch is a pure function of the seed and the
number of the epoch. Draws are made when a slice of them is asked for, so that there may
be any number of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from functools import lru_cache

import numpy as np

from minitorch.data.dataset import Indices, choose_seed, shuffled, whole_number
from minitorch.random import Generator, Mersenne

BLOCK = 4096  # draws that are made together


class SequentialSampler:
    """0, 1, ..., len(data_source) - 1."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def order(self, seed: int, epoch: int) -> Indices:
        """The indices of an epoch."""
        return np.arange(len(self), dtype=np.int64)


class RandomSampler:
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
        count = size if num_samples is None else num_samples
        self.num_samples = whole_number("RandomSampler", "num_samples", count, least=1)
        if not replacement and count > size:
            raise ValueError(
                f"RandomSampler: num_samples is {count}, and there are {size} samples; "
                f"pass replacement=True to let them come again"
            )
        drawn = generator is not None
        self.seed = choose_seed("RandomSampler", 0, generator) if drawn else None
        self._epoch = 0

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        """The indices of the next epoch, one by one."""
        order = self.order(0, self._epoch)
        self._epoch += 1
        for start in range(0, self.num_samples, BLOCK):
            yield from order[start : start + BLOCK].tolist()

    def order(self, seed: int, epoch: int) -> Indices | Draws:
        """The indices of an epoch, or what can be sliced to get them."""
        seed = seed if self.seed is None else self.seed
        if self.replacement:
            return Draws(len(self.data_source), self.num_samples, seed, epoch)
        return shuffled(len(self.data_source), seed, epoch)[: self.num_samples]

    def order_of_pytorch(self, seed: int) -> Indices:
        """The indices that PyTorch draws from the seed of an epoch."""
        draw, size = Mersenne(seed), len(self.data_source)
        if self.replacement:
            return draw.integers(self.num_samples, 0, size)
        return draw.permutation(size)[: self.num_samples]


class DistributedSampler:
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

    def __iter__(self) -> Iterator[int]:
        return iter(self.order(0, 0).tolist())

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch from here on."""
        self.epoch = whole_number("set_epoch", "epoch", epoch, least=0)

    def order(self, seed: int, epoch: int) -> Indices:
        """This rank's indices of an epoch."""
        size, epoch = len(self.dataset), epoch if self.epoch is None else self.epoch
        every = shuffled(size, self.seed, epoch) if self.shuffle else np.arange(size)
        return np.resize(every, self.num_samples * self.num_replicas)[
            self.rank :: self.num_replicas
        ].astype(np.int64)


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
