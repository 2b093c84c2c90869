"""How the steps of a run are run, and how a run ends before its end.

With this file one can get a step ready (`prepared`: as a CUDA graph, or under the
profiler), let Ctrl-C stop a run between two steps (`Stoppable`), and tell the user how
to go on when a GPU has failed (`explained`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from minitorch.backend.registry import split_name
from minitorch.cuda_graphs import is_device_error, make_graphed_step
from minitorch.train.checkpoint import LAST
from minitorch.train.profiled import profiled_step

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


class Stoppable:
    """A run that stops between two steps when it is asked to.

    Attributes:
        folder: where its checkpoints are.
        stop_signal: the signal that asked, if one did.
    """

    folder: Path
    stop_signal: int | None = None

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

        signals = (signal.SIGINT, signal.SIGTERM)
        before = {s: signal.signal(s, ask) for s in signals}
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)


def prepared(
    step: Callable[..., Any], config: Any, folder: Path, tell: Callable[[str], None]
) -> AbstractContextManager[Callable[..., Any]]:
    """`step`, watched by the profiler if the user wants that; on a GPU as a CUDA graph,
    unless the user wants none."""
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
            f"{error}. The checkpoint {folder / LAST} is complete; to go on from it: "
            f"minitorch train {config.recipe} --resume {folder}"
        ) from error
