"""`minitorch xray KERNEL`: what a GPU kernel asks of a chip, line by line.

With this file one can see on any machine, for each line of a kernel, what its warps ask
memory for, the turns that shared memory takes, branches in which lanes part, and races;
and what the compiler makes of it. docs/gpu_kernels.md says what each number means. A
kernel of one's own is FILE:KERNEL, where FILE has a function `xray()` that launches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minitorch.cli.errors import friendly
from minitorch.cli.inspect import chip_of

if TYPE_CHECKING:
    from rich.console import Console

NOT_CLAIMED = "cache hits, bytes from DRAM, achieved occupancy, time, atomic operations"
# How wide columns are at least, and all of them without that of the source.
COLUMNS = dict(lanes=5, branch=6, access=12, requests=8, each=15, ideal=5)
OTHERS = 63
UNITS = {"global": "sectors", "shared": "wavefronts"}
KINDS = tuple(f"{space} {way}" for space in UNITS for way in ("load", "store"))


def xray(
    kernel: Annotated[
        str | None,
        typer.Argument(help="FILE:KERNEL, or the name of one of the library's."),
    ] = None,
    arch: Annotated[
        str, typer.Option(help="The chip: sm_75, sm_80, sm_86, sm_89, sm_90, ...")
    ] = "sm_90",
    list_all: Annotated[
        bool, typer.Option("--list", help="Print the names of the library's kernels.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the scene as JSON, for programs.")
    ] = False,
    lanes: Annotated[
        bool, typer.Option("--lanes", help="With --json: what each lane did, too.")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--in", help="The workspace, or a folder in it.")
    ] = Path("."),
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Look into a GPU kernel, line by line, without a GPU."""
    with friendly(debug, "minitorch xray --list"):
        if list_all or kernel is None:
            from assignments.xrays import names

            for name in names():
                typer.echo(name)
            return
        scene = look(kernel, folder, arch, lanes)
        if as_json:
            typer.echo(json.dumps(scene, indent=None if lanes else 1))
        else:
            show(scene)
        if scene["error"] or any("race" in line for line in _lines(scene)):
            raise typer.Exit(1)


def look(
    kernel: str, folder: Path, arch: str = "sm_90", lanes: bool = False
) -> dict[str, Any]:
    """The scene of a kernel, as the workspace that `folder` is in has it, if any."""
    from assignments import workspace, xrays

    chip, here = chip_of(arch, "xray"), folder.resolve()
    inside = any((f / workspace.MARK).is_file() for f in (here, *here.parents))
    place = workspace.find(here) if inside else None
    return xrays.scene_of(kernel, place, chip, lanes)


def _lines(scene: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for function in scene["functions"]:
        yield from function["lines"]


# ------------------------------------------------------------------- for the terminal


def show(scene: dict[str, Any], out: Console | None = None) -> None:
    """Print a scene as tables, with the source beside the numbers; to a terminal."""
    from rich.console import Console
    from rich.text import Text

    out = out or Console(highlight=False)
    out.print(Text(title_of(scene), style="bold"))
    for number, function in enumerate(scene["functions"]):
        if number == 0 or any(_is_worth_seeing(x) for x in function["lines"]):
            table = _table(function, number == 0, max(11, out.width - OTHERS))
            out.print(table, Text(""), sep="\n")
    for text in facts_of(scene):
        out.print(Text(text))
    for line in _lines(scene):
        if "race" in line:
            where = f"race in line {line['line']}, {line['races']:,} times"
            out.print(Text(f"{where}: {line['race']}", style="red"))
    if scene["error"]:
        out.print(Text(scene["error"], style="red"))


def title_of(scene: dict[str, Any]) -> str:
    """What was launched, and what of it ran."""
    launch = scene["launch"]
    x, y, z = launch["blocks"]
    ran = ", ".join(str(tuple(at)) for at in launch["sampled"])
    return (
        f"{scene['kernel']}: {x * y * z:,} block{'s'[x * y * z == 1 :]} {(x, y, z)} of "
        f"threads {tuple(launch['threads'])}; of these ran {ran}"
    )


def _is_worth_seeing(line: dict[str, Any]) -> bool:
    return "race" in line or any(kind in line for kind in KINDS)


def _table(function: dict[str, Any], first: bool, width: int) -> Any:
    """The lines of a function, one row for each kind of access."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = f"{Path(function['file']).name}" + ("" if first else f" {function['name']}")
    table = Table(
        box=SIMPLE_HEAD, show_edge=False, padding=0, title=Text(title),
        title_justify="left",
    )  # fmt: skip
    table.add_column("line", justify="right", min_width=4)
    table.add_column("source", no_wrap=True, overflow="ellipsis", max_width=width)
    for name, least in COLUMNS.items():
        justify: Any = "left" if name == "access" else "right"
        table.add_column(name, justify=justify, no_wrap=True, min_width=least)
    indent = min(
        len(x["text"]) - len(x["text"].lstrip()) for x in function["lines"] if x["text"]
    )
    for line in function["lines"]:
        if line["text"].lstrip().startswith("#"):  # too long for the column
            continue
        style = "red" if "race" in line else ""
        flow = [str(line["line"]), line["text"][indent:], *flow_of(line)]
        for access in accesses_of(line) or [[""] * 4]:
            table.add_row(*(Text(cell) for cell in (*flow, *access)), style=style)
            flow = [""] * 4
    return table


def flow_of(line: dict[str, Any]) -> list[str]:
    """The first two of COLUMNS: active lanes and branch efficiency."""
    if not line.get("warps"):
        return ["", ""]
    parts = line["divergent"] / line["branches"] if line["branches"] else None
    shown = "" if parts is None else f"{1 - parts:.0%}"
    return [f"{line['lanes'] / line['warps']:.1f}", shown]


def accesses_of(line: dict[str, Any]) -> list[list[str]]:
    """The others: kind, requests, sectors or wavefronts of each, and the ideal as a
    share."""
    rows = []
    for kind in KINDS:
        if kind in line:
            unit = UNITS[kind.partition(" ")[0]]
            taken, requests = line[kind][unit], line[kind]["requests"]
            each = f"{taken / requests:.3g} {unit[: -1 if taken == requests else None]}"
            share = f"{line[kind]['ideal'] / taken:.1%}".replace(".0%", "%")
            rows.append([kind, f"{requests:,}", each, share])
    return rows


def facts_of(scene: dict[str, Any]) -> list[str]:
    """What the compiler made of it, and what is not claimed, in sentences."""
    return [*_static(scene["static"]), f"not claimed: {NOT_CLAIMED}"]


def _static(facts: dict[str, Any]) -> Iterator[str]:
    if "error" in facts:
        yield f"not compiled: {facts['error']}"
        return
    yield (
        f"{facts['arch']}: {facts['registers']} registers a thread, "
        f"{facts['spilled_bytes']:,} bytes spilled, {facts['local_bytes']:,} bytes of "
        f"local memory; {facts['static_shared_bytes']:,} bytes of shared memory a "
        f"block, and {facts['dynamic_shared_bytes']:,} by the launch"
    )
    yield (
        f"theoretical occupancy {facts['occupancy']:.1%}, {facts['blocks_per_sm']} "
        f"blocks an SM, limited by {facts['limited_by']}; {_waves(facts)}"
    )
    for use, what in (("float64", "float64"), ("local", "local memory")):
        places = [at.rpartition("/")[2] for at, n in facts["lines"].items() if use in n]
        if places:
            yield f"uses {what}: {', '.join(places)}"


def _waves(facts: dict[str, Any]) -> str:
    chip = f"{facts['sms']} SMs ({facts['chip']})"
    if facts["waves"] is None:
        return f"no block fits on one of the {chip}"
    return f"{facts['waves']:.2f} waves on {chip}"
