"""What one can choose about a training run: `TrainConfig`.

With this file one can describe a run (`TrainConfig(epochs=1, device="cpu")`), fill in a
recipe's defaults (`resolve`) and find out what is wrong with a choice (`ConfigError`).
What is None is chosen by the recipe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from minitorch.train.checkpoint import find_checkpoint, load_checkpoint

Config = TypeVar("Config", bound=Any)

OPTIMIZERS = ("adamw", "adam", "sgd", "schedule-free")

# Choices that a resumed run must share with the run it goes on with, or its weights
# would not be those of a run that was never interrupted.
FIXED = (
    "recipe",
    "dataset",
    "model",
    "hidden",
    "optimizer",
    "lr",
    "batch_size",
    "seed",
    "limit",
)

# Choices that a resumed run takes over unless it is told otherwise.
INHERITED = (*FIXED, "epochs", "device", "data_dir", "track")


# Whole numbers among the options, and their least values.
LEAST = {
    "epochs": 1,
    "batch_size": 1,
    "hidden": 1,
    "limit": 1,
    "seed": 0,
    "checkpoint_steps": 0,
}


class ConfigError(ValueError):
    """A choice that makes no sense; `option` is the field of `TrainConfig`."""

    def __init__(self, option: str, message: str) -> None:
        self.option = option
        super().__init__(f"{option.replace('_', '-')}: {message}")


@dataclass(frozen=True)
class TrainConfig:
    """The choices of one run; None means: the recipe's default.

    Attributes:
        recipe: "xor", "points" or "mnist"; `train_xor` and its kin fill it in.
        dataset: for points, a name in `minitorch.data.POINT_DATASETS`; for mnist
            "mnist" (drawn digits where that cannot be had) or "drawn".
        device: where the tensors live: "cpu", "cuda", "cuda:1", ...
        model: a name in `minitorch.train.models.MODELS[recipe]`.
        hidden: units in each hidden layer of an "mlp".
        epochs: how often to go through the training examples.
        batch_size: examples in one step.
        lr: the highest learning rate of the schedule.
        optimizer: "adamw", "adam", "sgd" (with Nesterov momentum 0.9) or
            "schedule-free" (AdamW of averaged weights: lr stays as it is).
        seed: of the weights, the order of the examples, dropout and drawn points.
        limit: use only this many training examples; for points, draw this many.
        data_dir: the folder with MNIST's four files.
        out: the folder for checkpoints, tables and pictures.
        graph: on the device "cuda", capture a step in a CUDA graph and replay it; the
            results are the same.
        profile: profile five steps: a table is printed, and `trace.json` is written
            into the folder, for a trace viewer. These steps are not graphs.
        track: "tensorboard", "wandb" or "trackio", to write there as well what
            `metrics.jsonl` in the folder gets; None: only that.
        resume: a checkpoint, or the folder of a run, to go on with.
        checkpoint_every: seconds between checkpoints within an epoch; 0: none.
        checkpoint_steps: steps between checkpoints within an epoch; 0: none.
        plots: draw pictures at the end.
        quiet: print nothing but the result.
        verbose: also print what took how long.
    """

    recipe: str = ""
    dataset: str | None = None
    device: str | None = None
    model: str | None = None
    hidden: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    optimizer: str | None = None
    seed: int | None = None
    limit: int | None = None
    data_dir: str | Path | None = None
    out: str | Path | None = None
    track: str | None = None
    resume: str | Path | None = None
    graph: bool = True
    profile: bool = False
    checkpoint_every: float = 30.0
    checkpoint_steps: int = 0
    plots: bool = True
    quiet: bool = False
    verbose: bool = False

    def to_json(self) -> dict[str, Any]:
        """The choices as what JSON knows; places as text."""
        fields = asdict(self)
        return {k: str(v) if isinstance(v, Path) else v for k, v in fields.items()}


def resolve(config: TrainConfig, defaults: Mapping[str, Any]) -> TrainConfig:
    """`config` with the recipe's defaults in place of what is None, checked.

    Raises:
        ConfigError: a choice that makes no sense.
    """
    config = filled(config, defaults)
    check_whole_numbers(config, LEAST)
    check_choice("optimizer", config.optimizer, OPTIMIZERS)
    if config.lr is not None and not (config.lr > 0 and math.isfinite(config.lr)):
        raise ConfigError("lr", f"got {config.lr!r}; expected a number above 0")
    if not config.checkpoint_every >= 0:
        raise ConfigError(
            "checkpoint_every",
            f"got {config.checkpoint_every!r}; expected seconds, 0 or more",
        )
    return config


def filled(config: Config, defaults: Mapping[str, Any]) -> Config:
    """`config` with `defaults` in place of what is None."""
    missing = {k: v for k, v in defaults.items() if getattr(config, k) is None}
    return replace(config, **missing)


def check_whole_numbers(config: Any, least: Mapping[str, int]) -> None:
    """Raise a ConfigError unless these options are whole numbers, so great or more."""
    for option, low in least.items():
        value = getattr(config, option)
        if value is not None and (type(value) is not int or value < low):
            raise ConfigError(
                option, f"got {value!r}; expected a whole number, {low} or more"
            )


def check_choice(option: str, value: str | None, choices: Sequence[str]) -> None:
    """Raise a ConfigError that lists the choices unless `value` is one of them."""
    if value not in choices:
        raise ConfigError(
            option, f"there is no {value!r}; choose from {', '.join(choices)}"
        )


def with_checkpoint(
    config: Config, fixed: Sequence[str], inherited: Sequence[str]
) -> tuple[Config, dict[str, Any] | None]:
    """The choices completed by those of the checkpoint to resume; and that, if any.

    Args:
        fixed: options that must be those of the checkpoint.
        inherited: options that are those of the checkpoint where the user chose none.

    Raises:
        ConfigError: `config` is not the run that the checkpoint belongs to.
        CheckpointError: it is missing or damaged.
    """
    if config.resume is None:
        return config, None
    path = find_checkpoint(Path(config.resume))
    saved = load_checkpoint(path, whole=False)
    choices = saved["config"]
    if choices["recipe"] != config.recipe:
        raise ConfigError(
            "resume", f"{path} is a checkpoint of `minitorch train {choices['recipe']}`"
        )
    config = filled(config, {k: choices.get(k) for k in inherited if k != "recipe"})
    now = config.to_json()
    for option in fixed:
        if now[option] != choices.get(option):
            raise ConfigError(
                option,
                f"the checkpoint {path} was trained with {choices.get(option)!r}, and "
                f"this run asks for {now[option]!r}; leave the option out to go on as "
                f"before, or start a new run without --resume",
            )
    return (replace(config, out=path.parent) if config.out is None else config), saved
