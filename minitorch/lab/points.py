"""The page "Points": a network learns points in the plane, and one watches it.

With this file one can let a worker train (`PointsPage`): the loop is
`minitorch.train.train_epoch`, which tells a reporter how far it is. Each look shows the
decision boundary, the loss, and the weights and gradients of every layer.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from minitorch import nn
from minitorch.autodiff import no_grad
from minitorch.creation import from_numpy
from minitorch.data import POINT_DATASETS, DataLoader, Points
from minitorch.lab.questions import choice, number, packed, whole
from minitorch.lab.server import Channel
from minitorch.random import manual_seed
from minitorch.tensor import Tensor
from minitorch.train import Epoch, TrainConfig, evaluate, train_epoch
from minitorch.train.progress import Reporter
from minitorch.train.recipes import make_optimizer
from minitorch.train.session import Meter
from minitorch.train.tasks import ArrayDataset, scale_points

ACTIVATIONS: Mapping[str, type[nn.Module]] = MappingProxyType(
    {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}
)
OPTIMIZERS = ("adamw", "adam", "sgd")
BATCH, TEST_POINTS = 32, 500
SIDE = 48  # places of the plane, in each direction, at which the network is asked
LOOK_EVERY = 1 / 15  # seconds


@dataclass
class Choices:
    """What one can choose; `lr` and `speed` (steps a second) while it trains, too."""

    dataset: str = "moons"
    points: int = 500
    noise: float = 0.02
    layers: int = 2
    width: int = 8
    activation: str = "tanh"
    optimizer: str = "adamw"
    lr: float = 0.01
    speed: int = 100
    seed: int = 0

    @staticmethod
    def of(question: dict[str, Any]) -> Choices:
        """Those of a question; what it does not name is as above."""
        q = {**asdict(Choices()), **question}
        return Choices(
            dataset=choice(q, "dataset", POINT_DATASETS),
            points=whole(q, "points", 10, 10_000),
            noise=number(q, "noise", 0.0, 0.2),
            layers=whole(q, "layers", 0, 6),
            width=whole(q, "width", 1, 32),
            activation=choice(q, "activation", ACTIVATIONS),
            optimizer=choice(q, "optimizer", OPTIMIZERS),
            lr=number(q, "lr", 1e-5, 10.0),
            speed=whole(q, "speed", 1, 10_000),
            seed=whole(q, "seed", 0, 2**31),
        )


def draw(choices: Choices) -> tuple[Points, Points]:
    """The points to learn, and others to test on; `noise` is a standard deviation."""
    n = choices.points
    clean = POINT_DATASETS[choices.dataset](n + TEST_POINTS, choices.seed)
    moved = np.random.default_rng(choices.seed).normal(0, choices.noise, clean.x.shape)
    x = (clean.x + moved).clip(0, 1 - 1e-6).astype(np.float32)
    return Points(x[:n], clean.y[:n]), Points(x[n:], clean.y[n:])


def build(choices: Choices) -> nn.Sequential:
    """x [N, 2] -> scores [N, 2], with `layers` hidden layers of `width` units."""
    manual_seed(choices.seed)
    parts: list[nn.Module] = []
    size = 2
    for _ in range(choices.layers):
        parts += [nn.Linear(size, choices.width), ACTIVATIONS[choices.activation]()]
        size = choices.width
    return nn.Sequential(*parts, nn.Linear(size, 2))


class Stopped(Exception):
    """Another run takes the place of this one."""


class Telling(Reporter):
    """The loop's reporter that tells the page."""

    def __init__(self, run: PointsRun) -> None:
        self.run = run

    def look(self, epoch: int, meter: Meter) -> None:
        self.run.shown = self.run.snapshot()
        self.run.publish(self.run.shown)

    def end_epoch(self, row: Epoch) -> None:
        self.run.test = {"loss": row.test_loss, "accuracy": row.test_accuracy}

    def warn(self, text: str) -> None:
        self.run.publish({"kind": "error", "error": text})


class PointsRun(threading.Thread):
    """A worker that trains one network, as fast and as long as it is told to."""

    def __init__(self, choices: Choices, channel: Channel) -> None:
        super().__init__(daemon=True)
        self.choices, self.channel = choices, channel
        self.data, test = draw(choices)
        self.loader = self._loader(self.data, shuffle=True)
        self.test_loader = self._loader(test, shuffle=False)
        self.reporter = Telling(self)
        self.steps, self.epoch, self.meter = 0, 0, Meter()
        self.recent = Meter()  # of the steps since the last look
        self.last: dict[str, float | None] = {"loss": None, "accuracy": None}
        self.test: dict[str, float | None] = {"loss": None, "accuracy": None}
        self.playing = self.stopped = False
        self.wanted = 0  # steps to take although it pauses
        self.looked = self.due = 0.0
        self.changed = threading.Condition()
        self.shown: dict[str, Any] | None = None  # what was told last

    def _loader(self, points: Points, shuffle: bool) -> DataLoader:
        examples = ArrayDataset(points.x, points.y, scale_points, "cpu")
        size = BATCH if shuffle else TEST_POINTS
        return DataLoader(examples, size, shuffle=shuffle, seed=self.choices.seed)

    # ---------------------------------------------------------------- in the worker

    def run(self) -> None:
        try:
            self._prepare()
            self._wait()
            while True:
                train_epoch(
                    self.model, self.loader, self.optimizer, self, "cpu",
                    self._after_step,
                )  # fmt: skip
                self._end_epoch()
        except Stopped:
            pass
        except Exception as error:
            self.reporter.warn(str(error))
            self.tell(playing=False)

    def _prepare(self) -> None:
        """What takes seconds where kernels must be compiled first."""
        self.model = build(self.choices)
        config = TrainConfig(optimizer=self.choices.optimizer, lr=self.choices.lr)
        self.optimizer = make_optimizer(self.model, config, steps=1)
        side = (np.arange(SIDE, dtype=np.float32) + 0.5) / SIDE
        grid = np.stack(np.meshgrid(side, side), axis=-1, dtype=np.float32)
        self.places = from_numpy(scale_points(grid.reshape(-1, 2)))
        self._look()

    def step(self) -> None:
        """The schedule of the learning rate: what is chosen at the moment."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.choices.lr

    def _after_step(self, loss: Tensor, right: Tensor, examples: int) -> None:
        self.steps += 1
        value = float(loss.item())
        for meter in (self.meter, self.recent):
            meter.add(value, int(right.item()), examples, self.choices.lr)
        if not math.isfinite(value):
            raise ValueError(
                f"the loss became {value} in step {self.steps}: the steps were too "
                f"large. Choose a smaller learning rate, and reset"
            )
        if time.perf_counter() - self.looked > LOOK_EVERY:
            self._look()
        self._wait()

    def _end_epoch(self) -> None:
        test = evaluate(self.model, self.test_loader, "cpu")
        meter, self.meter, self.epoch = self.meter, Meter(), self.epoch + 1
        row = Epoch(
            self.epoch, meter.mean_loss, meter.accuracy, test.loss, test.accuracy,
            meter.lr, meter.seconds, meter.rate,
        )  # fmt: skip
        self.reporter.end_epoch(row)

    def _look(self) -> None:
        self.looked = time.perf_counter()
        self.reporter.look(self.epoch + 1, self.meter)

    def _wait(self) -> None:
        """Until the next step is due; while it pauses, or nobody looks, that is never.

        Raises:
            Stopped: there will be none.
        """
        with self.changed:
            while not (self.stopped or self.wanted):
                now = time.perf_counter()
                plays = self.playing and self.channel.listeners
                if plays and now >= self.due:
                    break
                if not plays and self.recent.examples:
                    self._look()  # so that a pause shows where it stopped
                self.changed.wait(min(self.due - now, 1.0) if plays else 1.0)
            if self.stopped:
                raise Stopped
            self.wanted = max(0, self.wanted - 1)
            late = time.perf_counter() - 0.1  # time that is lost is not caught up
            self.due = max(self.due, late) + 1 / self.choices.speed

    # --------------------------------------------------------------- for the server

    def tell(self, **changes: Any) -> None:
        """Set attributes, and let the worker and the page see them at once."""
        with self.changed:
            for name, value in changes.items():
                setattr(self, name, value)
            self.changed.notify()
            self.publish({"kind": "plays", "playing": self.playing})

    def publish(self, news: dict[str, Any]) -> None:
        """Tell the page, unless another run has taken the place of this one."""
        with self.changed:
            if not self.stopped:
                self.channel.publish(news)

    def change(self, lr: float, speed: int) -> None:
        """Other choices while it trains."""
        self.choices.lr, self.choices.speed = lr, speed
        self.tell(due=0.0)

    # ---------------------------------------------------------------------- looks

    def start_news(self) -> dict[str, Any]:
        """All that a page needs to begin: the points and the choices."""
        spots = (self.data.x * 65536).astype("<u2")
        return {
            "kind": "start",
            "choices": asdict(self.choices),
            "points": packed(spots),
            "labels": packed(self.data.y.astype(np.uint8)),
            "side": SIDE,
        }

    def snapshot(self) -> dict[str, Any]:
        """The boundary, the loss and the layers as they are now."""
        if self.recent.examples:
            recent, self.recent = self.recent, Meter()
            self.last = {"loss": recent.mean_loss, "accuracy": recent.accuracy}
        with no_grad():
            p = nn.functional.softmax(self.model(self.places), dim=1)[:, 1].numpy()
        linear = [part for part in self.model if isinstance(part, nn.Linear)]
        return {
            "kind": "look",
            "step": self.steps,
            "epoch": self.steps / len(self.loader),
            "train": self.last,
            "test": self.test,
            "grid": packed((p * 255).round().clip(0, 255).astype(np.uint8)),
            "layers": [layer_news(part) for part in linear],
        }


def layer_news(layer: nn.Linear) -> dict[str, Any]:
    """The weights [out, in] of a layer and their gradients, as bytes for pictures."""
    weight = layer.weight.detach().numpy()
    grad = None if layer.weight.grad is None else layer.weight.grad.numpy()
    news = {"shape": list(weight.shape), "weight": _shades(weight)}
    return news if grad is None else {**news, "grad": _shades(grad)}


def _shades(x: npt.NDArray[np.float32]) -> dict[str, Any]:
    """-127 to 127 where `x` is -most to most, and the root of its mean square."""
    most = float(np.abs(x).max(initial=0.0))
    bytes_ = (x * (127 / most if most > 0 else 0.0)).round().astype(np.int8)
    rms = float(np.sqrt(np.square(x, dtype=np.float64).mean()))
    return {"data": packed(bytes_), "most": most, "rms": rms}


class PointsPage:
    """What answers for the page; one run at a time, the newest."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.lock = threading.Lock()
        self.current: PointsRun | None = None
        self.questions = {
            "start": self.start,
            "play": lambda question: self._tell(playing=True),
            "pause": lambda question: self._tell(playing=False, wanted=0),
            "step": self.step,
            "change": self.change,
        }

    @property
    def newest(self) -> PointsRun:
        """The run; one begins, and pauses, where there is none."""
        with self.lock:
            return self.current or self._begin(Choices())

    def start(self, question: dict[str, Any]) -> dict[str, Any]:
        """A new run with these choices; it plays if the one before did."""
        choices = Choices.of(question)
        with self.lock:
            playing = self.current is not None and self.current.playing
            if self.current is not None:
                self.current.tell(stopped=True)
            run = self._begin(choices)
        run.tell(playing=playing)
        return {"choices": asdict(choices), "playing": playing}

    def _begin(self, choices: Choices) -> PointsRun:
        self.current = PointsRun(choices, self.channel)
        self.channel.publish(self.current.start_news())
        self.current.start()
        return self.current

    def step(self, question: dict[str, Any]) -> dict[str, Any]:
        """Pause, and take so many steps."""
        steps = whole({"steps": 1, **question}, "steps", 1, 10_000)
        return self._tell(playing=False, wanted=steps)

    def change(self, question: dict[str, Any]) -> dict[str, Any]:
        """Another learning rate or speed, from the next step on."""
        run = self.newest
        changed = Choices.of({**asdict(run.choices), **question})
        run.change(changed.lr, changed.speed)
        return {"choices": asdict(run.choices)}

    def _tell(self, **changes: Any) -> dict[str, Any]:
        run = self.newest
        run.tell(**changes)
        return {"playing": run.playing, "step": run.steps}

    def listen(self) -> Iterator[dict[str, Any] | None]:
        return self.channel.listen(self._so_far)

    def _so_far(self) -> Iterator[dict[str, Any]]:
        run = self.newest
        yield run.start_news()
        if run.shown is not None:
            yield run.shown
        yield {"kind": "plays", "playing": run.playing}
