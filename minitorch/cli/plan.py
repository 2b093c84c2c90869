"""`minitorch plan`: how to cut a model for many GPUs.

With this command one can see which layouts of data, tensor, pipeline and context
parallel ranks fit a cluster, what they keep and how long their steps take, and why the
best one is the best; `--picture` draws it. Nothing is run, and no GPU is needed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minitorch.cli.errors import friendly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minitorch.distributed.planner.cost import Estimate
    from minitorch.distributed.planner.search import Task

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def plan(
    model: Annotated[
        str,
        typer.Option(help="gpt2, llama-8b, ..., or a JSON or TOML file of its sizes."),
    ] = "gpt2",
    gpus: Annotated[int, typer.Option(help="How many GPUs.")] = 8,
    gpu: Annotated[str, typer.Option(help="h100, h200, a100, or a file.")] = "h100",
    batch_tokens: Annotated[
        str, typer.Option(help="Tokens of a step; 512K and 1M are powers of 2.")
    ] = "1M",
    sequence: Annotated[
        int | None,
        typer.Option(
            help="Tokens of a sequence.", show_default="4096, or the model's positions"
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="What is kept: mixed (16-bit, Adam; as in papers), measured (the runs "
            "of the constants), float32 or autocast (this library)."
        ),
    ] = "mixed",
    fault: Annotated[
        float,
        typer.Option(help="The chance that a node's network is ill (measured: 0.02)."),
    ] = 0.0,
    top: Annotated[int, typer.Option(help="How many layouts to show.")] = 5,
    picture: Annotated[
        Path | None, typer.Option(help="Draw memory and a timeline into this SVG file.")
    ] = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Find layouts of many GPUs that fit, and rank them."""
    with friendly(debug, "minitorch plan"):
        from minitorch.distributed.planner.search import distinct, search
        from minitorch.scenes import check_svg

        if picture is not None:
            check_svg(picture)
        for option, given in (("gpus", gpus), ("top", top), ("sequence", sequence)):
            if given is not None and given < 1:
                raise ValueError(f"plan: --{option} is {given}; expected 1 or more")
        if not 0 <= fault < 1:
            raise ValueError(f"plan: --fault is {fault}; expected 0 or more, below 1")
        task = _task(model, gpus, gpu, _tokens(batch_tokens), sequence, engine, fault)
        found = search(task)
        _show(task, found, distinct(found)[:top])
        if picture is not None:
            from minitorch.distributed.planner.picture import draw

            draw(task, found, picture, top)
            typer.echo(f"\nthe picture is {picture}")


def _tokens(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise ValueError(
            f"plan: --batch-tokens is {text!r}; expected a number, as 65536, 512K or 1M"
        )
    return round(float(match[1]) * UNITS[match[2]])


def _task(
    name: str, gpus: int, gpu: str, tokens: int, sequence: int | None, engine: str,
    fault: float,
) -> Task:  # fmt: skip
    from dataclasses import replace

    from minitorch.distributed.planner import hardware, models
    from minitorch.distributed.planner.cost import AHEAD, FITTED
    from minitorch.distributed.planner.memory import engine as engine_of
    from minitorch.distributed.planner.search import Task

    model = models.named(name)
    sequence = sequence or model.positions or 4096
    if model.positions and sequence > model.positions:
        raise ValueError(
            f"plan: --sequence is {sequence}; {model.name} has {model.positions} "
            f"positions"
        )
    if tokens % sequence:
        raise ValueError(
            f"plan: --batch-tokens, {tokens}, is no multiple of the sequence, "
            f"{sequence}; take {max(1, round(tokens / sequence)) * sequence}"
        )
    constants = replace(FITTED if engine == "measured" else AHEAD, fault=fault)
    return Task(
        model, hardware.named(gpu), gpus, tokens // sequence, sequence,
        engine_of(engine, model), constants,
    )  # fmt: skip


def _show(task: Task, found: Sequence[Estimate], best: Sequence[Estimate]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from minitorch.distributed.planner.memory import KINDS
    from minitorch.distributed.planner.search import reasons

    console = Console(highlight=False)
    for i, one in enumerate(best, 1):
        console.print(f"{i}  {one.layout}")
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("layout")
    for i in range(len(best)):
        table.add_column(str(i + 1), justify="right")
    table.add_row("tokens/s a GPU", *(f"{one.tokens:,.0f}" for one in best))
    table.add_row("TFLOP/s a GPU", *(f"{one.tflops:.0f}" for one in best))
    shares = (1e12 * one.tflops / task.gpu.flops for one in best)
    table.add_row("of its peak (MFU)", *(f"{share:.1%}" for share in shares))
    table.add_row("a step, s", *(f"{one.seconds:.3f}" for one in best))
    for kind in best[0].time:
        table.add_row(f"  {kind}", *(f"{one.time[kind]:.3f}" for one in best))
    table.add_row("fullest GPU, GiB", *(f"{one.gib:.2f}" for one in best))
    for kind in KINDS:
        table.add_row(f"  {kind}", *(f"{one.memory[kind]:.2f}" for one in best))
    console.print(table)
    for reason in reasons(task, found):
        console.print(reason, markup=False)
