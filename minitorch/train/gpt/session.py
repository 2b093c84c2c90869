"""All that changes while a GPT learns, and the loop's steps themselves.

With this file one can take a step (`text_step`), measure a model (`mean_loss`), and
keep everything that a run remembers (`GPTSession`), so that a run which was stopped
goes on as if it had not been, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from minitorch import dtypes
from minitorch.amp import GradScaler, autocast
from minitorch.autodiff import no_grad
from minitorch.backend.registry import split_name
from minitorch.data import TokenWindows
from minitorch.models import GPT
from minitorch.nn.utils import clip_grad_norm_
from minitorch.optim import AdamWScheduleFree
from minitorch.tensor import Tensor
from minitorch.train.checkpoint import LAST, last_checkpoint
from minitorch.train.gpt.config import GPTTrainConfig
from minitorch.train.running import Diverged, Run

# What random numbers are for: keys of `TokenWindows.draw`, beside the seed.
STEPS, TRAIN_LOSS, VAL_LOSS = 0, 1, 2
# Steps between questions of ranks to each other, for which a GPU has to wait.
AGREE_EVERY = 8


def lowered(config: GPTTrainConfig) -> AbstractContextManager[Any]:
    """A region, to be entered as often as one likes, in which products have the run's
    dtype."""
    assert config.device and config.dtype
    if config.dtype == "float32":
        return nullcontext()
    return autocast(split_name(config.device)[0], getattr(dtypes, config.dtype))


def text_step(
    model: GPT,
    optimizer: Any,
    clip: float,
    x: Tensor,
    y: Tensor,
    scaler: GradScaler | None = None,
    region: AbstractContextManager[Any] | None = None,
) -> Tensor:
    """Learn from A batches as from one: x, y int64 [A, B, T] -> the mean loss [].

    Each is a forward and a backward pass, whose gradients add up: the memory is that of
    one batch. The forward passes are in `region`; the scaler may skip the step.
    """
    scaler = scaler or GradScaler(enabled=False)
    optimizer.zero_grad()
    losses = []
    for ids, targets in zip(x, y):
        with region or nullcontext():
            loss = model.loss(ids, targets) / len(x)
        scaler.scale(loss).backward()
        losses.append(loss.detach())
    if clip:
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), clip)
    scaler.step(optimizer)
    scaler.update()
    return Tensor.stack(losses).sum()


@no_grad()
def mean_loss(
    model: Any, windows: TokenWindows, config: GPTTrainConfig, key: int
) -> float:
    """The mean cross entropy on `eval_batches` batches, the same ones each time."""
    assert config.batch_size and config.eval_batches and config.seed is not None
    training = model.training
    model.eval()
    total = 0.0
    for i in range(config.eval_batches):
        x, y = windows.draw((config.batch_size,), config.seed, key, i)
        with lowered(config):
            total += model.loss(x.to(model.device), y.to(model.device)).item()
    model.train(training)
    return total / config.eval_batches


@dataclass(frozen=True)
class Row:
    """One measurement, after `step` steps.

    Losses are `mean_loss`; `seconds` were spent training since the one before;
    `utilization` is the share of the machine's operations a second that the model's
    make up (see `GPTConfig.flops_per_token`), None where its limit is not known.
    """

    step: int
    train_loss: float
    val_loss: float
    lr: float
    seconds: float
    tokens_per_second: float
    utilization: float | None


@dataclass(kw_only=True)
class GPTSession(Run):
    """A model that learns, and all that it takes.

    Attributes:
        model: a GPT, or a `SharedGPT`.
        peak: operations a second that the machine can do; None: not known.
        on_look: called a few times a second.
        history: the measurements so far.
        loss: the mean loss of the last few steps.
        kept: the weights that are trained, while others stand in for them.
    """

    config: GPTTrainConfig
    history: list[Row] = field(default_factory=list)
    scaler: GradScaler
    peak: float | None
    on_look: Callable[[GPTSession], None]
    loss: float = math.nan
    kept: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sum: Any = None
        self._steps = self._warm_steps = 0  # since the last look, measurement
        self._seconds = self._warm_seconds = 0.0
        super().__post_init__()

    @property
    def rate(self) -> float:
        """Tokens a second, without the first step, in which kernels are compiled."""
        c = self.config
        assert c.batch_size and c.accumulate and c.block_size
        tokens = c.batch_size * c.accumulate * c.block_size * self._warm_steps
        return tokens / self._warm_seconds if self._warm_seconds else 0.0

    @property
    def utilization(self) -> float | None:
        """See `Row`."""
        if self.peak is None or not self.rate:
            return None
        flops = self.model.config.flops_per_token()
        return self.rate * flops / (self.peak * self.ranks)

    def start_clock(self) -> None:
        """What comes now is training."""
        self._clock = time.perf_counter()

    def after_step(self, loss: Tensor) -> None:
        """What the loop calls when a step is done. Raises Diverged, Interrupted."""
        self.step += 1
        self._steps += 1
        # A graph will overwrite the tensor; and to read it would make a GPU wait.
        self._sum = loss.detach() + (0.0 if self._sum is None else self._sum)
        self.step_done()

    def look(self, warm: bool = True) -> None:
        """Read the losses since the last look. Raises Diverged."""
        if self._steps:
            self.loss = self._sum.item() / self._steps
            if not math.isfinite(self.loss):
                raise self._diverged(f"the loss became {self.loss}")
            self.on_record(self.step, {"loss": self.loss, "lr": self.lr}, None)
        now = time.perf_counter()
        self._seconds += now - self._clock
        if warm:
            self._warm_seconds += now - self._clock
            self._warm_steps += self._steps
        self._sum, self._steps = None, 0
        self._clock = self._looked = now
        self.on_look(self)

    def _diverged(self, what: str) -> Diverged:
        last, lr = last_checkpoint(self.folder), self.config.lr or self.lr
        kept = f"; the last good checkpoint is {last}" if last else ""
        return Diverged(
            f"training: {what} until step {self.step}, at a learning rate of "
            f"{self.lr:.3g}. The steps were too large: try --lr {lr / 10:.3g}, or a "
            f"longer --warm-up{kept}"
        )

    def measured(self, train_loss: float, val_loss: float) -> Row:
        """Keep a measurement, and a checkpoint: of the best model, if it is that."""
        row = Row(
            step=self.step,
            train_loss=train_loss,
            val_loss=val_loss,
            lr=self.lr,
            seconds=self._seconds,
            tokens_per_second=self.rate,
            utilization=self.utilization,
        )
        self._warm_steps, self._seconds, self._warm_seconds = 0, 0.0, 0.0
        best = min((r.val_loss for r in self.history), default=math.inf)
        self.add_row(row, val_loss < best)
        return row

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within this, the weights are their average, if the optimizer makes one.

        Behind it they are what they were, to the bit: measuring changes nothing.
        """
        if self.kept or not isinstance(self.optimizer, AdamWScheduleFree):
            yield
            return
        self.kept = [p.detach().clone() for p in self.model.parameters()]
        self.optimizer.eval()
        try:
            yield
        finally:
            self._train_on()

    @no_grad()
    def _train_on(self) -> None:
        """Let the weights be `kept`."""
        if self.kept:
            self.optimizer.train()
        for p, before in zip(self.model.parameters(), self.kept):
            p.copy_(before.to(p.device))
        self.kept = []

    # ----------------------------------------------------------- checkpoints

    def any_rank(self, yes: bool) -> bool:
        if self.ranks == 1:
            return yes
        from minitorch.distributed.objects import highest

        return bool(highest(int(yes)))

    def agreed(self, late: bool, stop: int | None) -> tuple[bool, int | None]:
        if self.ranks == 1:
            return late, stop
        if self.step % AGREE_EVERY:
            return False, None
        from minitorch.distributed.objects import highest

        return self.any_rank(late), highest(stop or 0) or None

    def save(self, name: str = LAST) -> None:
        with self.averaged():
            super().save(name)

    def own_state(self) -> dict[str, Any]:
        return {
            "model_config": asdict(self.model.config),
            "scaler": self.scaler.state_dict(),
            "kept": self.kept,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.history = [Row(**row) for row in state["history"]]
        self.scaler.load_state_dict(state["scaler"])
        self.kept = state["kept"]
        self._train_on()
