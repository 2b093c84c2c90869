"""Layers that ranks share, on ranks that are threads."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import parallel_checks
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from helpers import quick
from minitorch import distributed as dist
from minitorch import nn
from minitorch.autodiff import topological_sort
from minitorch.distributed import spawn_threads
from minitorch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    set_model_state_dict,
)
from minitorch.distributed.optim import ZeroRedundancyOptimizer as Zero
from minitorch.distributed.tensor import Shard
from minitorch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
    vocab_parallel_cross_entropy,
)
from minitorch.distributed.threads import ThreadGroup
from minitorch.functions.linear_cross_entropy import LinearCrossEntropyOptions
from minitorch.models import GPT, GPTConfig
from minitorch.models.parallel import parallelize
from minitorch.nn import functional as F
from minitorch.nn.parallel import DistributedDataParallel
from minitorch.optim import SGD
from minitorch.random import Generator


@pytest.mark.parametrize(
    "n, how",
    [
        (2, ("gpt2", 1, False)),
        (2, ("gpt2", 1, True, True)),
        (4, ("gpt2", 1, True)),
        (2, ("llama", 1, False, True)),
        (4, ("llama", 2, True)),  # data parallel as well
    ],
)
def test_a_gpt_in_parts_trains_as_a_whole_one(n: int, how: Any) -> None:
    assert max(spawn_threads(parallel_checks.shares_layers, n, *how)) < 1e-10


def mesh() -> Any:
    return dist.init_device_mesh("cpu", (dist.get_world_size(),), ("tp",))


@pytest.mark.parametrize("shape", parallel_checks.SHAPES)
def test_scores_of_all_ranks_are_those_of_the_whole(shape: str) -> None:
    whole = parallel_checks.gpt(shape)
    ids, _ = parallel_checks.batch(0)
    expected = whole(ids).detach().numpy()

    def program() -> None:
        model = parallelize(parallel_checks.gpt(shape, seed=5), mesh(), True)
        set_model_state_dict(model, whole.state_dict(), options=parallel_checks.WHOLE)
        np.testing.assert_allclose(model(ids).detach().numpy(), expected, 1e-12)
        tied = model.lm_head.weight is model.wte.weight
        assert tied == whole.config.tied
        for name, x in get_model_state_dict(
            model, options=parallel_checks.WHOLE
        ).items():
            np.testing.assert_array_equal(x.numpy(), whole.state_dict()[name].numpy())
        with pytest.raises(ValueError, match="there is no cache, and no padding"):
            model(ids, padding=ids[:, 0])

    spawn_threads(program, 2)


@quick
@given(
    n=st.integers(1, 4),
    rows=st.integers(1, 5),
    classes=st.integers(4, 9),
    seed=st.integers(0, 99),
)
def test_cross_entropy_of_classes_that_are_dealt_out(
    n: int, rows: int, classes: int, seed: int
) -> None:
    """Also of large scores, whose exponentials alone would be infinite."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((rows, classes)) * 10.0 ** rng.integers(0, 4)
    target = minitorch.tensor(rng.integers(-1, classes, rows))
    whole = minitorch.tensor(scores, requires_grad=True)
    expected = F.cross_entropy(whole, target, ignore_index=-1, reduction="sum")
    (expected * 3).backward()

    def program() -> Any:
        x, weight = minitorch.tensor(scores, requires_grad=True), own_rows(classes)
        group: Any = mesh().get_group()
        loss = vocab_parallel_cross_entropy(x, weight, target, classes, group, -1)
        (loss * 3).backward()
        return loss.item(), x.grad.numpy(), weight.grad.numpy()

    losses, grads, tables = zip(*spawn_threads(program, n))
    np.testing.assert_allclose(losses, expected.item(), 1e-9, 1e-9)
    np.testing.assert_allclose(sum(grads), whole.grad.numpy(), 1e-9, 1e-9)
    grad = whole.grad.numpy().T @ scores
    np.testing.assert_allclose(
        np.concatenate(tables), grad, 1e-9, 1e-9 * abs(scores).max()
    )


@pytest.mark.parametrize("wrong, ignored", [(9, -100), (-1, -100), (-1, 0), (-7, 3)])
def test_a_target_that_is_no_class_is_named(wrong: int, ignored: int) -> None:
    """By all ranks: none takes it for one of another's classes."""

    def program() -> None:
        target, group = minitorch.tensor([1, wrong]), mesh().get_group()
        x = minitorch.ones(2, 9, dtype=minitorch.float64)
        with pytest.raises(IndexError, match=rf"target\[1\] is {wrong}"):
            vocab_parallel_cross_entropy(x, own_rows(9), target, 9, group, ignored)

    spawn_threads(program, 2)


def own_rows(classes: int) -> Any:
    """This rank's rows of the unit matrix: scores are x."""
    r, n = dist.get_rank(), dist.get_world_size()
    mine = slice(r * classes // n, (r + 1) * classes // n)
    return minitorch.tensor(np.eye(classes)[mine], requires_grad=True)


@pytest.mark.parametrize("dtype, error", [(None, 1e-9), (minitorch.bfloat16, 0.02)])
def test_a_dealt_out_vocabulary_some_rows_at_a_time(
    dtype: Any, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearCrossEntropyOptions, "rows", lambda *_: 2)
    rng = np.random.default_rng(0)
    scores, target = rng.standard_normal((5, 7)), minitorch.tensor([6, 0, -100, 3, 2])
    whole = minitorch.tensor(scores, requires_grad=True)
    F.cross_entropy(whole, target, reduction="sum").backward()

    def program() -> Any:
        x, weight = minitorch.tensor(scores, requires_grad=True), own_rows(7)
        region = minitorch.autocast("cpu", dtype=dtype, enabled=dtype is not None)
        x = x if dtype is None else x.float().detach().requires_grad_()
        with region:
            loss = vocab_parallel_cross_entropy(
                x, weight.to(x.dtype), target, 7, mesh().get_group()
            )
        loss.backward()
        assert loss.dtype is x.dtype
        return x.grad.double().numpy()

    grad = sum(spawn_threads(program, 2))
    np.testing.assert_allclose(grad, whole.grad.numpy(), 0, error)


def test_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sums a block in each direction, and three numbers a token for the loss."""
    calls: list[str] = []
    meet = ThreadGroup._meet

    def watched(self: Any, call: str, *rest: Any) -> Any:
        if self.me == 0:
            calls.append(call)
        return meet(self, call, *rest)

    def program() -> None:
        model = parallelize(parallel_checks.gpt("gpt2"), mesh())
        if dist.get_rank() == 0:
            calls.clear()
        loss = model.loss(*parallel_checks.batch(0))
        if dist.get_rank() == 0:
            forward.extend(calls)
        loss.backward()

    forward: list[str] = []

    monkeypatch.setattr(ThreadGroup, "_meet", watched)
    spawn_threads(program, 2)
    activations = "all_reduce(256 of float64, SUM)"
    loss = ["all_reduce(32 of float64, MAX)", "all_reduce(64 of float64, SUM)"]
    assert forward == [activations] * 9 + loss
    assert calls[len(forward) :] == [activations] * 9


def test_activations_are_divided_by_the_ranks() -> None:
    """What a block keeps for the backward pass, norms included."""

    def kept(layers: int) -> int:
        config = GPTConfig(16, 8, layers, 4, 8, norm="rms")
        model = parallelize(GPT(config).double(), mesh(), sequence_parallel=True)
        weights = {id(p.raw.storage) for p in model.parameters()}
        found = {}
        for node in topological_sort([model.features(ids(8)).node]):
            for x in getattr(node, "_saved", ()):
                storage = None if x is None else getattr(x, "raw", x).storage
                if storage is not None and id(storage) not in weights:
                    found[id(storage)] = len(storage.array)
        return sum(found.values())

    one, two, four = (spawn_threads(lambda: kept(2) - kept(1), n)[0] for n in (1, 2, 4))
    assert one == 2 * two == 4 * four > 15 * 8 * 8


def test_what_is_refused() -> None:
    def program() -> None:
        plan = lambda style, module: parallelize_module(module, mesh(), style)
        cases: list[tuple[type[Exception], str, Any]] = [
            (TypeError, "is a Embedding; expected an nn.Linear; for an Embedding use",
             lambda: plan(ColwiseParallel(), nn.Embedding(4, 4))),
            (TypeError, "expected an nn.Linear, or an nn.Embedding",
             lambda: plan(RowwiseParallel(), nn.ReLU())),
            (TypeError, "expected an nn.LayerNorm",
             lambda: plan(SequenceParallel(), nn.Linear(4, 4))),
            (ValueError, r"blocks \(2, 1\) add up to 3; the layer has 4",
             lambda: plan(ColwiseParallel(blocks=(2, 1)), nn.Linear(4, 4))),
            (ValueError, "1 row.s. cannot be cut for 4 ranks",
             lambda: plan(ColwiseParallel(), nn.Linear(4, 1))),
            (ValueError, "no module is named 'h.*.x'",
             lambda: plan({"h.*.x": ColwiseParallel()}, nn.Linear(4, 4))),
            (ValueError, "n_head is 6, and there are 4 ranks",
             lambda: parallelize(odd_heads(), mesh())),
            (ValueError, r"a sequence of 6 cannot be cut into 4 equal parts",
             lambda: parallelize(parallel_checks.gpt("gpt2"), mesh(), True)(ids(6))),
            (IndexError, "index 11 is outside",
             lambda: parallelize(parallel_checks.gpt("gpt2"), mesh())(ids(8) + 11)),
            (ValueError, r"the weight is \(3, 3\); expected \(2, K\), rank",
             lambda: vocab_parallel_cross_entropy(
                 minitorch.ones(2, 3), minitorch.ones(3, 3), ids(2)[0], 8,
                 mesh().get_group())),
        ]  # fmt: skip
        for kind, message, call in cases:
            with pytest.raises(kind, match=message):
                call()
        grid = dist.init_device_mesh("cpu", (2, 2), ("dp", "tp"))
        with pytest.raises(ValueError, match="the mesh has 2 dimensions; expected one"):
            parallelize_module(nn.Linear(4, 4), grid, ColwiseParallel())

    spawn_threads(program, 4)


def ids(length: int) -> Any:
    return minitorch.zeros(1, length, dtype=minitorch.int64)


def odd_heads() -> Any:
    return GPT(GPTConfig(11, 8, 1, 6, 12))


def test_parts_of_a_layer_have_no_mean() -> None:
    """Rank 0's part would go to all, and gradients of unlike parts be averaged."""

    def program() -> None:
        layer = nn.Linear(4, 4, bias=False)
        mesh = dist.init_device_mesh("cpu", (2, 2), ("dp", "tp"))
        parallelize_module(layer, mesh["tp"], ColwiseParallel())
        before = layer.weight.tolist()
        DistributedDataParallel(layer, process_group=mesh.get_group("dp"))
        for group in (None, mesh.get_group("tp")):
            with pytest.raises(ValueError, match=r"weight is in parts on ranks \["):
                DistributedDataParallel(layer, process_group=group)
        assert layer.weight.tolist() == before

    spawn_threads(program, 4)


@pytest.mark.parametrize("how", ["converted", "viewed"])
def test_the_norm_of_parts_with_other_memory(how: str) -> None:
    """Each rank would clip by the norm of its own parts, and what all have differ."""

    def layers() -> Any:
        minitorch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))

    def norm(model: Any) -> float:
        model(minitorch.ones(2, 4, dtype=model[0].weight.dtype)).sum().backward()
        return nn.utils.clip_grad_norm_(model.parameters(), 0.1).item()

    def program() -> float:
        grid = dist.init_device_mesh("cpu", (1, 2), ("dp", "tp"))
        plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
        model = parallelize_module(layers(), grid["tp"], plan)
        if how == "converted":
            model.double()
        else:
            options: Any = {"parameters_as_bucket_view": True}
            Zero(model.parameters(), SGD, grid.get_group("dp"), **options)
        return norm(model)

    assert np.allclose(spawn_threads(program, 2), norm(layers()))


def test_a_model_in_parts_is_not_copied() -> None:
    """Its parameters' hooks, and who has their other parts, would be lost."""

    def program() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
        parallelize_module(model, mesh(), plan)
        with pytest.raises(TypeError, match="copy a model before ranks share its"):
            deepcopy(model)

    spawn_threads(program, 2)


def test_a_parameter_of_two_layers_is_cut_in_one_way() -> None:
    def program() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        plan = {"0": ColwiseParallel(), "1": RowwiseParallel(Shard(1))}
        parallelize_module(model, mesh(), plan)

    with pytest.raises(RuntimeError, match="shares its weight with a module that cuts"):
        spawn_threads(program, 2)


@pytest.mark.parametrize("sequence", [False, True])
def test_dropout_draws_apart_what_ranks_have_apart(
    monkeypatch: pytest.MonkeyPatch, sequence: bool
) -> None:
    """Weights of other heads, and other tokens; all else alike. The same numbers come
    from the same seed, and when blocks are computed again."""
    taken: list[list[tuple[int, int]]] = [[], []]
    take = Generator._take

    def watched(self: Any, count: int) -> tuple[int, int]:
        found = take(self, count)
        taken[dist.get_rank()].append(found)
        return found

    def learn(recompute: bool) -> Any:
        minitorch.manual_seed(0)
        config = GPTConfig(11, 8, 2, 4, 8, dropout=0.5)
        model = parallelize(GPT(config).double(), mesh(), sequence)
        model.recompute = recompute
        minitorch.manual_seed(7)
        taken[dist.get_rank()].clear()
        features = model.features(parallel_checks.batch(0)[0])
        forward = list(taken[dist.get_rank()])
        features.square().sum().backward()
        state = minitorch.default_generator.get_state()
        grads = [p.grad.tolist() for p in model.h.parameters()]
        return forward, features.tolist(), grads, state

    def program() -> Any:
        first = learn(False)
        assert first == learn(True) == learn(False)
        return first

    monkeypatch.setattr(Generator, "_take", watched)
    one, two = spawn_threads(program, 2)
    alike = [a == b for a, b in zip(one[0], two[0])]
    assert (
        alike == [False] * 7 if sequence else alike == [True, *[False, True, True] * 2]
    )
    assert (one[1] == two[1]) == (not sequence) and one[3] == two[3]
