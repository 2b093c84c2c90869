"""Pictures for a14 and docs/alignment.md: answers, adapters, losses, rewards."""

from __future__ import annotations

import re
from typing import Any

import minitorch
from assignments.catalog import LIBRARY
from assignments.pictures import picture
from assignments.pictures.networks import bars
from minitorch import nn
from minitorch.alignment import dpo_loss, group_advantages, policy_loss, side_by_side
from minitorch.lora import LoRALinear
from minitorch.scenes import Scene, part

A14 = "assignments/a14_alignment"


@picture(f"{A14}/answers")
def answers() -> Scene:
    texts = [("3+4=", "7."), ("28+9=", "37.")]
    signs = sorted({sign for pair in texts for text in pair for sign in text} | {" "})
    pairs = [[[signs.index(s) for s in text] for text in pair] for pair in texts]
    ids, mask = side_by_side(*zip(*pairs), device="simple")
    cells = []
    for row, asked in zip(ids.tolist(), mask.tolist()):
        read = [signs[t] for t in row]
        cells.append([[s, 0 if s.strip() else -1] for s in read[:-1]])
        cells.append(
            [[s if a else "", 3 if a else -1] for s, a in zip(read[1:], asked)]
        )
        cells.append([])
    rows = [s for n in (1, 2) for s in (f"read, pair {n}", "asked for", "")]
    more = {"rows": rows[:-1], "cols": [f"t = {t}" for t in range(len(cells[0]))]}
    notes = ["green: where the mask holds; dashed: does not count"]
    return [[part("grid", cells=cells[:-1], size=(44, 26), notes=notes, **more)]]


@picture(f"{A14}/adapter")
def adapter() -> Scene:
    layer = LoRALinear(nn.Linear(12, 8, device="simple"), 2, 2.0)
    parts = []
    for caption, p in (
        ("W, fixed", layer.base.weight), ("B, learns", layer.lora_B),
        ("A, learns", layer.lora_A),
    ):  # fmt: skip
        n, k = p.shape
        cells: Any = [[["", 2 if p.requires_grad else 0]] * k] * n
        notes = [f"{p.numel()} numbers"]
        parts.append(part("grid", caption, cells=cells, size=(16, 16), notes=notes))
    return [parts]


def _slopes(losses: Any, x: Any) -> list[list[float]]:
    """Points of the negative gradient of a sum of losses of x."""
    (grad,) = minitorch.autograd.grad(losses, [x])
    return [[a, -b] for a, b in zip(x.tolist(), grad.tolist())]


@picture(f"{A14}/preferences")
def preferences() -> Scene:
    x = minitorch.linspace(-5, 5, 81, device="simple").requires_grad_()
    zero = x.new_zeros(1)
    losses = [dpo_loss(a.reshape(1), zero, zero, zero, 1.0) for a in x.unbind()]
    loss = [[a, value.item()] for a, value in zip(x.tolist(), losses)]
    total: Any = sum(losses[1:], losses[0])
    series = [
        {"points": loss, "hue": 1, "text": "loss", "at": [-2.6, 3.2]},
        {"points": _slopes(total, x), "hue": 2, "text": "pull", "at": [-3.5, 1.2]},
    ]
    return [[part(
        "curve", x=[-5, 5], y=[0, 5], size=(420, 150), series=series, xlabel="margin",
        xticks=[[n, str(n)] for n in (-4, -2, 0, 2, 4)],
        yticks=[[n, str(n)] for n in (0, 1, 2, 4)],
    )]]  # fmt: skip


@picture(f"{A14}/groups")
def groups() -> Scene:
    rows = [[1.0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    found = group_advantages(minitorch.tensor(rows, device="simple")).tolist()
    return [[
        bars(
            [f"reward {r:g}:" for r in row], values, hue, 26, f"{sum(row):g} of 4 right"
        )
        for hue, (row, values) in enumerate(zip(rows, found), 1)
    ]]  # fmt: skip


@picture(f"{A14}/clip")
def clip() -> Scene:
    one = minitorch.ones(1, 1, device="simple")
    parts = []
    for a, caption in ((1.0, "A = 1"), (-1.0, "A = -1")):
        points = []
        for n in range(1, 41):
            log_p = minitorch.tensor([[n / 20]], device="simple").log()
            loss = policy_loss(log_p, one * 0, one[0] * a, one > 0, clip=0.2)
            points.append([n / 20, -loss.item()])
        free = [[n / 20, n / 20 * a] for n in range(1, 41)]
        low, high = min(0, 2 * a), max(0, 2 * a)
        parts.append(part(
            "curve", caption, x=[0, 2], y=[low, high], size=(210, 130),
            series=[
                {"points": free, "hue": 0, "dash": True},
                {"points": points, "hue": 3 if a > 0 else 2},
            ],
            xticks=[[v, f"{v:g}"] for v in (0, 0.8, 1, 1.2, 2)], xlabel="ratio",
            yticks=[[v, f"{v:g}"] for v in (low, a, high)],
        ))  # fmt: skip
    return [parts]


@picture("docs/pictures/rewards")
def rewards() -> Scene:
    page = (LIBRARY / "docs" / "alignment.md").read_text()
    rows = re.findall(r"^\| (\d+) \|(?: ([\d.]+))? \| ([\d.]+) \|$", page, re.M)
    found = [[int(step), float(right)] for step, _, right in rows]
    means = [[int(step) - 25, float(mean)] for step, mean, _ in rows if mean]
    last = found[-1][0]
    series = [
        {"points": found, "hue": 3, "text": "right, of unseen sums", "at": [150, 0.83]},
        {"points": means, "hue": 1, "text": "reward", "at": [420, 0.47]},
    ]
    return [[part(
        "curve", x=[0, last], y=[0, 1], size=(460, 170), series=series,
        xticks=[[n, str(n)] for n in range(0, last + 1, 100)], xlabel="steps of GRPO",
        yticks=[[y, f"{y:g}"] for y in (0, 0.25, 0.5, 0.75, 1)],
    )]]  # fmt: skip
