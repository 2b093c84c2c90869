"""Pictures for a18: batches that wait and that do not, prompts in pieces, shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.pictures import picture
from minitorch import manual_seed
from minitorch.models import GPT, GPTConfig
from minitorch.scenes import Scene, part
from minitorch.serving import Engine

A19 = "assignments/a18_serving"


def _engine(batch: int, budget: int = 64) -> Engine:
    manual_seed(0)
    config = GPTConfig(vocab_size=8, block_size=64, n_layer=1, n_head=1, n_embd=4)
    return Engine(GPT(config).to("simple"), 40, 4, batch, budget)


def _places(groups: Sequence[dict[str, int]], batch: int) -> tuple[list[Any], int]:
    """Lanes of places, where each group begins when the one before has ended."""
    lanes: list[Any] = [[f"place {i + 1}", []] for i in range(batch)]
    step = 0
    for group in groups:
        engine, has = _engine(batch), {}
        names = {engine.add([1, 2], n, temperature=0): x for x, n in group.items()}
        while engine.busy:
            running = {event.id for event in engine.step()}
            has = {i: id for i, id in has.items() if id in running}
            for id in sorted(running - {*has.values()}):
                place = min({*range(batch)} - {*has})
                has[place] = id
                lanes[place][1].append([step, step, names[id], ord(names[id]) - 64])
            for place in has:
                lanes[place][1][-1][1] = step + 1
            step += 1
    return lanes, step


LENGTHS = {"A": 9, "B": 3, "C": 4, "D": 2, "E": 8, "F": 3}


@picture(f"{A19}/batches")
def batches() -> Scene:
    """Six texts of different lengths, in two places."""
    names = list(LENGTHS)
    pairs = [{x: LENGTHS[x] for x in names[i : i + 2]} for i in range(0, 6, 2)]
    rows = []
    for caption, groups in (
        ("batches of two", pairs),
        ("anew for each step", [LENGTHS]),
    ):
        lanes, steps = _places(groups, 2)
        ticks = [[i, str(i)] for i in range(0, 25, 4)]
        notes = [f"{steps} steps"]
        rows.append([
            part("timeline", caption, lanes=lanes, ticks=ticks, unit=18, notes=notes)
        ])  # fmt: skip
    return rows


# What two models expect of the next token.
SMALL, LARGE = {"a": 6, "b": 3, "c": 1}, {"a": 3, "b": 3, "c": 4}


@picture(f"{A19}/shares")
def shares() -> Scene:
    q, p = (np.array(list(x.values())) / 10 for x in (SMALL, LARGE))
    kept, lacks = np.minimum(p, q), np.maximum(p - q, 0)
    parts = []
    for caption, lengths in (
        ("the small one makes, q", [(x, 0.0) for x in q]),
        ("what stays, and what is drawn instead", list(zip(kept, lacks))),
        ("the large one makes, p", [(x, 0.0) for x in p]),
    ):
        rows = [
            [name, [[float(a), 1], [float(b), 2]][: 1 + bool(b)], [], [f"{a + b:.1f}"]]
            for name, (a, b) in zip(SMALL, lengths)
        ]
        ticks = [[x, f"{x:g}"] for x in (0, 0.3, 0.6)]
        parts.append(part("bars", caption, rows=rows, end=0.6, width=130, ticks=ticks))
    return [parts]
