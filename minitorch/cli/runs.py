"""`minitorch runs`: what training runs chose, and what came of it.

With this file one can list the runs of a folder (`runs`) side by side: the settings in
which they differ, the last and the best of each measurement, and a picture of one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minitorch.cli.errors import friendly

if TYPE_CHECKING:
    from rich.table import Table

# What is measured, with the function that picks the best; the first one that all runs
# have is drawn.
BEST = {"val_loss": min, "test_loss": min, "test_accuracy": max, "train_loss": min}
MOST_COLUMNS = 5  # of settings; more stand in one column, below each other
# Settings whose product are the tokens of a step.
TOKENS = ("batch_size", "accumulate", "block_size")
# What is not a setting, but where a run is, or how it is watched.
PLACES = ("out", "resume", "data_dir", "plots", "quiet", "verbose", "debug", "track")


@dataclass(frozen=True)
class OldRun:
    """A run's folder, its name in the list, its settings, its lines of numbers, and
    what of them could not be read, in words."""

    name: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    problem: str = ""

    def values(self, metric: str, by: str = "steps") -> tuple[list[float], list[float]]:
        """After how many steps it was measured, and what came out; or after how many
        "seconds", or "tokens", of which a run that learns no text has none."""
        found = [(at, row[metric]) for at, row in self._along(by) if metric in row]
        found = [(at, x) for at, x in found if _is_number(x)]
        return [at for at, _ in found], [x for _, x in found]

    def _along(self, by: str) -> Iterator[tuple[float, dict[str, Any]]]:
        if by == "seconds":
            timed = [row for row in self.rows if _is_number(row.get("time"))]
            yield from ((row["time"] - timed[0]["time"], row) for row in timed)
            return
        each = self._tokens() if by == "tokens" else 1
        yield from ((each * row["step"], row) for row in self.rows if each)

    def _tokens(self) -> int:
        """Those of a step; 0 if it has none."""
        sizes: list[Any] = [self.settings.get(name) for name in TOKENS]
        return math.prod(sizes) if all(map(_is_number, sizes)) else 0


def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs, or folders of runs.", show_default="runs"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the curves of all into this PNG file.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="What to draw: val_loss, test_accuracy, loss, ..."),
    ] = None,
) -> None:
    """List and compare training runs."""
    with friendly(None, "minitorch runs"):
        found = list(find_runs(folders or [Path("runs")]))
        _show(found)
        if plot is not None:
            _draw(found, metric, plot)
            typer.echo(f"wrote {plot}")


def find_runs(folders: Sequence[Path]) -> Iterator[OldRun]:
    """The runs in these folders, or that are these folders, by name.

    Raises:
        ValueError: there is none in one of them.
    """
    return map(read_run, run_files(folders))


def run_files(folders: Sequence[Path]) -> Iterator[Path]:
    """The lines of numbers of these runs.

    Raises:
        ValueError: there is none in one of the folders.
    """
    from minitorch.train.tracking import METRICS

    for folder in folders:
        own = [folder / METRICS] if (folder / METRICS).exists() else []
        lines = own or sorted(folder.glob(f"*/{METRICS}"))
        if not lines:
            raise ValueError(
                f"runs: {folder} has no run in it, no {METRICS} or */{METRICS}; "
                f"minitorch train writes one"
            )
        yield from lines


def read_run(file: Path) -> OldRun:
    """The run whose lines of numbers these are. What cannot be read is left out."""
    from minitorch.train.tracking import read_metrics

    choices, settings, problem = file.parent / "config.json", {}, ""
    try:
        found = json.loads(choices.read_text("utf-8")) if choices.exists() else {}
        settings = found if isinstance(found, dict) else {}
    except ValueError as error:
        problem = f"{choices} is no JSON ({error}); its settings are not shown. "
    lines = len(file.read_bytes().splitlines())
    rows = read_metrics(file)
    if len(rows) < lines:  # it may have grown in between
        problem += (
            f"{lines - len(rows)} of {lines} lines of {file} could not be read and "
            f"are left out; a run that is killed leaves half a line"
        )
    return OldRun(str(file.parent), settings, rows, problem)


def differences(found: Sequence[OldRun]) -> list[str]:
    """The names of the settings in which these runs differ, as far as they have any."""
    found = [run for run in found if run.settings]
    names = dict.fromkeys(name for run in found for name in run.settings)
    return [
        name
        for name in names
        if name not in PLACES
        and len({json.dumps(run.settings.get(name)) for run in found}) > 1
    ]


def usual_metric(found: Sequence[OldRun]) -> str:
    """What is drawn of these runs if nothing else is wanted."""
    has = [m for m in BEST if all(run.values(m)[1] for run in found)]
    return has[0] if has else "loss"


def _show(found: Sequence[OldRun]) -> None:
    """A table for each recipe: runs of two differ in all that they have."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    anything = console.options.update(width=1000)
    for recipe in sorted({str(run.settings.get("recipe", "")) for run in found}):
        alike = [r for r in found if str(r.settings.get("recipe", "")) == recipe]
        table = _table(recipe, alike)
        if console.measure(table, options=anything).maximum > console.width:
            table = _table(recipe, alike, "\n")
        console.print(table)
    for run in found:
        if run.problem:
            typer.echo(run.problem, err=True)


def _table(recipe: str, found: Sequence[OldRun], gap: str = " ") -> Table:
    """What these runs chose, as far as they differ, and what came of it: the last
    number, `gap`, and the best."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    chosen = [name for name in differences(found) if not _has_parts(name, found)]
    metrics = [name for name in BEST if any(run.values(name)[1] for run in found)]
    table = Table(title=recipe, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("run", overflow="fold", no_wrap=gap == " ")
    together = len(chosen) > (1 if gap == "\n" else MOST_COLUMNS)
    for name in ["settings"] if together else chosen:
        table.add_column(name, overflow="fold")
    table.add_column("steps", no_wrap=True)
    for name in metrics:
        head = name.replace("_", "\n", 1) if gap == "\n" else name
        table.add_column(f"{head}\nlast{gap}(best)", no_wrap=True)
    for run in found:
        texts = {name: setting_text(run.settings.get(name)) for name in chosen}
        cells = list(texts.values())
        if together:
            cells = ["\n".join(f"{name}={x}" for name, x in texts.items() if x)]
        cells.append(str(max((row["step"] for row in run.rows), default=0)))
        for name in metrics:
            values = run.values(name)[1]
            pair = f"{values[-1]:.4f}{gap}({BEST[name](values):.4f})" if values else ""
            cells.append(pair)
        table.add_row(run.name, *cells)
    return table


def _has_parts(name: str, found: Sequence[OldRun]) -> bool:
    """Whether a setting is made of others, which are shown by themselves."""
    return any(isinstance(run.settings.get(name), dict) for run in found)


def _draw(found: Sequence[OldRun], metric: str | None, path: Path) -> None:
    """Raises ValueError where no run has the metric."""
    from minitorch.plotting import plot_runs

    if metric is None:
        metric = usual_metric(found)
    curves = {run.name: run.values(metric) for run in found if run.values(metric)[1]}
    if not curves:
        names = sorted({name for run in found for row in run.rows for name in row})
        raise ValueError(
            f"runs: no run has measured {metric!r}; they have "
            f"{', '.join(names) or 'measured nothing'}"
        )
    plot_runs(curves, metric, path)


def setting_text(value: Any) -> str:
    """A setting as tables show it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def _is_number(x: Any) -> bool:
    return type(x) in (int, float) and math.isfinite(x)
