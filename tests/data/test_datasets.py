"""Data sets: rows, subsets and splits, with PyTorch as the oracle."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from minitorch.data import BatchDataset, Dataset, Subset, TensorDataset, random_split
from minitorch.data.dataset import reads_batches, shuffled


class Squares(Dataset[int]):
    def __init__(self, n: int) -> None:
        self.n = n

    def __getitem__(self, index: int) -> int:
        return index * index

    def __len__(self) -> int:
        return self.n


# TensorDataset and Subset


def test_rows_of_all_tensors() -> None:
    x, y = minitorch.arange(12).reshape(4, 3), minitorch.arange(4)
    dataset = TensorDataset(x, y)
    assert len(dataset) == 4
    assert [t.tolist() for t in dataset[1]] == [[3, 4, 5], 1]
    assert [t.tolist() for t in dataset[-1]] == [[9, 10, 11], 3]
    # A data set may be gone through as it is: it ends with an IndexError.
    assert [int(label) for _, label in dataset] == [0, 1, 2, 3]


BAD = [
    ([], "no tensors given"),
    ([(3,), (4,)], r"shapes are \[\(3,\), \(4,\)\]; the first dimension must be the"),
    ([(3,), ()], r"each tensor needs a first dimension"),
]


@pytest.mark.parametrize(("shapes", "message"), BAD)
def test_unequal_tensors(shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TensorDataset(*[minitorch.zeros(shape) for shape in shapes])


@given(data=st.data(), n=st.integers(1, 20))
def test_get_batch_reads_what_items_read(data: st.DataObject, n: int) -> None:
    x = minitorch.arange(2 * n).reshape(2, n).transpose(0, 1)  # strided
    dataset = TensorDataset(x, minitorch.arange(n) * 10)
    indices = data.draw(st.lists(st.integers(-n, n - 1), max_size=8))
    batch = dataset.get_batch(np.array(indices, dtype=np.int64))
    assert [t.shape[0] for t in batch] == [len(indices)] * 2
    for row, index in enumerate(indices):
        assert [t[row].tolist() for t in batch] == [t.tolist() for t in dataset[index]]


@pytest.mark.parametrize("device", ["cpu", "simple"])
def test_get_batch_keeps_device_and_dtype_and_copies(device: str) -> None:
    x = minitorch.ones(3, 2, dtype=minitorch.float64, device=device)
    (batch,) = TensorDataset(x).get_batch(np.array([0, 0, 2]))
    assert (batch.device, batch.dtype) == (device, minitorch.float64)
    batch[0] = 5.0
    assert x.tolist() == [[1.0, 1.0]] * 3


def test_get_batch_passes_gradients() -> None:
    x = minitorch.ones(3, requires_grad=True)
    (batch,) = TensorDataset(x).get_batch(np.array([0, 0, 2]))
    batch.sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 1.0]


def test_changes_of_the_tensor_are_seen() -> None:
    x = minitorch.zeros(3)
    dataset = TensorDataset(x)
    x[1] = 7.0
    assert dataset.get_batch(np.array([1]))[0].tolist() == [7.0]


@given(
    outer=st.lists(st.integers(0, 9), max_size=9),
    inner=st.lists(st.integers(0, 9), min_size=10, max_size=10),
)
def test_subset_of_a_subset(outer: list[int], inner: list[int]) -> None:
    dataset = Subset(Subset(Squares(10), inner), outer)
    assert len(dataset) == len(outer)
    assert [dataset[i] for i in range(len(outer))] == [inner[i] ** 2 for i in outer]
    tensors = TensorDataset(minitorch.arange(10))
    batches = Subset(Subset(tensors, inner), outer)
    batch = batches.get_batch(np.arange(len(outer)))[0]
    assert batch.tolist() == [inner[i] for i in outer]


def test_who_can_read_batches() -> None:
    class Same(TensorDataset):
        pass

    class Distorted(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)[0] + 1

    class Both(Distorted):
        def get_batch(self, indices: Any) -> Any:
            return super().get_batch(indices)[0] + 1

    x = minitorch.arange(3)
    assert reads_batches(TensorDataset(x)) and reads_batches(Same(x))
    assert not reads_batches(Distorted(x)) and reads_batches(Both(x))
    assert reads_batches(Subset(Both(x), [0]))
    assert not reads_batches(Subset(Distorted(x), [0]))
    assert not reads_batches(Subset(Squares(3), [0]))
    assert not reads_batches(Squares(3)) and not reads_batches([1, 2])
    with pytest.raises(TypeError, match="Squares is no BatchDataset"):
        Subset(Squares(3), [0]).get_batch(np.array([0]))


@pytest.mark.parametrize("use", [lambda d: d[0], len])
def test_methods_that_a_data_set_must_define(use: Any) -> None:
    class Mine(Dataset[int]):
        pass

    with pytest.raises(NotImplementedError, match="Mine must define __"):
        use(Mine())
    with pytest.raises(NotImplementedError, match="must define get_batch"):
        BatchDataset().get_batch(np.array([0]))


# random_split


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5), seed=st.integers(0, 99)
)
def test_split_by_sizes_deals_out_everything_once(sizes: list[int], seed: int) -> None:
    n = sum(sizes)
    if n == 1 and max(sizes) == 1:
        return  # sizes and fractions look alike; they mean the same, too
    parts = random_split(Squares(n), sizes, seed)
    assert [len(part) for part in parts] == sizes
    dealt = Counter(index for part in parts for index in part.indices)
    assert dealt == Counter(range(n))
    again = random_split(Squares(n), sizes, seed)
    assert [a.indices for a in again] == [p.indices for p in parts]


@pytest.mark.filterwarnings("ignore:Length of split:UserWarning")  # PyTorch's
@given(
    weights=st.lists(st.integers(1, 100), min_size=1, max_size=6),
    n=st.integers(1, 200),
)
def test_fractions_are_rounded_as_pytorch_does(weights: list[int], n: int) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    fractions = [weight / sum(weights) for weight in weights]
    ours = [len(part) for part in random_split(Squares(n), fractions)]
    assert sum(ours) == n
    if sum(fractions) <= 1:  # PyTorch stumbles over 1.0000000000000002
        theirs = torch_data.random_split(Squares(n), fractions)
        assert ours == [len(part) for part in theirs]


def test_split_with_a_generator() -> None:
    def split(seed: int) -> list[Any]:
        generator = minitorch.Generator().manual_seed(seed)
        parts = random_split(Squares(50), [0.5, 0.5], generator=generator)
        after = random_split(Squares(50), [0.5, 0.5], generator=generator)
        assert after[0].indices != parts[0].indices
        return [part.indices for part in parts]

    assert split(1) == split(1) != split(2)


BAD_SPLITS = [
    ([3, 3], {}, ValueError, r"add up to 6; expected .* the 10 samples"),
    ([0.5, 0.2], {}, ValueError, "add up to 0.7"),
    ([-2, 12], {}, ValueError, "none may be < 0"),
    ([2.5, 7.5], {}, ValueError, "whole numbers"),
    ([5, 5], {"seed": -1}, ValueError, "random_split: seed is -1"),
    ([5, 5], {"seed": 1.5}, TypeError, "random_split: seed is 1.5"),
    ([5, 5], {"generator": 1}, TypeError, "expected a minitorch.Generator"),
    (
        [5, 5],
        {"seed": 1, "generator": minitorch.Generator(0)},
        ValueError,
        "seed or generator, not both",
    ),
]


@pytest.mark.parametrize(("lengths", "options", "error", "message"), BAD_SPLITS)
def test_split_errors(
    lengths: list[float], options: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        random_split(Squares(10), lengths, **options)


# The order


@given(n=st.integers(0, 500), seed=st.integers(0, 2**100), epoch=st.integers(0, 2**40))
def test_shuffled_is_a_permutation(n: int, seed: int, epoch: int) -> None:
    order = shuffled(n, seed, epoch)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    np.testing.assert_array_equal(order, shuffled(n, seed, epoch))


def test_shuffled_never_changes() -> None:
    """The order of a run that was saved must be the same in every later version."""
    assert shuffled(10, 0).tolist() == [1, 4, 5, 6, 8, 2, 0, 3, 9, 7]


def test_seeds_and_epochs_do_not_meet() -> None:
    """(seed, epoch) = (0, 1) is not (1, 0), and so on."""
    pairs = [
        (seed, epoch) for seed in (0, 1, 2, 2**32, 2**33 + 1) for epoch in range(5)
    ]
    orders = {tuple(shuffled(20, seed, epoch)) for seed, epoch in pairs}
    assert len(orders) == len(pairs)


def test_every_sample_comes_first_equally_often() -> None:
    """Chi-squared over 5,000 epochs of 10 samples; 27.9 is the 0.1 % point."""
    first = [int(shuffled(10, 7, epoch)[0]) for epoch in range(5000)]
    counts = np.bincount(first, minlength=10)
    assert ((counts - 500) ** 2 / 500).sum() < 27.9
    assert math.isclose(counts.sum(), 5000)
