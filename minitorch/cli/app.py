"""All commands of `minitorch`.

With this file one can add a command: a module of this package defines a Typer app or a
function, and it is registered here.
"""

from __future__ import annotations

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


def _show_version(wanted: bool) -> None:
    if wanted:
        from minitorch import __version__

        typer.echo(f"minitorch {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version.",
        callback=_show_version,
        is_eager=True,
    ),
) -> None:
    """A tensor and autograd library that is a textbook you can run."""


app.add_typer(train.app, name="train")
app.command("launch")(launch.launch)
app.command("runs")(runs.runs)
app.command("sample")(sample.sample)
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
