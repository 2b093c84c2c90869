"""`minitorch launch --ranks 4 -- train gpt --tp 2`: a command, once for each rank.

With this file one can start several processes of `minitorch` that work together, by
torch's launcher, which is all of `torchrun` (for several hosts, call that itself); a
rank that fails ends the others, and is named in one line.
"""

from __future__ import annotations

import logging
import os
import signal
from typing import Annotated

import typer

from minitorch.cli.errors import complain, friendly


def launch(
    command: Annotated[
        list[str], typer.Argument(help="What each rank does, behind --: train gpt ...")
    ],
    ranks: Annotated[int, typer.Option(min=1, help="How many processes.")],
    max_restarts: Annotated[
        int, typer.Option(min=0, help="How often all begin anew behind a failure.")
    ] = 0,
) -> None:
    """Run a command by several processes of this machine that work together."""
    with friendly(None, "minitorch launch"):
        try:
            from torch.distributed import run
            from torch.distributed.elastic.multiprocessing.api import SignalException
            from torch.distributed.elastic.multiprocessing.errors import (
                ChildFailedError,
            )
        except ImportError:
            raise RuntimeError(
                "launch: torch is not installed, whose launcher starts the ranks; "
                "pip install torch"
            ) from None
        logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // ranks)))
        how = [f"--nproc-per-node={ranks}", f"--max-restarts={max_restarts}"]
        program = ["-m", "minitorch.cli", *command]
        try:
            run.run(run.parse_args(["--standalone", *how, *program]))
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            complain(f"rank {rank} of {ranks} {_end(failure.exitcode)}")
            raise typer.Exit(max(failure.exitcode, 1)) from None
        except SignalException as stop:  # Ctrl-C, or SIGTERM, which it has passed on
            complain("stopped, and all ranks with it")
            raise typer.Exit(128 + stop.sigval) from None


def _end(code: int) -> str:
    """How a process ended that was not told to."""
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}; so the others were ended"
    return f"failed (exit code {code}); so the others were ended"
