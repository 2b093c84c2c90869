"""Pictures for a17: kinds of masks, bytes of places, what feedback saves, a teacher."""

from __future__ import annotations

from typing import Any

import numpy as np

from assignments.pictures import picture
from minitorch import Tensor, from_numpy, nn
from minitorch.nn.sparse import pack_two_of_four, two_of_four
from minitorch.nn.utils import prune
from minitorch.rounding import round_to_bits, round_with_feedback
from minitorch.scenes import Scene, part

A17 = "assignments/a17_compression"


@picture(f"{A17}/masks")
def masks() -> Scene:
    """Half of the same numbers is dropped, in three ways."""
    weight = from_numpy(np.random.default_rng(1).standard_normal((8, 8)))
    anywhere, rows = (nn.Linear(8, 8, bias=False) for _ in range(2))
    for layer in (anywhere, rows):
        layer.weight = nn.Parameter(weight)
    prune.l1_unstructured(anywhere, "weight", 0.5)
    prune.ln_structured(rows, "weight", 0.5, n=2, dim=0)
    found = {
        "half, anywhere": (anywhere.weight_mask, ()),
        "two of four": (two_of_four(weight), (4,)),
        "whole rows": (rows.weight_mask, ()),
    }
    return [[
        part("grid", name, size=(22, 22), split=split, cells=[
            [["", 1 if kept else -1] for kept in row] for row in mask.tolist()
        ])
        for name, (mask, split) in found.items()
    ]]  # fmt: skip


@picture(f"{A17}/packed")
def packed() -> Scene:
    """Eight numbers, the four that are kept, and the byte that says where they were."""
    weight = from_numpy(np.array([[3, -8, 1, 5, -2, 0, 7, 4]]) / 10)
    mask = two_of_four(weight)
    values, places = pack_two_of_four(weight, mask)
    columns = mask[0].nonzero().squeeze(1).tolist()
    bits = [f"{column % 4:02b}" for column in columns]
    numbers = [
        [f"{w:g}", 1 if kept else -1] for w, kept in zip(weight[0].tolist(), mask[0])
    ]
    return [[part("layers", layers=[
        part("grid", cells=[numbers], size=(44, 28), split=(4,), rows=["weight"]),
        part("grid", cells=[[[f"{v:g}", 1] for v in values[0].tolist()]],
             size=(88, 28), rows=["values"]),
        part("grid", cells=[[[f"place {c % 4}", 2] for c in columns]], size=(88, 28)),
        part("grid", cells=[[[b, 2] for b in reversed(bits)]], size=(88, 28),
             rows=["byte"]),
    ], links=[
        [[c, i, 1] for i, c in enumerate(columns)],
        [[i, i, 2] for i in range(4)],
        [[i, 3 - i, 2] for i in range(4)],
    ], gap=34)], [part("text", notes=[
        f"as a number {int(places.item()) % 256}, as int8 {int(places.item())}"
    ])]]  # fmt: skip


def _off(weight: Tensor, x: Tensor, bits: int, feedback: bool) -> float:
    """The error of outputs, as a share of them."""
    q, scale = round_to_bits(weight, bits)
    if feedback:
        q, scale = round_with_feedback(weight, x, bits)
    rounded = q.to(weight.dtype) * scale.unsqueeze(1)
    return ((x @ (rounded - weight).T).norm() / (x @ weight.T).norm()).item()


@picture(f"{A17}/feedback")
def feedback() -> Scene:
    """Errors over bits, for inputs that go together and for some that do not."""
    random = np.random.default_rng(0)
    weight = from_numpy(random.standard_normal((64, 64)))
    alone = random.standard_normal((512, 64))
    few = random.standard_normal((512, 8)) @ random.standard_normal((8, 64))
    parts = []
    inputs = {"inputs that go together": few + 0.3 * alone, "independent": alone}
    for name, numbers in inputs.items():
        x, series = from_numpy(numbers), []
        for kind, hue, at in ((False, 2, [4.4, -0.72]), (True, 1, [3.1, -1.95])):
            points = [
                [bits, float(np.log10(_off(weight, x, bits, kind)))]
                for bits in (2, 3, 4, 5, 6)
            ]
            text = "with feedback" if kind else "nearest"
            look = {"dots": True, "line": True, "hue": hue}
            series.append({"points": points, "text": text, "at": at, **look})
        ticks: Any = [[np.log10(y), f"{y:g}"] for y in (0.01, 0.1, 1)]
        parts.append(part(
            "curve", name, x=[1.8, 6.2], y=[-2.3, 0.1], size=(220, 170), series=series,
            xticks=[[n, str(n)] for n in (2, 3, 4, 5, 6)], yticks=ticks, xlabel="bits",
        ))  # fmt: skip
    return [parts]


# Scores that a teacher might have for a picture of a 7.
SCORES = {"7": 9.0, "1": 4.0, "9": 3.0, "2": 1.0, "6": -4.0}


@picture(f"{A17}/teacher")
def teacher() -> Scene:
    parts = []
    for temperature in (1, 4):
        shares = (from_numpy(np.array(list(SCORES.values()))) / temperature).softmax(0)
        rows = [
            [name, [[share, 1]], [], [f"{share:.3f}"]]
            for name, share in zip(SCORES, shares.tolist())
        ]
        caption = f"T = {temperature}"
        ticks = [[x, f"{x:g}"] for x in (0, 0.5, 1)]
        parts.append(part("bars", caption, rows=rows, end=1, width=190, ticks=ticks))
    return [parts]
