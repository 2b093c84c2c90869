"""Stages of ZeRO, on ranks that are threads."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest
from shard_checks import by_stage_1, by_stage_3, trains_as_one

import minitorch
from minitorch import distributed as dist
from minitorch import nn, optim
from minitorch.distributed import fsdp, spawn_threads
from minitorch.distributed.checkpoint import load as restore
from minitorch.distributed.checkpoint import save
from minitorch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from minitorch.distributed.fsdp import fully_shard
from minitorch.distributed.fsdp.flat import Flat
from minitorch.distributed.optim import ZeroRedundancyOptimizer as Zero
from minitorch.utils.checkpoint import checkpoint

WHOLE = StateDictOptions(full_state_dict=True)

# ------------------------------------------------------- stage 1: the optimizer


@pytest.mark.parametrize("n, micro, view", [(2, 1, False), (4, 2, True)])
def test_stage_1_trains_as_one(n: int, micro: int, view: bool) -> None:
    def program() -> float:
        options = {"parameters_as_bucket_view": view}
        return trains_as_one(by_stage_1, micro=micro, **options)

    assert max(spawn_threads(program, n)) < 1e-10


def test_each_parameter_has_one_owner() -> None:
    """The largest first, to the rank that has least; state is only at the owner."""

    def program() -> Any:
        sizes = (3, 10, 4, 6, 8)
        params = [nn.Parameter(minitorch.ones(size)) for size in sizes]
        optimizer = Zero(params, optim.Adam)
        optimizer.add_param_group({"params": nn.Parameter(minitorch.ones(7))})
        optimizer.zero_grad()
        for p in optimizer.param_groups[0]["params"]:
            p.grad = minitorch.ones(p.numel())
        optimizer.step()
        (number,) = {float(p.max()) for p in params}
        assert number < 1
        assert {id(p) for p in optimizer.state} <= {id(p) for p in params}
        return sorted(p.numel() for p in optimizer.state), optimizer.loads

    first, second = spawn_threads(program, 2)
    assert first == ([3, 4, 10], [17, 21]) and second == ([6, 8], [17, 21])


@pytest.mark.parametrize("view", [False, True])
def test_what_was_frozen_is_learned_later(view: bool) -> None:
    """It had no place in the memory that is sent: each rank would have another."""

    def program() -> Any:
        params = [nn.Parameter(minitorch.ones(3), learns) for learns in (True, False)]
        optimizer = Zero(params, optim.SGD, lr=0.5, parameters_as_bucket_view=view)
        params[1].requires_grad_()
        for p in params:
            p.grad = minitorch.ones(3)
        optimizer.step()
        return [p.tolist() for p in params]

    assert spawn_threads(program, 2) == [[[0.5] * 3] * 2] * 2


def test_a_state_of_stage_1_fits_any_number_of_ranks() -> None:
    """It is that of the optimizer on one rank, which also reads it."""

    def begin(zero: bool) -> tuple[Any, Any]:
        minitorch.manual_seed(3)
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        make = Zero if zero else lambda params, kind, **options: kind(params, **options)
        return model, make(model.parameters(), optim.AdamW, lr=0.1)

    def steps(model: Any, optimizer: Any, count: int) -> Any:
        for step in range(count):
            optimizer.zero_grad()
            model(minitorch.ones(2, 3) * step).square().mean().backward()
            optimizer.step()
        return [p.tolist() for p in model.parameters()]

    def save() -> Any:
        model, optimizer = begin(zero=True)
        steps(model, optimizer, 2)
        with pytest.raises(RuntimeError, match="consolidate_state_dict"):
            optimizer.state_dict()
        optimizer.consolidate_state_dict(to=1)
        here = dist.get_rank() == 1
        state = optimizer.state_dict() if here else None
        assert here or optimizer.consolidated is None
        return model.state_dict(), state

    def load(zero: bool, weights: Any, state: Any) -> Any:
        model, optimizer = begin(zero)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
        return steps(model, optimizer, 3)

    model, optimizer = begin(zero=False)
    steps(model, optimizer, 2)
    weights, state = spawn_threads(save, 2)[1]
    assert list(state["state"]) == [0, 1, 2, 3]
    expected = load(False, weights, optimizer.state_dict())
    assert load(False, weights, state) == expected
    for n in (1, 3):
        assert spawn_threads(load, n, True, weights, state) == [expected] * n


def test_what_stage_1_refuses() -> None:
    def program() -> None:
        params = [nn.Parameter(minitorch.ones(2 + dist.get_rank()))]
        message = r"0 is of shape \(2,\) float32 on rank 0, and of shape \(3,\) float32"
        with pytest.raises(RuntimeError, match=message):
            Zero(params, optim.SGD, lr=0.1)
        with pytest.raises(ValueError, match="overlap_with_ddp=True is not offered"):
            Zero(params, optim.SGD, overlap_with_ddp=True, lr=0.1)

    spawn_threads(program, 2)


# ------------------------------------------------- stages 2 and 3: the parameters


@pytest.mark.parametrize(
    "n, micro, reshard",
    [(1, 1, None), (2, 1, None), (2, 2, False), (4, 1, True), (3, 2, True)],
)
def test_stages_2_and_3_train_as_one(n: int, micro: int, reshard: bool | None) -> None:
    def program() -> float:
        recompute = n == 3
        how = {"reshard": reshard, "recompute": recompute}
        return trains_as_one(by_stage_3, micro=micro, **how)

    assert max(spawn_threads(program, n)) < 1e-10


def small(seed: int = 4) -> Any:
    minitorch.manual_seed(seed)
    layers = [nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.Linear(6, 3)]
    return nn.Sequential(*layers)


def in_parts(model: Any, **options: Any) -> Any:
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


X = np.random.default_rng(2).standard_normal((12, 5)).astype(np.float32)


def step(model: Any, optimizer: Any, clip: Any = None) -> float:
    """One step on this rank's rows of X; the norm of all gradients, if clipped."""
    n, r = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    optimizer.zero_grad()
    (n * model(minitorch.from_numpy(X[r::n])).square().sum() / 12).backward()
    norm = 0.0
    if clip is not None:
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), 0.1, clip))
    optimizer.step()
    return norm


def norms_of(clip: float, model: Any) -> list[float]:
    optimizer = optim.AdamW(model.parameters(), 0.1)
    return [step(model, optimizer, clip) for _ in range(3)]


@pytest.mark.parametrize("clip", [1, 2, math.inf, 3.5])
def test_gradients_are_clipped_by_the_norm_of_all_parts(clip: float) -> None:
    """More ranks than some layers have numbers: parts may be empty."""

    def program() -> Any:
        model = in_parts(small())
        return norms_of(clip, model), get_model_state_dict(model, options=WHOLE)

    alone = small()
    expected = norms_of(clip, alone)
    for norms, state in spawn_threads(program, 3):
        assert norms == pytest.approx(expected, rel=1e-5)
        for name, value in alone.state_dict().items():
            assert np.allclose(state[name].numpy(), value.numpy(), rtol=1e-4)


def test_an_overflow_on_one_rank_stops_all() -> None:
    def program() -> bool:
        model = in_parts(small())
        optimizer = optim.SGD(model.parameters(), 0.1)
        model(minitorch.ones(1, 5)).sum().backward()
        for p in model.parameters():
            p.grad[-1:] = math.inf if dist.get_rank() == 0 else 0.0
        scaler = minitorch.amp.GradScaler("cpu")
        scaler.scale(minitorch.ones(1))
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale() == 2.0**15

    assert spawn_threads(program, 2) == [True, True]


def test_what_is_sent_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathered before use and one ahead, freed behind it, scattered one by one."""
    logs: dict[int, list[str]] = {0: [], 1: []}
    names: dict[int, str] = {}

    def note(what: str, flat: Any) -> None:
        logs[dist.get_rank()].append(f"{what} {names[id(flat)]}")

    def start(flat: Any) -> None:
        waiting = flat.coming is None
        begin(flat)
        if waiting and flat.coming is not None:
            note("gather", flat)

    def free(flat: Any) -> None:
        note("free", flat)
        end(flat)

    def send(flat: Any) -> None:
        note("scatter", flat)
        scatter(flat)

    begin, end, scatter = Flat.start, Flat.free, Flat.send
    monkeypatch.setattr(Flat, "start", start)
    monkeypatch.setattr(Flat, "free", free)
    monkeypatch.setattr(Flat, "send", send)

    def program() -> None:
        model = in_parts(small())
        for name, module in model.named_modules():
            if isinstance(module, fsdp.FSDPModule):
                names.update((id(flat), name) for flat in module._unit.flats)
        for _ in range(2):
            model(minitorch.from_numpy(X)).sum().backward()
        logs[dist.get_rank()].append("no graph")
        with minitorch.no_grad():
            model(minitorch.from_numpy(X))

    spawn_threads(program, 2)
    back = "gather 3, gather 2, free 3, scatter 3, gather 0, free 2, scatter 2, free 0"
    first = "gather 0, free 0, gather 2, free 2, gather 3, free 3, "
    later = "gather 0, gather 2, free 0, gather 3, free 2, free 3, "
    expected = f"{first}{back}, scatter 0, {later}{back}, scatter 0, no graph, {later}"
    expected = expected.removesuffix(", ")
    assert logs == {0: expected.split(", "), 1: expected.split(", ")}


def test_a_graph_goes_when_nobody_holds_its_loss() -> None:
    """Its memory waits for no collection of cycles."""

    def program() -> None:
        model = in_parts(small())
        gc.disable()
        try:
            for backward in (False, True):
                out = model(minitorch.from_numpy(X))
                graph = weakref.ref(out.node)
                if backward:
                    out.sum().backward()
                assert graph() is not None
                del out
                assert graph() is None
        finally:
            gc.enable()

    spawn_threads(program, 1)


class Twice(nn.Module):
    """A layer that is used twice, once more by a checkpoint; one layer inside another
    that is wrapped; arguments by name, and a tuple that comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.scale = nn.Parameter(minitorch.ones(()))

    def forward(self, x: Any, *, more: Any) -> Any:
        x = self.outer(self.outer(x).tanh()) * self.scale
        return {"out": (checkpoint(self.outer, x).sigmoid() + more, 3)}


@pytest.mark.parametrize("reshard", [None, True, False])
def test_layers_used_again(reshard: Any) -> None:
    """Gradients of two backward passes add up, as those of one process."""

    def gradients(model: Any, batches: Any) -> None:
        for x in batches:
            out, number = model(x, more=minitorch.ones(4).double())["out"]
            assert number == 3
            out.square().mean().backward()

    def program() -> float:
        minitorch.manual_seed(3)
        alone, model = Twice().double(), Twice().double()
        model.load_state_dict(alone.state_dict())
        for part in (model.outer[1], model.outer, model):
            fully_shard(part, reshard_after_forward=reshard)
        data = np.random.default_rng(1).standard_normal((2, 6, 4))
        whole = [minitorch.from_numpy(x) for x in data]
        gradients(alone, whole)
        gradients(model, [x[dist.get_rank() :: 2] for x in whole])
        apart = []
        for expected, p in zip(alone.parameters(), model.parameters()):
            ours = p.dealt.whole(p.grad).numpy() - expected.grad.numpy()
            apart.append(np.abs(ours).max())
        return max(apart)

    assert max(spawn_threads(program, 2)) < 1e-14


def test_a_module_without_parameters_is_called_as_it_is() -> None:
    def program() -> float:
        return fully_shard(nn.ReLU())(minitorch.ones(3)).sum().item()

    assert spawn_threads(program, 1) == [3.0]


def test_types_of_numbers() -> None:
    """bfloat16 is what is gathered and computed with; parameters are float32."""
    seen: list[Any] = []

    def program() -> Any:
        policy = fsdp.MixedPrecisionPolicy(
            minitorch.bfloat16, minitorch.float32, output_dtype=minitorch.float32
        )
        model = in_parts(small(), mp_policy=policy)
        model[0].register_forward_hook(lambda _, args, out: seen.append(out.dtype))
        optimizer = optim.AdamW(model.parameters(), 0.01)
        before = model(minitorch.from_numpy(X))
        for _ in range(30):
            step(model, optimizer)
        after = model(minitorch.from_numpy(X))
        assert before.dtype is after.dtype is minitorch.float32
        kinds = {x.dtype for p in model.parameters() for x in (p, p.grad)}
        return kinds, after.square().mean().item() / before.square().mean().item()

    for kinds, ratio in spawn_threads(program, 2):
        assert kinds == {minitorch.float32} and ratio < 0.5
    assert set(seen) == {minitorch.bfloat16}


def test_what_is_offloaded_lives_on_the_cpu() -> None:
    def program() -> Any:
        model = in_parts(small().to("simple"), offload_policy=fsdp.CPUOffloadPolicy())
        optimizer = optim.AdamW(model.parameters(), 0.1)
        model(minitorch.from_numpy(X[:2]).to("simple")).square().mean().backward()
        optimizer.step()
        held = [x for p in model.parameters() for x in (p, p.grad)]
        held += [s["exp_avg"] for s in optimizer.state.values()]
        state = get_model_state_dict(model, options=WHOLE)
        devices = {str(x.device) for x in state.values()}
        return {str(x.device) for x in held}, devices

    assert spawn_threads(program, 2) == [({"cpu"}, {"simple"})] * 2


def test_whole_states_fit_any_number_of_ranks() -> None:
    """Of the model and of the optimizer, also from and to one process."""

    def make(sharded: bool) -> Any:
        model = in_parts(small(dist.get_rank())) if sharded else small()
        return model, optim.AdamW(model.parameters(), 0.1)

    def save(sharded: bool) -> Any:
        model, optimizer = make(sharded)
        for _ in range(2):
            step(model, optimizer)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return (
            get_model_state_dict(model, options=options),
            get_optimizer_state_dict(model, optimizer, options=options),
        )

    def load(sharded: bool, state: Any) -> Any:
        model, optimizer = make(sharded)
        set_model_state_dict(model, state[0], options=WHOLE)
        set_optimizer_state_dict(model, optimizer, state[1], options=WHOLE)
        step(model, optimizer)
        after = get_model_state_dict(model, options=WHOLE)
        return [x.tolist() for x in after.values()]

    state, nothing = spawn_threads(save, 2, True)
    assert nothing == ({}, {})
    assert list(state[0]) == list(small().state_dict())
    assert state[1]["param_groups"][0]["params"] == list(state[0])
    expected = load(False, state)
    for n in (1, 2, 4):
        for ours in spawn_threads(load, n, True, state):
            for a, b in zip(ours, expected):
                assert np.allclose(a, b, rtol=1e-5)

    def refused() -> None:
        model, optimizer = make(True)
        with pytest.raises(
            RuntimeError, match=r"'0.weight' is \(5,\); expected \(7, 5"
        ):
            wrong = {**state[0], "0.weight": minitorch.ones(5)}
            set_model_state_dict(model, wrong, options=WHOLE)
        with pytest.raises(ValueError, match=r"differ in 0\.bias, 0\.weight, 2\.b"):
            groups = [{"params": ["4.bias"]}]
            set_optimizer_state_dict(model, optimizer, {"param_groups": groups})
        parts = model.state_dict()
        assert set_model_state_dict(model, parts) == ([], [])

    spawn_threads(refused, 2)


def test_a_checkpoint_fills_an_optimizer_that_has_made_no_step(tmp_path: Any) -> None:
    """As in PyTorch, where asking for its state brings zeros to be filled."""

    def go_on(steps: int, load: bool) -> Any:
        model = in_parts(small())
        optimizer = optim.AdamW(model.parameters(), 0.1)
        for _ in range(steps):
            step(model, optimizer)
        state = {
            "model": get_model_state_dict(model),
            "optim": get_optimizer_state_dict(model, optimizer),
        }
        if not load:
            save(state, checkpoint_id=tmp_path)
        else:
            restore(state, checkpoint_id=tmp_path)
            set_model_state_dict(model, state["model"])
            set_optimizer_state_dict(model, optimizer, state["optim"])
        step(model, optimizer)
        after = get_model_state_dict(model, options=WHOLE)
        return [x.numpy() for x in after.values()]

    expected = spawn_threads(go_on, 2, 2, False)[0]
    for n in (2, 3):
        for ours in spawn_threads(go_on, n, 0, True):
            assert all(map(np.allclose, ours, expected))


# Numba asks memory that is away whether it has an attribute; since Python 3.13 what it
# then hears is also printed, as an exception that was ignored.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_fully_shard_refuses() -> None:
    class Ties(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
            self.last.weight = self.first.weight

        def forward(self, x: Any) -> Any:
            return self.last(self.first(x))

    def program() -> None:
        message = r"0 is weight \(4, 3\) float32 on rank 0, and weight \(5, 3\)"
        with pytest.raises(RuntimeError, match=message):
            fully_shard(nn.Linear(3, 4 + dist.get_rank()))
        with pytest.raises(ValueError, match="ModuleList has no forward"):
            fully_shard(nn.ModuleList([nn.Linear(1, 1)]))
        with pytest.raises(ValueError, match="list has no forward"):
            fully_shard([nn.Linear(1, 1)])  # type: ignore[arg-type]
        ties = Ties()
        fully_shard(ties.last)
        with pytest.raises(ValueError, match=r"first\.weight is a parameter that has"):
            fully_shard(ties)
        model = in_parts(small())
        with pytest.raises(ValueError, match="wrapped already"):
            fully_shard(model)
        x = minitorch.from_numpy(X)
        with pytest.raises(RuntimeError, match="weight, bias are whole only while"):
            nn.functional.linear(x, minitorch.Tensor(model[0]._unit.flats[0].views[0]))
        model(x).sum().backward()
        with pytest.raises(ValueError, match="LAMB: a parameter has been dealt out"):
            optim.LAMB(model.parameters()).step()
        loss = model(x).sum()
        with minitorch.no_grad():
            model[3].weight.mul_(2)
        with pytest.raises(RuntimeError, match="was changed in place"):
            loss.backward()
        with pytest.raises(RuntimeError, match="move or convert a module before that"):
            model.double()(x)

    spawn_threads(program, 2)


def test_modules_of_one_size_in_another_order_on_each_rank() -> None:
    def program() -> None:
        layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
        for layer in layers:
            fully_shard(layer)
        first = dist.get_rank()
        layers[first](layers[1 - first](minitorch.ones(2, 3)))

    with pytest.raises(
        RuntimeError, match=r"weight, bias \(number [12] that was dealt"
    ):
        spawn_threads(program, 2)


def test_memory_falls_as_the_formula_says() -> None:
    from minitorch.bench.sharding import BFLOAT16, FLOAT32, bytes_a_parameter, held

    published = [round(7.5 * bytes_a_parameter(stage, 64), 1) for stage in range(4)]
    assert published == [120.0, 31.4, 16.6, 1.9]
    for stage in range(4):
        expected = bytes_a_parameter(stage, 2, FLOAT32[stage])
        assert held(stage, 2) == pytest.approx(expected, rel=0.01)
    half = BFLOAT16[2]
    assert half is not None
    assert held(2, 2, True) == pytest.approx(bytes_a_parameter(2, 2, half), rel=0.01)


def test_models_that_ranks_train_in_float32() -> None:
    def program() -> list[float]:
        stages = (by_stage_1, by_stage_3)
        return [trains_as_one(stage, minitorch.float32) for stage in stages]

    assert max(max(apart) for apart in spawn_threads(program, 2)) < 1e-5
