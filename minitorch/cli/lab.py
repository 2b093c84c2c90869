"""`minitorch lab`: pages in the browser to look at and to play with.

With this file one can open the lab: networks that learn, graphs, strides, digits, a
GPT, x-rays of kernels and runs side by side, on this machine alone, without a network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minitorch.cli.errors import friendly


def lab(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: one that is free.")
    ] = 0,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open it in the browser.")
    ] = True,
    digits: Annotated[
        Path | None,
        typer.Option(help="The folder of a `minitorch train mnist`, to show its CNN."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="The folder of a `minitorch train gpt`, to show its GPT."),
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option(help="Runs, or folders of runs, to compare.", show_default="runs"),
    ] = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Watch networks, graphs and strides in the browser."""
    with friendly(debug, "minitorch lab"):
        from minitorch.lab.server import Lab, all_pages

        server = Lab(port, all_pages(digits, weights, runs or [Path("runs")]))
        typer.echo(f"The lab is at {server.url}\nCtrl-C ends it.")
        if open_browser:
            import webbrowser

            webbrowser.open(server.url)
        server.serve_forever()
