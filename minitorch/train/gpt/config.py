"""What one can choose about the training of a GPT: `GPTTrainConfig`.

With this file one can describe a run (`GPTTrainConfig(tokenizer="bpe")`), and fill in
what was not chosen (`fill_in`): the sizes and settings of nanoGPT for Shakespeare by
characters, the small ones on a processor and the large ones on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from minitorch.backend import available_devices
from minitorch.backend.registry import split_name
from minitorch.models import PRESETS, GPTConfig
from minitorch.train.config import (
    ConfigError,
    check_choice,
    check_whole_numbers,
    filled,
)
from minitorch.train.tracking import check_tracker

# Choices that a resumed run must share with the run it goes on with.
FIXED = (
    "recipe",
    "dataset",
    "tokenizer",
    "vocab_size",
    "model",
    "layers",
    "heads",
    "width",
    "block_size",
    "dropout",
    "batch_size",
    "accumulate",
    "lr",
    "min_lr",
    "warm_up",
    "decay_steps",
    "weight_decay",
    "beta2",
    "clip",
    "optimizer",
    "dtype",
    "seed",
)
# Choices that it takes over unless it is told otherwise.
INHERITED = (
    *FIXED,
    "steps",
    "eval_every",
    "eval_batches",
    "sample",
    "device",
    "track",
)

TOKENIZERS = ("char", "bpe")
OPTIMIZERS = ("adamw", "lion", "lamb", "muon", "schedule-free")
DTYPES = ("float32", "bfloat16", "float16")
COMMON: Mapping[str, Any] = MappingProxyType(
    {
        "dataset": "tinyshakespeare",
        "tokenizer": "char",
        "device": "cpu",
        "seed": 0,
        "accumulate": 1,
        "optimizer": "adamw",
        "dtype": "float32",
        "weight_decay": 0.1,
        "beta2": 0.99,
        "clip": 1.0,
        "eval_every": 250,
        "sample": 200,
    }
)
# By the model: nanoGPT's for a processor, which serve any other model as well, and its
# for a GPU.
SMALL: Mapping[str, Any] = MappingProxyType(
    {"batch_size": 12, "steps": 2000, "eval_batches": 20}
)
LARGE: Mapping[str, Any] = MappingProxyType(
    {"batch_size": 64, "steps": 5000, "eval_batches": 200}
)
# The highest learning rate: Lion's steps are as long for every number, LAMB's as long
# as the weights of a tensor say.
LEARNING_RATE: Mapping[str, float] = MappingProxyType({"lion": 2e-4, "lamb": 1e-2})
VOCAB_SIZE = 512  # of a tokenizer by byte pairs
WARM_UP = 100  # steps, or a tenth of all if that is less

# Whole numbers among the options, and their least values.
LEAST: Mapping[str, int] = MappingProxyType(
    {
        "vocab_size": 256,
        "layers": 1,
        "heads": 1,
        "width": 1,
        "block_size": 1,
        "batch_size": 1,
        "accumulate": 1,
        "steps": 1,
        "warm_up": 0,
        "decay_steps": 1,
        "eval_every": 1,
        "eval_batches": 1,
        "sample": 0,
        "seed": 0,
        "checkpoint_steps": 0,
        **dict.fromkeys(("dp", "tp", "pp", "cp"), 1),
        "zero": 0,
    }
)


@dataclass(frozen=True)
class GPTTrainConfig:
    """The choices of one run; None means: what `fill_in` chooses.

    Attributes:
        dataset: "tinyshakespeare" (the shipped text where that cannot be had), "alice",
            the shipped text, or the name of a file of text.
        tokenizer: "char", "bpe" (trained on the training text), or the name of a file
            that a tokenizer's `save` wrote.
        vocab_size: how many tokens "bpe" is to have.
        model: a name in `minitorch.models.PRESETS`; "char-small" and "char" have the
            sizes of nanoGPT on a processor and on a GPU.
        layers, heads, width, block_size, dropout: other sizes than the model's.
        device: where to compute: "cpu", "cuda", "cuda:1", ...
        steps: how often to change the weights.
        batch_size: windows of text in a batch.
        accumulate: batches in a step; their gradients are added up.
        lr, min_lr: the highest and the last learning rate; None: a tenth of it.
        warm_up: steps in which it rises.
        decay_steps: the step from which on it is `min_lr`; None: the last one.
        weight_decay: of matrices; vectors have none.
        optimizer: "adamw", "lion", "lamb", "muon" (for the matrices of blocks, with
            AdamW for the rest) or "schedule-free" (AdamW of averaged weights: after
            the warm-up lr stays as it is).
        dtype: of products and attention, by autocast: "float32", "bfloat16" or
            "float16" (with a `GradScaler`); weights are float32.
        beta2: how much of AdamW's running mean of squares remains in a step.
        clip: the largest norm of all gradients; 0: any.
        eval_every: steps between two measurements of the loss.
        eval_batches: batches in each, of training and of validation text.
        sample: tokens that the model then writes; 0: none.
        seed: of the weights, dropout, the windows and what is written.
        data_dir: a folder with tinyshakespeare.
        dp, tp, pp, cp, zero: how ranks share the work, see `layout.py`; dp None: by
            what remains of them.
        schedule: of the pipeline: "1f1b", "gpipe" or "interleaved".
        recompute: keep less for the backward pass, and compute it again.
        out, track, resume, graph, profile, checkpoint_every, checkpoint_steps, quiet,
            verbose: as in `TrainConfig`; there is a checkpoint at each measurement,
            too.
    """

    recipe: str = "gpt"
    dataset: str | None = None
    tokenizer: str | None = None
    vocab_size: int | None = None
    model: str | None = None
    layers: int | None = None
    heads: int | None = None
    width: int | None = None
    block_size: int | None = None
    dropout: float | None = None
    device: str | None = None
    steps: int | None = None
    batch_size: int | None = None
    accumulate: int | None = None
    lr: float | None = None
    min_lr: float | None = None
    warm_up: int | None = None
    decay_steps: int | None = None
    weight_decay: float | None = None
    beta2: float | None = None
    clip: float | None = None
    optimizer: str | None = None
    dtype: str | None = None
    eval_every: int | None = None
    eval_batches: int | None = None
    sample: int | None = None
    seed: int | None = None
    data_dir: str | Path | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    zero: int | None = None
    schedule: str | None = None
    out: str | Path | None = None
    track: str | None = None
    resume: str | Path | None = None
    recompute: bool = False
    graph: bool = True
    profile: bool = False
    checkpoint_every: float = 300.0
    checkpoint_steps: int = 0
    quiet: bool = False
    verbose: bool = False

    def to_json(self) -> dict[str, Any]:
        """The choices as what JSON knows; places as text."""
        fields = asdict(self)
        return {k: str(v) if isinstance(v, Path) else v for k, v in fields.items()}


def fill_in(config: GPTTrainConfig) -> GPTTrainConfig:
    """All choices of a run: `config` with defaults in place of what is None, checked.

    Raises:
        ConfigError: a choice that makes no sense.
    """
    config = filled(config, COMMON)
    on_gpu = split_name(str(config.device))[0] == "cuda"
    config = filled(config, {"model": "char" if on_gpu else "char-small"})
    check_choice("device", split_name(str(config.device))[0], available_devices())
    check_choice("model", config.model, tuple(PRESETS))
    check_choice("optimizer", config.optimizer, OPTIMIZERS)
    check_choice("dtype", config.dtype, DTYPES)
    check_tracker(config.track)
    config = filled(config, {"lr": LEARNING_RATE.get(str(config.optimizer), 1e-3)})
    sizes = GPTConfig.preset(str(config.model))
    given = {
        "layers": sizes.n_layer,
        "heads": sizes.n_head,
        "width": sizes.n_embd,
        "block_size": sizes.block_size,
        "dropout": sizes.dropout,
    }
    config = filled(config, {**given, **(LARGE if config.model == "char" else SMALL)})
    if config.tokenizer == "bpe":
        config = filled(config, {"vocab_size": VOCAB_SIZE})
    elif config.vocab_size is not None:
        raise ConfigError("vocab_size", "only the tokenizer 'bpe' has one to choose")
    check_whole_numbers(config, LEAST)
    _check_numbers(config)
    assert config.lr is not None and config.steps is not None
    config = filled(config, {"decay_steps": config.steps, "min_lr": config.lr / 10})
    assert config.decay_steps is not None and config.min_lr is not None
    if config.lr is not None and config.min_lr > config.lr:
        most = f"{config.lr:g}, which is lr"
        raise ConfigError("min_lr", f"got {config.min_lr}; expected at most {most}")
    config = filled(config, {"warm_up": min(WARM_UP, config.decay_steps // 10)})
    model_config(config, 256)  # raises for sizes that do not fit together
    return config


def _check_numbers(config: GPTTrainConfig) -> None:
    for option, low, high in (
        ("lr", 1e-30, math.inf),
        ("min_lr", 0.0, math.inf),
        ("weight_decay", 0.0, math.inf),
        ("beta2", 0.0, 1.0),
        ("clip", 0.0, math.inf),
        ("dropout", 0.0, 1.0),
        ("checkpoint_every", 0.0, math.inf),
    ):
        value = getattr(config, option)
        if value is not None and not low <= value < high:
            least = "above 0" if low else "0 or more"
            most = f", below {high:.0f}" if math.isfinite(high) else ""
            raise ConfigError(
                option, f"got {value!r}; expected a number, {least}{most}"
            )


def model_config(config: GPTTrainConfig, vocab_size: int) -> GPTConfig:
    """What the model of a run is made of.

    Raises:
        ConfigError: sizes that do not fit together.
    """
    assert config.model is not None
    try:
        return GPTConfig.preset(
            config.model,
            vocab_size=vocab_size,
            block_size=config.block_size,
            n_layer=config.layers,
            n_head=config.heads,
            n_embd=config.width,
            dropout=config.dropout,
        )
    except ValueError as error:
        raise ConfigError("model", str(error)) from error
