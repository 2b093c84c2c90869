"""`minitorch bench`: our times beside PyTorch's, on this machine.

With this command one can see how fast each family of operations is, what share of the
processor's limit that is, and what each rung of the matmul ladder (`minitorch bench
matmul`) and of the ladders of sums, softmax and sparse products (`minitorch bench
reduce --ladder`) gains. With `--device mojo` it is done by the kernels in Mojo, whose
ladder stands beside Numba's; with `--device cuda` on the GPU, which has ladders of
attention and of transposes as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minitorch.cli.errors import friendly
from minitorch.machine import usable_cores

if TYPE_CHECKING:
    from minitorch.bench.report import Limits, Result

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FAMILY]...",
        help="matmul elementwise tiny reduce fused conv sparse optim step epoch; all "
        "if none is named. On cuda also few (layers of few rows), attention and "
        "copies. Only if named: compile, programs that both compile; and on cuda mojo, "
        "Mojo's kernels.",
    ),
]


def bench(
    families: Names = None,
    device: Annotated[
        str, typer.Option(help="cpu, mojo or cuda; PyTorch runs on the same.")
    ] = "cpu",
    ladder: Annotated[
        bool,
        typer.Option("--ladder", help="Time the rungs of the ladders, too."),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(
            help="Rows of the ladder's matrices.", show_default="one for each ladder"
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads for both sides; all cores if not given.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Seconds for each case, at most.")
    ] = 3.0,
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures and tables.")
    ] = Path("runs/bench"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Time minitorch and PyTorch in turns, and print the ratios."""
    with friendly(debug, "minitorch bench"):
        if seconds <= 0 or (size is not None and size <= 0):
            raise ValueError("bench: --seconds and --size must be above 0")
        if threads is not None and threads < 1:
            raise ValueError(f"bench: --threads is {threads}; expected 1 or more")
        out.mkdir(parents=True, exist_ok=True)  # or an error, before minutes of work
        ladder = ladder or families == ["matmul"]
        _run(families, device, ladder, size, threads, seconds, out, as_json)


def _ladders(families: list[str] | None, exist: list[str]) -> list[str]:
    """Those of the families that have a ladder; an error where none has."""
    chosen = [name for name in exist if families is None or name in families]
    if not chosen:
        raise ValueError(
            f"bench: --ladder draws {' and '.join(exist)}, which are not among "
            f"{', '.join(families or [])}; name one of them"
        )
    return chosen


def _run(
    families: list[str] | None,
    device: str,
    ladder: bool,
    size: int | None,
    threads: int | None,
    seconds: float,
    out: Path,
    as_json: bool,
) -> None:
    from numba import config

    from minitorch.bench import report, run
    from minitorch.bench.harness import busy_notice

    threads = threads or min(usable_cores(), config.NUMBA_NUM_THREADS)
    say = (lambda text: None) if as_json else typer.echo  # JSON stands alone
    notice = busy_notice(threads)
    if notice:
        typer.echo(f"notice: {notice}", err=True)
    on = run.bench_on(device, threads)
    ladders = _ladders(families, list(on.sizes)) if ladder else []
    say("  ".join(f"{name}: {value}" for name, value in on.machine.items()))
    show = None if as_json else _line
    timed = families and [f for f in families if f in on.families or f not in ladders]
    cases = [] if timed == [] else list(on.cases(timed))
    results = run.measure(cases, on.limits, seconds, show, on.compare)
    for text in report.summaries(results):
        say(text)
    rungs: list[Result] = []
    for family in ladders:
        rows = size or on.sizes[family]
        say(f"\nthe {family} ladder, {rows} x {rows}")
        steps = on.ladder(family, rows)
        rungs += run.measure(steps, on.limits, seconds, show, on.compare)
    if as_json:
        typer.echo(report.to_json([*results, *rungs], on.machine))
    _write(out, results, rungs, on.limits, on.machine)
    say(f"\ntables and pictures are in {out}")


def _line(result: Any) -> None:
    from minitorch.bench.report import row

    name, *cells = row(result)
    widths = (9, 9, 6, 6, 14, 6)
    mark = "  " if result.good else " >"
    text = " ".join(cell.rjust(width) for cell, width in zip(cells, widths))
    typer.echo(f"{result.family:12}{name:46}{text}{mark}")


def _write(
    out: Path,
    results: list[Result],
    rungs: list[Result],
    limits: Limits,
    machine: dict[str, Any],
) -> None:
    from minitorch.bench import pictures, report
    from minitorch.data import atomic_write
    from minitorch.scenes import write

    header = "".join(f"- {name}: {value}\n" for name, value in machine.items())
    text = f"{header}\n{report.markdown([*results, *rungs])}"
    body = report.to_json([*results, *rungs], machine)
    for name, content in (("bench.md", text), ("bench.json", body)):
        with atomic_write(out / name) as file:
            file.write(content.encode())
    scene = pictures.roofline(results, rungs, limits)
    if scene:
        write(scene, out / "roofline.svg", "Speeds under the limits of the machine")
    for family in sorted({rung.family for rung in rungs}):
        ladder = [rung for rung in rungs if rung.family == family]
        name = f"Each rung of the {family} ladder"
        write(pictures.ladder(ladder, limits), out / f"ladder_{family}.svg", name)
