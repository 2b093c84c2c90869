"""What a training run says while it runs.

With this file one can watch a run: `LiveReporter` draws a progress bar on a terminal,
`PlainReporter` prints a line for each epoch (for files and pipes: no control codes),
`Reporter` itself only warns. `make_reporter` chooses.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitorch.train.tracking import Measured, Tracker, weights_and_gradients

if TYPE_CHECKING:
    from minitorch.train.session import Epoch, Meter

# A run of many short epochs prints only about this many lines.
MOST_LINES = 20
COMPILING = "first step: compiling kernels"


class Reporter:
    """What a run tells to those who watch it; this one says nothing but warnings.

    `trackers` are programs that watch, and get what is recorded.
    """

    trackers: Sequence[Tracker] = ()

    def note(self, text: str) -> None:
        """Something to know before or after the training."""

    def warn(self, text: str) -> None:
        """What must not go unnoticed, however quiet the run is."""
        print(text, file=sys.stderr, flush=True)

    def start(self, examples: int, epochs: int) -> None:
        """Training begins; an epoch has so many examples."""

    def begin(self, label: str, total: int, text: str = COMPILING) -> None:
        """The same, for a run that is counted in something else than epochs."""

    def draw(self, label: str, done: int, text: str) -> None:
        """How far it has come, of `total`."""

    def look(self, epoch: int, meter: Meter) -> None:
        """How far epoch number `epoch` has come; called a few times a second."""

    def testing(self, epoch: int) -> None:
        """The epoch is over, the network is being measured."""

    def end_epoch(self, row: Epoch) -> None:
        """The numbers of an epoch."""

    def stop(self) -> None:
        """Training is over, for whatever reason."""

    def record(
        self,
        step: int,
        numbers: Mapping[str, float],
        model: Any = None,
        pictures: Sequence[Path] = (),
    ) -> None:
        """What was measured after `step` steps, for trackers: numbers by name, the
        model (for its weights and gradients), and pictures in files."""
        wanted = any(tracker.wants_arrays for tracker in self.trackers)
        arrays = weights_and_gradients(model) if model and wanted else {}
        for tracker in self.trackers:
            tracker.write(Measured(step, numbers, arrays, pictures))


class SilentReporter(Reporter):
    """One that leaves even warnings to another rank."""

    def warn(self, text: str) -> None: ...


def make_reporter(quiet: bool) -> Reporter:
    """The reporter for where the output goes."""
    if quiet:
        return Reporter()
    return LiveReporter() if sys.stdout.isatty() else PlainReporter()


class PlainReporter(Reporter):
    """One line for each epoch, or for every second, third, ... if there are many."""

    def note(self, text: str) -> None:
        print(text, flush=True)

    def start(self, examples: int, epochs: int) -> None:
        self.epochs = epochs
        self.every = -(-epochs // MOST_LINES)

    def end_epoch(self, row: Epoch) -> None:
        if row.epoch % self.every == 0 or row.epoch == self.epochs:
            print(epoch_line(row, self.epochs), flush=True)


class LiveReporter(Reporter):
    """A progress bar for the epoch that runs, and a line for each that is over.

    It is drawn when `look` is called and at no other time: no thread competes with
    the kernels.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(highlight=False)
        self.bar: Any = None

    def note(self, text: str) -> None:
        self.console.print(text, markup=False)

    def start(self, examples: int, epochs: int) -> None:
        self.examples, self.epochs = examples, epochs
        self.every = -(-epochs // MOST_LINES)
        self.begin(f"epoch 1/{epochs}", examples)

    def begin(self, label: str, total: int, text: str = COMPILING) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self.bar = Progress(
            TextColumn("[bold]{task.fields[label]}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            console=self.console,
            auto_refresh=False,
            expand=True,
            transient=True,
        )
        self.bar.start()
        self.task = self.bar.add_task(text, total=total, label=label)
        self.bar.refresh()

    def look(self, epoch: int, meter: Meter) -> None:
        if self.bar is None or not meter.examples:
            return  # a checkpoint before the first step looks, too
        left = (self.examples - meter.examples) / max(meter.rate, 1e-9)
        text = (
            f"loss {meter.mean_loss:.4f}  accuracy {meter.accuracy:7.2%}  "
            f"{meter.rate:,.0f} examples/s  {left:,.0f} s left"
        )
        self.draw(f"epoch {epoch}/{self.epochs}", meter.examples, text)

    def testing(self, epoch: int) -> None:
        if self.examples >= 1000:  # else it is over before one can read it
            of = f"epoch {epoch}/{self.epochs}"
            self.draw(of, self.examples, "measuring on the test examples")

    def draw(self, label: str, done: int, text: str) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=done, description=text, label=label)
            self.bar.refresh()

    def end_epoch(self, row: Epoch) -> None:
        if row.epoch % self.every == 0 or row.epoch == self.epochs:
            self.bar.console.print(epoch_line(row, self.epochs), markup=False)

    def stop(self) -> None:
        self.bar.stop()


def epoch_line(row: Epoch, epochs: int) -> str:
    """The numbers of an epoch in one line."""
    return (
        f"epoch {row.epoch:{len(str(epochs))}}/{epochs}  "
        f"loss {row.train_loss:.4f}  accuracy {row.train_accuracy:.2%}  "
        f"test loss {row.test_loss:.4f}  test accuracy {row.test_accuracy:.2%}  "
        f"{row.seconds:.1f} s  {row.examples_per_second:,.0f} examples/s"
    )
