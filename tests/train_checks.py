"""What tests let ranks do that train one GPT together, in any layout.

With this file a layout of `SharedGPT` is held to the losses, the weights and the
optimizer's state of one process (`shares_a_run`), and whole runs to each other (`run`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import minitorch
from minitorch import distributed as dist
from minitorch.distributed import checkpoint
from minitorch.models import GPT, GPTConfig
from minitorch.tensor import Tensor
from minitorch.train import (
    CheckpointError,
    ConfigError,
    GPTTrainConfig,
    running,
    train_gpt,
)
from minitorch.train.gpt.config import fill_in
from minitorch.train.gpt.layout import laid_out
from minitorch.train.gpt.optimizers import make_optimizer
from minitorch.train.gpt.shared import SharedGPT, SharedOptimizer

SIZES = GPTConfig(vocab_size=11, block_size=8, n_layer=4, n_head=4, n_embd=8)
CHOICES = GPTTrainConfig(
    layers=4, heads=4, width=8, block_size=8, batch_size=8, accumulate=2, clip=0.5,
    lr=0.01,
)  # fmt: skip
Ended = tuple[list[float], dict[str, Any]]


def model(dtype: str) -> GPT:
    minitorch.manual_seed(0)
    made = GPT(SIZES).to(getattr(minitorch, dtype))
    with minitorch.no_grad():
        for p in made.parameters():
            p.add_(minitorch.randn_like(p) * 0.2)
    return made


def calm(optimizer: Any) -> Any:
    """The gradient of the keys' bias is 0, but for rounding: a small eps would make
    steps of that."""
    for group in optimizer.param_groups:
        group["eps"] = 1e-3
    return optimizer


def batch(step: int) -> list[Tensor]:
    text = np.random.default_rng(step).integers(0, 11, (2, 8, 9))
    return [minitorch.from_numpy(text[..., at : at + 8].copy()) for at in (0, 1)]


def alone(steps: int, dtype: str = "float64") -> Ended:
    """One process: losses, and all tensors of the states at the end."""
    from minitorch.train.gpt.session import text_step

    whole, choices = model(dtype), fill_in(CHOICES)
    optimizer = calm(make_optimizer(whole, choices))
    losses = [
        text_step(whole, optimizer, 0.5, *batch(step)).item() for step in range(steps)
    ]
    return losses, flat(
        {"model": whole.state_dict(), "optimizer": optimizer.state_dict()["state"]}
    )


def flat(x: Any, path: str = "") -> dict[str, Any]:
    """All tensors in nested dicts, as arrays."""
    if isinstance(x, Tensor):
        return {path: x.numpy().copy()}
    found: dict[str, Any] = {}
    for name, y in x.items() if isinstance(x, dict) else ():
        found |= flat(y, f"{path}.{name}")
    return found


def shares_a_run(
    expected: Ended, folder: Path, first: dict[str, Any], then: dict[str, Any],
    dtype: str = "float64",
) -> float:  # fmt: skip
    """The steps that one process took: half of them in one layout, the rest in another,
    which goes on from its checkpoint. The largest relative difference from one process,
    which also reads what they wrote at last."""
    losses: list[float] = []
    half = len(expected[0]) // 2
    for begin, layout in ((0, first), (half, then)):
        config = laid_out(fill_in(replace(CHOICES, **layout)), dist.get_world_size())
        shared = SharedGPT(model(dtype), config)
        calm(shared.optimizer)
        if begin:
            held = checkpoint.open_state(folder)
            shared.load_state_dict(held["model"])
            SharedOptimizer(shared).load_state_dict(held["optimizer"])
        for step in range(begin, begin + half):
            losses.append(shared.step(*batch(step)).item())
        state = {
            "model": shared.state_dict(),
            "optimizer": SharedOptimizer(shared).state_dict(),
        }
        checkpoint.save(state, checkpoint_id=folder)
    held = checkpoint.whole(checkpoint.open_state(folder))
    found = flat({"model": held["model"], "optimizer": held["optimizer"]["state"]})
    assert found.keys() == expected[1].keys()
    pairs = [(np.array(expected[0]), np.array(losses))]
    pairs += [(x, found[name]) for name, x in expected[1].items()]
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(a))) for a, b in pairs)


TINY = GPTTrainConfig(
    dataset="alice", layers=2, heads=2, width=16, block_size=8, batch_size=4,
    accumulate=2, steps=6, eval_every=3, eval_batches=1, sample=4,
)  # fmt: skip


def run(out: Path, choices: dict[str, Any]) -> list[tuple[float, float]]:
    """The losses that a whole run measured."""
    done = train_gpt(replace(TINY, out=out, **choices))
    return [(row.train_loss, row.val_loss) for row in done.history]


def told(out: Path, choices: dict[str, Any]) -> str:
    """What a run says that cannot be."""
    try:
        run(out, choices)
    except (CheckpointError, checkpoint.CheckpointException) as error:
        return str(error)
    return ""


def run_without_room(out: Path, choices: dict[str, Any]) -> str:
    """What a run says if the disk of rank 1 is full when it is done."""
    write, sync = running.save_checkpoint, os.fsync

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    def written(path: Path, state: Any, ranks: int) -> None:
        os.fsync = full if state["step"] == 6 and dist.get_rank() == 1 else sync
        write(path, state, ranks)

    running.save_checkpoint = written
    try:
        return told(out, choices)
    finally:
        running.save_checkpoint, os.fsync = write, sync


def refused(choices: dict[str, Any]) -> str:
    """What is told of choices that these ranks cannot have."""
    try:
        laid_out(fill_in(replace(CHOICES, **choices)), dist.get_world_size())
    except ConfigError as error:
        return str(error)
    return ""
