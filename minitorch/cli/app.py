"""All commands of `minitorch`.

With this file one can add a command: a module of this package defines a Typer app or a
function, and it is registered here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

from minitorch.cli import (
    bench,
    course,
    doctor,
    grade,
    inspect,
    lab,
    launch,
    plan,
    runs,
    sample,
    serve,
    train,
    xray,
)

app = typer.Typer(
    name="minitorch",
    help="A tensor and autograd library that is a textbook you can run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


# In a workspace these show what the student has written. Its files must be there before
# the library is imported, which this process has done.
OF_WORKSPACES = ("bench", "inspect", "plan")
AGAIN = """
import sys
from pathlib import Path
from assignments.workspace import use
use(Path(sys.argv.pop(1)))
from minitorch.cli.app import app
app(prog_name="minitorch")
"""


def _with_workspace() -> None:
    """Run the command with the files of the workspace in which one stands, if any."""
    from assignments.overlay import Overlay
    from assignments.workspace import MARK

    here = Path.cwd()
    place = next((f for f in (here, *here.parents) if (f / MARK).is_file()), None)
    if place and not any(isinstance(finder, Overlay) for finder in sys.meta_path):
        typer.echo(f"with the files of {place}", err=True)
        words = sys.executable, "-c", AGAIN, str(place), *sys.argv[1:]
        raise typer.Exit(subprocess.run(words).returncode)


def _show_version(wanted: bool) -> None:
    if wanted:
        from minitorch import __version__

        typer.echo(f"minitorch {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    context: typer.Context,
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version.",
        callback=_show_version,
        is_eager=True,
    ),
) -> None:
    """A tensor and autograd library that is a textbook you can run."""
    if context.invoked_subcommand in OF_WORKSPACES:
        _with_workspace()


app.add_typer(train.app, name="train")
app.command("launch")(launch.launch)
app.command("runs")(runs.runs)
app.command("sample")(sample.sample)
app.command("serve")(serve.serve)
app.command("lab")(lab.lab)
app.command("bench")(bench.bench)
app.command("plan")(plan.plan)
app.command("doctor")(doctor.doctor)
app.command("inspect")(inspect.inspect)
app.command("xray")(xray.xray)
app.command("devices")(doctor.devices)
app.command("start")(course.start)
app.command("test")(course.test)
app.command("hint")(course.hint)
app.command("status")(course.status)
app.command("diff")(course.diff)
app.command("grade")(grade.grade)
app.command("grade-all")(grade.grade_all)
app.command("leaderboard")(grade.leaderboard)
app.command("release")(grade.release)
