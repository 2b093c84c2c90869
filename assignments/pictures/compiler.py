"""Pictures for a12: what is noted, dead code, levels, lines, bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minitorch
from assignments.pictures import picture
from assignments.pictures.networks import Bytes
from fast_ops import fused
from minitorch import operators
from minitorch.backend.fusion import Program, Step, needed
from minitorch.bench.compiled import gelu, softmax
from minitorch.compiler.recorder import Fused, Recorder
from minitorch.dtypes import float32
from minitorch.executor import executing
from minitorch.scenes import Scene, note, part

A12 = "assignments/a12_compiler"


def program_of(fn: Callable[..., Any], *given: Any) -> Program:
    """The program that a function becomes."""
    told: list[Fused] = []
    with Recorder(told):
        out = fn(*given)
    del out
    return told[0].program


def words(program: Program, k: int) -> str:
    """Step k in a few words."""
    step = program.steps[k]
    args = ", ".join([f"y{a}" if a >= 0 else f"x{~a}" for a in step.args])
    fold = "fold " if step.fold_start is not None else ""
    return f"y{k} = {fold}{step.fn.__name__}({args})"


@picture(f"{A12}/bytes")
def moved() -> Scene:
    x = minitorch.zeros(64, 64)
    with minitorch.no_grad(), executing(Bytes()) as seen:
        gelu(x)
    counts = [n for count in seen.counts if (n := round(count / x.numel()))]
    lanes: list[Any] = []
    both = (
        ("operation by operation", 2, counts),
        ("compiled", 1, [4 + 4 * len(program_of(gelu, x).kept)]),
    )
    for name, hue, moves in both:
        ends = [sum(moves[:k]) for k in range(len(moves) + 1)]
        boxes = [[b - n, b, str(n), hue] for n, b in zip(moves, ends[1:])]
        lanes.append([f"{name}: {ends[-1]}", boxes])
    notes = ["a box: a loop; the number: bytes that it reads and writes for each of x"]
    return [[part("timeline", lanes=lanes, unit=6.5, notes=notes)]]


class Watched(Recorder):
    """A recorder that tells when it notes, and when it runs."""

    def __init__(self, events: list[tuple[str, str]]) -> None:
        super().__init__()
        self.events = events

    def call(self, name: str, fn: Any, args: Any, kwargs: Any) -> Any:
        before = len(self.steps)
        out = super().call(name, fn, args, kwargs)
        if len(self.steps) > before or (self.steps and name in ("map", "zip")):
            self.events.append(("noted", self.steps[-1].fn.__name__))
        elif name == "matmul":
            self.events.append(("runs", "matmul"))
        return out

    def _flush(self) -> None:
        names = " ".join([step.fn.__name__ for step in self.steps])
        self.events.append(("runs", names))
        super()._flush()


@picture(f"{A12}/noted")
def noted() -> Scene:
    x, w = minitorch.ones(4, 4), minitorch.ones(4, 4)
    events: list[tuple[str, str]] = []
    with minitorch.no_grad(), Watched(events):
        out = ((x * w + x).tanh() @ w).relu() - x
    del out
    lanes: dict[str, list[Any]] = {"noted": [], "runs": []}
    at = 0.0
    for kind, text in events:
        long = max(1.0, len(text) / 5)
        hue = 1 if kind == "noted" else 3 if " " in text else 2
        lanes[kind].append([at, at + long, text, hue])
        at += long
    notes = ["green: a program, in one loop; orange: an operation by itself"]
    rows = [[name, boxes] for name, boxes in lanes.items()]
    return [[part("timeline", lanes=rows, unit=50, notes=notes)]]


@picture(f"{A12}/dead")
def dead() -> Scene:
    o = operators
    steps = [
        (o.mul, (~0, ~1)), (o.exp, (~0,)), (o.add, (0, ~1)), (o.neg, (1,)),
        (o.tanh, (2,)),
    ]  # fmt: skip
    given = (float32, float32)
    program = Program(given, tuple([Step(*s, float32) for s in steps]), (4,))
    left = needed(program)
    said = [words(left, k) for k in range(len(left.steps))]
    whole, rest, of = [], [], iter(range(len(left.steps)))
    for k, step in enumerate(program.steps):
        used = any(step.fn is other.fn for other in left.steps)
        whole.append([[words(program, k), 1 if used else -1]])
        rest.append([[said[next(of)], 3] if used else None])
    size = (150, 26)
    return [
        [
            part("grid", f"kept: {list(program.kept)}", cells=whole, size=size),
            part("grid", f"kept: {list(left.kept)}", cells=rest, size=size),
        ],
        note("dashed: steps that nobody needs"),
    ]


@picture(f"{A12}/levels")
def levels() -> Scene:
    program = program_of(softmax, minitorch.ones(4, 4))
    found, stored = program.fold_levels(), fused._stored(program)
    nodes: dict[str, Any] = {
        "x0": {"at": [0, 1], "text": ["x0", "input", ""], "hue": 0, "round": True}
    }
    edges, column = [], {}
    for k, (step, level) in enumerate(zip(program.steps, found)):
        folds = step.fold_start is not None
        column[k] = 1 + max([column.get(a, 0) for a in step.args])
        row = 0 if folds else 1
        fold = "fold " if folds else ""
        said = f"y{k} = {fold}{step.fn.__name__}"
        where = "in memory" if k in stored else "register"
        where = "one a row" if step.per_row else where
        nodes[f"y{k}"] = {
            "at": [column[k], row], "text": [said, f"level {level}", where],
            "hue": level,
        }  # fmt: skip
        for a in step.args:
            edges.append([f"y{a}" if a >= 0 else f"x{~a}", f"y{k}", "", 0])
    return [[part("graph", nodes=nodes, edges=edges, step=[134, 92])]]


@picture(f"{A12}/lines")
def lines() -> Scene:
    rows, n = 3, 6
    size = rows * n
    row, column = (n, 1), (rows, n)  # m numbers, for d elements each
    length = fused.line_of((row, column), size)
    at = range(0, size, length)

    def cells(m: int, d: int) -> list[Any]:
        return [[str(i // d % m), 1 + i // length % 3] for i in range(size)]

    grid = [
        [[str(i), 1 + i // length % 3] for i in range(size)],
        cells(*row),
        cells(*column),
    ]
    said = ["element", "of the row", "of the column"]
    split = [p for p in at if p]
    notes = [f"lines of {length}: the row or the column begins anew in none of them"]
    return [
        [part("grid", cells=grid, rows=said, size=(30, 24), split=split, notes=notes)]
    ]
