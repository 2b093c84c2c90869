"""Pictures of what was measured, as scenes of `minitorch/scenes.py`.

With this file one can draw the rungs of a ladder as bars (`ladder`), and everything
that computes under the roofs of the machine (`roofline`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

from minitorch.bench.report import Limits, Result
from minitorch.scenes import Part, Scene, part

OURS, THEIRS, LIMIT = 1, 2, 0  # hues
FAMILIES = 1, 4, 3, 2, 5, 6
ROOFS = 480, 240  # a roofline, in pixels


def name_of(rung: Result) -> str:
    """The idea of a rung, without the name of its ladder."""
    text = rung.name.removeprefix(f"{rung.family}_").removeprefix("sum_")
    return text.replace("_", " ")


def _unit(top: float) -> tuple[str, float]:
    return ("T", 1e12) if top > 1e12 else ("G", 1e9)


def _digits(x: float) -> str:
    """Three digits, without an exponent: 0.487, 33.9, 1,240."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


# ----------------------------------------------------------------------------- ladders


def ladder(rungs: Sequence[Result], limits: Limits) -> Scene:
    """The rungs of a ladder as bars, with two marks across each.

    Operations a second where the rungs have any, else bytes a second. One mark is
    PyTorch's speed, the other the limit of what the rung uses: tensor cores, other
    units, memory. At the right stand the speed and its share of that limit. A wrong
    result has a dashed bar.
    """
    kind = "FLOP/s" if rungs[0].flops else "B/s"
    prefix, scale = _unit(limits.flops if rungs[0].flops else limits.bandwidth)
    rows, most = [], 0.0
    for rung in rungs:
        work = (rung.flops or rung.bytes) / scale
        speed, theirs = work / rung.ours, work / rung.torch
        marks = [[theirs, THEIRS]]
        if rung.share:
            marks.append([speed / rung.share, LIMIT])
        most = max(most, speed, *(at for at, _ in marks))
        share = f"{100 * rung.share:.0f} %" if rung.share else ""
        texts = [_digits(speed), "wrong" if rung.wrong else share]
        bar = [speed, -1 if rung.wrong else OURS]
        rows.append([name_of(rung), [bar], marks, texts])
    items = [["minitorch", OURS, "bar"], ["PyTorch", THEIRS, "mark"]]
    items.append(["limit of what a rung uses", LIMIT, "mark"])
    bars = part(
        "bars", rows=rows, end=most * 1.02, width=380, ticks=_ticks(most),
        xlabel=f"{prefix}{kind}; at the right: speed, and share of its limit",
    )  # fmt: skip
    return [[part("legend", f"The {rungs[0].family} ladder", items=items)], [bars]]


def _ticks(most: float) -> list[list[Any]]:
    """Three to six round numbers from 0 on."""
    step = 10.0 ** floor(log10(most / 2.5))
    step = next(k * step for k in (1, 2, 5, 10) if most / (k * step) <= 5.5)
    return [[k * step, f"{k * step:,.6g}"] for k in range(floor(most / step) + 1)]


# --------------------------------------------------------------------------- rooflines


def roofline(
    results: Sequence[Result], rungs: Sequence[Result], limits: Limits
) -> Scene:
    """Operations a second over operations for each byte, under the machine's roofs.

    A part for the rungs of each ladder that computes, with their names, and one for all
    other results; nothing where no result has operations and bytes. Memory's slope is
    one for all. Where tensor cores multiplied, their roof is drawn, too, dashed, and
    what stands under it has a colour of its own.

    Source: Williams, Waterman and Patterson, "Roofline", 2009.
    """
    others, steps = (
        [r for r in rows if r.flops and r.bytes] for rows in (results, rungs)
    )
    if not (others or steps):
        return []
    hues = dict(zip(dict.fromkeys(map(_kind, [*steps, *others])), FAMILIES))
    items = [[kind, hue, "dot"] for kind, hue in hues.items()]
    parts = [[part("legend", items=[*items, ["hollow: PyTorch", 0, "open"]])]]
    for family in dict.fromkeys(r.family for r in steps):
        mine = [r for r in steps if r.family == family]
        parts.append([_roofs(f"The {family} ladder", mine, limits, hues, True)])
    if others:
        parts.append([_roofs("All other rows", others, limits, hues, False)])
    return parts


def _kind(result: Result) -> str:
    return f"{result.family}{' on tensor cores' if result.tensor else ''}"


def _point(result: Result, seconds: float) -> list[float]:
    """Powers of ten: operations a byte, and operations a second."""
    return [log10(result.flops / result.bytes), log10(result.flops / seconds)]


def _roofs(
    caption: str, results: Sequence[Result], limits: Limits, hues: Any, named: bool
) -> Part:
    """Points under the roofs of the units that they use; axes of powers of ten."""
    prefix, scale = _unit(limits.flops)
    peaks = {r.tensor: limits.tensor if r.tensor else limits.flops for r in results}
    ours = [_point(r, r.ours) for r in results]
    theirs = [_point(r, r.torch) for r in results]
    memory, points = log10(limits.bandwidth), [*ours, *theirs]
    x = [floor(min(p[0] for p in points)), ceil(max(p[0] for p in points) + 0.1)]
    x[0] = min(x[0], floor(log10(min(peaks.values())) - memory))
    y = [floor(min(p[1] for p in points)), ceil(log10(max(peaks.values())) + 0.1)]
    series = [_roof(*peak, memory, x, y[0], prefix, scale) for peak in peaks.items()]
    names = []
    for result, mine, other in zip(results, ours, theirs):
        hue = hues[_kind(result)]
        series.append({"points": [mine], "hue": hue, "dots": True})
        speed = _digits(result.flops / result.ours / scale)
        names.append([*mine, f"{name_of(result)} {speed}", hue])
        theirs_hue = hues.get(result.family, hue) if named else hue  # in float32
        series.append(
            {"points": [other], "hue": theirs_hue, "dots": True, "open": True}
        )
    return part(
        "curve", caption, x=x, y=y, size=ROOFS, series=series,
        names=names if named else [], ylabel=f"{prefix}FLOP/s",
        xlabel=f"operations a byte; memory: {limits.bandwidth / 1e9:,.0f} GB/s",
        xticks=[[k, f"{10.0**k:,g}"] for k in range(x[0], x[1] + 1)],
        yticks=[[k, f"{10.0**k / scale:,g}"] for k in range(y[0], y[1] + 1)],
    )  # fmt: skip


def _roof(
    tensor: bool, peak: float, memory: float, x: Any, bottom: int, prefix: str,
    scale: float,
) -> Part:  # fmt: skip
    """Memory's slope up to the ridge, and flat from there; powers of ten."""
    start, top = max(x[0], bottom - memory), log10(peak)
    return {
        "points": [[start, start + memory], [top - memory, top], [x[1], top]],
        "hue": 0, "dash": tensor, "side": "r", "at": [x[1] - 0.05, top + 0.1],
        "text": f"{_digits(peak / scale)} {prefix}FLOP/s",
    }  # fmt: skip
