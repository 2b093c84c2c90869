"""Pictures for a16 and docs/scaling.md: urns, losses by budget, a law, a forecast."""

from __future__ import annotations

from math import log10
from typing import Any

import numpy as np

from assignments.a16_scaling_laws.forecast import LAW, columns, measured
from assignments.catalog import LIBRARY
from assignments.pictures import picture
from minitorch.data.urns import UrnText
from minitorch.scaling import Run, fit_law, isoflop_minimum, read_runs
from minitorch.scenes import Scene, part

A16 = "assignments/a16_scaling_laws"
HUES = (1, 4, 3, 2, 5, 6)


def _powers(low: int, high: int, step: int = 1) -> list[list[Any]]:
    """Ticks at powers of ten."""
    return [[n, f"1e{n}"] for n in range(low, high + 1, step)]


def _by_budget(runs: list[Run]) -> dict[float, list[Run]]:
    found: dict[float, list[Run]] = {}
    for run in sorted(runs):
        if run.seed == 0:
            found.setdefault(run.budget, []).append(run)
    return found


@picture(f"{A16}/urns")
def urns() -> Scene:
    text, n = UrnText(64), 6
    rows: Any = []
    for a in range(2):
        for b in range(3):
            slots = text.urns[a, b].tolist()
            cells = [[str(c), 2 if c in (0, 1) else 0] for c in slots]
            rows.append((f"{a} {b}: {text.pairs[a, b]:.1%}", cells))
    order = np.sort(text.pairs.reshape(-1))[::-1]
    points = [
        [log10(i + 1), log10(order[i])]
        for i in np.unique(np.geomspace(1, 2000, 60).astype(int) - 1)
    ]
    grid = part(
        "grid", "pair, how frequent, and its urn", cells=[c for _, c in rows],
        rows=[name for name, _ in rows[:n]], size=(30, 26),
    )  # fmt: skip
    curve = part(
        "curve", "pairs by their frequency", x=[0, 3.5], y=[-6, -0.5], size=(240, 150),
        series=[{"points": points, "hue": 1}], xticks=_powers(0, 3),
        yticks=_powers(-6, -1), xlabel="rank of the pair",
    )  # fmt: skip
    return [[grid, curve]]


def _isoflops(rows: list[Run], **axes: Any) -> Scene:
    """Losses over N, a curve for each budget, and the lowest points of parabolas."""
    series, names = [], []
    for hue, (budget, runs) in zip(HUES, _by_budget(rows).items()):
        points = [[log10(run.N), run.loss] for run in runs]
        series.append({"points": points, "hue": hue, "dots": True, "line": True})
        names.append([*points[-1], f"{budget:.0e}".replace("+", ""), hue])
        try:
            best, lowest = isoflop_minimum(*np.array([(r.N, r.loss) for r in runs]).T)
        except ValueError:
            continue
        if runs[0].N <= best <= runs[-1].N:
            mark = [[log10(best), lowest]]
            series.append({"points": mark, "hue": hue, "dots": True, "open": True})
    return [[part(
        "curve", size=(420, 220), series=series, names=names, xlabel="N", **axes,
    )]]  # fmt: skip


@picture(f"{A16}/isoflops")
def isoflops() -> Scene:
    sizes = (2000, 5000, 10_000, 20_000, 50_000)
    return _isoflops(
        measured(), x=[3.2, 5.1], y=[1.5, 2.6],
        xticks=[[log10(n), f"{n:,}"] for n in sizes],
        yticks=[[y, f"{y:g}"] for y in (1.5, 1.75, 2, 2.25, 2.5)],
    )  # fmt: skip


@picture("docs/pictures/isoflops_gpu")
def isoflops_gpu() -> Scene:
    runs = read_runs(LIBRARY / "docs" / "scaling_h200.csv")
    sizes = (10_000, 30_000, 100_000, 300_000, 1_000_000)
    return _isoflops(
        [run for run in runs if run.loss < 2.4], x=[3.9, 6.4], y=[1.6, 2.4],
        xticks=[[log10(n), f"{n:,}"] for n in sizes],
        yticks=[[y, f"{y:g}"] for y in (1.75, 2, 2.25)],
    )  # fmt: skip


@picture(f"{A16}/entropy")
def entropy() -> Scene:
    """The best loss of each budget, as it is and without the entropy."""
    least = UrnText(64).entropy
    best = [
        [log10(c), min(r.loss for r in runs)]
        for c, runs in _by_budget(measured()).items()
    ]
    series = [
        {"points": [[c, log10(y)] for c, y in best], "hue": 2, "dots": True,
         "line": True, "text": "loss", "at": [11, 0.36]},
        {"points": [[c, log10(y - least)] for c, y in best], "hue": 1, "dots": True,
         "line": True, "text": "loss - entropy", "at": [11, -0.75]},
    ]  # fmt: skip
    ticks = (0.1, 0.2, 0.5, 1, 2)
    return [[part(
        "curve", x=[9.8, 11.7], y=[-1.1, 0.45], size=(360, 170), series=series,
        xticks=_powers(10, 11), yticks=[[log10(y), f"{y:g}"] for y in ticks],
        xlabel="C",
    )]]  # fmt: skip


@picture(f"{A16}/law")
def law() -> Scene:
    """What laws of all rows, and of those that have begun, say of these rows."""
    runs, parts = measured(), []
    for least, caption in ((0, "all rows"), (1000, "1,000 steps or more")):
        some = [run for run in runs if run.steps >= least]
        found = fit_law(*(columns(some)[name] for name in LAW))
        points = [[run.loss, float(found(run.N, run.D))] for run in some]
        series = [
            {"points": [[1.5, 1.5], [2.7, 2.7]], "hue": 0, "dash": True},
            {"points": points, "hue": 1 if least else 2, "dots": True, "line": False},
        ]
        ticks = [[y, f"{y:g}"] for y in (1.5, 2, 2.5, 3)]
        parts.append(part(
            "curve", caption, x=[1.5, 2.7], y=[1.5, 3.3], size=(200, 240),
            series=series, xticks=ticks[:3], yticks=ticks, xlabel="loss",
            notes=[f"E = {found.E:.2f}"],
        ))  # fmt: skip
    return [parts]
