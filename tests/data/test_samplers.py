"""Orders of one's own, weights, batches, streams; PyTorch's loader is the oracle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitorch.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from minitorch.data.workers import get_worker_info


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return index


class Backward(Sampler):
    """Other numbers each time, as an own sampler may do; not all of them."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return 9

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter(range(12 - self.passes, 3 - self.passes, -1))


class Stream(IterableDataset[int]):
    """0, 1, ... count - 1, dealt out to the workers."""

    def __init__(self, count: int, bad: int = -1) -> None:
        self.count, self.bad = count, bad

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.count, step):
            if number == self.bad:
                raise ZeroDivisionError(f"sample {number}")
            yield number


def listed(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_order_of_ones_own_goes_on_where_it_was_left(workers: int) -> None:
    """Though nobody can make it again."""
    for options in (
        {"sampler": Backward(), "batch_size": 2},
        {"batch_sampler": BatchSampler(Backward(), 2, False)},
    ):
        loader = DataLoader(Numbers(), num_workers=workers, **options)
        assert len(loader) == 5
        assert listed(loader) == [[11, 10], [9, 8], [7, 6], [5, 4], [3]]
        batches = iter(loader)
        assert next(batches).tolist() == [10, 9]
        state = json.loads(json.dumps(loader.state_dict()))
        rest = listed(batches)
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        assert listed(loader) == rest == [[8, 7], [6, 5], [4, 3], [2]]
        assert listed(loader)[0] == [9, 8]
        assert "order" not in loader.state_dict()


@given(
    sizes=st.lists(st.integers(0, 20), max_size=8), size=st.integers(1, 5),
    drop=st.booleans(),
)  # fmt: skip
def test_batches_as_pytorch_cuts_them(sizes: list[int], size: int, drop: bool) -> None:
    theirs = pytest.importorskip("torch.utils.data").BatchSampler(sizes, size, drop)
    ours = BatchSampler(sizes, size, drop)
    assert list(ours) == list(theirs) and len(ours) == len(theirs)


def test_weights() -> None:
    """The numbers of draws are as the weights are; without replacement none is there
    twice, and those of weight 0 never."""
    weights = [1.0, 0.0, 3.0, 6.0]
    sampler = WeightedRandomSampler(weights, 20_000)
    first, second = list(sampler), list(sampler)
    assert first != second
    counts = Counter(first)
    for index, weight in enumerate(weights):
        spread = (20_000 * weight / 10 * (1 - weight / 10)) ** 0.5
        assert abs(counts[index] - 2000 * weight) <= 5 * spread
    once = WeightedRandomSampler(weights, 2, replacement=False)
    pairs = Counter(tuple(once) for _ in range(3000))
    assert all(len({*pair, 1}) == 3 for pair in pairs)
    # 3 first, then 2 of the 4 that are left: 0.6 * 3 / 4.
    assert abs(pairs[3, 2] - 3000 * 0.45) <= 5 * (3000 * 0.45 * 0.55) ** 0.5
    loader = DataLoader(Numbers(), 5, sampler=once, seed=3)
    again = DataLoader(Numbers(), 5, sampler=once, seed=3)
    assert listed(loader) == listed(again)
    for wrong, words in (
        ([1.0, -1.0], "the least is -1.0"),
        ([1.0, float("nan")], "finite"),
        ([0.0], "0 weights are above 0; expected 1"),
        ([], "0 weights are above 0"),
    ):
        with pytest.raises(ValueError, match=words):
            WeightedRandomSampler(wrong, 1)
    with pytest.raises(ValueError, match="3 weights are above 0; expected 4"):
        WeightedRandomSampler(weights, 4, replacement=False)


def test_a_subset_in_random_order() -> None:
    sampler = SubsetRandomSampler(np.array([7, 1, 5]))  # type: ignore[arg-type]
    orders = {tuple(sampler) for _ in range(60)}
    assert len(orders) == 6 and {*map(frozenset, orders)} == {frozenset((1, 5, 7))}


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_streams_as_pytorch_reads_them(workers: int, drop: bool) -> None:
    theirs = pytest.importorskip("torch.utils.data")

    class Other(Stream, theirs.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            info = theirs.get_worker_info()
            first, step = (0, 1) if info is None else (info.id, info.num_workers)
            return iter(range(first, self.count, step))

    for count in (0, 1, 7, 8, 20):
        options = {"batch_size": 2, "drop_last": drop, "num_workers": workers}
        loader = DataLoader(Stream(count), **options, persistent_workers=workers > 0)
        # Other is no class of a module, as what else than a fork starts would need.
        options["multiprocessing_context"] = "fork" if workers else None
        expected = listed(theirs.DataLoader(Other(count), **options))
        for _ in range(2):
            assert listed(loader) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_goes_on_where_it_was_left(workers: int) -> None:
    loader = DataLoader(Stream(11), 2, num_workers=workers)
    batches = iter(loader)
    next(batches), next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = listed(batches)
    other = DataLoader(Stream(11), 2, num_workers=workers)
    other.load_state_dict(state)
    assert listed(other) == rest and len(rest) > 2


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_stream_comes_after_the_batches_before_it(workers: int) -> None:
    batches = iter(DataLoader(Stream(9, bad=5), 2, num_workers=workers))
    assert next(batches).tolist() == [0, 1] and next(batches).tolist() == [2, 3]
    with pytest.raises(ZeroDivisionError, match="sample 5"):
        next(batches)


def test_lengths_of_streams() -> None:
    class Counted(Stream):
        def __len__(self) -> int:
            return self.count

    assert len(DataLoader(Counted(7), 2)) == 4
    assert len(DataLoader(Counted(7), 2, drop_last=True)) == 3
    with pytest.raises(TypeError, match="len"):
        len(DataLoader(Stream(7), 2))


def test_what_does_not_go_together() -> None:
    order = RandomSampler(Numbers())
    for options, words in (
        ({"dataset": Stream(3), "shuffle": True}, "IterableDataset .* shuffle=True"),
        ({"dataset": Stream(3), "sampler": order}, "IterableDataset .* sampler"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler .* batch_size"),
        ({"batch_sampler": [[0]], "drop_last": True}, "batch_sampler .* drop_last"),
        ({"batch_sampler": [[0]], "shuffle": True}, "batch_sampler .* shuffle=True"),
    ):
        with pytest.raises(ValueError, match=words):
            DataLoader(**{"dataset": Numbers(), **options})  # type: ignore[arg-type]


@given(sizes=st.lists(st.integers(0, 4), max_size=5))
def test_data_sets_strung_together(sizes: list[int]) -> None:
    parts = [list(range(10 * i, 10 * i + n)) for i, n in enumerate(sizes)]
    both: ConcatDataset[int] = ConcatDataset(parts)  # type: ignore[arg-type]
    flat = [x for part in parts for x in part]
    assert len(both) == len(flat)
    assert [both[i] for i in range(-len(flat), len(flat))] == flat * 2
    for outside in (len(flat), -len(flat) - 1):
        with pytest.raises(IndexError):
            both[outside]


class NoLength(Sampler):
    def __iter__(self) -> Iterator[int]:
        return iter([3, 1, 2])


def test_edges_of_samplers() -> None:
    assert list(NoLength()) == [3, 1, 2]  # a list asks for a length first
    with pytest.raises(TypeError, match="sampler is a NoLength; expected an object"):
        DataLoader(list(range(4)), sampler=NoLength())
    assert set(WeightedRandomSampler([1e308] * 3, 60)) == {0, 1, 2}
    with pytest.raises(ValueError, match=r"the weights are \(1, 2\)"):
        WeightedRandomSampler([[1.0, 2.0]], 1)  # type: ignore[list-item]
    empty = SubsetRandomSampler([])
    assert list(empty) == [] and listed(DataLoader([1, 2], 2, sampler=empty)) == []
