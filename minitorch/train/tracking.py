"""The numbers of a run for other programs: a file of lines, and trackers.

With this file one can let a run write what it measures (`tracked`): always into
`metrics.jsonl`, an object of JSON a line, and if the user wants that to TensorBoard,
Weights & Biases or Trackio, through their own packages and to this machine only; and
read the lines again (`read_metrics`).
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from minitorch.train.config import ConfigError, check_choice

if TYPE_CHECKING:
    import minitorch.train.running
    from minitorch.train.progress import Reporter

METRICS = "metrics.jsonl"

Arrays = Mapping[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Measured:
    """What was measured after `step` steps: numbers, arrays for histograms (weights and
    gradients), both by name, and pictures, which are PNG files."""

    step: int
    numbers: Mapping[str, float]
    arrays: Arrays = field(default_factory=dict)
    pictures: Sequence[Path] = ()


class Tracker:
    """Somebody who keeps what a run measures. One that `wants_arrays` is given the
    weights and gradients too, for histograms."""

    wants_arrays = True

    def write(self, found: Measured) -> None:
        """Keep what was measured."""
        raise NotImplementedError(f"{type(self).__name__} must define write(found)")

    def close(self) -> None:
        """The run is over, for whatever reason."""


class JsonLines(Tracker):
    """A line for each measurement, complete when `write` returns:

    {"step": 8, "time": 1763863200.5, "loss": 0.51, "accuracy": 0.75, "lr": 0.01}
    """

    wants_arrays = False

    def __init__(self, path: Path, earlier: Sequence[Mapping[str, Any]] = ()) -> None:
        self.file = open(path, "w", encoding="utf-8")
        for line in earlier:
            print(json.dumps(line), file=self.file)

    def write(self, found: Measured) -> None:
        if found.numbers:
            line = {"step": found.step, "time": round(time.time(), 3), **found.numbers}
            print(json.dumps(line), file=self.file, flush=True)

    def close(self) -> None:
        self.file.close()


class TensorBoard(Tracker):
    """Event files; `tensorboard --logdir runs` shows those of all runs."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], step: int) -> None:
        from tensorboardX import SummaryWriter

        # What a run wrote beyond its last checkpoint is measured again.
        again = {"purge_step": step + 1} if step else {}
        self.writer = SummaryWriter(str(folder / "tensorboard"), **again)
        text = json.dumps(settings, indent=2).replace("\n", "\n    ")
        self.writer.add_text("settings", f"    {text}", step)

    def write(self, found: Measured) -> None:
        from PIL import Image

        for name, number in found.numbers.items():
            self.writer.add_scalar(name, number, found.step)
        for name, array in found.arrays.items():
            self.writer.add_histogram(name, array, found.step)
        for path in found.pictures:
            pixels = np.asarray(Image.open(path).convert("RGB"))
            self.writer.add_image(path.stem, pixels, found.step, dataformats="HWC")

    def close(self) -> None:
        self.writer.close()


class _Service(Tracker):
    """What Weights & Biases and Trackio, which has its names, have in common."""

    package: Any
    run: Any

    def write(self, found: Measured) -> None:
        histograms = {k: self.package.Histogram(v) for k, v in found.arrays.items()}
        images = {path.stem: self.package.Image(str(path)) for path in found.pictures}
        self.run.log({**found.numbers, **histograms, **images}, step=found.step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):  # `--quiet` prints the result alone
            self.package.finish()


class WeightsAndBiases(_Service):
    """A run under `wandb/` in the run's folder; `wandb sync` sends it away, later, or
    WANDB_MODE=online does at once."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], step: int) -> None:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self.package = wandb
        self.run = wandb.init(
            project="minitorch",
            name=folder.name,
            dir=str(folder),
            config=dict(settings),
            mode=mode,
            settings=wandb.Settings(silent=True),
        )


class Trackio(_Service):
    """A run where Trackio keeps its own (TRACKIO_DIR); `trackio show` shows them."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], step: int) -> None:
        import trackio

        self.package = trackio
        with redirect_stdout(sys.stderr):
            self.run = trackio.init(
                project="minitorch",
                name=folder.name,
                config=dict(settings),
                resume="allow" if step else "never",
                embed=False,
            )


# Name, class, the package to import, and what installs it.
TRACKERS: Mapping[str, tuple[type[Any], str, str]] = MappingProxyType(
    {
        "tensorboard": (TensorBoard, "tensorboardX", "tensorboardX tensorboard"),
        "wandb": (WeightsAndBiases, "wandb", "wandb"),
        "trackio": (Trackio, "trackio", "trackio"),
    }
)


def check_tracker(name: str | None) -> None:
    """Raise a ConfigError unless runs can be tracked by this name (None: by none)."""
    if name is None:
        return
    check_choice("track", name, tuple(TRACKERS))
    _, package, pip = TRACKERS[name]
    if find_spec(package) is None:
        raise ConfigError(
            "track", f"{name} needs the package {package}; pip install {pip}"
        )


@contextmanager
def tracked(reporter: Reporter, run: minitorch.train.running.Run) -> Iterator[None]:
    """Within this, what `run` records through `reporter` is kept in its folder.

    A resumed run keeps the lines of the one that it goes on with, as far as that
    one's checkpoint; the rest it measures again.
    """
    config, folder, step = run.config, run.folder, run.step
    earlier: list[dict[str, Any]] = []
    if config.resume is not None:
        before = Path(config.resume)
        before = before if before.is_dir() else before.parent
        earlier = [row for row in read_metrics(before / METRICS) if row["step"] <= step]
    with ExitStack() as stack:
        trackers: list[Tracker] = [JsonLines(folder / METRICS, earlier)]
        stack.callback(trackers[0].close)
        if config.track is not None:
            settings = {**config.to_json(), "out": str(folder)}
            trackers.append(TRACKERS[config.track][0](folder, settings, step))
            stack.callback(trackers[1].close)
        reporter.trackers = trackers
        run.on_record = reporter.record
        yield


def measured(row: Any) -> dict[str, float]:
    """The finite numbers of a row; only these can be drawn, and are JSON."""
    numbers = {k: v for k, v in asdict(row).items() if v is not None}
    return {k: v for k, v in numbers.items() if k != "step" and math.isfinite(v)}


def weights_and_gradients(model: Any) -> dict[str, npt.NDArray[np.float32]]:
    """All finite numbers of each parameter and of its gradient, where it has one."""
    found = {}
    for name, parameter in model.named_parameters():
        for kind, value in ("weights", parameter), ("gradients", parameter.grad):
            if value is not None:
                numbers = value.detach().float().cpu().numpy().ravel()
                found[f"{kind}/{name}"] = numbers[np.isfinite(numbers)]
    return {name: numbers for name, numbers in found.items() if len(numbers)}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`; none if there is no such file. The last one of a
    run that was killed may be half a line, which is left out."""
    rows = []
    text = path.read_text("utf-8", "replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows
