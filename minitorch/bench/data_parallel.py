"""How much faster do two ranks of one thread each train MNIST than one?

With this file one can measure it: `python -m minitorch.bench.data_parallel`. One rank
and several take turns; each time all learn from the same batches of 256 digits, of
which a rank has its share, so that both come to the same accuracy. There must be a core
for each rank that does nothing else, so a rank makes its batches itself, without a
loader's thread. What a step costs whatever its batch, a millisecond of calls in Python,
is not shared: with `--batch 128` two ranks gain less.

Printed are the seconds of an epoch (the least of its rounds), how often they go into
those of one rank, the same for ranks that learn at the same time and apart, the
accuracy on the test digits, and of a step: its milliseconds, those of a processor in
the rank's own thread, and those of both in what ranks do together (Python included).
Cores share memory, caches and heat: no sending makes ranks faster than those apart are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any

import typer

from minitorch.bench.ranks import is_rank, measured, tell
from minitorch.executor import Executor, executing

WARM_UP, LOOKED_AT = 3, 100  # steps
MODULE = "minitorch.bench.data_parallel"


class Together(Executor):
    """Adds up the seconds of all-reduces: of the clock, and of a processor."""

    def __init__(self) -> None:
        self.clock = self.busy = 0.0

    def operation(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        if not name.startswith("all_reduce"):
            return run(*args)
        began = time.perf_counter(), time.thread_time()
        out = run(*args)
        self.clock += time.perf_counter() - began[0]
        self.busy += time.thread_time() - began[1]
        return out


def rank(epochs: int, batch: int, limit: int | None, together: bool) -> list[float]:
    """What one rank measures: seconds of the best epoch, the accuracy, and of a step
    the seconds of the clock and of a processor, all and sent.

    Args:
        together: ranks train one model, and not each its own.
    """
    from minitorch import manual_seed
    from minitorch.data import DataLoader, DistributedSampler
    from minitorch.distributed import barrier, get_rank, get_world_size
    from minitorch.nn.parallel import DistributedDataParallel
    from minitorch.optim.lr_scheduler import LambdaLR
    from minitorch.train.config import TrainConfig
    from minitorch.train.loop import evaluate, train_epoch
    from minitorch.train.models import build_model
    from minitorch.train.recipes import fill_in, make_optimizer
    from minitorch.train.schedule import one_cycle
    from minitorch.train.tasks import digits_task

    config: Any = fill_in(TrainConfig("mnist", epochs=epochs, limit=limit))
    task, n = digits_task(config), get_world_size()
    sampler = DistributedSampler(task.train.dataset)
    batches = DataLoader(task.train.dataset, batch // n, sampler=sampler, prefetch=0)
    manual_seed(0)
    model: Any = build_model("mnist", config.model, config.hidden, "cpu")
    manual_seed(get_rank())  # dropout draws its own numbers on each rank
    whole = DistributedDataParallel(model) if together else model
    steps = epochs * len(batches) + WARM_UP + LOOKED_AT
    optimizer = make_optimizer(whole, config, steps)
    scheduler = LambdaLR(optimizer, one_cycle(steps))
    look = lambda loss, right, examples: loss.item()
    learn = lambda some: train_epoch(whole, some, optimizer, scheduler, "cpu", look)
    learn(islice(batches, WARM_UP))  # kernels are compiled
    barrier()
    times = []
    for _ in range(epochs):
        began = time.perf_counter(), time.thread_time()
        learn(batches)
        busy = time.thread_time() - began[1]
        times.append((time.perf_counter() - began[0], busy))
    accuracy = evaluate(model, task.test, "cpu").accuracy
    sent = Together()
    with executing(sent):
        learn(islice(batches, LOOKED_AT))
    seconds, busy = min(times)
    each = seconds / len(batches), busy / len(batches)
    return [seconds, accuracy, *each, sent.clock / LOOKED_AT, sent.busy / LOOKED_AT]


def row(ranks: int, results: list[list[float]], one: float, apart: float) -> str:
    """A line of the table; `one` are the seconds of one rank, `apart` those of as many
    ranks that do not send."""
    seconds, accuracy, *step = min(results)
    times = f"{one / seconds:7.2f} {one / apart:7.2f}"
    numbers = "".join(f"{1e3 * x:9.3f}" for x in step)
    return f"{ranks:5} {seconds:8.2f} {times} {accuracy:9.4f} {numbers}"


def compare(
    ranks: Annotated[int, typer.Option(min=2, help="How many beside one.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="In each turn.")] = 3,
    batch: Annotated[int, typer.Option(help="Digits in a step of all ranks.")] = 256,
    limit: Annotated[int | None, typer.Option(help="Only so many digits.")] = None,
) -> None:
    """Time MNIST on one rank and on several, each with one thread."""
    turns = (1, False), (ranks, True), (ranks, False)
    results: list[list[list[float]]] = [[], [], []]
    for _ in range(rounds):
        for (n, together), found in zip(turns, results, strict=True):
            found.append(measured(MODULE, n, epochs, batch, limit, together))
    alone, sent, apart = results
    one, unsent = min(alone)[0], min(apart)[0]
    head = (
        "ranks  s/epoch   times   apart  accuracy   ms/step     busy  sending     busy"
    )
    lines = head, row(1, alone, one, one), row(ranks, sent, one, unsent)
    print(*lines, sep="\n")


if __name__ == "__main__":
    tell(rank) if is_rank() else typer.run(compare)
