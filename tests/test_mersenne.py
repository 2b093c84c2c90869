"""The numbers that PyTorch draws on a CPU: from one seed, both libraries' programs have
the same weights, batches, zeros of dropout and samples, and so the same losses."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from minitorch.data import DataLoader, TensorDataset, random_split
from minitorch.random import PyTorchGenerator

SEEDS = (0, 1337, 2**32 + 5)


@pytest.fixture(autouse=True)
def own_numbers() -> Iterator[None]:
    before, theirs = minitorch.get_rng_state(), torch.get_rng_state()
    yield
    minitorch.set_rng_state(before)
    torch.set_rng_state(theirs)


def seeded(seed: int) -> None:
    torch.manual_seed(seed)
    minitorch.manual_seed(seed, sequence="pytorch")


def same(draw: Callable[[Any], Any], atol: float = 0.0) -> None:
    expected, found = draw(torch).detach().numpy(), draw(minitorch).detach().numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def dropped(x: Any) -> Any:
    library = minitorch if isinstance(x, minitorch.Tensor) else torch
    return library.nn.functional.dropout(x, 0.4)


def attended(t: Any, mask: Any = None, **options: Any) -> Any:
    x = t.linspace(0, 1, 240).reshape(2, 3, 5, 8)
    how = {"dropout_p": 0.3, **options}
    return t.nn.functional.scaled_dot_product_attention(x, x, x, mask, **how)


def encoded(t: Any, **options: Any) -> Any:
    layer = t.nn.TransformerEncoderLayer(8, 2, 9, dropout=0.3, **options)
    return layer(t.linspace(-1, 1, 120).reshape(3, 5, 8).cos())


def forked(t: Any) -> Any:
    with t.random.fork_rng():
        t.rand(5), t.randn(3)
    return t.rand(2)


def coins_are_intels() -> bool:
    """Whether this PyTorch asks Intel's library for dropout's zeros."""
    before = torch.get_rng_state()
    after = []
    for draw in (lambda x: x.bernoulli_(0.5), lambda x: x.uniform_()):
        torch.manual_seed(0)
        draw(torch.empty(3, dtype=torch.float64))
        after.append(torch.rand(1).item())
    torch.set_rng_state(before)
    return after[0] != after[1]


DRAWS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "rand": (lambda t: t.rand(3, 5), 0),
    "rand of float64": (lambda t: t.rand(7, dtype=t.float64), 0),
    "randn of few": (lambda t: t.randn(5), 0),
    "randn of one": (lambda t: t.randn(()), 0),
    "randn of 16": (lambda t: t.randn(16), 3e-7),
    "randn of 17": (lambda t: t.randn(17), 3e-7),
    "randn of float64": (lambda t: t.randn(100, dtype=t.float64), 1e-15),
    "randn of few of float64": (lambda t: t.randn(3, dtype=t.float64), 1e-15),
    "randn of many": (lambda t: t.randn(2**20 + 37), 1e-6),
    "normal": (lambda t: t.normal(1.0, 3.0, (33,)), 1e-6),
    "randint": (lambda t: t.randint(10, (2, 4)), 0),
    "randint below 0": (lambda t: t.randint(-5, 3, (9,)), 0),
    "randint of a wide range": (lambda t: t.randint(2**31, (9,)), 0),
    "randperm": (lambda t: t.randperm(101), 0),
    "randperm of nothing": (lambda t: t.randperm(0), 0),
    "randperm of 32 bits": (lambda t: t.randperm(9, dtype=t.int32), 0),
    "rand of a size": (lambda t: t.rand(size=(2, 3)), 0),
    "randn of a size": (lambda t: t.randn(size=[2]), 0),
    "rand behind a fork": (forked, 0),
    "rand of nothing": (lambda t: t.rand(0), 0),
    "uniform_": (lambda t: t.empty(3, 9).uniform_(-2, 5), 5e-7),
    "normal_": (lambda t: t.empty(5, 9).normal_(1, 2), 1e-6),
    "dropout": (lambda t: t.nn.functional.dropout(t.ones(50), 0.3), 0),
    "bernoulli": (lambda t: t.bernoulli(t.linspace(0, 1, 50)), 0),
    "bernoulli of float64": (lambda t: t.bernoulli(t.full((9,), 0.4).double()), 0),
    "bernoulli_": (lambda t: t.empty(50).bernoulli_(0.3), 0),
    "bernoulli_ of ints": (lambda t: t.empty(50, dtype=t.int64).bernoulli_(0.3), 0),
    "bernoulli_ of a row": (lambda t: t.empty(9, 5).bernoulli_(t.rand(5)), 0),
    "dropout of rows": (lambda t: dropped(t.ones(9, 10).t()), 0),
    "dropout of heads": (lambda t: dropped(t.ones(2, 7, 1, 5).transpose(0, 3)), 0),
    "dropout of one row": (lambda t: dropped(t.ones(1, 9).expand(6, 9)), 0),
    "dropout2d": (lambda t: t.nn.Dropout2d(0.3)(t.ones(5, 9, 2, 2)), 0),
    "dropout of weights": (lambda t: attended(t, is_causal=True), 1e-6),
    "dropout of masked weights": (lambda t: attended(t, t.rand(5, 5) > 0.3), 1e-6),
    "an encoder": (lambda t: encoded(t, batch_first=False), 1e-3),
    "an encoder by batches": (lambda t: encoded(t, batch_first=True), 1e-3),
    "an encoder, norm first": (lambda t: encoded(t, norm_first=True), 1e-3),
    "ints of 32 bits": (lambda t: t.randint(9, (20,), dtype=t.int32), 0),
    "normal of means": (lambda t: t.normal(t.arange(20.0), t.ones(20)), 1e-6),
    "uniform_ of a generator": (
        lambda t: t.empty(5).uniform_(generator=t.Generator().manual_seed(4)),
        0,
    ),
    "normal_ of a generator": (
        lambda t: t.empty(5).normal_(generator=t.Generator().manual_seed(4)),
        1e-6,
    ),
    "a sample": (lambda t: t.multinomial(t.arange(50).float(), 1), 0),
    "samples": (lambda t: t.multinomial(t.ones(3, 50), 7), 0),
    "samples again": (lambda t: t.multinomial(t.arange(50).float(), 99, True), 0),
    "Linear": (lambda t: t.nn.Linear(7, 5).weight, 1e-6),
    "Linear's bias": (lambda t: t.nn.Linear(7, 5).bias, 1e-6),
    "Embedding": (lambda t: t.nn.Embedding(7, 5).weight, 1e-6),
    "Conv2d": (lambda t: t.nn.Conv2d(2, 3, 3).bias, 1e-6),
    "ConvTranspose1d": (lambda t: t.nn.ConvTranspose1d(2, 3, 3).bias, 1e-6),
    "a lazy layer": (lambda t: t.nn.LazyLinear(3)(t.rand(4, 7)), 1e-6),
    "LSTM": (lambda t: t.nn.LSTM(3, 4, 2).weight_hh_l1, 1e-6),
    "attention": (lambda t: t.nn.MultiheadAttention(8, 2).in_proj_weight, 1e-6),
    "a block": (lambda t: t.nn.TransformerEncoderLayer(8, 2, 9).linear2.weight, 1e-6),
    "orthogonal_": (lambda t: t.nn.init.orthogonal_(t.empty(5, 5)), 1e-5),
    "trunc_normal_": (lambda t: t.nn.init.trunc_normal_(t.empty(20)), 1e-6),
}  # fmt: skip
COINS = pytest.mark.skipif(coins_are_intels(), reason="PyTorch's dropout is Intel's")
if coins_are_intels():
    some = "dropout", "encoder", "bernoulli_", "bernoulli_ of ints"
    DRAWS = {k: v for k, v in DRAWS.items() if not any(x in k for x in some)}


@pytest.mark.parametrize("name", DRAWS)
def test_one_seed_draws_the_same(name: str) -> None:
    for seed in SEEDS:
        seeded(seed)
        same(*DRAWS[name])
        same(lambda t: t.rand(3))  # both have drawn as much


@given(st.lists(st.sampled_from(sorted(DRAWS)), max_size=6), st.integers(-9, 2**63))
def test_any_order_of_draws_is_the_same(names: list[str], seed: int) -> None:
    seeded(seed)
    for name in names:
        same(*DRAWS[name])


def test_all_devices_draw_the_same(device: str) -> None:
    minitorch.manual_seed(3, sequence="pytorch")
    theirs = torch.Generator().manual_seed(3)
    found = minitorch.randn(20, device=device), minitorch.rand(4, 3, device=device)
    expected = torch.randn(20, generator=theirs), torch.rand(4, 3, generator=theirs)
    for mine, other in zip(found, expected):
        np.testing.assert_allclose(mine.cpu().numpy(), other.numpy(), atol=3e-7)
    half = minitorch.randn(20, device=device, dtype=minitorch.bfloat16)
    again = torch.randn(20, generator=theirs)
    np.testing.assert_allclose(half.float().cpu().numpy(), again.numpy(), rtol=1e-2)


def test_a_generator_of_ones_own() -> None:
    minitorch.manual_seed(0, sequence="philox")
    assert minitorch.Generator(5).sequence == "philox"
    mine = minitorch.Generator(sequence="pytorch").manual_seed(5)
    theirs = torch.Generator().manual_seed(5)
    assert minitorch.randperm(9, generator=mine).tolist() == (
        torch.randperm(9, generator=theirs).tolist()
    )
    parts = random_split(range(9), [4, 5], generator=mine)
    others = torch.utils.data.random_split(range(9), [4, 5], generator=theirs)
    assert [list(part) for part in parts] == [list(part) for part in others]


class Counting(minitorch.Generator):
    """Counts its draws."""

    draws = 0

    def uniform(self, *args: Any) -> Any:
        self.draws += 1
        return super().uniform(*args)


def test_a_class_of_generators_keeps_its_sequence() -> None:
    """And so do its copies."""
    minitorch.manual_seed(0, sequence="philox")
    theirs = torch.Generator().manual_seed(5)
    mine = PyTorchGenerator(5)
    for one in (mine, copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        found = minitorch.randn(3, generator=one).tolist()
        expected = torch.randn(3, generator=theirs.manual_seed(5)).tolist()
        assert found == pytest.approx(expected, abs=1e-6)
    minitorch.manual_seed(0, sequence="pytorch")
    counting = Counting(7)
    counting.set_state(counting.manual_seed(7).get_state())
    minitorch.rand(2, generator=counting)
    assert type(counting) is Counting and counting.draws == 1


def test_a_state_goes_back_in_the_middle_of_a_pair(tmp_path: Path) -> None:
    minitorch.manual_seed(1, sequence="pytorch")
    minitorch.randn(3)
    minitorch.save({"random": minitorch.get_rng_state()}, tmp_path / "state")
    expected = minitorch.randn(4).tolist(), minitorch.rand(2).tolist()
    minitorch.manual_seed(9, sequence="philox")
    minitorch.set_rng_state(minitorch.load(tmp_path / "state")["random"])
    assert (minitorch.randn(4).tolist(), minitorch.rand(2).tolist()) == expected


def trained(t: Any, loader: Callable[..., Any], dataset: Any) -> list[float]:
    """The losses of a small network with dropout, three epochs."""
    x, y = t.randn(50, 1, 8, 8), t.randint(3, (50,))
    model = t.nn.Sequential(
        t.nn.Conv2d(1, 4, 3), t.nn.ReLU(), t.nn.Flatten(), t.nn.Dropout(0.2),
        t.nn.Linear(144, 3),
    )  # fmt: skip
    optimizer = t.optim.Adam(model.parameters(), lr=1e-2)
    batches, rest = loader(dataset(x, y), 16, shuffle=True), loader(dataset(x, y), 20)
    losses = []
    for _ in range(3):
        for a, b in batches:
            optimizer.zero_grad()
            loss = t.nn.functional.cross_entropy(model(a), b)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        losses += [t.nn.functional.cross_entropy(model(a), b).item() for a, b in rest]
    return losses


@COINS
def test_a_program_has_the_same_losses() -> None:
    seeded(1)
    theirs = torch.utils.data
    expected = trained(torch, theirs.DataLoader, theirs.TensorDataset)
    found = trained(minitorch, DataLoader, TensorDataset)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_an_epoch_goes_on_in_its_order() -> None:
    minitorch.manual_seed(2, sequence="pytorch")
    loader = DataLoader(TensorDataset(minitorch.arange(10)), 3, shuffle=True)
    batches = iter(loader)
    next(batches)
    state, rest = loader.state_dict(), [b.tolist() for (b,) in batches]
    other = DataLoader(TensorDataset(minitorch.arange(10)), 3, shuffle=True)
    minitorch.manual_seed(2, sequence="philox")
    other.load_state_dict(state)
    assert [b.tolist() for (b,) in other] == rest
    state = other.state_dict()
    ours = [b.tolist() for (b,) in other]
    other.load_state_dict(state)  # the next epoch is not PyTorch's
    assert [b.tolist() for (b,) in other] == ours != rest


WEIGHTS = [0.5, 0.0, 2.0, 1.0, 0.25, 3.0, 1.0, 1.0, 0.1]
SAMPLERS: dict[str, Callable[..., dict[str, Any]]] = {
    "shuffle": lambda d, data, g: {"shuffle": True, "generator": g},
    "random": lambda d, data, g: {"sampler": d.RandomSampler(data, generator=g)},
    "four": lambda d, data, g: {
        "sampler": d.RandomSampler(data, num_samples=4, generator=g)
    },
    "with replacement": lambda d, data, g: {
        "sampler": d.RandomSampler(data, True, 70, generator=g), "drop_last": True
    },
    "weighted": lambda d, data, g: {
        "sampler": d.WeightedRandomSampler(WEIGHTS, 50, generator=g)
    },
    "weighted, once": lambda d, data, g: {
        "sampler": d.WeightedRandomSampler(WEIGHTS, 8, False, generator=g)
    },
    "subset": lambda d, data, g: {
        "sampler": d.SubsetRandomSampler([7, 1, 3, 8], generator=g)
    },
    "batches": lambda d, data, g: {
        "batch_size": 1,
        "batch_sampler": d.BatchSampler(d.RandomSampler(data, generator=g), 4, True),
    },
    "rank": lambda d, data, g: {
        "sampler": d.DistributedSampler(data, 2, 1, seed=4), "generator": g
    },
}  # fmt: skip


@pytest.mark.parametrize("own", [False, True], ids=["default", "a generator"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_draws_the_same(name: str, own: bool) -> None:
    """Two epochs, and what is drawn after them."""
    seeded(8)
    found = []
    for t in (minitorch, torch):
        data = t.utils.data.TensorDataset(t.arange(9))
        generator = t.Generator().manual_seed(3) if own else None
        options = {"batch_size": 4} | SAMPLERS[name](t.utils.data, data, generator)
        loader = t.utils.data.DataLoader(data, **options)
        batches = []
        for epoch in range(2):
            if name == "rank":
                options["sampler"].set_epoch(epoch)
            batches += [b.tolist() for (b,) in loader]
        found.append((batches, t.rand(1).item(), t.rand(1, generator=generator).item()))
    assert found[0] == found[1]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_know_the_order(context: str) -> None:
    seeded(6)
    loader = DataLoader(
        TensorDataset(minitorch.arange(7)), 3, shuffle=True, num_workers=1,
        multiprocessing_context=context, persistent_workers=True,
    )  # fmt: skip
    theirs = torch.utils.data.TensorDataset(torch.arange(7))
    others = torch.utils.data.DataLoader(
        theirs, 3, shuffle=True, num_workers=1, persistent_workers=True
    )
    for _ in range(2):
        expected = [b.tolist() for (b,) in others]
        assert [b.tolist() for (b,) in loader] == expected
    assert minitorch.rand(1).item() == torch.rand(1).item()


def test_workers_that_run_are_told_whose_order_it_is() -> None:
    minitorch.manual_seed(1, sequence="philox")
    data = TensorDataset(minitorch.arange(9))
    kept = {"num_workers": 2, "multiprocessing_context": "fork"}
    loader = DataLoader(data, 2, shuffle=True, persistent_workers=True, **kept)
    ours = [x for (b,) in loader for x in b.tolist()]
    minitorch.manual_seed(1, sequence="pytorch")
    found = [x for (b,) in loader for x in b.tolist()]
    torch.manual_seed(1)
    seed = int(torch.empty((), dtype=torch.int64).random_())
    expected = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    assert found == expected.tolist() != ours


def test_the_environment_chooses() -> None:
    code = (
        "import minitorch; minitorch.manual_seed(1337); print(minitorch.rand(1).item())"
    )
    environment = {**os.environ, "MINITORCH_RANDOM": "pytorch"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    torch.manual_seed(1337)
    assert float(found.stdout) == torch.rand(1).item(), found.stderr
    environment["MINITORCH_RANDOM"] = "numpy"
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert 'RANDOM, is \'numpy\'; expected "philox" or "pytorch"' in found.stderr


def test_our_own_sequence_comes_back() -> None:
    minitorch.manual_seed(4, sequence="philox")
    expected = minitorch.rand(5).tolist()
    minitorch.manual_seed(4, sequence="pytorch")
    minitorch.rand(5)
    assert minitorch.manual_seed(4).sequence == "pytorch"  # the sequence stays
    minitorch.manual_seed(4, sequence="philox")
    assert minitorch.rand(5).tolist() == expected
    with pytest.raises(ValueError, match="is 'mt19937'"):
        minitorch.manual_seed(4, sequence="mt19937")
