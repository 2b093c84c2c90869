"""Pictures of the chapter on training: the size of steps, by rate and by schedule."""

from __future__ import annotations

from typing import Any

import minitorch
from assignments.pictures import picture
from minitorch.optim import SGD
from minitorch.scenes import Scene, part
from minitorch.train.schedule import one_cycle, warm_up_cosine


@picture("docs/pictures/rates")
def rates() -> Scene:
    curvature = minitorch.tensor([1.0, 12.0], device="simple")
    series = []
    for hue, lr, at in (
        (1, 0.01, [25, 0.4]), (3, 0.14, [7.5, 0.1]), (2, 0.168, [20, 1.25]),
    ):  # fmt: skip
        x = minitorch.tensor([1.0, 0.35], device="simple", requires_grad=True)
        optimizer, losses = SGD([x], lr=lr), []
        for _ in range(31):
            loss = (curvature * x * x).sum() / 2
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        points = [[step, loss] for step, loss in enumerate(losses) if loss < 1.5]
        label = {"text": f"lr {lr}", "at": at}
        series.append({"points": points, "hue": hue, **label})
    return [[part(
        "curve", x=[0, 30], y=[0, 1.5], size=(460, 190), series=series, xlabel="steps",
        xticks=[[n, str(n)] for n in (0, 10, 20, 30)], ylabel="loss",
        yticks=[[y, f"{y:g}"] for y in (0, 0.5, 1, 1.5)],
    )]]  # fmt: skip


@picture("docs/pictures/schedules")
def schedules() -> Scene:
    steps = 100
    series: list[Any] = []
    for hue, text, at, factor in (
        (1, "one_cycle", [65, 0.78], one_cycle(steps)),
        (2, "warm_up_cosine", [33, 0.5], warm_up_cosine(5, 90, 0.1)),
    ):
        points = [[step, factor(step)] for step in range(steps)]
        series.append({"points": points, "hue": hue, "text": text, "at": at})
    return [[part(
        "curve", x=[0, steps], y=[0, 1.05], size=(460, 150), series=series,
        xticks=[[n, str(n)] for n in (0, 20, 50, 90)], xlabel="step",
        yticks=[[0, "0"], [0.1, "0.1"], [1, "1"]], ylabel="factor of the rate",
    )]]  # fmt: skip
