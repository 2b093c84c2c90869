"""`minitorch train xor | points | mnist`.

With this file one can start a recipe of `minitorch.train` from the command line; the
options are the fields of `TrainConfig`, and what is left out is chosen by the recipe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from minitorch.cli.errors import friendly

app = typer.Typer(help="Train a network.", no_args_is_help=True)

EPOCHS = "How often to go through the training examples."
BATCH = "Examples in a step."
DRAW = "How many training points to draw."
MODEL = "What the network is made of: "
HIDDEN = "Units in each hidden layer of an mlp."
RATE = "The highest learning rate; ten times the default with sgd."

# Options that all recipes share. The defaults that are shown are those of
# `minitorch.train.recipes`, which is not imported here: `--help` should be quick.
Device = Annotated[
    str | None,
    typer.Option(help="Where to compute; see minitorch devices.", show_default="cpu"),
]
Optimizer = Annotated[
    str | None, typer.Option(help="adamw, adam or sgd.", show_default="adamw")
]
Seed = Annotated[
    int | None,
    typer.Option(help="Of the weights, the order, dropout.", show_default="0"),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for checkpoints, numbers, pictures.",
        show_default="runs/RECIPE-TIME",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(help="Go on with the run in this folder, or from this checkpoint."),
]
Every = Annotated[
    float,
    typer.Option(
        "--checkpoint-every", help="Seconds between checkpoints in an epoch; 0: none."
    ),
]
Steps = Annotated[
    int,
    typer.Option(
        "--checkpoint-steps", help="Steps between checkpoints in an epoch; 0: none."
    ),
]
Graph = Annotated[
    bool, typer.Option(help="On a GPU, replay each step as one CUDA graph.")
]
Profile = Annotated[
    bool,
    typer.Option(
        "--profile", help="Profile five steps: print a table, write trace.json."
    ),
]
Plots = Annotated[bool, typer.Option(help="Draw pictures at the end.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print timings, too.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]

PointsModel = Annotated[
    str | None, typer.Option(help=MODEL + "mlp, linear.", show_default="mlp")
]
DigitsModel = Annotated[
    str | None, typer.Option(help=MODEL + "cnn, lenet, mlp.", show_default="cnn")
]
Hidden64 = Annotated[int | None, typer.Option(help=HIDDEN, show_default="64")]
Hidden256 = Annotated[int | None, typer.Option(help=HIDDEN, show_default="256")]
Epochs5 = Annotated[int | None, typer.Option(help=EPOCHS, show_default="5")]
Epochs30 = Annotated[int | None, typer.Option(help=EPOCHS, show_default="30")]
Epochs60 = Annotated[int | None, typer.Option(help=EPOCHS, show_default="60")]
Batch25 = Annotated[int | None, typer.Option(help=BATCH, show_default="25")]
Batch50 = Annotated[int | None, typer.Option(help=BATCH, show_default="50")]
Batch128 = Annotated[int | None, typer.Option(help=BATCH, show_default="128")]
Lr01 = Annotated[float | None, typer.Option(help=RATE, show_default="0.01")]
Points400 = Annotated[
    int | None, typer.Option("--limit", "--points", help=DRAW, show_default="400")
]
Points500 = Annotated[
    int | None, typer.Option("--limit", "--points", help=DRAW, show_default="500")
]
Limit = Annotated[
    int | None,
    typer.Option(help="Train on only so many digits.", show_default="all"),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        help="simple, diagonal, split, xor, circle or spiral.", show_default="spiral"
    ),
]
Digits = Annotated[
    str | None,
    typer.Option(
        help="mnist, or drawn for digits that the computer draws.",
        show_default="mnist",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with MNIST's files; else $MINITORCH_DATA, the cache."),
]


@app.command()
def xor(
    device: Device = None,
    model: PointsModel = None,
    hidden: Hidden64 = None,
    epochs: Epochs30 = None,
    batch_size: Batch50 = None,
    lr: Lr01 = None,
    optimizer: Optimizer = None,
    seed: Seed = None,
    limit: Points400 = None,
    out: Out = None,
    resume: Resume = None,
    graph: Graph = True,
    profile: Profile = False,
    checkpoint_every: Every = 30.0,
    checkpoint_steps: Steps = 0,
    plots: Plots = True,
    quiet: Quiet = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Learn which of two opposite quarters a point is in (seconds).

    No single layer can: try --model linear.
    """
    _run("xor", dict(locals()))


@app.command()
def points(
    dataset: Dataset = None,
    device: Device = None,
    model: PointsModel = None,
    hidden: Hidden64 = None,
    epochs: Epochs60 = None,
    batch_size: Batch25 = None,
    lr: Lr01 = None,
    optimizer: Optimizer = None,
    seed: Seed = None,
    limit: Points500 = None,
    out: Out = None,
    resume: Resume = None,
    graph: Graph = True,
    profile: Profile = False,
    checkpoint_every: Every = 30.0,
    checkpoint_steps: Steps = 0,
    plots: Plots = True,
    quiet: Quiet = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Learn two classes of points in the plane, such as two spirals (seconds)."""
    _run("points", dict(locals()))


@app.command()
def mnist(
    dataset: Digits = None,
    device: Device = None,
    model: DigitsModel = None,
    hidden: Hidden256 = None,
    epochs: Epochs5 = None,
    batch_size: Batch128 = None,
    lr: Lr01 = None,
    optimizer: Optimizer = None,
    seed: Seed = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    out: Out = None,
    resume: Resume = None,
    graph: Graph = True,
    profile: Profile = False,
    checkpoint_every: Every = 30.0,
    checkpoint_steps: Steps = 0,
    plots: Plots = True,
    quiet: Quiet = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Learn to read handwritten digits (minutes).

    Where MNIST cannot be had, digits that are drawn by the computer take its place.
    """
    _run("mnist", dict(locals()))


def _run(recipe: str, options: dict[str, Any]) -> None:
    """Train, and print the result in one line."""
    with friendly(options.pop("debug"), f"minitorch train {recipe}"):
        from minitorch.cli import STARTED
        from minitorch.train import TrainConfig, train

        result = train(TrainConfig(recipe=recipe, **options), STARTED)
        typer.echo(result.summary())
