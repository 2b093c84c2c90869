"""What goes on around the training loop: counting, checkpoints, and being interrupted.

With this file one can run a loop that survives anything: a `Session` holds all that
changes during training, looks on after each step, writes checkpoints, and can be put
back to where a checkpoint was written (`restore`), so that the rest of the run comes
out the same, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from minitorch.optim import AdamWScheduleFree
from minitorch.tensor import Tensor
from minitorch.train.checkpoint import last_checkpoint
from minitorch.train.config import TrainConfig
from minitorch.train.running import Diverged, Run

MOST_PENDING = 1024

# How many points the curves of training have.
CURVE_POINTS = 120


class Results:
    """Losses and numbers of right answers, on the device until somebody reads them.

    They are copied out of the tensors of a step, which the next step may overwrite.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[int, float, int]] = []  # number, learning rate, examples
        self.losses: Any = None
        self.rights: Any = None

    def add(
        self, step: int, lr: float, examples: int, loss: Tensor, right: Tensor
    ) -> None:
        """What a step gave; at most MOST_PENDING times between two reads."""
        if self.losses is None:
            self.losses = loss.new_zeros(MOST_PENDING)
            self.rights = right.new_zeros(MOST_PENDING)
        self.losses[len(self.steps)] = loss
        self.rights[len(self.steps)] = right
        self.steps.append((step, lr, examples))

    def full(self) -> bool:
        """Whether they must be read before the next `add`."""
        return len(self.steps) == MOST_PENDING

    def read(self) -> list[tuple[int, float, int, float, int]]:
        """Step, learning rate, examples, loss, right answers of each; forget them."""
        steps, self.steps = self.steps, []
        if not steps:
            return []
        losses, rights = self.losses.numpy().tolist(), self.rights.numpy().tolist()
        return [(*s, loss, right) for s, loss, right in zip(steps, losses, rights)]


@dataclass
class Meter:
    """Sums over the steps of an epoch so far.

    `warm_seconds` and `warm_examples` leave out the first step of a process, in which
    kernels are compiled: they say how fast the rest goes.
    """

    examples: int = 0
    loss: float = 0.0
    correct: int = 0
    seconds: float = 0.0
    warm_examples: int = 0
    warm_seconds: float = 0.0
    lr: float = 0.0

    def add(self, loss: float, correct: int, examples: int, lr: float) -> None:
        """One more step."""
        self.loss += loss * examples
        self.correct += correct
        self.examples += examples
        self.lr = lr

    @property
    def mean_loss(self) -> float:
        return self.loss / max(1, self.examples)

    @property
    def accuracy(self) -> float:
        return self.correct / max(1, self.examples)

    @property
    def rate(self) -> float:
        """Examples per second."""
        if self.warm_examples:
            return self.warm_examples / max(self.warm_seconds, 1e-9)
        return self.examples / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Epoch:
    """The numbers of one epoch. Accuracies are shares, 0 to 1; `seconds` counts
    training only; the training loss is the mean over the steps as they were taken."""

    epoch: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    lr: float
    seconds: float
    examples_per_second: float


@dataclass(kw_only=True)
class Session(Run):
    """All that changes during training, and who watches it.

    Attributes:
        on_look: called with the meter a few times a second.
        history: the numbers of the epochs that are over.
        meter: the sums of the epoch that is not.
        trace: (epochs, loss, accuracy) of training, about CURVE_POINTS of them, for
            curves; `part` has the sums for the next one.
    """

    config: TrainConfig
    history: list[Epoch] = field(default_factory=list)
    loader: Any
    source: str
    on_look: Callable[[Meter], None]
    meter: Meter = field(default_factory=Meter)
    part: Meter = field(default_factory=Meter)
    trace: list[tuple[float, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pending = Results()
        steps = len(self.loader) * (self.config.epochs or 1)
        self.steps_per_point = max(1, steps // CURVE_POINTS)
        super().__post_init__()

    # ----------------------------------------------------------------- steps

    def start_epoch(self) -> None:
        """Start the clock; the sums are those of a checkpoint, or 0."""
        self.averaged(False)
        self._clock = time.perf_counter()

    def after_step(self, loss: Tensor, right: Tensor, examples: int) -> None:
        """What `train_epoch` calls when a step is done."""
        self.step += 1
        self._pending.add(self.step, self.lr, examples, loss, right)
        self.step_done(look=self._pending.full())

    def look(self, warm: bool = True) -> None:
        """Add up the steps since the last look. Raises Diverged."""
        before = self.meter.examples
        for step, lr, n, loss, right in self._pending.read():
            if not math.isfinite(loss):
                raise self._diverged(f"the loss became {loss}", step, lr)
            for meter in (self.meter, self.part):
                meter.add(loss, right, n, lr)
            if step % self.steps_per_point == 0:
                self._add_point(step)
        now = time.perf_counter()
        self.meter.seconds += now - self._clock
        if warm:
            self.meter.warm_seconds += now - self._clock
            self.meter.warm_examples += self.meter.examples - before
        self._clock = self._looked = now
        self.on_look(self.meter)

    def _add_point(self, step: int) -> None:
        part, self.part = self.part, Meter()
        middle = (step - self.steps_per_point / 2) / len(self.loader)
        self.trace.append((middle, part.mean_loss, part.accuracy))
        now = {"loss": part.mean_loss, "accuracy": part.accuracy, "lr": part.lr}
        self.on_record(step, now, None)

    def end_epoch(self, test_loss: float, test_accuracy: float) -> Epoch:
        """Close the epoch, with how the network does on the test examples."""
        meter, self.meter = self.meter, Meter()
        row = Epoch(
            epoch=len(self.history) + 1,
            train_loss=meter.mean_loss,
            train_accuracy=meter.accuracy,
            test_loss=test_loss,
            test_accuracy=test_accuracy,
            lr=meter.lr,
            seconds=meter.seconds,
            examples_per_second=meter.rate,
        )
        best = max((e.test_accuracy for e in self.history), default=-1.0)
        self.add_row(row, test_accuracy > best)
        return row

    def _diverged(
        self, what: str, step: int | None = None, lr: float | None = None
    ) -> Diverged:
        step = self.step if step is None else step
        lr = self.lr if lr is None else lr
        last = last_checkpoint(self.folder)
        kept = f"; the last good checkpoint is {last}" if last else ""
        return Diverged(
            f"training: {what} in step {step}, epoch {len(self.history) + 1}, at a "
            f"learning rate of {lr:.3g}. The steps were too large: try --lr "
            f"{(self.config.lr or lr) / 10:.3g}, or a larger --batch-size{kept}"
        )

    def averaged(self, yes: bool) -> None:
        """Let the weights be their average, for tests, or those that are trained.

        Only where the optimizer averages them; others have nothing to change.
        """
        if isinstance(self.optimizer, AdamWScheduleFree):
            self.optimizer.eval() if yes else self.optimizer.train()

    # ----------------------------------------------------------- checkpoints

    def own_state(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "meter": asdict(self.meter),
            "part": asdict(self.part),
            "trace": self.trace,
            "loader": self.loader.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.history = [Epoch(**row) for row in state["history"]]
        self.meter, self.part = Meter(**state["meter"]), Meter(**state["part"])
        self.trace = list(state["trace"])
        self.loader.load_state_dict(state["loader"])
