"""With this file one can give data to a `DataLoader`: `Dataset` is what a data set of
one's own derives from (`IterableDataset` if it is a stream), `TensorDataset` wraps
tensors, `Subset` picks samples, `ConcatDataset` strings data sets together, and
`random_split` deals one out into training and validation parts.

`BatchDataset` is for data sets that can read many samples faster together than one by
one; the loader then asks for whole batches.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from minitorch.random import Generator, default_generator

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

T_co = TypeVar("T_co", covariant=True)
Indices = npt.NDArray[np.int64]

# Devices whose tensors NumPy can read where they are.
HOST_DEVICES = ("cpu", "simple")


class Dataset(Generic[T_co]):
    """A data set with numbered samples: derive from it, and define `__getitem__`
    (index from 0 to len - 1 -> sample) and `__len__`."""

    def __getitem__(self, index: int) -> T_co:
        raise NotImplementedError(
            f"{type(self).__name__} must define __getitem__(self, index)"
        )

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")


class IterableDataset(Generic[T_co]):
    """A stream of samples without numbers: derive from it, and define `__iter__`.

    Each `for` over its loader asks for a new iterator. Of several workers each has a
    copy, and iterates over all of it, unless `__iter__` asks `get_worker_info` which
    part is its own. `__len__` is for streams that know how many samples come.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")


class ConcatDataset(Dataset[T_co]):
    """The samples of several data sets, one after the other."""

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes = list(accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.datasets else 0

    def __getitem__(self, index: int) -> T_co:
        number = range(len(self))[index]  # negative ones count from the end
        which = bisect_right(self.cumulative_sizes, number)
        return self.datasets[which][
            number - self.cumulative_sizes[which] + len(self.datasets[which])
        ]


class BatchDataset(Dataset[T_co]):
    """A data set that can also read a whole batch at once."""

    def get_batch(self, indices: Indices) -> Any:
        """The samples `indices` (int64 [B]), already collated: what
        `default_collate([self[i] for i in indices])` would return."""
        raise NotImplementedError(
            f"{type(self).__name__} must define get_batch(self, indices)"
        )

    def runs_kernels(self) -> bool:
        """Whether `get_batch` computes on a device. A loader then calls it in the
        thread that asks for the batch, since not all devices serve two threads."""
        return False


class TensorDataset(BatchDataset[tuple["Tensor", ...]]):
    """Sample i is the tuple of row i of each tensor.

    tensors: [N, ...] each, with the same N.

    Errors: ValueError for no tensors, a tensor without dimensions, or unequal N.
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ValueError("TensorDataset: no tensors given; expected at least one")
        shapes = [tuple(tensor.shape) for tensor in tensors]
        if any(len(shape) == 0 for shape in shapes):
            raise ValueError(
                f"TensorDataset: the shapes are {shapes}; each tensor needs a first "
                "dimension, which counts the samples"
            )
        if len({shape[0] for shape in shapes}) > 1:
            raise ValueError(
                f"TensorDataset: the shapes are {shapes}; the first dimension must be "
                "the same in all, since it counts the samples"
            )
        self.tensors = tensors

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def get_batch(self, indices: Indices) -> list[Tensor]:
        """[B, ...] of each tensor; a list, as `default_collate` returns."""
        if not self.runs_kernels():
            return [take_rows(tensor, indices) for tensor in self.tensors]
        from minitorch.creation import from_numpy

        on_device = {t.device: from_numpy(indices, t.device) for t in self.tensors}
        return [t.index_select(0, on_device[t.device]) for t in self.tensors]

    def runs_kernels(self) -> bool:
        return not all(readable_by_numpy(tensor) for tensor in self.tensors)


class Subset(BatchDataset[T_co]):
    """The samples `indices` of `dataset`, in that order."""

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: int) -> T_co:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)

    def get_batch(self, indices: Indices) -> Any:
        """A batch of the data set underneath; only if `reads_batches(self)`."""
        if not isinstance(self.dataset, BatchDataset):
            raise TypeError(
                f"Subset.get_batch: {type(self.dataset).__name__} is no BatchDataset; "
                "read it sample by sample"
            )
        picked = np.asarray(self.indices, dtype=np.int64)[indices]
        return self.dataset.get_batch(picked)

    def runs_kernels(self) -> bool:
        return isinstance(self.dataset, BatchDataset) and self.dataset.runs_kernels()


def random_split(
    dataset: Dataset[T_co],
    lengths: Sequence[int | float],
    seed: int = 0,
    *,
    generator: Generator | None = None,
) -> list[Subset[T_co]]:
    """Deals a data set out at random into parts that do not overlap.

    `lengths`: the sizes, whose sum is `len(dataset)`; or fractions, whose sum is 1:
    each part then gets the floor of its share, and what remains is dealt one by one,
    from the first part on. The same seed (or generator, as in PyTorch, in the same
    state) gives the same parts. With neither, after `manual_seed(n,
    sequence="pytorch")`, they are PyTorch's.

    Errors: ValueError where the sum does not fit, or for a seed below 0.
    """
    sizes = _split_sizes(len(dataset), lengths)
    from minitorch.creation import randperm

    chosen = choose_seed("random_split", seed, generator)
    if (generator or default_generator).sequence == "pytorch" and seed == 0:
        order = randperm(sum(sizes), generator=generator).numpy()  # as in PyTorch
    else:
        order = shuffled(sum(sizes), chosen)
    ends = np.cumsum(sizes)
    return [
        Subset(dataset, order[end - size : end].tolist())
        for size, end in zip(sizes, ends)
    ]


def choose_seed(caller: str, seed: int, generator: Generator | None) -> int:
    """The seed, or the one that the generator gives; it moves the generator on."""
    if generator is None:
        return whole_number(caller, "seed", seed, least=0)
    if not isinstance(generator, Generator):
        raise TypeError(
            f"{caller}: generator is a {type(generator).__name__}; expected a "
            "minitorch.Generator, or give seed instead"
        )
    if seed != 0:
        raise ValueError(f"{caller}: give seed or generator, not both")
    state, offset = generator.take(1)
    return state + (offset << 64)


def whole_number(caller: str, name: str, value: Any, *, least: int) -> int:
    """An argument `name` of `caller` as an int; an error where it is none."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{caller}: {name} is {value!r}; expected a whole number"
        ) from None
    if number < least or isinstance(value, bool):
        raise ValueError(
            f"{caller}: {name} is {value!r}; expected a whole number >= {least}"
        )
    return number


def shuffled(n: int, seed: int, epoch: int = 0) -> Indices:
    """A random order of 0 .. n-1, int64 [n]: a pure function of (n, seed, epoch).

    It ranks the raw numbers of a Philox generator (Salmon et al., Parallel random
    numbers: as easy as 1, 2, 3, 2011). NumPy promises that this stream never changes,
    which it does not promise for `Generator.permutation`; so a run that is resumed
    with a later NumPy still sees the same order.
    """
    source = np.random.SeedSequence(seed, spawn_key=(epoch,))
    numbers = np.random.Philox(source).random_raw(n)
    return np.argsort(numbers, kind="stable")


def reads_batches(dataset: object) -> bool:
    """Whether `dataset.get_batch` says the same as `dataset[i]` for each i.

    No, if a derived class has its own `__getitem__` (to distort pictures, say), but
    inherits a `get_batch` which knows nothing of that.
    """
    if not isinstance(dataset, BatchDataset):
        return False
    batch_class = _defining_class(type(dataset), "get_batch")
    item_class = _defining_class(type(dataset), "__getitem__")
    if not issubclass(batch_class, item_class):
        return False
    return not isinstance(dataset, Subset) or reads_batches(dataset.dataset)


def readable_by_numpy(tensor: Tensor) -> bool:
    """Whether `tensor.numpy()` shares the memory, and loses no gradient."""
    return tensor.device in HOST_DEVICES and not tensor.requires_grad


def take_rows(tensor: Tensor, indices: Indices) -> Tensor:
    """tensor [N, ...], indices [B] -> [B, ...], a copy.

    NumPy copies where it can, not a kernel: this may run in the loader's thread,
    beside the kernels of the main one.
    """
    from minitorch.creation import from_numpy

    if readable_by_numpy(tensor):
        rows = np.take(tensor.numpy(), indices, axis=0)
        return from_numpy(rows, device=tensor.device)
    return tensor[from_numpy(indices, device=tensor.device)]


def _defining_class(cls: type, name: str) -> type:
    return next(base for base in cls.__mro__ if name in vars(base))


def _split_sizes(n: int, lengths: Sequence[int | float]) -> list[int]:
    """`lengths` as whole numbers that add up to n, or ValueError."""
    if any(length < 0 for length in lengths):
        raise ValueError(f"random_split: lengths are {list(lengths)}; none may be < 0")
    total = sum(lengths)
    if math.isclose(total, 1) and all(length <= 1 for length in lengths):
        sizes = [math.floor(n * length) for length in lengths]
        for i in range(n - sum(sizes)):
            sizes[i % len(sizes)] += 1
        return sizes
    if total != n or any(length != int(length) for length in lengths):
        raise ValueError(
            f"random_split: lengths are {list(lengths)}, which add up to {total}; "
            f"expected whole numbers that add up to the {n} samples of the data set, "
            "or fractions that add up to 1"
        )
    return [int(length) for length in lengths]
