"""How long ranks take to add up a tensor, by its size and by the method.

With this file one can draw it: `python -m minitorch.bench.collectives --ranks 4`, or
with `--device cuda` for GPUs that NCCL joins. Beside each other: our `all_reduce`,
torch's own on the same bytes (both are Gloo, or NCCL), and the three methods of
`minitorch/distributed/classroom.py`, each with the line of its formula. The two numbers
that these need are measured with messages between two ranks: the latency by a small
one, the bandwidth by a large one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from minitorch.bench.ranks import is_rank, measured, tell, together

MODULE = "minitorch.bench.collectives"
KIB, LEAST, MOST = 2**10, 2**10, 2**30  # bytes
BUCKETS = 25_000_000, 100_000_000, 500_000_000  # as they are sent between GPUs
SECONDS = 0.2  # for one size of one method
IN_A_ROW = 30  # calls on a GPU that are timed together
COLORS = "#1f4e9e", "#888888", "#c0392b", "#2e8b57", "#b8860b"


def seconds(run: Callable[[], Any], device: str) -> float:
    """Of a call, the median of several times, which all ranks begin together.

    On GPUs each is that of calls one behind the other, as in a training step, where the
    host is ahead of what is sent.
    """
    from minitorch.distributed.objects import highest

    calls = IN_A_ROW if device == "cuda" else 1
    once = partial(together, run, calls, device)
    slowest = highest(int(1e6 * max(once(), once())))
    count = max(3, min(100, int(1e6 * SECONDS / (calls * slowest + 1))))
    return statistics.median(once() for _ in range(count))


def ping(x: Any) -> None:
    """A message from rank 0 to rank 1 and back."""
    from minitorch.distributed import get_rank, recv, send

    for sender in (0, 1):
        if get_rank() == sender:
            send(x, 1 - sender)
        elif get_rank() == 1 - sender:
            recv(x, sender)


def work(device: str, most: int) -> dict[str, Any]:
    """A rank: the seconds of each method by size, and what a message costs."""
    import torch.distributed as theirs

    from minitorch import zeros
    from minitorch.distributed import all_reduce, classroom
    from minitorch.distributed.transport import lend

    methods: dict[str, Callable[[Any], Any]] = {
        "all_reduce": all_reduce,
        "torch's all_reduce": lambda x: theirs.all_reduce(lend(x)),
        "ring": classroom.ring_all_reduce,
        "tree": classroom.tree_all_reduce,
        "recursive doubling": classroom.recursive_doubling,
    }
    sizes = [LEAST * 4**i for i in range(11) if LEAST * 4**i <= most]
    sizes += [size for size in BUCKETS if device == "cuda" and size <= most]
    sizes.sort()
    times: dict[str, list[float]] = {name: [] for name in methods}
    for size in sizes:
        x = zeros(size // 4, device=device)
        for name, method in methods.items():
            times[name].append(seconds(lambda: method(x), device))  # noqa: B023
    small, large = (
        seconds(lambda: ping(x), device) / 2  # noqa: B023
        for x in (zeros(1, device=device), zeros(sizes[-1] // 4, device=device))
    )
    return {"sizes": sizes, "times": times, "latency": small, "large": large}


def lines(ranks: int, found: dict[str, Any]) -> dict[str, list[float]]:
    """The seconds that the formulas say, by method and size."""
    from minitorch.distributed import classroom

    latency, sizes = found["latency"], found["sizes"]
    bandwidth = sizes[-1] / max(found["large"] - latency, 1e-9)
    formulas = {
        "ring": classroom.ring_seconds,
        "tree": classroom.tree_seconds,
        "recursive doubling": classroom.doubling_seconds,
    }
    return {
        name: [formula(ranks, size, latency, bandwidth) for size in sizes]
        for name, formula in formulas.items()
    }


def table(found: dict[str, Any], model: dict[str, list[float]]) -> str:
    """Milliseconds by size; behind a method those of its formula, in brackets."""
    head = "".join(f"{name:>26}" for name in found["times"])
    rows = [f"{'KiB':>9}{head}"]
    for i, size in enumerate(found["sizes"]):
        row = f"{size // KIB:9,}"
        for name, times in found["times"].items():
            said = f" ({1e3 * model[name][i]:9.3f})" if name in model else " " * 12
            row += f"{1e3 * times[i]:14.3f}{said}"
        rows.append(row)
    return "\n".join(rows)


def draw(path: Path, found: dict[str, Any], model: dict[str, list[float]]) -> None:
    """Times as points and formulas as lines, both axes by powers."""
    from minitorch.plotting import new_figure, save_figure

    figure = new_figure(width=7.0, height=4.6)
    axes: Any = figure.add_subplot()
    sizes: Sequence[int] = found["sizes"]
    for color, (name, times) in zip(COLORS, found["times"].items()):
        axes.loglog(sizes, times, "o", color=color, label=name, markersize=4)
        if name in model:
            axes.loglog(sizes, model[name], color=color, linewidth=1)
    axes.set_xlabel("bytes of the tensor")
    axes.set_ylabel("seconds (points: measured, lines: formulas)")
    axes.legend(frameon=False)
    save_figure(figure, path)


def compare(
    ranks: Annotated[int, typer.Option(min=2, help="How many processes.")] = 2,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    most: Annotated[int, typer.Option(min=4 * KIB, help="Bytes, at most.")] = MOST,
    out: Annotated[Path, typer.Option(help="Where to draw.")] = Path("all_reduce.png"),
) -> None:
    """Time sums of all ranks from 1 KiB on, print a table and draw a picture."""
    found = measured(MODULE, ranks, device, most)
    model = lines(ranks, found)
    print(table(found, model))
    draw(out, found, model)


if __name__ == "__main__":
    tell(work) if is_rank() else typer.run(compare)
