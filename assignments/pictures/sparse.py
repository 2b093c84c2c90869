"""Pictures for a7: compressed rows, a product, the merge of elements and row ends."""

from __future__ import annotations

from typing import Any

import numpy as np

import minitorch
from assignments.pictures import picture
from assignments.pictures.tensors import values_of
from fast_ops.sparse_ladder import merge_row
from minitorch.scenes import Part, Scene, part

DENSE = [[0.0, 5, 0, 2], [0, 0, 0, 0], [7, 0, 0, 0], [4, 0, 1, 9]]
A7 = "assignments/a7_sparse_matrices"


def _places(hues: tuple[int, ...]) -> Part:
    cells = [
        [[f"{v:g}", hue] if v else [".", -1] for v in row]
        for row, hue in zip(DENSE, hues)
    ]
    rows = [f"row {i}" for i in range(4)]
    return part("grid", "A", cells=cells, size=(30, 30), cols=list("0123"), rows=rows)


@picture(f"{A7}/csr")
def csr() -> Scene:
    a, hues = minitorch.tensor(DENSE, device="simple").to_sparse_csr(), (1, 0, 2, 3)
    crow: list[int] = a.crow_indices().tolist()
    of = [hue for i, hue in enumerate(hues) for _ in range(crow[i], crow[i + 1])]
    values = [[f"{v:g}", hue] for v, hue in zip(a.values().tolist(), of)]
    col = [[str(k), hue] for k, hue in zip(a.col_indices().tolist(), of)]
    numbers = [[str(p), -1] for p in range(len(of) + 1)]
    top = {"cells": [[[str(n), hue] for n, hue in zip(crow, (*hues, -1))]],
           "rows": ["crow"]}  # fmt: skip
    below = {"cells": [[*values, ["end", -1]], col, numbers],
             "rows": ["values", "col", "number"]}  # fmt: skip
    links = [[[i, p, hue] for i, (p, hue) in enumerate(zip(crow, (*hues, 0)))]]
    lists = part("layers", "its three lists", layers=[top, below], links=links, gap=34)
    return [[_places(hues), lists]]


@picture(f"{A7}/product")
def product() -> Scene:
    a = minitorch.tensor(DENSE, device="simple").to_sparse_csr()
    b = minitorch.arange(1.0, 13, device="simple").reshape(4, 3).requires_grad_()
    out = a @ b
    (needs,) = minitorch.grad([out[3].sum()], [b])
    right = values_of(b.detach(), 0, "B", rows=[f"row {k}" for k in range(4)])
    left, result = _places((0, 0, 0, 3)), values_of(out.detach(), 0, "A @ B")
    on = [[False] * 3 + [True], [any(row) for row in needs.tolist()]]
    for seen, used in zip((result, right), on):
        seen["cells"] = [
            [[text, 3 if yes else 0] for text, _ in row]
            for row, yes in zip(seen["cells"], used)
        ]
    terms = [f"{v:g} B[{k}]" for k, v in enumerate(DENSE[3]) if on[1][k]]
    return [[left, right, {**result, "notes": ["row 3 = " + " + ".join(terms)]}]]


@picture(f"{A7}/merge")
def merge() -> Scene:
    lengths, tasks = np.array([3, 8, 1]), 3
    crow = np.concatenate([[0], lengths.cumsum()])
    steps = len(lengths) + int(crow[-1])
    rows = [int(merge_row(crow, step)) for step in range(steps + 1)]
    path = [[step - row, row] for step, row in enumerate(rows)]
    series: list[Any] = [{"points": [[0, i], [12, i]], "hue": -1} for i in (1, 2, 3)]
    for t in range(tasks):
        points = path[steps * t // tasks : steps * (t + 1) // tasks + 1]
        label = {"text": f"task {t}", "at": [points[2][0] + 0.6, points[2][1] - 0.22]}
        series.append(
            {"points": points, "hue": 1 + t, "dots": True, "line": True, **label}
        )
    names = [f"{row}{k}" for row, n in zip("abc", lengths) for k in range(n)]
    return [[part(
        "curve", x=[0, 12.2], y=[3.2, -0.4], size=(520, 150), series=series,
        xticks=[[i + 0.5, name] for i, name in enumerate(names)],
        yticks=[[i + 0.5, f"end of {row}"] for i, row in enumerate("abc")],
        notes=["a step to the right takes an element, a step down ends a row"],
    )]]  # fmt: skip
