"""What is left of a training run: a table, JSON files and pictures.

With this file one can show a run's numbers (`show_table`), keep them for other programs
(`write_json`) and draw what there is to see (`draw_digits`, `draw_points`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from minitorch.train.loop import Evaluation
from minitorch.train.session import Epoch

# A run of many epochs shows this many rows, spread evenly.
MOST_ROWS = 12


def write_json(path: Path, content: Any) -> None:
    """Write `content` as JSON; the file is complete or not there."""
    from minitorch.data import atomic_write

    with atomic_write(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())


def show_table(history: Sequence[Epoch], title: str) -> None:
    """Print a row for each epoch (or for some, if there are many)."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("epoch", "train loss", "train acc", "test loss", "test acc"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("examples/s", justify="right", no_wrap=True)
    best = max(row.test_accuracy for row in history)
    for row in _some(history):
        table.add_row(
            str(row.epoch),
            f"{row.train_loss:.4f}",
            f"{row.train_accuracy:.2%}",
            f"{row.test_loss:.4f}",
            f"{row.test_accuracy:.2%}",
            f"{row.seconds:.1f}",
            f"{row.examples_per_second:,.0f}",
            style="bold" if row.test_accuracy == best else None,
        )
    Console(highlight=False).print(table)


def _some(history: Sequence[Epoch]) -> list[Epoch]:
    if len(history) <= MOST_ROWS:
        return list(history)
    picked = np.linspace(0, len(history) - 1, MOST_ROWS).round().astype(int)
    return [history[i] for i in picked]


def draw_points(
    folder: Path,
    history: Sequence[Epoch],
    trace: Sequence[tuple[float, float, float]],
    name: str,
    points: tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]],
    probability: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]],
) -> list[Path]:
    """Curves and the decision boundary.

    Args:
        points: x [N, 2] in the unit square and y [N], of the training examples.
        probability: [M, 2] -> the probability of class 1, [M].
    """
    from minitorch import plotting

    last = history[-1]
    title = (
        f"{name}: {last.train_accuracy:.1%} of the training points, "
        f"{last.test_accuracy:.1%} of new ones"
    )
    curves, boundary = folder / "curves.png", folder / "boundary.png"
    plotting.plot_curves(history, curves, name, trace)
    plotting.plot_boundary(probability, *points, boundary, title)
    return [curves, boundary]


def draw_digits(
    folder: Path,
    history: Sequence[Epoch],
    trace: Sequence[tuple[float, float, float]],
    name: str,
    images: npt.NDArray[np.uint8],
    test: Evaluation,
) -> list[Path]:
    """Curves, the confusion matrix and the worst mistakes. `images` [N, 28, 28] are
    those that `test` is about."""
    from minitorch import plotting

    curves = folder / "curves.png"
    confusion, mistakes = folder / "confusion.png", folder / "mistakes.png"
    guesses = test.probabilities.argmax(axis=1)
    plotting.plot_curves(history, curves, name, trace)
    plotting.plot_confusion(test.labels, guesses, confusion, name)
    plotting.plot_mistakes(images, test.labels, test.probabilities, mistakes, name)
    return [curves, confusion, mistakes]
