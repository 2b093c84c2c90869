"""Recipes: train a network from the first step to the pictures.

With this file one can run `train_xor`, `train_points` and `train_mnist`, each a
function of a `TrainConfig` that returns a `Result`; `minitorch train` on the command
line calls them. The training itself is in `loop.py`.

    >>> result = train_mnist(TrainConfig(epochs=1))
    >>> result.test_accuracy
    0.9876
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

import minitorch.train.report as report
from minitorch import nn, optim
from minitorch.autodiff import no_grad
from minitorch.backend import available_devices, get_backend
from minitorch.backend.registry import split_name
from minitorch.creation import from_numpy
from minitorch.data import POINT_DATASETS
from minitorch.optim.lr_scheduler import LambdaLR
from minitorch.random import manual_seed
from minitorch.train.config import (
    FIXED,
    INHERITED,
    ConfigError,
    TrainConfig,
    check_choice,
    resolve,
    with_checkpoint,
)
from minitorch.train.folder import default_folder, prepare_folder
from minitorch.train.loop import Evaluation, Step, evaluate, train_epoch, train_step
from minitorch.train.models import MODELS, build_model
from minitorch.train.progress import Reporter, make_reporter
from minitorch.train.running import explained, prepared
from minitorch.train.schedule import WARM_UP, constant, one_cycle
from minitorch.train.session import Epoch, Session
from minitorch.train.tasks import Task, digits_task, points_task, scale_points
from minitorch.train.tracking import check_tracker, tracked
from minitorch.train.warmup import compile_ahead

# What a recipe chooses where the user did not.
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "xor": {"dataset": "xor", "epochs": 30, "batch_size": 50, "limit": 400},
        "points": {"dataset": "spiral", "epochs": 60, "batch_size": 25, "limit": 500},
        "mnist": {"dataset": "mnist", "epochs": 5, "batch_size": 128},
    }
)
DATASETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"xor": ("xor",), "points": tuple(POINT_DATASETS), "mnist": ("mnist", "drawn")}
)
COMMON: Mapping[str, Any] = MappingProxyType(
    {"optimizer": "adamw", "seed": 0, "device": "cpu"}
)
HIDDEN: Mapping[str, int] = MappingProxyType({"xor": 64, "points": 64, "mnist": 256})

# The highest learning rate of Adam and AdamW; SGD needs larger ones.
LEARNING_RATE: Mapping[str, float] = MappingProxyType(
    {"cnn": 0.01, "lenet": 0.005, "mlp": 0.01, "linear": 0.02}
)
SGD_FACTOR = 10.0


@dataclass(frozen=True)
class Result:
    """What came out of a run.

    Attributes:
        config: all choices, defaults filled in.
        history: the numbers of each epoch.
        folder: where the checkpoints, tables and pictures are.
        name: of the data: "MNIST", "drawn digits", "spiral".
        source: "mnist", "drawn" or the name of the points.
        model: the trained network.
        test: how it does on the test examples.
        files: what was written, for people to look at.
    """

    config: TrainConfig
    history: list[Epoch]
    folder: Path
    name: str
    source: str
    model: nn.Module
    test: Evaluation
    files: list[Path]

    @property
    def train_accuracy(self) -> float:
        """Over the steps of the last epoch, 0 to 1."""
        return self.history[-1].train_accuracy

    @property
    def test_accuracy(self) -> float:
        """0 to 1."""
        return self.test.accuracy

    def summary(self) -> str:
        """What there is to say, in one line."""
        n, epochs = len(self.test.labels), len(self.history)
        right = round(self.test_accuracy * n)
        return (
            f"{self.name}: test accuracy {self.test_accuracy:.2%} ({right:,} of "
            f"{n:,}), training accuracy {self.train_accuracy:.2%}, after {epochs} "
            f"epoch{'s' if epochs > 1 else ''}; files in {self.folder}"
        )


def train_xor(
    config: TrainConfig | None = None, started: float | None = None
) -> Result:
    """Learn which of two opposite quarters a point is in. Arguments as `train`'s."""
    return train(replace(config or TrainConfig(), recipe="xor"), started)


def train_points(
    config: TrainConfig | None = None, started: float | None = None
) -> Result:
    """Learn two classes of points in the plane. Arguments as `train`'s."""
    return train(replace(config or TrainConfig(), recipe="points"), started)


def train_mnist(
    config: TrainConfig | None = None, started: float | None = None
) -> Result:
    """Learn to read digits. Arguments as `train`'s."""
    return train(replace(config or TrainConfig(), recipe="mnist"), started)


def train(
    config: TrainConfig,
    started: float | None = None,
    reporter: Reporter | None = None,
) -> Result:
    """Run the recipe `config.recipe`.

    Args:
        started: when the program started (`time.perf_counter`), for the time to the
            first step; None: now.
        reporter: who is told how far it is; None: the terminal.

    Raises:
        ConfigError: a choice that makes no sense.
        CheckpointError: the checkpoint to resume is missing or damaged.
        Diverged: the loss became infinite; the last good checkpoint is kept.
        Interrupted: Ctrl-C; a checkpoint was written first.
        RuntimeError, OSError: device, data or disk.
    """
    started = time.perf_counter() if started is None else started
    check_choice("recipe", config.recipe, tuple(DEFAULTS))
    config, saved = with_checkpoint(config, FIXED, INHERITED)
    config = fill_in(config)
    reporter = reporter or make_reporter(config.quiet)
    folder = Path(config.out or default_folder(config.recipe))
    get_backend(str(config.device))  # without it, or without data, no folder is made
    if config.recipe == "mnist":
        compile_ahead(config.device)
    task = _load(config, saved)
    prepare_folder(folder, resuming=saved is not None)
    if task.notice:
        reporter.warn(task.notice)
    session = _session(config, task, folder, reporter)
    if saved is None:
        session.save()  # so that there is something to resume from the first step on
    else:
        session.restore(saved)
        _note_resumed(reporter, session, saved["config"]["epochs"])
    choices = {**config.to_json(), "out": str(folder), "source": task.source}
    report.write_json(folder / "config.json", choices)
    with tracked(reporter, session):
        test = _fit(session, task, reporter, started)
        return _finish(session, task, test, reporter, started)


def fill_in(config: TrainConfig) -> TrainConfig:
    """All choices of a run: `config` with the recipe's defaults, checked.

    Raises:
        ConfigError: a choice that makes no sense.
    """
    config = resolve(config, {**DEFAULTS[config.recipe], **COMMON})
    if config.data_dir is not None:  # a resumed run may start in another folder
        data_dir = Path(config.data_dir).expanduser().absolute()
        config = replace(config, data_dir=data_dir)
    models = tuple(MODELS[config.recipe])
    if config.model is None:
        config = replace(config, model=models[0])
    assert config.model is not None
    check_choice("model", config.model, models)
    assert config.device is not None
    check_choice("device", split_name(config.device)[0], available_devices())
    check_choice("dataset", config.dataset, DATASETS[config.recipe])
    check_tracker(config.track)
    if config.hidden is not None and config.model != "mlp":
        raise ConfigError(
            "hidden", f"the model {config.model!r} has no hidden units to choose; only "
            f"an mlp has"
        )  # fmt: skip
    if config.hidden is None and config.model == "mlp":
        config = replace(config, hidden=HIDDEN[config.recipe])
    if config.lr is None:
        assert config.model is not None
        factor = SGD_FACTOR if config.optimizer == "sgd" else 1.0
        config = replace(config, lr=LEARNING_RATE[config.model] * factor)
    return config


# ----------------------------------------------------------------- before training


def _load(config: TrainConfig, saved: Mapping[str, Any] | None) -> Task:
    if config.recipe == "mnist":
        return digits_task(config, saved["source"] if saved else None)
    return points_task(config)


def _session(
    config: TrainConfig, task: Task, folder: Path, reporter: Reporter
) -> Session:
    """A model with fresh weights and all that it takes to train it."""
    assert config.model is not None and config.seed is not None
    assert config.device is not None and config.epochs is not None
    get_backend(config.device)
    manual_seed(config.seed)
    model = build_model(config.recipe, config.model, config.hidden, config.device)
    steps = config.epochs * len(task.train)
    optimizer = make_optimizer(model, config, steps)
    free = isinstance(optimizer, optim.AdamWScheduleFree)
    session = Session(
        config=config,
        model=model,
        optimizer=optimizer,
        scheduler=LambdaLR(optimizer, constant if free else one_cycle(steps)),
        loader=task.train,
        folder=folder,
        source=task.source,
        on_look=lambda meter: reporter.look(len(session.history) + 1, meter),
    )
    return session


def make_optimizer(
    model: nn.Module, config: TrainConfig, steps: int
) -> optim.Optimizer:
    """The optimizer that `config.optimizer` names, for so many steps."""
    assert config.lr is not None
    if config.optimizer == "sgd":
        return optim.SGD(model.parameters(), config.lr, momentum=0.9, nesterov=True)
    if config.optimizer == "adam":
        return optim.Adam(model.parameters(), config.lr)
    if config.optimizer == "schedule-free":
        rising = round(WARM_UP * steps)
        kind = optim.AdamWScheduleFree
        return kind(model.parameters(), config.lr, warmup_steps=rising)
    return optim.AdamW(model.parameters(), config.lr)


def _note_resumed(reporter: Reporter, session: Session, epochs_before: int) -> None:
    done, epochs = len(session.history), session.config.epochs
    reporter.note(
        f"resuming after step {session.step:,}, with {done} of {epochs} epochs done"
    )
    if epochs != epochs_before:
        reporter.note(
            f"the learning rate now falls over {epochs} epochs, not {epochs_before}; "
            f"the result will not be that of an uninterrupted run"
        )


# ------------------------------------------------------------------------- training


def _fit(
    session: Session, task: Task, reporter: Reporter, started: float
) -> Evaluation:
    """All epochs that are left to do."""
    config, test = session.config, None
    assert config.epochs is not None and config.device is not None
    if len(session.history) >= config.epochs:
        reporter.note("all epochs are done already")
        return evaluate(session.model, task.test, config.device)
    reporter.start(len(task.train_data[1]), config.epochs)
    step = partial(train_step, session.model, session.optimizer)
    try:
        with (
            explained(config, session.folder),
            session.stoppable(reporter.note),
            prepared(step, config, session.folder, reporter.note) as run,
        ):
            while len(session.history) < config.epochs:
                test = _epoch(session, task, reporter, config.device, run)
                _write_metrics(session, task, started)
                session.stop_if_asked()
    finally:
        reporter.stop()
    assert test is not None
    return test


def _epoch(
    session: Session, task: Task, reporter: Reporter, device: str, step: Step
) -> Evaluation:
    """Train for one epoch (or what is left of it), then measure."""
    session.start_epoch()
    train_epoch(
        session.model,
        task.train,
        session.optimizer,
        session.scheduler,
        device,
        session.after_step,
        step,
    )
    session.look()
    session.averaged(True)
    reporter.testing(len(session.history) + 1)
    test = evaluate(session.model, task.test, device)
    reporter.end_epoch(session.end_epoch(test.loss, test.accuracy))
    return test


# ------------------------------------------------------------------- after training


def _write_metrics(session: Session, task: Task, started: float) -> None:
    history, first = session.history, session.first_step
    parameters = sum(p.numel() for p in session.model.parameters())
    content = {
        "recipe": session.config.recipe,
        "data": task.name,
        "train_examples": len(task.train_data[1]),
        "test_examples": len(task.test_data[1]),
        "model": session.config.model,
        "parameters": parameters,
        "steps": session.step,
        "complete": len(history) == session.config.epochs,
        "test_accuracy": history[-1].test_accuracy,
        "best_test_accuracy": max(row.test_accuracy for row in history),
        "train_seconds": sum(row.seconds for row in history),
        "seconds_to_first_step": None if first is None else first - started,
        "epochs": [vars(row) for row in history],
    }
    report.write_json(session.folder / "metrics.json", content)


def _finish(
    session: Session,
    task: Task,
    test: Evaluation,
    reporter: Reporter,
    started: float,
) -> Result:
    """The table and the pictures."""
    config, folder, history = session.config, session.folder, session.history
    files: list[Path] = []
    if config.plots:
        files = _draw(session, task, test)
        reporter.record(session.step, {}, pictures=files)
    if not config.quiet:
        title = f"{config.recipe}: {task.name}, {config.model}, {config.optimizer}"
        report.show_table(history, title)
        if config.verbose and session.first_step is not None:
            first = session.first_step - started
            reporter.note(f"first step done {first:.1f} s after the start")
        for file in files:
            reporter.note(f"wrote {file}")
    name, source = task.name, task.source
    return Result(config, history, folder, name, source, session.model, test, files)


def _draw(session: Session, task: Task, test: Evaluation) -> list[Path]:
    config, folder = session.config, session.folder
    history, trace = session.history, session.trace
    if config.recipe == "mnist":
        images = task.test_data[0]
        return report.draw_digits(folder, history, trace, task.name, images, test)

    def probability(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        device = config.device
        with no_grad():
            scores = session.model(from_numpy(scale_points(x)).to(device))
        return nn.functional.softmax(scores, dim=1)[:, 1].cpu().numpy()

    return report.draw_points(
        folder, history, trace, task.name, task.train_data, probability
    )
