"""What tests of sharding let each rank do, as threads and as processes.

With this file every stage of ZeRO is held to the same: a GPT that ranks train in parts
has the losses of one that one process trains whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minitorch
from minitorch import distributed as dist
from minitorch import nn
from minitorch.bench.sharding import CONFIG as COUNTED
from minitorch.bench.sharding import live_bytes, trained
from minitorch.distributed.fsdp import fully_shard
from minitorch.distributed.optim import ZeroRedundancyOptimizer
from minitorch.models import GPT, GPTConfig
from minitorch.nn.parallel import DistributedDataParallel as DDP
from minitorch.tensor import Tensor

LENGTH, VOCAB = 5, 13
PARAMETERS = COUNTED.num_parameters()
CONFIG = GPTConfig(VOCAB, LENGTH, n_layer=2, n_head=2, n_embd=8)


class Odd(GPT):
    """A GPT whose head is its embedding, with a frozen table, a frozen bias, a layer
    that is never used and one that is used by some ranks in some steps."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.spare, self.extra = nn.Linear(2, 3), nn.Linear(8, 8)
        assert self.wpe is not None and self.h[0].attn.c_attn.bias is not None
        self.wpe.weight.requires_grad_(False)
        self.h[0].attn.c_attn.bias.requires_grad_(False)

    def forward(self, ids: Tensor, extra: bool = True) -> Any:  # type: ignore[override]
        x = self.features(ids)
        return {"scores": [self.lm_head(x + self.extra(x) if extra else x)]}


def loss_of(model: Any, step: int, rows: slice, extra: bool, size: int = 8) -> Tensor:
    """The sum over some rows of a batch, by the number of all tokens."""
    rng = np.random.default_rng(step)
    tokens = minitorch.from_numpy(rng.integers(0, VOCAB, (size, LENGTH + 1)))
    ids, targets = tokens[rows, :-1], tokens[rows, 1:].reshape(-1)
    scores = model(ids, extra)["scores"][0].reshape(-1, VOCAB)
    return nn.functional.cross_entropy(scores, targets, reduction="sum") / (
        size * LENGTH
    )


def groups_of(model: Any) -> Any:
    """Two groups, of matrices and of the rest."""
    every = list(model.parameters())
    matrices = [p for p in every if p.dim() == 2]
    rest = [p for p in every if p.dim() != 2]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": rest}]


def total(number: float) -> float:
    """The sum of a number of each rank."""
    x = minitorch.tensor([number], dtype=minitorch.float64)
    dist.all_reduce(x)
    return x.item()


def make(dtype: Any, seed: int) -> Odd:
    minitorch.manual_seed(seed)
    return Odd().to(dtype)


def by_stage_1(dtype: Any, **options: Any) -> tuple[Any, Any]:
    """Data parallel, and an optimizer in parts."""
    model = DDP(make(dtype, 5 + dist.get_rank()), find_unused_parameters=True)
    adamw = minitorch.optim.AdamW
    groups = groups_of(model)
    return model, ZeroRedundancyOptimizer(groups, adamw, lr=0.01, **options)


def trains_as_one(
    sharded: Any, dtype: Any = minitorch.float64, micro: int = 1, **options: Any
) -> float:
    """20 steps by one process and by all ranks on parts of each batch; the largest
    relative difference of a loss."""
    n, r = dist.get_world_size(), dist.get_rank()
    alone = make(dtype, 5)
    whole = minitorch.optim.AdamW(groups_of(alone), lr=0.01)
    model, parts = sharded(dtype, **options)
    rows = [slice(k, None, n * micro) for k in range(n * micro)]
    apart = 0.0
    for step in range(20):
        extra = [(step + k // micro) % 3 == 0 for k in range(n * micro)]
        expected = ours = 0.0
        for k in range(n * micro):
            loss = loss_of(alone, step, rows[k], extra[k])
            loss.backward()
            expected += loss.item()
        for k in range(r * micro, (r + 1) * micro):
            last = k == (r + 1) * micro - 1
            synchronize(model, last)
            loss = loss_of(model, step, rows[k], extra[k])
            (loss * n).backward()
            ours += loss.item()
        for optimizer in (whole, parts):
            for group in optimizer.param_groups:
                group["lr"] = 0.01 / (1 + step)
            optimizer.step()
            optimizer.zero_grad()
        apart = max(apart, abs(total(ours) / expected - 1))
    return apart


def synchronize(model: Any, on: bool) -> None:
    """Whether the next backward pass sends gradients."""
    if isinstance(model, DDP):
        model.require_backward_grad_sync = on
    else:
        model.set_requires_gradient_sync(on)


def bytes_held(stage: int) -> float:
    """Bytes a parameter of all arrays of this process, behind a step."""
    before = live_bytes()
    kept = trained(stage, half=False)
    counted = live_bytes() - before
    assert kept
    return counted / PARAMETERS


def by_stage_3(
    dtype: Any, reshard: bool | None = None, recompute: bool = False
) -> tuple[Any, Any]:
    """Each block, and what is left of the model, in parts; stage 2 if not `reshard`."""
    model = make(dtype, 5 + dist.get_rank())
    model.recompute = recompute
    groups = groups_of(model)
    for block in model.h:
        fully_shard(block, reshard_after_forward=reshard)
    fully_shard(model, reshard_after_forward=reshard)
    return model, minitorch.optim.AdamW(groups, lr=0.01)
