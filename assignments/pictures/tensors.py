"""Pictures for a2: views of one storage, broadcasting and its gradient."""

from __future__ import annotations

from typing import Any

import minitorch
from assignments.pictures import picture
from minitorch import Tensor
from minitorch.scenes import Part, Scene, part


def values_of(x: Tensor, hue: int, caption: str, **more: Any) -> Part:
    """A grid with the numbers of a matrix."""
    cells = [[[f"{v:g}", hue] for v in row] for row in x.tolist()]
    return part("grid", caption, cells=cells, **more)


@picture("assignments/a2_tensors/strides")
def strides() -> Scene:
    base = minitorch.arange(6, device="simple").reshape(2, 3)
    parts = []
    for caption, view in {
        "base": base,
        "transposed": base.T,
        "every other column": base[:, ::2],
        "row 1, repeated": base[1].expand(2, 3),
        "without column 0": base[:, 1:],
    }.items():
        assert view.raw.storage is base.raw.storage
        cells = [[[str(v), 1 + v // 3] for v in row] for row in view.tolist()]
        notes = [f"shape {tuple(view.shape)}", f"strides {view.stride()}",
                 f"offset {view.storage_offset()}"]  # fmt: skip
        parts.append(part("grid", caption, cells=cells, notes=notes))
    numbers = [[[str(v), 1 + v // 3] for v in base.flatten().tolist()]]
    return [[part("grid", "storage", cells=numbers, cols=list("012345"))], parts]


@picture("assignments/a2_tensors/broadcast")
def broadcast() -> Scene:
    a = minitorch.tensor([[10], [20], [30]], device="simple")
    b = minitorch.tensor([1, 2, 3, 4], device="simple")
    parts = []
    for hue, (name, x) in enumerate((("a", a), ("b", b)), start=1):
        seen = values_of(x.expand(3, 4), hue, f"{name} {tuple(x.shape)}, as (3, 4)")
        down, right = x.expand(3, 4).stride()
        for i, row in enumerate(seen["cells"]):
            for j, cell in enumerate(row):
                # Where a stride is 0, all but the first are the same element again.
                if (i and not down) or (j and not right):
                    cell[1] = -1
        parts.append({**seen, "notes": [f"strides {(down, right)}"]})
    return [[*parts, values_of(a + b, 3, "a + b (3, 4)")]]


@picture("assignments/a2_tensors/unbroadcast")
def unbroadcast() -> Scene:
    a = minitorch.zeros(3, 1, device="simple", requires_grad=True)
    b = minitorch.zeros(4, device="simple", requires_grad=True)
    grad = minitorch.arange(1.0, 13, device="simple").reshape(3, 4)
    of_a, of_b = minitorch.grad([a + b], [a, b], [grad])
    rows, columns = ["its rows, summed"], ["its columns, summed"]
    above = values_of(grad, 3, "gradient of a + b (3, 4)")
    return [
        [above, values_of(of_a, 1, "of a (3, 1)", notes=rows)],
        [values_of(of_b.reshape(1, 4), 2, "of b (4,)", notes=columns)],
    ]


@picture("assignments/a2_tensors/product")
def product() -> Scene:
    a = minitorch.arange(1.0, 7, device="simple").reshape(2, 3).requires_grad_()
    b = minitorch.arange(1.0, 13, device="simple").reshape(3, 4).requires_grad_()
    out = a @ b

    def seen(x: Tensor, used: Any, hue: int, caption: str, **more: Any) -> Part:
        one = values_of(x.detach(), 0, caption, **more)
        for row, marks in zip(one["cells"], used.tolist()):
            for cell, mark in zip(row, marks):
                cell[1] = hue if mark else 0
        return one

    at = minitorch.zeros(2, 4, device="simple")
    at[1, 2] = 1
    uses = minitorch.grad([out], [a, b], [at], retain_graph=True)
    terms = " + ".join(f"{a[1, k].item():g} * {b[k, 2].item():g}" for k in range(3))
    grad = minitorch.ones(2, 4, device="simple")
    (of_a,) = minitorch.grad([out], [a], [grad])
    row, column = grad * 0, a.detach() * 0
    row[1] = 1
    column[1, 0] = 1
    first = b.detach() * 0
    first[0] = 1
    return [
        [seen(a, uses[0], 1, "a (2, 3)"), seen(b, uses[1], 2, "b (3, 4)"),
         seen(out, at, 3, "a @ b (2, 4)", notes=[terms])],
        [seen(grad, row, 3, "G"), seen(b, first, 2, "b"),
         seen(of_a, column, 1, "gradient of a", notes=["row 1 of G times row 0 of b"])],
    ]  # fmt: skip
