"""Pictures of what a network learnt.

With this file one can draw, into PNG files: how loss and accuracy changed
(`plot_curves`; of several runs, `plot_runs`), what a network says about each place of
the plane (`plot_boundary`), what it takes for what (`plot_confusion`) and where it is
most wrong (`plot_mistakes`). matplotlib is imported at the first picture, and no window
is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from minitorch.train.session import Epoch

# Two colours that people who do not see red and green apart can tell apart (after
# Okabe and Ito, "Color universal design", 2008), and greys for what is not data.
BLUE, ORANGE = "#0072b2", "#d55e00"
INK, GREY, FAINT = "#222222", "#6b6b6b", "#dddddd"

DPI = 150


def plot_curves(
    history: Sequence[Epoch],
    path: Path,
    name: str,
    trace: Sequence[tuple[float, float, float]] = (),
) -> None:
    """Loss and accuracy over the epochs, on training and on test examples.

    Args:
        trace: (epochs, loss, accuracy) of training, finer than one for each epoch.
    """
    figure = new_figure(9.0, 3.9)
    left, right = figure.subplots(1, 2)
    epochs = [float(row.epoch) for row in history]
    # The numbers of an epoch's training are means over it: they belong to its middle.
    train = list(trace) or [
        (row.epoch - 0.5, row.train_loss, row.train_accuracy) for row in history
    ]
    times = [point[0] for point in train]
    losses = [point[1] for point in train], [row.test_loss for row in history]
    _two_lines(left, times, losses[0], epochs, losses[1])
    _two_lines(
        right,
        times,
        [100 * point[2] for point in train],
        epochs,
        [100 * row.test_accuracy for row in history],
    )
    values = [*losses[0], *losses[1]]
    if min(values) > 0 and max(values) / min(values) > 20:
        left.set_yscale("log")
        left.tick_params(which="minor", length=0)
    _title(left, "Loss", "cross-entropy, lower is better")
    _title(right, "Accuracy", f"{history[-1].test_accuracy:.2%} of the test examples")
    right.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    # The first steps are at the mercy of chance; what matters is the rest.
    usual = np.percentile([point[2] for point in train], 10)
    low = 100 * min(float(usual), *(row.test_accuracy for row in history))
    right.set_ylim(low - 0.05 * (100 - low) - 0.1, 100 + 0.05 * (100 - low) + 0.1)
    figure.suptitle(name, x=0.01, ha="left", color=INK, weight="bold", size=13)
    save_figure(figure, path)


def plot_runs(
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], metric: str, path: Path
) -> None:
    """One metric of several runs: for each name, steps [N] and values [N]."""
    from matplotlib import colormaps

    figure = new_figure(7.2, 4.4)
    axes = figure.subplots()
    colors = colormaps["viridis"](np.linspace(0.0, 0.85, len(runs)))
    styles = ("-", "--", ":", "-.")  # told apart without colours, too
    for i, (name, (steps, values)) in enumerate(runs.items()):
        axes.plot(steps, values, styles[i % 4], color=colors[i], label=name)
    axes.set_xlabel("steps", color=GREY)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    plain(axes)
    _title(axes, metric, f"{len(runs)} run{'s' if len(runs) > 1 else ''}")
    axes.legend(frameon=False, labelcolor=INK)
    save_figure(figure, path)


def plot_boundary(
    probability: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]],
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    path: Path,
    title: str,
) -> None:
    """What a network says about each place of the unit square, and points of two
    classes; those on the wrong side are ringed.

    Args:
        probability: places float32 [M, 2] -> the probability of class 1, [M].
        x, y: the points [N, 2] and their classes [N].
    """
    from matplotlib.colors import LinearSegmentedColormap

    side = np.linspace(0, 1, 300, dtype=np.float32)
    places = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    p = np.asarray(probability(places)).reshape(len(side), len(side))
    figure = new_figure(6.2, 5.6)
    axes = figure.subplots()
    colors = LinearSegmentedColormap.from_list("classes", [BLUE, "#ffffff", ORANGE])
    shades = axes.imshow(
        p, origin="lower", extent=(0, 1, 0, 1), cmap=colors, vmin=0, vmax=1, alpha=0.55
    )
    if p.min() < 0.5 < p.max():
        axes.contour(side, side, p, levels=[0.5], colors=INK, linewidths=1.4)
    _scatter_classes(axes, x, y, np.asarray(probability(x)) > 0.5)
    bar = figure.colorbar(shades, ax=axes, shrink=0.82, aspect=28, pad=0.03)
    bar.set_label("probability of class 1", color=GREY)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelcolor=GREY)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xticks([0, 0.5, 1])
    axes.set_yticks([0, 0.5, 1])
    plain(axes)
    axes.legend(
        loc="upper left", bbox_to_anchor=(0, -0.06), ncols=3, frameon=False,
        borderaxespad=0, handletextpad=0.2, columnspacing=1.2, labelcolor=INK,
    )  # fmt: skip
    axes.set_title(title, loc="left", color=INK, weight="bold", size=11.5, pad=10)
    save_figure(figure, path)


def _scatter_classes(
    axes: Axes,
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    guesses: npt.NDArray[np.bool_],
) -> None:
    """Points of two classes; those that are taken for the other one get a ring."""
    for label, color, marker in ((0, BLUE, "o"), (1, ORANGE, "s")):
        axes.scatter(
            x[y == label, 0], x[y == label, 1], c=color, marker=marker, s=20,
            edgecolors="white", linewidths=0.7, label=f"class {label}", zorder=3,
            clip_on=False,
        )  # fmt: skip
    wrong = guesses != (y == 1)
    if wrong.any():
        axes.scatter(
            x[wrong, 0], x[wrong, 1], facecolors="none", edgecolors=INK, s=90,
            linewidths=1.4, label=f"wrong ({wrong.sum()})", zorder=4, clip_on=False,
        )  # fmt: skip


def plot_confusion(
    labels: npt.NDArray[np.int64],
    guesses: npt.NDArray[np.int64],
    path: Path,
    name: str,
) -> None:
    """How often each digit was taken for each other one. `labels`, `guesses`: [N]."""
    from matplotlib.colors import LinearSegmentedColormap

    counts = np.zeros((10, 10), dtype=np.int64)
    np.add.at(counts, (labels, guesses), 1)
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    figure = new_figure(7.4, 6.9)
    axes = figure.subplots()
    # The square root lets single mistakes be seen beside frequent ones.
    shade = np.sqrt(wrong / max(1, wrong.max()))
    colors = LinearSegmentedColormap.from_list("mistakes", ["#ffffff", ORANGE])
    axes.imshow(shade, cmap=colors, vmin=0, vmax=1)
    for i in range(10):
        for j in range(10):
            _count(axes, i, j, int(counts[i, j]), float(shade[i, j]))
    _shares(axes, counts)
    axes.set_xticks(range(10))
    axes.set_yticks(range(10))
    axes.set_xlabel("read as", color=GREY)
    axes.set_ylabel("is a", color=GREY)
    plain(axes)
    axes.tick_params(labelsize=11, labelcolor=INK)
    _title(
        axes,
        f"{name}: {wrong.sum():,} of {len(labels):,} test digits misread",
        "rows: what the digit is; columns: what the network took it for",
    )
    save_figure(figure, path)


def _shares(axes: Axes, counts: npt.NDArray[np.int64]) -> None:
    """Beside each row of the confusion matrix, how much of it is right."""
    axes.text(9.7, -0.7, "right", color=GREY, size=9.5)
    totals = counts.sum(axis=1)
    for i in np.flatnonzero(totals).tolist():
        share = f"{counts[i, i] / totals[i]:.1%}"
        axes.text(9.7, i, share, va="center", color=GREY, size=9.5, clip_on=False)


def _count(axes: Axes, row: int, column: int, count: int, shade: float) -> None:
    """One number of the confusion matrix; the diagonal, which is right, in blue."""
    from matplotlib.patches import Rectangle

    if row == column:
        box = Rectangle((column - 0.5, row - 0.5), 1, 1, color=BLUE, alpha=0.13, lw=0)
        axes.add_patch(box)
    elif count == 0:
        return
    color = BLUE if row == column else ("white" if shade > 0.75 else INK)
    weight = "bold" if row == column else "normal"
    axes.text(
        column, row, f"{count}", ha="center", va="center", color=color, weight=weight,
        size=10.5,
    )  # fmt: skip


def plot_mistakes(
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.int64],
    probabilities: npt.NDArray[np.float32],
    path: Path,
    name: str,
    rows: int = 4,
    columns: int = 8,
) -> None:
    """The digits whose right answer the network found least likely.

    Args:
        images: bytes [N, 28, 28].
        labels: the right answers [N].
        probabilities: what the network says, [N, 10].
    """
    guesses = probabilities.argmax(axis=1)
    chance = probabilities[np.arange(len(labels)), labels]
    wrong = np.flatnonzero(guesses != labels)
    worst = wrong[np.argsort(chance[wrong], kind="stable")][: rows * columns]
    rows = max(1, -(-len(worst) // columns))
    figure = new_figure(1.15 * columns, 1.5 * rows + 0.9)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, i in zip(grid.flat, worst):
        axes.imshow(images[i], cmap="gray_r", vmin=0, vmax=255, interpolation="nearest")
        axes.add_patch(_frame())
        sure = probabilities[i, guesses[i]]
        axes.set_title(
            f"{guesses[i]}", color=ORANGE, weight="bold", size=13, loc="left", pad=3
        )
        axes.set_title(f"is a {labels[i]}", color=BLUE, size=9.5, loc="right", pad=4)
        axes.text(
            0.5, -0.05, f"{sure:.1%} sure", ha="center", va="top", color=GREY, size=8.5,
            transform=axes.transAxes,
        )  # fmt: skip
    text = f"{name}: the worst {len(worst)} of {len(wrong)} mistakes"
    if len(wrong) == 0:
        text = f"{name}: no mistakes"
    figure.suptitle(text, x=0.01, ha="left", color=INK, weight="bold", size=13)
    below = "orange: what the network read, and how sure it was; blue: what it is"
    figure.supxlabel(below, x=0.01, ha="left", color=GREY, size=9)
    save_figure(figure, path)


# --------------------------------------------------------------------- common parts


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, for a file."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file; the file is complete or not there."""
    from minitorch.data.files import atomic_write

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        figure.savefig(file, format="png", facecolor="white")


def _frame() -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((-0.5, -0.5), 28, 28, fill=False, color=FAINT, lw=1)


def plain(axes: Axes) -> None:
    """No frame and no ticks around the data."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelcolor=GREY)


def _title(axes: Axes, text: str, below: str) -> None:
    axes.set_title(text, loc="left", color=INK, weight="bold", size=12, pad=24)
    axes.text(
        0, 1.02, below, transform=axes.transAxes, va="bottom", color=GREY, size=9.5
    )


def _two_lines(
    axes: Axes,
    train_epochs: list[float],
    train: list[float],
    test_epochs: list[float],
    test: list[float],
) -> None:
    """Training and test values over epochs."""
    from matplotlib.ticker import MaxNLocator

    axes.plot(train_epochs, train, color=BLUE, linewidth=1.4, label="training")
    axes.plot(
        test_epochs, test, color=ORANGE, linewidth=1.8, label="test", zorder=3,
        marker="o" if len(test) <= 15 else None, markersize=5, clip_on=False,
    )  # fmt: skip
    axes.set_xlim(0, max(test_epochs))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set_xlabel("epochs", color=GREY)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    plain(axes)
    axes.spines["bottom"].set(visible=True, color=GREY)
    rising = test[-1] + train[-1] > test[0] + train[0]
    corner: Any = "lower right" if rising else "upper right"
    axes.legend(loc=corner, frameon=False, labelcolor="linecolor", handlelength=1.6)
