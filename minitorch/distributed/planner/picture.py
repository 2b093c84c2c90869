"""The best layouts as a picture: what they keep, and when stages work.

With this file one can draw memory bars above the timeline of a pipeline (`draw`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minitorch.distributed.planner.cost import Estimate
from minitorch.distributed.planner.memory import KINDS
from minitorch.distributed.planner.search import Task, distinct, timeline, waits
from minitorch.scenes import Scene, part, write

HUES = (1, 5, 3, 2, 4, 6, 0)  # one for each of KINDS
MOST_WORK = 32  # so many micro-batches of a timeline can be told apart
WIDTH = 560  # pixels


def draw(task: Task, found: Sequence[Estimate], path: Path, top: int = 5) -> None:
    """The memory of the best `top` cuts, and the fastest pipeline of all, as SVG.

    Raises:
        ValueError: the name does not end as an SVG file's.
    """
    names = ", ".join(str(one.layout) for one in distinct(found)[:top])
    write(scene(task, found, top), path, f"Memory of the best layouts, {names}")


def scene(task: Task, found: Sequence[Estimate], top: int = 5) -> Scene:
    """The same as plain data (`minitorch/scenes.py`)."""
    end, rows = 1.05 * task.gpu.memory, []
    for one in distinct(found)[:top]:
        bar = [[one.memory[kind], hue] for kind, hue in zip(KINDS, HUES)]
        marks = [[task.gpu.memory, 0]]
        rows.append([f"{one.layout}", bar, marks, [f"{one.gib:.1f}"]])
    title = f"{task.model.name}, {task.model.parameters() / 1e9:.3g} billion parameters"
    items = [[kind, hue, "bar"] for kind, hue in zip(KINDS, HUES)]
    step = 20 if end > 50 else 5
    ticks = [[n, f"{n}"] for n in range(0, int(end) + 1, step)]
    piped = [one for one in found if one.layout.pp > 1] or list(found[:1])
    return [
        [part("legend", f"{title}, on {task.gpus} x {task.gpu.name}", items=items)],
        [part(
            "bars", rows=rows, end=end, width=WIDTH - 160, ticks=ticks,
            xlabel="GiB on the fullest GPU; the mark is what the GPU has",
        )],
        *_timeline(piped[0]),
    ]  # fmt: skip


def _timeline(one: Estimate) -> Scene:
    layout, spans = one.layout, timeline(one)
    seen = max(MOST_WORK // layout.virtual, min(layout.pp, 2 * MOST_WORK))
    last = max(s.end for row in spans for s in row if s.action.microbatch < seen)
    lanes = []
    for stage, row in enumerate(spans):
        bars = []
        for action, start, end in row:
            strong = 1 - 0.7 * action.chunk / layout.virtual
            hue = 1 if action.kind == "F" else 2
            if start < last:
                bars.append([start, min(end, last), "", hue, strong])
        lanes.append([f"stage {stage}", bars])
    some = f", first {seen} of {layout.micro_batches} micro-batches"
    text = f"{last:.3g} seconds{some if seen < layout.micro_batches else ''}"
    paler = "; later parts of a stage are paler" if layout.virtual > 1 else ""
    title = f"1F1B of {layout}: stages wait for {waits(one):.1%} of the time"
    return [
        [part("legend", title, items=[["forward", 1, "bar"], ["backward", 2, "bar"]])],
        [part(
            "timeline", lanes=lanes, unit=WIDTH / last, height=14, notes=[text + paler]
        )],
    ]  # fmt: skip
