"""What tests let ranks do that share a model: train a small GPT as one process does.

With this file every layout is held to the same losses and the same weights
(`trains_as_one`), on ranks that are threads and on ranks that are processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minitorch
from minitorch import distributed as dist
from minitorch import nn
from minitorch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from minitorch.distributed.pipelining import gpipe, interleaved, one_f_one_b
from minitorch.distributed.tensor.parallel import ExpertParallel, parallelize_module
from minitorch.models import GPT, PRESETS, GPTConfig
from minitorch.models.parallel import parallelize, pipeline
from minitorch.nn.parallel import DistributedDataParallel as DDP
from minitorch.nn.utils import clip_grad_norm_

SMALL = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 4, "n_embd": 8}
SMALL["n_layer"] = 4
LLAMA = {**PRESETS["llama-15m"], **SMALL, "n_kv_head": 2, "n_hidden": 6, "tied": False}
LARGE = {**SMALL, "vocab_size": 200}  # the head is worth two blocks
SHAPES: dict[str, dict[str, Any]] = {"gpt2": SMALL, "llama": LLAMA, "large": LARGE}
STEPS, BATCH, CLIP = 20, 4, 0.5
WHOLE = StateDictOptions(full_state_dict=True)


def gpt(shape: str, seed: int = 0) -> GPT:
    """A small model whose weights are far from zero; one of its layers is frozen."""
    minitorch.manual_seed(seed)
    model = GPT(GPTConfig(**SHAPES[shape])).double()
    with minitorch.no_grad():
        for p in model.parameters():
            p.add_(minitorch.randn_like(p) * 0.2)
    model.h[0].mlp.c_fc.requires_grad_(False)
    return model


def batch(step: int) -> tuple[Any, Any]:
    """ids and targets [BATCH, 8], of which each row has one to be left out."""
    text = np.random.default_rng(step).integers(0, 11, (BATCH, 9))
    targets = text[:, 1:].copy()
    targets[:, step % 8] = -1
    return minitorch.from_numpy(text[:, :-1].copy()), minitorch.from_numpy(targets)


def adam(parameters: Any) -> Any:
    """The gradient of the keys' bias is 0, but for rounding: a small eps would make
    steps of that."""
    return minitorch.optim.AdamW(parameters, lr=0.01, eps=1e-3)


Alone = tuple[list[float], dict[str, np.ndarray]]
KNOWN: dict[str, Alone] = {}


def know(shape: str, found: Alone) -> None:
    """Spare this process the training of a whole model."""
    KNOWN[shape] = found


def alone(shape: str) -> Alone:
    """The losses of one process, and its weights at the end."""
    if shape not in KNOWN:
        know(shape, train_alone(shape))
    return KNOWN[shape]


def train_alone(shape: str) -> Alone:
    model = gpt(shape)
    optimizer, losses = adam(model.parameters()), []
    for step in range(STEPS):
        loss = model.loss(*batch(step))
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses, {k: v.numpy().copy() for k, v in model.state_dict().items()}


def apart(shape: str, losses: list[float], state: dict[str, Any]) -> float:
    """The largest relative difference from one process, of losses and weights."""
    expected, weights = alone(shape)
    pairs = [(np.array(expected), np.array(losses))]
    pairs += [(weights[name], x.numpy()) for name, x in state.items()]
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(a))) for a, b in pairs)


class Loss(nn.Module):
    """A model's loss as what a module returns."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, targets: Any) -> Any:
        return self.model.loss(ids, targets)


def learn(model: Any, optimizer: Any, ids: Any, targets: Any) -> float:
    """One step; the loss."""
    loss = model(ids, targets)
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    return loss.item()


def shares_layers(
    shape: str,
    dp: int = 1,
    sequence: bool = False,
    recompute: bool = False,
    cp: int = 1,
) -> float:
    """Tensor parallel by the ranks that are left, `dp` times on other rows and `cp`
    times on other parts of sequences; ranks begin with other weights than rank 0."""
    sizes = dp, cp, dist.get_world_size() // dp // cp
    mesh = dist.init_device_mesh("cpu", sizes, ("dp", "cp", "tp"))
    model = gpt(shape, dist.get_rank())
    model = parallelize(model, mesh["tp"], sequence, mesh["cp"])
    model.recompute = recompute
    trained: Any = Loss(model)
    flat = dist.init_device_mesh("cpu", (dp * cp, sizes[2]), ("both", "tp"))
    group = flat.get_group("both")
    if group.size() > 1:
        trained = DDP(trained, process_group=group)
    optimizer, losses = adam(model.parameters()), []
    for step in range(STEPS):
        rows = slice(mesh.get_local_rank("dp"), None, dp)
        loss = learn(trained, optimizer, *(x[rows] for x in batch(step)))
        total = minitorch.tensor(loss, dtype=minitorch.float64)
        dist.all_reduce(total, dist.ReduceOp.AVG, group)
        losses.append(total.item())
    return apart(shape, losses, get_model_state_dict(model, options=WHOLE))


SCHEDULES: dict[str, Any] = {
    "gpipe": gpipe,
    "one_f_one_b": one_f_one_b,
    "interleaved": lambda ranks, m: interleaved(ranks, m, 4 // ranks),
}


def in_stages(
    shape: str, schedule: str, tp: int = 1, how: str = "", dp: int = 1, cp: int = 1
) -> float:
    """A pipeline whose stages are shared by `tp` ranks, `dp` times on other rows and
    `cp` times on other parts of sequences, whose gradients are averaged on the way."""
    ranks = dist.get_world_size() // tp // dp // cp
    mesh = dist.init_device_mesh("cpu", (dp, ranks, cp, tp), ("dp", "pp", "cp", "tp"))
    model = parallelize(gpt(shape, dist.get_rank()), mesh["tp"], tp > 1, mesh["cp"])
    table = SCHEDULES[schedule](ranks, BATCH // dp)
    line = np.arange(dist.get_world_size()).reshape(dp, ranks, cp, tp)
    flat = np.moveaxis(line, 0, 2).reshape(ranks, cp * dp, tp)
    group = dist.DeviceMesh("cpu", flat, mesh_dim_names=("pp", "data", "tp"))["data"]
    data = group.get_group()
    pipe = pipeline(model, mesh["pp"], table, 1, 8, how == "recompute", data)
    if shape == "large":
        assert [len(stage.submodule.h) for stage in pipe.stages] == [
            3 - 2 * dist.get_rank()
        ]
    optimizer, losses = adam(pipe.parameters()), []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=how != "zeros")
        rows = slice(mesh.get_local_rank("dp"), None, dp)
        ids, targets = (x[rows] for x in batch(step))
        loss = pipe.step(ids, targets)
        total = minitorch.zeros((), dtype=minitorch.float64) if loss is None else loss
        dist.broadcast(total, mesh["pp"].mesh[-1], mesh.get_group("pp"))
        dist.all_reduce(total, dist.ReduceOp.AVG, data)
        pipe.clip_grad_norm_(CLIP)
        optimizer.step()
        losses.append(total.item())
    state: dict[str, Any] = {}
    for stage in pipe.stages:
        state |= get_model_state_dict(stage.submodule, options=WHOLE)
    return apart(shape, losses, state)


def shares_experts(top_k: int, factor: float) -> float:
    """Each rank has two experts and one row of the batch; the others average what all
    have. 20 steps; one process does the same with all of it. On the device that needs
    no compilation."""
    n, r = dist.get_world_size(), dist.get_rank()
    sizes = 4, 6, 2 * n, top_k, factor
    minitorch.manual_seed(0)
    options: Any = {"device": "simple", "dtype": minitorch.float64}
    whole = nn.MixtureOfExperts(*sizes, **options)
    minitorch.manual_seed(r)
    mine = nn.MixtureOfExperts(*sizes, **options)
    mesh = dist.init_device_mesh("cpu", (n,))
    parallelize_module(mine, mesh, ExpertParallel())
    both = [(m, adam(m.parameters())) for m in (whole, mine)]
    for step in range(STEPS):
        x = np.random.default_rng(step).standard_normal((n, 6, 4))
        for model, optimizer in both:
            rows = slice(None) if model is whole else slice(r, r + 1)
            y, balance = model(minitorch.tensor(x[rows], device="simple"))
            optimizer.zero_grad()
            ((y - 1).square().mean() + 0.01 * balance).backward()
            if model is mine:
                dist.all_reduce(mine.gate.weight.grad, dist.ReduceOp.AVG)
            optimizer.step()
    state = get_model_state_dict(mine, options=WHOLE)
    pairs = [(v.numpy(), state[k].numpy()) for k, v in whole.state_dict().items()]
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(a))) for a, b in pairs)
