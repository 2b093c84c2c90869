"""DataLoader: batches, order, resuming, and errors that come out of the thread."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from minitorch.cuda import is_available
from minitorch.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    random_split,
    sampler,
)


class Numbers(Dataset[int]):
    """0 .. n-1, and an error at `bad`."""

    def __init__(self, n: int, bad: int = -1, error: Exception | None = None) -> None:
        self.n, self.bad, self.error = n, bad, error

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise self.error or ZeroDivisionError(f"sample {index}")
        return index

    def __len__(self) -> int:
        return self.n


def listed(loader: DataLoader) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


options = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 12),
        "shuffle": st.booleans(),
        "drop_last": st.booleans(),
        "seed": st.integers(0, 5),
        "prefetch": st.integers(0, 3),
    }
)


@given(n=st.integers(0, 40), options=options)
def test_an_epoch_is_each_sample_once(n: int, options: dict[str, Any]) -> None:
    loader = DataLoader(Numbers(n), **options)
    batches = listed(loader)
    assert len(batches) == len(loader)
    size = options["batch_size"]
    assert all(len(batch) == size for batch in batches[:-1])
    flat = [i for batch in batches for i in batch]
    assert len(flat) == (n - n % size if options["drop_last"] else n)
    assert len(set(flat)) == len(flat) and set(flat) <= set(range(n))
    if not options["shuffle"]:
        assert flat == list(range(len(flat)))


@given(n=st.integers(0, 30), options=options)
def test_the_quick_way_gives_what_samples_give(n: int, options: dict[str, Any]) -> None:
    """TensorDataset in whole batches, and the same rows collated one by one."""
    x = minitorch.arange(3 * n).reshape(n, 3) if n else minitorch.zeros(0, 3)
    y = minitorch.arange(n)

    class OneByOne(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    quick = DataLoader(TensorDataset(x, y), **options)
    slow = DataLoader(OneByOne(x, y), **options)
    for _ in range(2):
        pairs = list(zip(quick, slow, strict=True))
        assert len(pairs) == len(quick)
        for a, b in pairs:
            assert type(a) is type(b) is list
            assert [t.tolist() for t in a] == [t.tolist() for t in b]
            assert [t.dtype for t in a] == [t.dtype for t in b]


@given(n=st.integers(0, 30), size=st.integers(1, 9), drop=st.booleans())
def test_same_batches_as_pytorch(n: int, size: int, drop: bool) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    ours = DataLoader(Numbers(n), size, drop_last=drop)
    theirs = torch_data.DataLoader(Numbers(n), size, drop_last=drop)
    assert len(ours) == len(theirs)
    assert listed(ours) == [batch.tolist() for batch in theirs]


def test_epochs_differ_and_seeds_repeat() -> None:
    def epochs(seed: int) -> list[Any]:
        loader = DataLoader(Numbers(50), 7, shuffle=True, seed=seed)
        return [listed(loader) for _ in range(3)]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)
    first, second, third = epochs(1)
    assert first != second != third != first


def test_subset_and_split() -> None:
    data = TensorDataset(minitorch.arange(20) * 10)
    part, rest = random_split(data, [15, 5], seed=3)
    loader = DataLoader(part, 4, shuffle=True)
    seen = sorted(int(v) for (batch,) in loader for v in batch)
    assert seen == sorted(10 * i for i in part.indices)
    assert len(list(DataLoader(rest, 5))) == 1
    assert listed(DataLoader(Subset(Numbers(9), [8, 0, 3]), 2)) == [[8, 0], [3]]


def test_collate_fn() -> None:
    loader = DataLoader(Numbers(5), 2, collate_fn=lambda samples: tuple(samples))
    assert list(loader) == [(0, 1), (2, 3), (4,)]
    tensors = TensorDataset(minitorch.arange(3))
    loader = DataLoader(tensors, 2, collate_fn=len)
    assert list(loader) == [2, 1]


def test_anything_with_items_and_length() -> None:
    assert listed(DataLoader([3, 1, 2], 2)) == [[3, 1], [2]]  # type: ignore[arg-type]


def test_two_passes_at_once() -> None:
    loader = DataLoader(Numbers(6), 2, shuffle=True)
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(loader, loader)]
    other = DataLoader(Numbers(6), 2, shuffle=True)
    assert [a for a, _ in pairs] == listed(other)
    assert [b for _, b in pairs] == listed(other)


def test_a_generator_gives_the_seed() -> None:
    def epochs(seed: int) -> list[Any]:
        generator = minitorch.Generator().manual_seed(seed)
        loader = DataLoader(Numbers(50), 7, shuffle=True, generator=generator)
        return [listed(loader) for _ in range(2)]

    assert epochs(1) == epochs(1) != epochs(2)


# Resuming


@given(n=st.integers(0, 30), options=options, epochs=st.integers(0, 2), data=st.data())
def test_a_restored_loader_delivers_what_was_left(
    n: int, options: dict[str, Any], epochs: int, data: st.DataObject
) -> None:
    loader = DataLoader(Numbers(n), **options)
    for _ in range(epochs):
        listed(loader)
    taken = data.draw(st.integers(0, len(loader)))
    running = iter(loader)
    for _ in range(taken):
        next(running)
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["epoch"], state["batches"]) == (epochs, taken)
    left = [batch.tolist() for batch in running]
    after = listed(loader)

    # Into a new loader, with another seed and prefetch; and into one under way.
    other = DataLoader(Numbers(n), **{**options, "seed": 77, "prefetch": 1})
    for restored in (other, loader):
        restored.load_state_dict(state)
        assert restored.state_dict() == state
        assert listed(restored) == left
        assert listed(restored) == after
        assert restored.state_dict()["epoch"] == epochs + 2


def test_prefetched_batches_do_not_count_as_delivered() -> None:
    loader = DataLoader(Numbers(20), 2, prefetch=5)
    running = iter(loader)
    next(running)
    time.sleep(0.05)
    assert loader.state_dict()["batches"] == 1


def test_state_after_leaving_early_is_where_it_was_left() -> None:
    loader = DataLoader(Numbers(20), 2, shuffle=True)
    for i, _ in enumerate(loader):
        if i == 3:
            break
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 4)
    # The next loop is a new epoch, as in PyTorch, unless the state is loaded.
    assert len(listed(loader)) == 10
    assert loader.state_dict()["epoch"] == 2
    loader.load_state_dict(state)
    assert len(listed(loader)) == 6


def test_states_that_do_not_fit() -> None:
    loader = DataLoader(Numbers(20), 2)
    next(iter(loader))
    state = loader.state_dict()
    for other, message in [
        (DataLoader(Numbers(21), 2), "samples was 20, and is 21"),
        (DataLoader(Numbers(20), 4), "batch_size was 2, and is 4"),
        (DataLoader(Numbers(20), 2, shuffle=True), "shuffle was 0, and is 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(state)
        # Between epochs, nothing has to be the same.
        other.load_state_dict({**state, "batches": 0})
    with pytest.raises(ValueError, match=r"the keys are .* expected"):
        loader.load_state_dict({"epoch": 1})
    with pytest.raises(ValueError, match="epoch is -1"):
        loader.load_state_dict({**state, "epoch": -1})


# Errors and the thread


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_in_a_sample_comes_after_the_batches_before_it(
    prefetch: int, wait_until_no_threads: Callable[[], None]
) -> None:
    loader = DataLoader(Numbers(10, bad=5), 2, prefetch=prefetch)
    running = iter(loader)
    assert [next(running).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(ZeroDivisionError, match="sample 5") as caught:
        next(running)
    lines = traceback.extract_tb(caught.value.__traceback__)
    assert lines[-1].name == "__getitem__" and lines[-1].filename == __file__
    assert loader.state_dict()["batches"] == 2
    wait_until_no_threads()
    # The loader itself is as good as new.
    loader.dataset.bad = -1
    assert len(listed(loader)) == 5


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_stray_stop_iteration_does_not_end_the_epoch(prefetch: int) -> None:
    loader = DataLoader(Numbers(10, 5, StopIteration()), 2, prefetch=prefetch)
    with pytest.raises(RuntimeError, match="StopIteration"):
        listed(loader)


def test_leaving_early_ends_the_thread_though_the_loader_lives(
    wait_until_no_threads: Callable[[], None],
) -> None:
    loader = DataLoader(Numbers(1000), 1, prefetch=2)
    for _ in loader:
        break
    wait_until_no_threads()
    assert loader.state_dict()["batches"] == 1


def test_no_thread_without_prefetch_or_with_kernels(
    threads: Callable[[], list[threading.Thread]],
) -> None:
    needs_grad = TensorDataset(minitorch.ones(4, requires_grad=True))
    for loader in (
        DataLoader(Numbers(4), prefetch=0),
        DataLoader(needs_grad, prefetch=2),
        DataLoader(Subset(needs_grad, [0, 1]), prefetch=2),
    ):
        running = iter(loader)
        next(running)
        assert threads() == []


# Arguments


DEFAULTS = {
    "sampler": None,
    "batch_sampler": None,
    "num_workers": 0,
    "pin_memory": False,
    "pin_memory_device": "",
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "generator": None,
    "prefetch_factor": None,
    "persistent_workers": False,
    "in_order": True,
}


def test_all_of_pytorchs_arguments_are_known() -> None:
    import inspect

    torch_data = pytest.importorskip("torch.utils.data")
    theirs = inspect.signature(torch_data.DataLoader).parameters
    for name, parameter in theirs.items():
        if name in ("dataset", "batch_size", "shuffle", "drop_last", "collate_fn"):
            continue
        DataLoader(Numbers(3), **{name: parameter.default})
    assert set(DEFAULTS) <= set(theirs)


REFUSED = [
    ("in_order", False, "in order"),
    ("batch_size", 0, "batch_size is 0; expected a whole number >= 1"),
    ("batch_size", -3, "batch_size is -3"),
    ("batch_size", True, "batch_size is True"),
    ("prefetch", -1, "prefetch is -1"),
    ("seed", -1, "seed is -1"),
]


@pytest.mark.skipif(is_available(), reason="tests/cuda/test_pinned.py has this case")
def test_pinning_without_a_gpu_is_a_warning() -> None:
    loader = DataLoader(Numbers(3), 3, pin_memory=True)
    with pytest.warns(UserWarning, match="pin_memory=True has no .* What to do: "):
        (batch,) = loader
    assert batch.tolist() == [0, 1, 2] and not batch.is_pinned()
    with pytest.raises(RuntimeError, match=r"'cuda' cannot be used .* What to do: "):
        batch.pin_memory()


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_refused_values(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(Numbers(3), **{name: value})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": None}, "batch_size is None; expected a whole number"),
        ({"batch_size": 2.0}, "batch_size is 2.0"),
        ({"batchsize": 2}, "no argument 'batchsize'"),
        ({"generator": 3}, "expected a minitorch.Generator"),
        ({"sampler": iter([1])}, "sampler is a list_iterator; .* and __len__"),
    ],
)
def test_refused_types(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DataLoader(Numbers(3), **given)


def test_refused_data_sets_and_positions() -> None:
    with pytest.raises(TypeError, match="dataset is a generator; expected an object"):
        DataLoader(i for i in range(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="positional"):
        DataLoader(Numbers(3), 1, True, None)  # type: ignore[misc]


def test_numpy_integers_are_whole_numbers() -> None:
    loader = DataLoader(Numbers(4), np.int64(2), seed=np.int64(1), shuffle=None)
    assert listed(loader) == [[0, 1], [2, 3]]


# Samplers


def drawn(loader: DataLoader, epochs: int = 1) -> list[list[int]]:
    return [
        [int(x) for batch in loader for x in np.atleast_1d(batch.numpy())]
        for _ in range(epochs)
    ]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}], ids=["here", "worker"])
def test_draws_with_replacement(options: dict[str, Any]) -> None:
    """As many as are asked for, others in each epoch, the same with the same seed."""
    data = Numbers(5)
    count = 2 * sampler.BLOCK + 3 if not options else 40
    make = lambda seed: DataLoader(
        data,
        1000,
        sampler=RandomSampler(data, replacement=True, num_samples=count),
        seed=seed,
        **options,
    )
    (first, second), other = drawn(make(1), 2), drawn(make(2))[0]
    assert drawn(make(1), 2) == [first, second]
    assert len(first) == count and first != second and first != other
    assert set(first) == set(range(5))
    shares = np.bincount(first) / count
    assert abs(shares - 0.2).max() < 5 * (0.16 / count) ** 0.5


def test_endless_draws_cost_nothing_until_they_are_wanted() -> None:
    data = Numbers(50)
    many = RandomSampler(data, replacement=True, num_samples=int(1e10))
    loader = DataLoader(data, 8, sampler=many, shuffle=False)
    assert len(loader) == 10**10 // 8
    batches = iter(loader)
    begin = [next(batches).tolist() for _ in range(3)]
    state = loader.state_dict()
    more = [next(batches).tolist() for _ in range(2)]
    again = DataLoader(data, 8, sampler=many)
    again.load_state_dict(state)
    rest = iter(again)
    assert [next(rest).tolist() for _ in range(2)] == more
    assert begin[0] != begin[1]


def test_samplers_without_replacement() -> None:
    data = Numbers(9)
    loader = DataLoader(data, 4, sampler=RandomSampler(data))
    first, second = drawn(loader, 2)
    assert sorted(first) == sorted(second) == list(range(9)) and first != second
    some = RandomSampler(data, num_samples=4)
    assert len(some) == len(set(some)) == 4 and list(some) != list(some)
    assert drawn(DataLoader(data, 4, sampler=SequentialSampler(data)))[0] == [*range(9)]
    seeded = [
        list(RandomSampler(data, generator=minitorch.Generator().manual_seed(3)))
        for _ in range(2)
    ]
    assert seeded[0] == seeded[1]
    for make, words in (
        (lambda: RandomSampler(data, num_samples=10), "replacement=True"),
        (lambda: RandomSampler(data, num_samples=0), "num_samples is 0"),
        (lambda: RandomSampler([]), "empty"),
        (lambda: DataLoader(data, sampler=some, shuffle=True), "leave out shuffle"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
