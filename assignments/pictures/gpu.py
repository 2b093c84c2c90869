"""Pictures for a4, a5 and a8: what threads of simulated kernels read and write.

With this file one can note each use of memory while kernels run (`recording`). It is
the simulator's `Watch` that is asked, so what a picture shows is what it counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32

import cuda_ops.ladders.matmul as products
import cuda_ops.ladders.reduce as sums
import minitorch
from assignments.a5_matmul_ladder.roofline import roofline
from assignments.pictures import picture
from cuda_ops import optim, transpose
from cuda_ops.runtime.launch import kernel
from cuda_ops.simulator import watch
from minitorch.scenes import Part, Scene, note, part

A4, A5 = "assignments/a4_gpu_kernels", "assignments/a5_matmul_ladder"
EIGHT = watch.SECTOR // watch.WORD  # floats in a sector


class Use(NamedTuple):
    """A thread reads or writes an element; `value` is None where it reads."""

    block: Any
    thread: int
    epoch: int
    array: str
    index: Any
    value: float | None


class Recorder(watch.Watch):
    """A watch that keeps each use as well."""

    def __init__(self) -> None:
        super().__init__()
        self.uses: list[Use] = []

    def on_use(
        self, array: Any, index: Any, count: int, values: Any, frame: FrameType
    ) -> None:
        me, value = watch.here(), None if values is None else float(values[0])
        self.uses.append(Use(me.block, me.thread, me.epoch, array.name, index, value))
        super().on_use(array, index, count, values, frame)

    def reads(self, array: str) -> list[Use]:
        return [u for u in self.uses if u.array == array and u.value is None]

    def writes(self, array: str) -> list[Use]:
        return [u for u in self.uses if u.array == array and u.value is not None]


@contextmanager
def recording(module: Any = None, **sizes: int) -> Iterator[Recorder]:
    """Note what kernels within the block do, those of `module` with other sizes."""
    recorder, before = Recorder(), {name: getattr(module, name) for name in sizes}
    watch.current.append(recorder)
    for name, size in sizes.items():
        setattr(module, name, size)
    try:
        yield recorder
    finally:
        watch.current.pop()
        for name, size in before.items():
            setattr(module, name, size)


@kernel
def double(a, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + a[i]


@kernel
def read_apart(a, out, first, step):
    t = cuda.threadIdx.x
    out[t] = a[first + t * step]


@kernel
def share_apart(out, step):
    cells = cuda.shared.array(1024, float32)
    t = cuda.threadIdx.x
    out[t] = cells[t * step]


@kernel
def find(firsts, ends, found):
    block = cuda.blockIdx.x
    found[block, 0], found[block, 1], _ = optim.find_chunk(firsts, ends)


def zeros(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


# ---------------------------------------------------------------------------------- a4


@picture(f"{A4}/grid")
def grid() -> Scene:
    with recording() as record:
        double[2, 4](zeros(6), zeros(6))
    makes = {(u.block[0], u.thread): int(u.index) for u in record.writes("out")}
    threads = [(b, t) for b in range(2) for t in range(4)]
    top = [[f"t{t}", 1 + b if (b, t) in makes else -1] for b, t in threads]
    data = [[f"out[{i}]", 3] for i in range(6)]
    links = [[[threads.index(at), i, 1 + at[0]] for at, i in makes.items()]]
    grids = [{"cells": [row], "size": (52, 28), "split": [4], "rows": [name]}
             for name, row in (("blocks 0 and 1", top), ("data", data))]  # fmt: skip
    return [[part("layers", layers=grids, links=links,
                  notes=["dashed: threads that the guard keeps out"])]]  # fmt: skip


@picture(f"{A4}/coalesced")
def coalesced() -> Scene:
    cells, rows = [], []
    for name, first, step in (
        ("a[0]", 0, 0), ("a[t]", 0, 1), ("a[t + 1]", 1, 1), ("a[2 t]", 0, 2),
        ("a[4 t]", 0, 4), ("a[8 t]", 0, 8),
    ):  # fmt: skip
        with recording() as record:
            read_apart[1, 32](zeros(256), zeros(32), first, step)
        used = {int(u.index) for u in record.reads("a")}
        held = [sum(p // EIGHT == s for p in used) for s in range(32)]
        count = record.total.sectors - 4  # those of `out`
        assert count == sum(map(bool, held))
        rows.append(f"{name}: {several(count, 'sector')}")
        cells.append([[str(n or ""), 1 if n == 8 else 2 if n else -1] for n in held])
    return [[part("grid", cells=cells, size=(17, 22), rows=rows, notes=[
        "a box: a sector of 8 floats; the number: how many of them the 32 lanes use"
    ])]]  # fmt: skip


@picture(f"{A4}/banks")
def banks() -> Scene:
    rows = []
    for step in (1, 2, 3, 8):
        with recording() as record:
            share_apart[1, 32](zeros(32), step)
        lanes = defaultdict(list)
        for use in record.reads("cells"):
            lanes[int(use.index) % watch.BANKS].append(str(use.thread))
        turns = record.total.wavefronts
        assert turns == max(map(len, lanes.values()))
        cells = [
            [
                [lanes[b][k], 1 + k % 4] if k < len(lanes[b]) else ["", -1]
                for b in range(32)
            ]
            for k in range(turns)
        ]
        name = f"cells[{step} t]: " if step > 1 else "cells[t]: "
        caption = name + several(turns, "wavefront")
        rows.append([part("grid", caption, cells=cells, size=(20, 18))])
    rows[0][0]["cols"] = [str(b) if b % 4 == 0 else "" for b in range(32)]
    return [*rows, note("rows: turns; columns: banks; numbers: lanes")]


def _tree(name: str, rung: Any) -> Part:
    """The cells of a block of 8 threads after each barrier, and who has added."""
    with recording(sums, BLOCK=8) as record:
        rung[1, 8](np.array([3, 1, 7, 0, 4, 1, 6, 3], np.float32), zeros(1))
    values: dict[int, float] = {}
    layers, links = [], []
    for epoch in range(4):
        adds = {u.thread: u.value for u in record.writes("cells") if u.epoch == epoch}
        reads = {
            (int(u.index), u.thread) for u in record.reads("cells") if u.epoch == epoch
        }
        values |= adds
        cells = [[f"{v:g}", 1 if t in adds else -1] for t, v in sorted(values.items())]
        layers.append({"cells": [cells], "size": (34, 24)})
        links.append([[i, t, 1] for i, t in sorted(reads) if t in adds])
    layers[0]["cols"] = [f"t{t}" for t in range(8)]
    return part("layers", name, layers=layers, links=links[1:], gap=26)


@picture(f"{A4}/trees")
def trees() -> Scene:
    pair = [_tree("sum_divergent", sums.sum_divergent_blocks),
            _tree("sum_contiguous", sums.sum_contiguous_blocks)]  # fmt: skip
    return [pair, note("blue: cells of threads that add; between two rows: a barrier")]


@picture("docs/pictures/padding")
def padding() -> Scene:
    a = minitorch.zeros(32, 32, device="cuda").raw
    parts = []
    for rung, pitch, hue in ((transpose.tiled, 32, 2), (transpose.padded, 33, 3)):
        with recording() as record:
            rung(a)
        first: dict[int, Any] = {}  # what each lane of the first warp reads first
        for use in record.reads("tile"):
            first.setdefault(use.thread, use.index)
        cells: list[list[Any]] = [[None] * 32 for _ in range(32)]
        for lane in range(32):
            row, col = first[lane]
            cells[lane][(row * pitch + col) % watch.BANKS] = ["", hue]
        turns = max(sum(map(bool, column)) for column in zip(*cells))
        assert bool(record.total.bank_conflicts) == (turns > 1)
        ends, notes = [*[""] * 30], [f"{several(turns, 'wavefront')} for a column"]
        parts.append(part(
            "grid", f"rows of {pitch} words", cells=cells, size=(9, 9), frame=True,
            cols=["0", *ends, "31"], rows=["lane 0", *ends, "lane 31"], notes=notes,
        ))  # fmt: skip
    return [parts]


# ---------------------------------------------------------------------------------- a5


@picture(f"{A5}/outputs")
def outputs() -> Scene:
    parts = []
    for name in ("one_by_one", "row_by_row"):
        with recording(products, SIDE=8, AREA=64) as record:
            getattr(products, f"matmul_{name}")[1, 64](
                *map(zeros, (64, 64, 64)), 8, 8, 8
            )
        made = {int(u.index): u.thread for u in record.writes("out")}
        places = sorted(made, key=made.__getitem__)[:8]
        cells = [[[str(made[p]), int(p in places)] for p in range(i, i + 8)]
                 for i in range(0, 64, 8)]  # fmt: skip
        sectors = several(len({p // EIGHT for p in places}), "sector")
        parts.append(part("grid", f"matmul_{name}", cells=cells, size=(28, 24),
                          notes=[f"threads 0 to 7 write {sectors}"]))  # fmt: skip
    return [parts]


@picture(f"{A5}/moving")
def moving() -> Scene:
    side, M, K, N = 4, 8, 12, 8
    with recording(products, SIDE=side, AREA=side * side) as record:
        args = zeros(M * K), zeros(K * N), zeros(M * N), M, N, K
        products.matmul_shared_tiles[(2, 2), side * side](*args)
    block = [u for u in record.uses if u.block == (1, 0, 0)]
    parts = []
    for epoch in sorted({u.epoch for u in block if u.array == "a"}):
        # Out stands to the right of a and below b, with an empty row between.
        cells: list[list[Any]] = [[None] * (K + N) for _ in range(K + 1 + M)]
        for name, top, left, (rows, cols), hue in (
            ("a", K + 1, 0, (M, K), 1), ("b", 0, K, (K, N), 2),
            ("out", K + 1, K, (M, N), 3),
        ):  # fmt: skip
            used = {int(u.index) for u in block if u.array == name
                    and (u.epoch == epoch or name == "out")}  # fmt: skip
            for p in range(rows * cols):
                cells[top + p // cols][left + p % cols] = ["", hue * (p in used)]
        caption = f"k0 = {side * len(parts)}"
        parts.append(part("grid", caption, cells=cells, size=(10, 10), split=[K]))
    return [parts]


@picture(f"{A5}/registers")
def registers() -> Scene:
    parts = []
    for high, wide in ((1, 1), (8, 1), (8, 8)):
        cells: list[list[Any]] = [[None, *[["b", 2]] * wide]]
        cells += [[["a", 1], *[["", 3]] * wide] for _ in range(high)]
        loads = sum(bool(c and c[0]) for row in cells for c in row)
        count = f"{loads} loads for {several(high * wide, 'product')}"
        parts.append(part(
            "grid", f"{high} x {wide}", cells=cells, size=(22, 20), split=[1],
            notes=[count, f"{loads / (high * wide):g} for each"],
        ))  # fmt: skip
    return [parts]


@picture(f"{A5}/roof")
def roof() -> Scene:
    peak, bandwidth = 67e12, 4.8e12

    def place(intensity: float, attainable: float) -> list[float]:
        return [math.log2(intensity), math.log10(attainable)]

    ridge = place(peak / bandwidth, peak)
    ends = place(0.125, 0.125 * bandwidth), place(128, peak)
    series: list[Any] = [
        {"points": [ends[0], ridge, ends[1]], "hue": 0},
        {"points": [ridge, [ridge[0], 11.5]], "hue": -1, "dash": True},
    ]
    series.append({"points": [], "hue": 0, "dots": True, "text": "ridge"})
    series[-1]["at"] = [ridge[0] + 0.6, 11.6]
    for hue, block in enumerate((1, 8, 64), start=1):
        one = roofline((4096, 4096, 4096), (block, block), peak, bandwidth)
        at = place(one.intensity, one.attainable)
        text = f"{block} x {block}: {one.attainable / 1e12:.3g} TFLOP/s"
        label = {"text": text, "at": [at[0] + 1.5, at[1] - 0.2]}
        series.append({"points": [at], "dots": True, "hue": hue, **label})
    return [[part(
        "curve", x=[-3, 7], y=[11.5, 14.1], size=(480, 210), series=series,
        xticks=[[k, f"{2.0**k:g}"] for k in range(-2, 7, 2)], ylabel="TFLOP/s",
        yticks=[[12, "1"], [13, "10"], [14, "100"]],
        xlabel="intensity: operations for each byte",
    )]]  # fmt: skip


# ---------------------------------------------------------------------------------- a8


@picture("assignments/a8_fusion/chunks")
def chunks() -> Scene:
    ends = np.array([5, 12, 3])
    firsts, begins = (np.cumsum([0, *n[:-1]]) for n in (-(-ends // 4), ends))
    found = np.zeros((6, 2), np.int64)
    with recording(optim, CHUNK=4):
        find[len(found), 1](firsts, ends, found)
    of = [[int(t), int(begins[t] + start)] for t, start in found]
    top = [[f"block {b}", 1 + t] for b, (t, _) in enumerate(of)]
    numbers = [[str(i), 1 + t] for t, n in enumerate(ends) for i in range(n)]
    split = begins[1:].tolist()
    grids = [{"cells": [top], "size": (86, 28), "rows": ["one launch"]},
             {"cells": [numbers], "size": (25, 28), "split": split,
              "rows": ["3 tensors"]}]  # fmt: skip
    links = [[[b, at, 1 + t] for b, (t, at) in enumerate(of)]]
    notes = ["an arrow: the first number of a block's chunk"]
    return [[part("layers", layers=grids, links=links, notes=notes)]]
