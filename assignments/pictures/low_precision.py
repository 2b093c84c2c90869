"""Pictures for a11: blocks of attention, bits and reach of halves, a loss's scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minitorch
from assignments.pictures import picture
from minitorch import nn, optim
from minitorch.amp import GradScaler
from minitorch.scenes import Scene, note, part

A11 = "assignments/a11_flash_attention"


@picture(f"{A11}/blocks")
def blocks() -> Scene:
    size, length = 4, 12
    # Key k, downwards, is seen by query q, to the right.
    seen = minitorch.ones(length, length, device="simple").triu()
    cells: list[Any] = []
    for k, row in enumerate(seen.tolist()):
        if k and k % size == 0:
            cells.append([])  # a gap between blocks
        keys = seen[k // size * size : k // size * size + size]
        used = [keys[:, q : q + size].sum().item() > 0 for q in range(0, length, size)]
        cells.append([["", 1 if v else 2 if used[q // size] else -1]
                      for q, v in enumerate(row)])  # fmt: skip
    rows = [s for k in range(0, length, size) for s in (f"key {k}", "", "", "", "")]
    cols = [f"q{q}" if q % size == 0 else "" for q in range(length)]
    return [
        [part("grid", cells=cells, size=(16, 16), split=[4, 8], cols=cols, rows=rows)],
        note("blue: seen; orange: computed, then hidden; dashed: not computed"),
    ]


@picture(f"{A11}/bits")
def bits() -> Scene:
    rows = []
    for number in (0x3F808000, 0x3F818000, 0x3F808001):
        x = np.array([number], np.uint32).view(np.float32)
        half = minitorch.tensor(x, device="simple").bfloat16().float().numpy()
        cells = [
            [[b, 1 if i < 1 else 2 if i < 9 else 3 if i < 16 else 0]
             for i, b in enumerate(f"{int(v.view(np.uint32)[0]):032b}"[:width])]
            for v, width in ((x, 32), (half, 16))
        ]  # fmt: skip
        names = [f"float32 {x[0]:.9g}", f"bfloat16 {half[0]:.9g}"]
        more = {"size": (16, 20), "split": [1, 9, 16], "rows": names}
        rows.append([part("grid", cells=cells, **more)])
    return [*rows, note(
        "blue: sign; orange: exponent; green: bits that stay; grey: bits that go"
    )]  # fmt: skip


@picture(f"{A11}/ranges")
def ranges() -> Scene:
    lanes = []
    for dtype in (minitorch.float32, minitorch.bfloat16, minitorch.float16):
        info = minitorch.finfo(dtype)
        least, low, high = (
            150 + math.log2(v) for v in (info.tiny * info.eps, info.tiny, info.max)
        )
        digits = f"{1 - round(math.log2(info.eps))} bits"
        lanes.append([dtype.name, [[least, low, "", 2], [low, high, digits, 1]]])
    ticks = [[150 + e, f"2^{e}"] for e in (-149, -126, -60, -14, 16, 60, 128)]
    notes = ["orange: numbers near zero, with fewer significant bits"]
    return [[part("timeline", lanes=lanes, unit=2, ticks=ticks, notes=notes)]]


@picture(f"{A11}/scale")
def scale() -> Scene:
    model = nn.Linear(1, 1, bias=False, device="simple")
    optimizer = optim.SGD(model.parameters(), lr=0.0)
    scaler = GradScaler("simple", init_scale=2.0**8, growth_interval=6)
    points, skipped = [], []
    for step in range(40):
        level = math.log2(scaler.get_scale())
        points += [[step, level], [step + 1, level]]
        x = minitorch.tensor([[math.inf if level >= 11 else 1.0]], device="simple")
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < 2**level:
            skipped.append([step + 0.5, level])
    label = {"text": "a step is skipped", "at": [skipped[0][0] + 5.5, 11.3]}
    series = [{"points": points, "hue": 1},
              {"points": skipped, "hue": 2, "dots": True, **label}]  # fmt: skip
    return [[part(
        "curve", x=[0, 40], y=[7, 12], size=(440, 130), series=series,
        xticks=[[s, str(s)] for s in (0, 10, 20, 30, 40)], xlabel="steps",
        yticks=[[e, f"2^{e}"] for e in (8, 9, 10, 11)], ylabel="factor",
    )]]  # fmt: skip
