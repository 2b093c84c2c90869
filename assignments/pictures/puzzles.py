"""Pictures for a4w and a7: which thread of a small simulated kernel has which number.

With this file one can draw the puzzles that are launched for `minitorch xray`, on the
same grids; the arrows are the reads and writes that the simulator saw.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assignments.pictures import picture
from assignments.pictures.gpu import EIGHT, Recorder, recording, several
from cuda_ops.ladders import puzzles, sparse
from cuda_ops.ladders.puzzles import THREADS, WITH_RIM
from minitorch.scenes import Part, Scene, part

A4W = "assignments/a4w_gpu_warmup"
SMALL = (26, 24)


def _recorded(puzzle: str, grid: tuple[Any, Any], *arrays: Any) -> Recorder:
    """What a puzzle does with these lists; the last one is its output."""
    made = [np.array(a, np.int64) if isinstance(a, list) else a for a in arrays]
    with recording() as record:
        vars(puzzles)[puzzle][grid](*made)
    return record


def _written(record: Recorder, array: str, count: int) -> list[list[Any]]:
    """What was written into an array, one row of a grid."""
    values = {int(u.index): u.value for u in record.writes(array)}
    return [[f"{values[i]:g}", 3] if i in values else ["", -1] for i in range(count)]


def _row(name: str, cells: list[list[Any]], split: int, size: Any = SMALL) -> Part:
    """A row of numbers with a gap before each `split`th."""
    ends = list(range(split, len(cells), split))
    return {"cells": [cells], "rows": [name], "size": size, "split": ends}


@picture(f"{A4W}/square")
def square() -> Scene:
    rows, cols = 2, 3
    a = list(range(1, rows * cols + 1))
    record = _recorded("lower_triangle", (1, (4, 4)), a, [0] * len(a), rows, cols)
    makes = {u.thread: u for u in record.writes("out")}
    numbers = [[t, divmod(t, 4)] for t in range(16)]
    block = [[f"{x},{y}", 1 + y if t in makes else -1] for t, (y, x) in numbers]
    of = {int(u.index): (f"{u.value:g}", 1 + t // 4) for t, u in makes.items()}
    flat = [list(of[i]) for i in range(len(a))]

    def matrix(cells: list[Any], wide: int) -> list[Any]:
        return [cells[i : i + wide] for i in range(0, len(cells), wide)]

    given = matrix([[str(v), 0] for v in a], cols)
    memory = {"rows": ["out in memory"], "cols": [str(i) for i in range(len(a))]}
    return [
        [part("grid", "threads x,y", cells=matrix(block, 4), size=(40, 26)),
         part("grid", "a", cells=given), part("grid", "out", cells=matrix(flat, cols))],
        [part("grid", cells=[flat], **memory)],
    ]  # fmt: skip


@picture(f"{A4W}/blocks")
def blocks() -> Scene:
    record = _recorded("every_second", (2, THREADS), list(range(20)), [0] * 10)
    threads = [(b, t) for b in range(2) for t in range(THREADS)]
    busy = {(u.block[0], u.thread): int(u.index) for u in record.writes("out")}
    middle = [[f"t{t}", 1 + b if (b, t) in busy else -1] for b, t in threads]
    reads = [
        [int(u.index), threads.index((u.block[0], u.thread)), 1 + u.block[0]]
        for u in record.reads("a")
    ]
    used = {i for i, _, _ in reads}
    top = [[str(i), 0 if i in used else -1] for i in range(20)]
    writes = [[threads.index(at), i, 1 + at[0]] for at, i in busy.items()]
    layers = [_row("a", top, 99), _row("blocks 0 and 1", middle, THREADS, (32, 24)),
              _row("out", _written(record, "out", 10), 99)]  # fmt: skip
    notes = ["dashed: threads that the guard keeps out, and numbers nobody reads"]
    return [[part("layers", layers=layers, links=[reads, writes], notes=notes)]]


@picture(f"{A4W}/turn")
def turn() -> Scene:
    size = 2 * THREADS
    record = _recorded("turn_blocks", (2, THREADS), list(range(size)), [0] * size)
    cells = {(u.block[0], int(u.index)): u for u in record.writes("cells")}
    middle = [[f"{u.value:g}", 1 + b] for (b, _), u in sorted(cells.items())]
    fills = [
        [u.block[0] * THREADS + u.thread, b * THREADS + i, 1 + b]
        for (b, i), u in cells.items()
    ]
    takes = [
        [u.block[0] * THREADS + int(u.index), u.block[0] * THREADS + u.thread,
         1 + u.block[0]]
        for u in record.reads("cells")
    ]  # fmt: skip
    assert {u.epoch for u in record.reads("cells")} == {1}  # behind the barrier
    top = [[str(i), 0] for i in range(size)]
    layers = [_row("a", top, THREADS), _row("cells", middle, THREADS),
              _row("out", _written(record, "out", size), THREADS)]  # fmt: skip
    notes = ["two blocks; between cells and out all threads of a block wait"]
    return [[part("layers", layers=layers, links=[fills, takes], notes=notes)]]


@picture(f"{A4W}/rim")
def rim() -> Scene:
    size = 12
    numbers = list(range(1, size + 3))
    record = _recorded("sum_of_three", (2, THREADS), numbers, [0] * size)

    def cell(use: Any) -> int:
        return int(use.block[0] * WITH_RIM + use.index)

    values, fills = {}, []
    for use in record.writes("cells"):
        own = use.index < THREADS
        values[cell(use)] = [f"{use.value:g}", 1 if own else 2]
        fills.append([int(use.value or 0) - 1, cell(use), 1 if own else 2])
    middle = [values.get(i, ["", -1]) for i in range(2 * WITH_RIM)]
    shown = {0, THREADS - 1, size - 1}
    adds = [
        [cell(u), at, 3]
        for u in record.reads("cells")
        if (at := u.block[0] * THREADS + u.thread) in shown
    ]
    layers = [_row("a", [[str(n), 0] for n in numbers], 99),
              _row("cells", middle, WITH_RIM),
              _row("out", _written(record, "out", size), THREADS)]  # fmt: skip
    notes = ["blue: a thread's own cell; orange: the rim; of the sums three are shown"]
    return [[part("layers", layers=layers, links=[fills, adds], gap=52, notes=notes)]]


@picture(f"{A4W}/dot")
def dot() -> Scene:
    record = _recorded("dot_product", (1, THREADS), [1, 2, 3], [4, 5, 6], [0])
    cells = [u for u in record.writes("cells")]
    products = [[f"{u.value:g}", 1 if u.value else 0] for u in cells]
    (adds,) = {u.thread for u in record.reads("cells")}
    all_of = [[int(u.index), 0, 2] for u in record.reads("cells")]
    top = {**_row("cells", products, 99), "cols": [f"t{u.thread}" for u in cells]}
    below = _row(f"t{adds} adds", _written(record, "out", 1), 99)
    notes = ["grey: zeros of threads without elements"]
    return [[part("layers", layers=[top, below], links=[all_of], notes=notes)]]


# ---------------------------------------------------------------------------------- a7


@picture("assignments/a7_sparse_matrices/lanes")
def lanes() -> Scene:
    rows, wide = 8, 8
    crow, col = np.arange(0, 65, wide), np.tile(np.arange(wide), rows)
    ones, x = np.ones(rows * wide, np.float32), np.ones(wide, np.float32)
    parts = []
    for caption, kernel in (("a row a thread", sparse.csr_row_a_thread),
                            ("a row a warp", sparse.csr_row_a_warp)):  # fmt: skip
        with recording() as record:
            kernel[rows, 32](crow, col, ones, x, np.zeros(rows, np.float32), 1)
        first: dict[Any, int] = {}  # what each thread of the first block reads first
        for use in record.reads("values"):
            if use.block == (0, 0, 0):
                first.setdefault(use.thread, int(use.index))
        at = {place: thread for thread, place in first.items()}
        cells = [[[f"t{at[p]}", 2] if p in at else ["", 0]
                  for p in range(i * wide, (i + 1) * wide)] for i in range(rows)
        ]  # fmt: skip
        sectors = several(len({place // EIGHT for place in at}), "sector")
        parts.append(part("grid", caption, cells=cells, size=(32, 20),
                          rows=[f"row {i}" for i in range(rows)],
                          notes=[f"the first read: {sectors}"]))  # fmt: skip
    return [parts]
