"""How the ranks of a run share its work: `--dp`, `--tp`, `--pp`, `--cp` and `--zero`.

With this file a run knows how many ranks there are and which one this is (`join`), and
whether they can be laid out as its `GPTTrainConfig` says (`laid_out`):

    dp   ranks with other rows of each batch (data parallel); with --zero they also
         share the optimizer's state (1), gradients (2) and parameters (3)
    tp   ranks with parts of each layer      (tensor parallel)
    pp   ranks with some of the blocks       (pipeline parallel)
    cp   ranks with parts of each sequence   (context parallel)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from minitorch.backend.registry import split_name
from minitorch.train.checkpoint import last_checkpoint
from minitorch.train.config import ConfigError, check_choice, filled
from minitorch.train.gpt.config import GPTTrainConfig

SCHEDULES = ("1f1b", "gpipe", "interleaved")
CHUNKS = 2  # stages of a rank, if they are interleaved
NONE: Mapping[str, int] = MappingProxyType({"tp": 1, "pp": 1, "cp": 1, "zero": 0})


def started_by_torchrun() -> bool:
    """Whether this process is one of the ranks that a launcher started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def join(config: GPTTrainConfig) -> tuple[int, int]:
    """Which of how many ranks this is. One that torchrun started meets the others.

    Errors: RuntimeError where torch is missing, or the others did not come.
    """
    kind = split_name(str(config.device))[0]
    if started_by_torchrun():
        from minitorch import distributed as dist

        if kind == "cuda":
            from minitorch import cuda

            cuda.set_device(_own_device(str(config.device)))
        if not dist.is_initialized():
            dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    from minitorch.distributed.group import world

    group = world()
    return (0, 1) if group is None else (group.rank(), group.size())


def restarted(config: GPTTrainConfig) -> GPTTrainConfig:
    """The choices of this attempt: behind a failure, torchrun starts all ranks anew,
    and they go on from the last checkpoint.

    Errors: ConfigError where there would be no way to find it.
    """
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) and config.out is None:
        raise ConfigError(
            "out", "with --max-restarts, say where the checkpoint will be found"
        )
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
    if again and last_checkpoint(Path(str(config.out))):
        return replace(config, resume=config.out)
    return config


def laid_out(config: GPTTrainConfig, ranks: int) -> GPTTrainConfig:
    """`config` with all degrees filled in, and on the device of this rank.

    Errors: ConfigError for a layout that this many ranks, this model or this
    optimizer cannot have.
    """
    config = filled(config, NONE)
    others = (config.tp or 1) * (config.pp or 1) * (config.cp or 1)
    config = filled(config, {"dp": max(1, ranks // others)})
    if (config.dp or 1) * others != ranks:
        raise ConfigError(
            "dp",
            f"dp {config.dp} x tp {config.tp} x pp {config.pp} x cp {config.cp} makes "
            f"{(config.dp or 1) * others} ranks, and there are {ranks}; start as many "
            f"with torchrun, or `minitorch launch --ranks "
            f"{(config.dp or 1) * others} -- train gpt ...`",
        )
    _check_sizes(config)
    _check_kinds(config, ranks)
    if ranks > 1:
        # Others read numbers within a step, or were not yet compared with and without.
        graph = config.graph and others == (config.tp or 1) and not config.zero
        return replace(config, graph=graph, device=_own_device(str(config.device)))
    return config


def _own_device(device: str) -> str:
    kind = split_name(device)[0]
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if kind == "cuda" else device


def _check_sizes(config: GPTTrainConfig) -> None:
    """What is dealt out must come out even."""
    c: Any = config
    stages = c.pp * (CHUNKS if c.schedule == "interleaved" else 1)
    for option, degree, size, what in (
        ("dp", c.dp, c.batch_size, "batch-size"),
        ("tp", c.tp, c.heads, "heads"),
        ("cp", 2 * c.cp if c.cp > 1 else 1, c.block_size, "block-size"),
    ):
        if size % degree:
            raise ConfigError(
                option, f"{what} is {size}; expected a multiple of {degree}"
            )
    if stages > c.layers:
        raise ConfigError(
            "pp", f"{stages} stages of {c.layers} layers; each has one at least"
        )
    if c.pp > 1:
        microbatches(config)


def _check_kinds(config: GPTTrainConfig, ranks: int) -> None:
    """What does not work together, with what to do instead."""
    c: Any = config
    if c.zero > 3:
        raise ConfigError("zero", f"got {c.zero}; expected a stage: 0, 1, 2 or 3")
    if c.zero >= 2 and c.tp * c.pp > 1:
        raise ConfigError(
            "zero", f"stage {c.zero} is for --dp and --cp; with --tp or --pp use 1"
        )
    if c.schedule is not None:
        check_choice("schedule", c.schedule, SCHEDULES)
        if c.pp == 1:
            raise ConfigError("schedule", "there is no pipeline; it goes with --pp")
    whole = () if c.zero > 1 or c.tp > 1 else ("lamb",)  # it takes norms of weights
    for option, given, fit in (
        ("optimizer", c.optimizer, ("adamw", "lion", *whole)),
        ("dtype", c.dtype, ("float32", "bfloat16")),
    ):
        if ranks > 1 and given not in fit:
            raise ConfigError(
                option, f"{given} is not for this layout; choose from {', '.join(fit)}"
            )


def microbatches(config: GPTTrainConfig) -> int:
    """In how many parts a rank's batch goes through the pipeline: the most of 4, 3, 2
    or 1 for each rank of it, for the bubble is (pp - 1) / parts.

    Errors: ConfigError where the rows of the batch are not enough, or odd.
    """
    c: Any = config
    rows = c.batch_size // c.dp
    for times in (4, 3, 2, 1):
        if rows % (times * c.pp) == 0:
            return times * c.pp
    raise ConfigError(
        "pp",
        f"batch-size / dp is {rows} rows; expected a multiple of {c.pp}, so that "
        f"each rank of the pipeline has something to do",
    )
