"""`minitorch doctor` and `minitorch devices`: what works on this machine.

With this file one can see at a glance what is there, what is missing, and the command
that would bring it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from minitorch.cli.errors import friendly

if TYPE_CHECKING:
    from minitorch.cli.checks import Check

_STYLES = {"ok": "green", "note": "yellow", "missing": "red", "broken": "bold red"}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@friendly(None, "minitorch doctor")
def doctor(as_json: AsJson = False) -> None:
    """Show what this machine has, and what to do about what it lacks."""
    from minitorch.cli.checks import all_checks

    checks = list(all_checks())
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
        return
    _show(checks)
    serious = [check for check in checks if check.status in ("missing", "broken")]
    if serious:
        names = ", ".join(check.name for check in serious)
        typer.echo(f"{len(serious)} to look at: {names}.")
    else:
        typer.echo("All that minitorch needs is here.")


def _show(checks: list[Check]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("what", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold")
    section = ""
    for check in checks:
        if check.section != section:
            section = check.section
            table.add_row(Text(section, style="bold"))
        table.add_row(
            Text("  " + check.name),
            Text(check.status, style=_STYLES[check.status]),
            Text(check.found),
            Text(check.advice),
        )
    Console(highlight=False).print(table)


@friendly(None, "minitorch devices")
def devices() -> None:
    """List the devices that tensors can be on, and whether they work here."""
    from minitorch.backend import available_devices
    from minitorch.creation import ones

    for name in available_devices():
        try:
            total = ones(3, device=name).sum().item()
            state = "works" if total == 3 else f"wrong: 1 + 1 + 1 gave {total}"
        except (RuntimeError, ValueError, OSError) as error:
            state = f"does not work here: {error}"
        typer.echo(f"{name:8} {state}")
