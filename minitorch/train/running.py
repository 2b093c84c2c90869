"""How the steps of a run are run, and how a run ends before its end.

With this file one can get a step ready (`prepared`: as a CUDA graph, or under the
profiler), keep all that a run remembers in checkpoints and let Ctrl-C stop it between
two steps (`Run`), and tell the user how to go on when a GPU has failed (`explained`).
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from minitorch.backend.registry import split_name
from minitorch.cuda_graphs import is_device_error, make_graphed_step
from minitorch.random import default_generator
from minitorch.train.checkpoint import BEST, LAST, all_finite, save_checkpoint
from minitorch.train.profiled import profiled_step
from minitorch.train.tracking import measured

# Seconds between looks at the results of steps. Reading a loss makes a GPU wait, and
# drawing a progress bar takes a millisecond.
LOOK_EVERY = 0.2
# Seconds that a rank has for its last checkpoint; torchrun gives it 30.
GRACE = 20.0
STOPPING = "stopping after this step (Ctrl-C again: at once, without a checkpoint)"


class DeviceFailed(RuntimeError):
    """The GPU cannot be used any more; `folder` has the last checkpoint."""


class Interrupted(KeyboardInterrupt):
    """The user (or the system) asked to stop; a checkpoint was written.

    `signum` is the signal, `folder` where the checkpoint is.
    """

    def __init__(self, signum: int, folder: Path) -> None:
        self.signum, self.folder = signum, folder
        super().__init__(f"stopped by signal {signum}; resume={str(folder)!r} goes on")


class Diverged(RuntimeError):
    """The loss became infinite or not a number."""


@dataclass(kw_only=True)
class Run:
    """What all runs have in common: checkpoints, and an end when one is asked for.

    A derived class is a dataclass that says more about `config` and `history`.

    Attributes:
        folder: where its checkpoints are.
        step: how many steps were taken in all.
        history: what was measured so far.
        first_step: when the first step of this process was done (perf_counter).
        stop_signal: the signal that asked it to stop, if one did.
        writes: whether the files of the run that one rank writes are written here.
        ranks: how many share the run.
        on_record: called with a step, what was measured after it, and the model or
            None; see `Reporter.record`.
    """

    config: Any
    model: Any
    optimizer: Any
    scheduler: Any
    folder: Path
    step: int = 0
    history: list[Any] = field(default_factory=list)
    first_step: float | None = None
    stop_signal: int | None = None
    writes: bool = True
    ranks: int = 1
    on_record: Callable[..., None] = lambda step, numbers, model: None

    def __post_init__(self) -> None:
        self._clock = self._looked = self._saved = time.perf_counter()

    # --------------------------------------------- what a derived class has to say

    def look(self, warm: bool = True) -> None:
        """Read the results of the steps since the last look. Raises Diverged."""
        raise NotImplementedError(f"{type(self).__name__} must define look()")

    def _diverged(self, what: str) -> Diverged:
        """The error that says what happened, and what to do."""
        raise NotImplementedError(f"{type(self).__name__} must define _diverged(what)")

    def own_state(self) -> dict[str, Any]:
        """What its checkpoints have besides."""
        return {}

    def any_rank(self, yes: bool) -> bool:
        """Whether it is so on any rank."""
        return yes

    def agreed(self, late: bool, stop: int | None) -> tuple[bool, int | None]:
        """Whether a checkpoint is due, and the signal to stop: what all ranks say."""
        return late, stop

    # ------------------------------------------------------------------------ steps

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return self.optimizer.param_groups[0]["lr"]

    def step_done(self, look: bool = False) -> None:
        """Look on a few times a second, and write checkpoints when they are due.

        Raises Diverged, and Interrupted if a signal came.
        """
        now = time.perf_counter()
        if self.first_step is None:
            self.look(warm=False)
            self.first_step = now
        elif look or now - self._looked > LOOK_EVERY:
            self.look()
        seconds, steps = self.config.checkpoint_every, self.config.checkpoint_steps
        late, stop = self.agreed(0 < seconds < now - self._saved, self.stop_signal)
        if late or stop is not None or (steps and self.step % steps == 0):
            self.save()
        if stop is not None:
            raise Interrupted(stop, self.folder)

    def add_row(self, row: Any, best: bool) -> None:
        """Keep a measurement and a checkpoint, also as the best one if it is that."""
        self._clock = time.perf_counter()  # measuring was no training
        self.history.append(row)
        self.on_record(self.step, measured(row), self.model)
        if best:
            self.save(BEST)
        self.save()

    # ------------------------------------------------------------------ checkpoints

    def save(self, name: str = LAST) -> None:
        """Write a checkpoint of this moment, which is between two steps."""
        self.look()
        weights = self.model.state_dict()
        if self.any_rank(not all_finite(weights)):
            raise self._diverged("a weight became infinite")
        state = {
            "config": self.config.to_json(),
            "step": self.step,
            "history": [asdict(row) for row in self.history],
            "generator": default_generator.get_state(),
            "model": dict(weights),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            **self.own_state(),
        }
        save_checkpoint(self.folder / name, state, self.ranks)
        self._clock = self._saved = time.perf_counter()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to where a checkpoint was written."""
        self.step = state["step"]
        default_generator.set_state(state["generator"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])

    # ----------------------------------------------------------------- interruption

    def stop_if_asked(self) -> None:
        """Raise Interrupted if a signal came. A checkpoint was just written."""
        if self.stop_signal is not None:
            raise Interrupted(self.stop_signal, self.folder)

    @contextmanager
    def stoppable(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Within this, Ctrl-C (or SIGTERM) stops after the step that is being taken.

        In the middle of a step some weights are new and some are old, which would make
        a bad checkpoint. A second Ctrl-C does not wait.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(signum: int, frame: FrameType | None) -> None:
            if self.stop_signal is not None:
                raise KeyboardInterrupt
            self.stop_signal = signum
            tell(STOPPING)
            if self.ranks > 1:  # the step has no end if another rank is gone
                late = threading.Timer(GRACE, os._exit, (128 + signum,))
                late.daemon = True
                late.start()

        signals = (signal.SIGINT, signal.SIGTERM)
        before = {s: signal.signal(s, ask) for s in signals}
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)


@contextmanager
def prepared(
    step: Callable[..., Any], config: Any, folder: Path, tell: Callable[[str], None]
) -> Iterator[Callable[..., Any]]:
    """`step`, watched by the profiler if the user wants that; on a GPU as a CUDA graph,
    unless the user wants none.

    Until the end Python's garbage collector leaves alone what is there at the
    beginning: imports leave 150,000 objects, and in short steps it would walk along
    them for up to a tenth of the time.
    """
    first = gc.get_freeze_count() == 0  # or somebody else has chosen
    if first:
        gc.collect()  # what is to be dropped would stay, too
        gc.freeze()
    try:
        with _chosen(step, config, folder, tell) as run:
            yield run
    finally:
        if first:
            gc.unfreeze()


def _chosen(
    step: Callable[..., Any], config: Any, folder: Path, tell: Callable[[str], None]
) -> AbstractContextManager[Callable[..., Any]]:
    if config.profile:
        return profiled_step(step, folder, tell)
    if split_name(config.device)[0] != "cuda" or not config.graph:
        return nullcontext(step)

    def refused(reason: str) -> None:
        tell(f"training without a CUDA graph: {reason}")

    return nullcontext(make_graphed_step(step, refused))


@contextmanager
def explained(config: Any, folder: Path) -> Iterator[None]:
    """Within this, an error of the GPU says what is not lost. Raises DeviceFailed."""
    try:
        yield
    except RuntimeError as error:
        if split_name(config.device)[0] != "cuda" or not is_device_error(error):
            raise
        raise DeviceFailed(
            f"{error}. The last checkpoint in {folder} is complete; to go on from it: "
            f"minitorch train {config.recipe} --resume {folder}"
        ) from error
