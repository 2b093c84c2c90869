"""How long do ranks of a pipeline wait for each other?

With this file one can measure it: `python -m minitorch.bench.pipeline --ranks 2`. Each
rank is a process with a core for itself, and some layers of a network, as many as the
others. Printed are, for each schedule and number of micro-batches, the milliseconds of
a step, those in which the busiest rank computes, by how much the first is longer (the
bubble), and what the formula says, (p - 1) / (v m): p ranks, m micro-batches, v stages
on each rank. What is more than that are messages, and ranks that are not equally fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from minitorch.bench.ranks import is_rank, measured, tell, together
from minitorch.executor import Executor, executing

MODULE = "minitorch.bench.pipeline"
KINDS = ("gpipe", 1), ("one_f_one_b", 1), ("interleaved", 2)  # stages of a rank
ROUNDS, LAYERS = 7, 4  # layers of a rank


class Work(Executor):
    """Adds up the seconds of forward and backward passes of micro-batches, without
    those in which they wait for a message."""

    def __init__(self) -> None:
        self.seconds, self.within = 0.0, False

    def operation(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        passes = name.startswith(("F ", "B "))
        if not passes and not (self.within and name.endswith(": wait")):
            return run(*args)
        began, self.within = time.perf_counter(), passes
        out = run(*args)
        took, self.within = time.perf_counter() - began, not passes
        self.seconds += took if passes else -took
        return out


def pipeline(kind: str, chunks: int, count: int, rows: int, width: int) -> Any:
    """A step of `count` micro-batches of so many rows."""
    from minitorch import nn, ones
    from minitorch.distributed import get_rank, get_world_size
    from minitorch.distributed.pipelining import Pipeline, PipelineStage, schedules
    from minitorch.nn.functional import mse_loss

    ranks, me = get_world_size(), get_rank()
    more = (chunks,) if chunks > 1 else ()
    schedule = getattr(schedules, kind)(ranks, count, *more)
    like, stages = ones(rows, width), []
    for chunk in range(chunks):
        layers = [nn.Linear(width, width) for _ in range(LAYERS // chunks)]
        index, n = chunk * ranks + me, ranks * chunks
        stages.append(PipelineStage(nn.Sequential(*layers), index, n, input_args=like))
    whole, batch = Pipeline(stages, schedule, mse_loss), ones(rows * count, width)
    return lambda: whole.step(batch, batch)


def rank(rows: int, width: int) -> list[list[Any]]:
    """A line for each schedule: its name, m, v, and seconds of a step and of work, in
    the fastest round."""
    from minitorch.distributed import all_gather_object, get_world_size

    found, ranks = [], get_world_size()
    for kind, chunks in KINDS:
        for count in (ranks, 2 * ranks, 4 * ranks):
            step, work = pipeline(kind, chunks, count, rows, width), Work()
            step()  # kernels are compiled
            times = []
            for _ in range(ROUNDS):
                work.seconds = 0.0
                with executing(work):
                    took = together(step, 1, "cpu")
                every: list[Any] = [None] * ranks
                all_gather_object(every, (took, work.seconds))
                times.append([max(column) for column in zip(*every)])
            found.append([kind, count, chunks, *min(times)])
    return found


def compare(
    ranks: Annotated[int, typer.Option(min=2, help="A core for each.")] = 2,
    rows: Annotated[int, typer.Option(min=1, help="Of a micro-batch.")] = 256,
    width: Annotated[int, typer.Option(min=1, help="Of the layers.")] = 512,
) -> None:
    """Print a table of bubbles."""
    print("| schedule | m | v | step, ms | at work | bubble | (p - 1) / (v m) |")
    print(f"| --- |{' ---: |' * 6}")
    for kind, count, chunks, took, busy in measured(MODULE, ranks, rows, width):
        said = (ranks - 1) / (chunks * count)
        print(
            f"| {kind} | {count} | {chunks} | {1e3 * took:.1f} | {1e3 * busy:.1f} "
            f"| {took / busy - 1:.3f} | {said:.3f} |"
        )


if __name__ == "__main__":
    tell(rank) if is_rank() else typer.run(compare)
