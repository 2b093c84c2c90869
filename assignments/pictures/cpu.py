"""Pictures for a3 and a9: races, cache lines, sums in parts, tiles of registers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import minitorch
from assignments.catalog import LIBRARY
from assignments.pictures import picture
from fast_ops import reduce_ladder as ladder
from minitorch.scenes import Scene, note, part

LINE = 64  # bytes of a cache line


@picture("assignments/a3_parallel_cpu/race")
def race() -> Scene:
    rows = []
    for caption, turns in (("in turn", "000111"), ("at once", "010101")):
        memory = [5]

        def add(amount: int, memory: list[int] = memory) -> Iterator[str]:
            total = memory[0]
            yield f"read {total}"
            total += amount
            yield f"add {amount}"
            memory[0] = total
            yield f"write {total}"

        threads = [add(1), add(2)]
        lanes: list[Any] = [["thread 0", []], ["thread 1", []], ["total", []]]
        for when, turn in enumerate(map(int, turns)):
            lanes[turn][1].append([when, when + 1, next(threads[turn]), 1 + turn])
            lanes[2][1].append([when, when + 1, str(memory[0]), 0])
        rows.append([part("timeline", caption, lanes=lanes, unit=64)])
    return rows


@picture("assignments/a3_parallel_cpu/lines")
def lines() -> Scene:
    x = minitorch.arange(128, device="simple").float().reshape(8, 16)
    parts = []
    for caption, view in (("along a row", x), ("down a column", x.T)):
        order = [int(v) for v in view.flatten().tolist()[:8]]  # places in memory
        touched = {place * x.dtype.itemsize // LINE for place in order}
        cells = [
            [[str(order.index(p)), 2] if p in order else ["", int(i in touched)]
             for p in range(i * 16, i * 16 + 16)]
            for i in range(8)
        ]  # fmt: skip
        notes = [f"lines: {len(touched)}, bytes: {len(touched) * LINE}"]
        parts.append(part("grid", caption, cells=cells, size=(20, 20), notes=notes))
    return [parts]


@picture("assignments/a3_parallel_cpu/parts")
def parts() -> Scene:
    x = (np.arange(4096) * 0.618034 % 1 / 1000).astype(np.float32)

    def in_order(numbers: Any) -> np.float32:
        return np.float32(np.cumsum(numbers, dtype=np.float32)[-1])

    def total(ends: list[int]) -> str:
        return f"{in_order([in_order(p) for p in np.split(x, ends[:-1])]):.9f}"

    cells = []
    for n in (1, 2, 3, 4):
        own = [4096 * (t + 1) // n for t in range(n)]
        cells.append([[total(own), 2], [total(list(range(256, 4097, 256))), 3]])
    return [[part("grid", cells=cells, size=(180, 26),
                  cols=["a part for each thread", "blocks of 256"],
                  rows=[f"threads: {n}" for n in (1, 2, 3, 4)])]]  # fmt: skip


@picture("assignments/a3_parallel_cpu/sharing")
def sharing() -> Scene:
    parts, threads = [], 4
    for caption, spacing in (("sum_per_thread", 1), ("sum_padded", ladder.LINE)):
        cells = ladder.aligned_cells(threads * spacing)
        # Each thread's part of these ones has a sum of its own, by which it is known.
        ladder._cells.py_func(np.repeat([1.0, 2, 3, 4], 2), cells, spacing, 0)
        who = [int(total / 2) for total in cells]
        who += [0] * (-len(who) % ladder.LINE)
        rows = [
            [[f"t{who[p] - 1}", who[p]] if who[p] else ["", -1]
             for p in range(i, i + ladder.LINE)]
            for i in range(0, len(who), ladder.LINE)
        ]  # fmt: skip
        names = [f"line {i}" for i in range(len(rows))]
        parts.append(part("grid", caption, cells=rows, rows=names))
    return [parts, note("cells of 8 bytes; a core that writes one takes the line")]


@picture("assignments/a9_mojo/order")
def order() -> Scene:
    K, N, w = 4, 32, 16  # w: numbers in a register, and in a cache line
    b = minitorch.arange(K * N, device="simple").float().reshape(K, N)
    parts = []
    for caption, steps in (
        ("naive: z[0, 0], k = 0, 1, 2, 3", [b[k, 0] for k in range(K)]),
        ("vectorized_row: z[0, :] in vectors, k = 0", [b[0, :w], b[0, w:]]),
    ):
        when = {int(p): i for i, step in enumerate(steps)
                for p in step.reshape(-1).tolist()}  # fmt: skip
        cells = [[[str(when[p]), 1 + when[p] % 4] if p in when else ["", 0]
                  for p in range(k * N, (k + 1) * N)] for k in range(K)]  # fmt: skip
        lines = len({p // w for p in when})
        notes = [
            f"{len(steps)} loads of b from {lines} lines, for {len(when)} products"
        ]
        parts.append([part("grid", caption, cells=cells, size=(19, 19), split=[w],
                           rows=[f"k = {k}" for k in range(K)], notes=notes)
        ])  # fmt: skip
    return parts


def _tile() -> tuple[int, int]:
    """Rows and vectors of a tile, as the Mojo kernel has them."""
    text = (LIBRARY / "mojo_ops" / "matmul.mojo").read_text()
    found = [
        int(re.findall(rf"comptime {name} = (\d+)", text)[0])
        for name in ("TILED_ROWS", "TILED_VECTORS")
    ]
    return found[0], found[1]


@picture("assignments/a9_mojo/loads")
def loads() -> Scene:
    parts, (high, vectors) = [], _tile()
    for rows, wide in ((1, 1), (1, vectors), (high, vectors)):
        cells: list[list[Any]] = [[None, *[[f"b{j}", 2] for j in range(wide)]]]
        cells += [[[f"a{i}", 1], *[["+=", 3]] * wide] for i in range(rows)]
        count = sum(bool(c) and c[1] < 3 for row in cells for c in row)
        parts.append(part(
            "grid", f"{rows} x {wide} vectors", cells=cells, size=(46, 24), split=[1],
            notes=[f"each k: {count} loads for {rows * wide} fma",
                   f"{count / rows / wide:g} for each"],
        ))  # fmt: skip
    return [parts]


@picture("assignments/a9_mojo/tiles")
def tiles() -> Scene:
    high, vectors = _tile()
    w, M, N = 16, 6, 100
    wide, lanes = vectors * w, []
    end = N // wide * wide  # of whole tiles
    for m in range(M):
        tall = m < M // high * high
        bars = [[n, n + w, "w sums", 1 if tall else 2] for n in range(0, end, w)]
        bars += [[n, n + 1, "", 3 if tall else 4] for n in range(end, N)]
        lanes.append([f"row {m}", bars])
    ticks = [[n, str(n)] for n in (*range(0, end + 1, wide), N)]
    tile = f"tiles: blue: {high} x {wide}, orange: 1 x {wide}, green: {high} x 1, "
    return [[part("timeline", lanes=lanes, unit=6.2, height=20, ticks=ticks,
                  notes=[tile + "violet: 1 x 1"])]]  # fmt: skip
