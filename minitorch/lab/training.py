"""Recipes of `minitorch train` in the background of a page.

With this file a page can train a model for a minute (`Trainer`), by the recipe that the
command line has, and tell what its reporter says.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitorch.lab.server import Channel
from minitorch.train.progress import COMPILING, Reporter, epoch_line

if TYPE_CHECKING:
    from minitorch.train.session import Epoch, Meter


class Telling(Reporter):
    """The reporter of a recipe; `tell` shows a line of text on the page."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def note(self, text: str) -> None:
        self.tell(text)

    warn = note

    def start(self, examples: int, epochs: int) -> None:
        self.examples, self.epochs = examples, epochs
        self.tell(COMPILING)

    def draw(self, label: str, done: int, text: str) -> None:
        self.tell(f"{label}: {text}")

    def look(self, epoch: int, meter: Meter) -> None:
        if meter.examples:
            done = f"{meter.examples:,} of {self.examples:,} examples"
            self.tell(f"{done}: loss {meter.mean_loss:.3f}, {meter.accuracy:.1%} right")

    def end_epoch(self, row: Epoch) -> None:
        self.tell(epoch_line(row, self.epochs))


class Trainer:
    """A model, once there is one, and who hears how it comes to be.

    Args:
        recipe: trains in a folder and returns what the page needs.
        model: what it needs, where that is there already; None: it must be trained.
    """

    def __init__(
        self, recipe: Callable[[Path, Reporter], Any], model: Any = None
    ) -> None:
        self.recipe, self.model = recipe, model
        self.channel = Channel()
        self.lock = threading.Lock()
        self.worker: threading.Thread | None = None
        self.line = ""

    def train(self, question: dict[str, Any]) -> dict[str, Any]:
        """Begin, unless it is under way; the news tell the rest."""
        with self.lock:
            if self.worker is None or not self.worker.is_alive():
                self.worker = threading.Thread(target=self._work, daemon=True)
                self.worker.start()
        return {"training": True}

    def ready(self) -> Any:
        """The model.

        Raises:
            ValueError: there is none yet.
        """
        if self.model is None:
            raise ValueError("there is no trained model yet; press Train first")
        return self.model

    def listen(self) -> Iterator[dict[str, Any] | None]:
        return self.channel.listen(lambda: [self._state()])

    def _work(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="minitorch-lab-") as folder:
                self._tell("loading the data")
                self.model = self.recipe(Path(folder) / "run", Telling(self._tell))
        except Exception as error:
            self._tell(f"the training failed: {error}")
        self.worker = None
        self.channel.publish(self._state())

    def _tell(self, line: str) -> None:
        self.line = line
        self.channel.publish(self._state())

    def _state(self) -> dict[str, Any]:
        training = self.worker is not None
        ready = self.model is not None
        return {"ready": ready, "training": training, "line": self.line}
