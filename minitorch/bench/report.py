"""Show what was measured: a table, JSON, a roofline, a ladder.

With this file one can turn the times of `harness.compare` into what a reader wants to
know: both medians, their ratio, GFLOP/s or GB/s, and the share of the machine's limit.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from minitorch.bench.harness import Timing
from minitorch.bench.inputs import Case
from minitorch.plotting import new_figure, save_figure


@dataclass(frozen=True)
class Limits:
    """What the machine can do at most: operations and bytes a second.

    `bandwidth` is for an array that is read and written in place and one that is read,
    `reading` for one that is only read; both of memory. Data of less than `cache` bytes
    may come faster, from a cache. `tensor` is for operations of tensor cores in TF32.
    """

    flops: float
    bandwidth: float
    reading: float
    cache: float
    tensor: float = 0.0

    def share(self, case: Case, seconds: float) -> float | None:
        """The least time that `case` can take here, over the time that it took.

        None where nothing is known: no counts, or data that caches may hold.
        """
        speed = self.reading if case.reads else self.bandwidth
        peak = self.tensor if case.tensor else self.flops
        computing, moving = case.flops / peak, case.bytes / speed
        if moving > computing and case.bytes < self.cache:
            return None
        least = max(computing, moving)
        return least / seconds if least else None


@dataclass(frozen=True)
class Result:
    """One measured case. Times in seconds, rates a second.

    `wrong` says that our result was not PyTorch's; a speed means nothing then.
    """

    family: str
    name: str
    ours: float
    torch: float
    ratio: float
    goal: float
    flops: float
    bytes: float
    share: float | None
    rounds: int
    discarded: int
    wrong: bool = False

    @staticmethod
    def of(case: Case, timing: Timing, limits: Limits, wrong: bool = False) -> Result:
        """The result of a case, with its share of what the machine can do."""
        ours = timing.our_median
        return Result(
            family=case.family,
            name=case.name,
            ours=ours,
            torch=timing.their_median,
            ratio=timing.ratio,
            goal=case.goal,
            flops=case.flops,
            bytes=case.bytes,
            share=limits.share(case, ours),
            rounds=len(timing.ours),
            discarded=timing.discarded,
            wrong=wrong,
        )

    @property
    def good(self) -> bool:
        """Whether the result is right and the goal is met."""
        return self.ratio <= self.goal and not self.wrong

    @property
    def rate(self) -> str:
        """GFLOP/s where the operations are the limit, else GB/s."""
        if self.flops and self.flops / max(self.bytes, 1.0) > 4:
            return f"{self.flops / self.ours / 1e9:.1f} GFLOP/s"
        return f"{self.bytes / self.ours / 1e9:.1f} GB/s" if self.bytes else ""


def seconds(value: float) -> str:
    """A time with three digits and a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


HEADINGS = ("what", "ours", "torch", "ratio", "goal", "rate", "share of limit")


def row(result: Result) -> tuple[str, ...]:
    """The cells of one line of the table."""
    share = "" if result.share is None else f"{100 * result.share:.0f} %"
    return (
        f"{result.name}: WRONG RESULT" if result.wrong else result.name,
        seconds(result.ours),
        seconds(result.torch),
        f"{result.ratio:.2f}",
        f"{result.goal:.2f}",
        result.rate,
        share,
    )


def summaries(results: Sequence[Result]) -> list[str]:
    """For each family the median of its ratios, and the worst of them."""
    texts = []
    for family in dict.fromkeys(result.family for result in results):
        mine = [result for result in results if result.family == family]
        worst = max(mine, key=lambda result: result.ratio)
        middle = statistics.median(result.ratio for result in mine)
        texts.append(
            f"{family}: median ratio {middle:.2f}, worst {worst.ratio:.2f} "
            f"({worst.name}), of {len(mine)}"
        )
    return texts


def markdown(results: Sequence[Result]) -> str:
    """The results as a table for a document."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "| --- " + "| ---: " * 6 + "|"]
    lines += ["| " + " | ".join(row(result)) + " |" for result in results]
    return "\n".join(lines) + "\n"


def to_json(results: Sequence[Result], machine: dict[str, Any]) -> str:
    """Everything that was measured, for programs."""
    body = {"machine": machine, "results": [asdict(result) for result in results]}
    return json.dumps(body, indent=2)


# -------------------------------------------------------------------------- pictures


def draw_roofline(results: Sequence[Result], limits: Limits, path: Path) -> None:
    """Operations a second over operations for each byte, under the machine's roof.

    Source: Williams, Waterman and Patterson, "Roofline", 2009.
    """
    points = [r for r in results if r.flops and r.bytes]
    figure = new_figure(9, 5.5)
    axes = figure.subplots()
    x = np.logspace(-2, 3, 200)
    roof = np.minimum(limits.flops, x * limits.bandwidth) / 1e9
    axes.loglog(x, roof, color="0.3", lw=1.5)
    axes.text(
        x[-1], roof[-1] * 1.06, f"{limits.flops / 1e9:.0f} GFLOP/s",
        ha="right", color="0.3",
    )  # fmt: skip
    axes.text(
        0.03, 0.03 * limits.bandwidth / 1e9 * 1.35,
        f"{limits.bandwidth / 1e9:.0f} GB/s", rotation=38, color="0.3",
    )  # fmt: skip
    families = sorted({r.family for r in points})
    for family in families:
        mine = [r for r in points if r.family == family]
        at = [r.flops / r.bytes for r in mine]
        (line,) = axes.plot(
            at, [r.flops / r.ours / 1e9 for r in mine], "o", label=family
        )
        axes.plot(
            at, [r.flops / r.torch / 1e9 for r in mine], "o",
            mfc="none", color=line.get_color(),
        )  # fmt: skip
    axes.plot([], [], "o", color="0.5", label="filled: minitorch")
    axes.plot([], [], "o", mfc="none", color="0.5", label="open: PyTorch")
    axes.set_xlabel("operations for each byte that must be moved")
    axes.set_ylabel("GFLOP/s")
    axes.set_title("Roofline of this machine")
    axes.grid(True, which="major", color="0.92")
    axes.legend(frameon=False, loc="lower right")
    save_figure(figure, path)


def draw_ladder(results: Sequence[Result], limits: Limits, path: Path) -> None:
    """The rungs of a ladder as bars, with PyTorch's speeds as marks.

    Operations a second where the results have any, else bytes a second. A grey mark in
    a row is the limit of what its rung uses: tensor cores, other units, memory. Bars of
    wrong results are hatched, and say so.
    """
    unit, top = (
        ("FLOP/s", limits.flops) if results[0].flops else ("B/s", limits.bandwidth)
    )
    prefix, scale = ("T", 1e12) if top > 1e12 else ("G", 1e9)
    unit = prefix + unit
    figure = new_figure(8, 0.6 * len(results) + 2.1)
    axes = figure.subplots()
    highest = _draw_rungs(axes, results, scale)
    theirs = [(r.flops or r.bytes) / r.torch / scale for r in results]
    text = f"PyTorch, about {statistics.median(theirs):.3g} {unit}"
    axes.plot(
        theirs, range(len(theirs)), "|", color="#e45756", ms=28, mew=2, label=text
    )
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(highest, *theirs))
    axes.set_xlabel(unit)
    axes.set_title(f"Each rung of the {results[0].family} ladder")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    save_figure(figure, path)


def _draw_rungs(axes: Any, results: Sequence[Result], scale: float) -> float:
    """A bar and a mark for each result, in units of `scale`; returns the highest."""
    speeds = [(r.flops or r.bytes) / r.ours / scale for r in results]
    family = f"{results[0].family}_"
    names = [
        r.name.removeprefix(family).removeprefix("sum_").replace("_", " ")
        for r in results
    ]
    bars = axes.barh(names, speeds, color="#4c78a8", height=0.6)
    texts = []
    for bar, speed, result in zip(bars, speeds, results):
        texts.append(f"{speed:.3g}")
        if result.wrong:
            bar.set(facecolor="white", edgecolor="#e45756", hatch="////")
            texts[-1] += ": WRONG RESULT"
    axes.bar_label(
        bars, texts, padding=4,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )  # fmt: skip
    limits = [s / r.share if r.share else nan for s, r in zip(speeds, results)]
    axes.plot(
        limits, range(len(results)), "|", color="0.3", ms=22, mew=2,
        label="limit of what the rung uses",
    )  # fmt: skip
    return float(np.nanmax([*speeds, *limits]))
