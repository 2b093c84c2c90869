"""The page "Digits": what a convolutional network sees in a digit that one draws.

With this file one can train the network of `minitorch train mnist` on MNIST, where that
is on this machine, else on digits that the library draws (`DigitsPage`), and look at
its probabilities and at the planes behind each convolution (`seen`).
"""

from __future__ import annotations

import base64
import binascii
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import minitorch.nn.functional as F
from minitorch import nn
from minitorch.autodiff import no_grad
from minitorch.creation import from_numpy
from minitorch.data import load_digits
from minitorch.lab.questions import packed, text, whole
from minitorch.lab.training import Trainer
from minitorch.train import TrainConfig, load_checkpoint, train
from minitorch.train.checkpoint import find_checkpoint
from minitorch.train.models import build_model
from minitorch.train.progress import Reporter
from minitorch.train.tasks import normalize_digits

EXAMPLES = 12_000  # to train on


def load_model(path: str | Path) -> nn.Module:
    """The network of a `minitorch train mnist`.

    Raises:
        CheckpointError: there is none.
        ValueError: it is the run of another recipe.
    """
    state = load_checkpoint(find_checkpoint(Path(path)))
    choices = state["config"]
    if choices["recipe"] != "mnist":
        raise ValueError(
            f"{path} is a run of `minitorch train {choices['recipe']}`; expected one "
            f"of `minitorch train mnist`"
        )
    model = build_model("mnist", choices["model"], choices["hidden"], "cpu")
    model.load_state_dict(state["model"])
    return model


def centred(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """[28, 28] with its centre of mass in the middle, as MNIST's digits are."""
    total = int(image.sum())
    if not total:
        raise ValueError("nothing is drawn; draw a digit, or take an example")
    for axis in (0, 1):
        mass = image.sum(axis=1 - axis) @ np.arange(28) / total
        image = np.roll(image, round(13.5 - float(mass)), axis)
    return image


@no_grad()
def seen(model: nn.Module, image: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """Probabilities [10], and the planes [channels, h, w] behind each convolution."""
    planes: list[dict[str, Any]] = []

    def keep(module: nn.Module, args: Any, out: Any) -> None:
        values = F.relu(out)[0].numpy()
        top = max(float(values.max()), 1e-9)
        shades = (values * (127 / top)).astype(np.int8)
        planes.append({"shape": list(values.shape), "data": packed(shades)})

    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    handles = [m.register_forward_hook(keep) for m in convolutions]
    try:
        scores = model.eval()(from_numpy(normalize_digits(image[None])))
    finally:
        for handle in handles:
            handle.remove()
    probabilities = F.softmax(scores, dim=1)[0].tolist()
    return {"probabilities": probabilities, "planes": planes}


class DigitsPage(Trainer):
    """What answers for the page; `path`: a run to show."""

    def __init__(self, path: str | Path | None = None) -> None:
        super().__init__(self._train, None if path is None else load_model(path))
        self.questions = {
            "train": self.train,
            "guess": self.guess,
            "example": self.example,
        }

    @cached_property
    def examples(self) -> Any:
        """Test digits: MNIST's where they are on this machine, else drawn ones."""
        return load_digits(train=False, allow_download=False)

    def _train(self, folder: Path, reporter: Reporter) -> nn.Module:
        source = self.examples.source
        config = TrainConfig(
            recipe="mnist", dataset=source, epochs=1, out=folder, plots=False,
            quiet=True, limit=EXAMPLES if source == "mnist" else None,
        )  # fmt: skip
        result = train(config, reporter=reporter)
        name = "MNIST" if source == "mnist" else "digits that the library drew"
        reporter.note(
            f"trained on {name}: {result.test_accuracy:.1%} of new ones right"
        )
        return result.model

    def guess(self, question: dict[str, Any]) -> dict[str, Any]:
        """What the network says of 784 bytes, ink is 255."""
        model = self.ready()
        try:
            raw = base64.b64decode(text(question, "pixels", 2000), validate=True)
        except binascii.Error as error:
            raise ValueError(f"pixels: {error}; expected base64") from None
        if len(raw) != 28 * 28:
            raise ValueError(f"pixels: got {len(raw)} bytes; expected 28 * 28 = 784")
        image = np.frombuffer(raw, np.uint8).reshape(28, 28)
        return seen(model, centred(image))

    def example(self, question: dict[str, Any]) -> dict[str, Any]:
        """A test digit that the network has never seen."""
        digits = self.examples
        i = whole({"number": 0, **question}, "number", 0, 10**6) % len(digits)
        return {"pixels": packed(digits.images[i]), "label": int(digits.labels[i])}
