"""What a12 is checked with: definitions, NumPy step by step, PyTorch's own programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from assignments.a12_compiler import calls
from assignments.a12_compiler.programs import (
    NAMES,
    TYPES,
    Drawn,
    drawn,
    in_memory,
    levels_of,
    named,
    run,
    shape_of,
    some,
    steps_of,
    uses_of,
)  # fmt: skip
from assignments.checks import AnyCheck, Check, Inputs, Speed, sizes_of
from assignments.draw import Draw, layout
from assignments.oracles import load

DEFINITION = "the definition"

# -------------------------------------------------------------------------- a12.1


def _pruned_inputs(draw: Draw, steps: int, folds: int) -> Inputs:
    p = drawn(draw, steps, folds)
    few = [draw.integer(0, len(p.steps) - 1) for _ in range(draw.integer(1, 2))]
    return {"program": p.program(set(few))}


def _pruned_expected(program: Inputs) -> Inputs:
    steps = steps_of(program)

    @cache
    def needs(k: int) -> frozenset[int]:
        return frozenset({k}).union(*[needs(a) for a in steps[k][1] if a >= 0])

    used = sorted(frozenset[int]().union(*[needs(k) for k in program["kept"]]))
    left = []
    for fn, args, kind, row, start in [steps[k] for k in used]:
        numbers = [a if a < 0 else used.index(a) for a in args]
        left.append(calls.line_of_step(len(left), fn, numbers, kind, row, start))
    rows = any(steps[k][3] for k in used)
    return {
        "steps": left,
        "kept": [used.index(k) for k in program["kept"]],
        "folded": program["folded"] if rows else 0,
        "steps and kept are tuples": True,
        "inputs": program["inputs"],
    }


PRUNED = Check(
    *("a12.1", "needed", calls.pruned, _pruned_inputs, _pruned_expected),
    {"steps": (1, 6), "folds": (0, 1)},
    sizes_of("steps folds", (1, 0), (3, 0), (12, 1), (20, 1)),
    examples=100,
    oracle=DEFINITION,
    hint="A step is needed if it is kept, or if a step that is needed takes its "
    "result. All numbers count what is left; inputs, which are below 0, keep theirs.",
)

# -------------------------------------------------------------------------- a12.2


def _text_inputs(draw: Draw, steps: int, folds: int) -> Inputs:
    p = drawn(draw, steps, folds, types=TYPES)
    p.add("identity", draw.choice(p.values()), type=draw.choice(TYPES))
    if folds:  # all digits of this one are needed
        p.add("add", ~0, start=1 / 3)
    p.steps += [("gt", [~0, ~0], "bool", False, None)]
    return {"program": p.program([0])}


def _computed(kind: str) -> str:
    return "float32" if kind in ("float16", "bfloat16") else kind


def _text_expected(program: Inputs) -> Inputs:
    steps, names, lines, starts = steps_of(program), [], [], []
    for k, (fn, args, kind, _, start) in enumerate(steps):
        given = steps[args[-1]][2] if args[-1] >= 0 else program["inputs"][~args[-1]]
        fold = "" if start is None else "fold_"
        names.append(f"{fold}{fn}_{_computed(given)}")
        values = ", ".join([f"y{a}" if a >= 0 else f"x{~a}" for a in args])
        lines.append(f"y{k} = {_computed(kind)}({names[-1]}({values}))")
        starts += [] if start is None else [[_computed(kind), start]]
    return {"step_name": names, "step_text": lines, "start_text": starts}


TEXTS = Check(
    *("a12.2", "text of steps", calls.texts, _text_inputs, _text_expected),
    {"steps": (1, 5), "folds": (0, 1)},
    sizes_of("steps folds", (1, 0), (12, 1), (12, 1)),
    examples=40,
    oracle=DEFINITION,
    hint="A function is named for the type that it is given, a result is rounded to "
    "its own; float16 and bfloat16 are computed in float32.",
)

# -------------------------------------------------------------------------- a12.3


def _levels_inputs(draw: Draw, steps: int, folds: int) -> Inputs:
    p = drawn(draw, steps, folds) if steps else named(NAMES[folds])
    kept = some(draw, range(len(p.steps))) if steps else [len(p.steps) - 1]
    return {"program": p.program(kept)}


def _levels_expected(program: Inputs) -> Inputs:
    steps = steps_of(program)
    stored = sorted(in_memory(steps, program["kept"]))
    return {"fold_levels": levels_of(steps), "_stored": stored}


LEVELS = Check(
    *("a12.3", "levels", calls.levels, _levels_inputs, _levels_expected),
    {"steps": (1, 6), "folds": (0, 1)},
    sizes_of("steps folds", *[(0, k) for k in range(6)], *[(16, 1)] * 6, (14, 0)),
    examples=80,
    oracle=DEFINITION,
    hint="A fold is one level above what it folds; every other step is where the "
    "highest of what it takes is. A loop over a row keeps its results in registers, "
    "which are gone when the next loop begins.",
)

# -------------------------------------------------------------------------- a12.4


def _loop_inputs(draw: Draw, steps: int, folds: int, rows: int, n: int) -> Inputs:
    """A loop over rows, or over lines of something flat, of which the last is short."""
    rowwise, whole = folds == 1, folds == 2
    kinds = ["flat", draw.choice(("flat", "row", "one"))]
    kinds += [draw.choice(("column", "one"))] if rowwise else ["flat"]
    size = rows * n if rowwise or "row" in kinds else rows * n - draw.integer(0, n - 1)
    p = drawn(draw, steps, folds, kinds, whole=whole)
    numbers = [k for k in range(len(p.steps)) if not whole or p.steps[k][4] is not None
               or not p.steps[k][3]]  # fmt: skip
    program = p.program(some(draw, numbers))
    arrays, places = [], []
    for kind in kinds:
        count = {"flat": size, "row": n, "column": rows, "one": 1}[kind]
        arrays.append(draw.array((count,)))
        inner = {"flat": 1, "row": 1, "column": n, "one": size}[kind]
        places.append([inner, count])
    at = ["one" if kind == "column" else kind for kind in kinds]
    most = _most(program, at, size, -(-size // n), whole)
    return {
        "program": program, "kinds": at, "places": places, "arrays": arrays,
        "size": size, "n": n, "whole": whole, **most,
    }  # fmt: skip


def _most(
    program: Inputs, kinds: Sequence[str], size: int, lines: int, whole: bool
) -> Inputs:
    """How often a loop has to read and write elements, and to call functions."""
    steps, kept = steps_of(program), program["kept"]
    at, uses = levels_of(steps), list(uses_of(steps))
    once = {
        (a, level)
        for a, level, folds in uses
        if not folds and (at[a] != level if a >= 0 else kinds[~a] != "one")
    }
    folded = sum(folds for _, _, folds in uses)
    of_rows = [row and start is None for *_, row, start in steps]
    elements = sum(not row for *_, row, _ in steps)
    return {
        "most_reads": (len(once) + folded) * size + lines * kinds.count("one"),
        "most_writes": len(in_memory(steps, kept)) * size
        + sum(steps[k][3] for k in kept) * lines,
        "most_calls": elements * size + (0 if whole else sum(of_rows) * lines),
    }


def _loop_expected(
    program: Inputs, kinds: Sequence[str], arrays: Sequence[np.ndarray], size: int,
    n: int, whole: bool, **rest: Any,
) -> Inputs:  # fmt: skip
    steps, rows = steps_of(program), -(-size // n)
    outs: Inputs = {}
    for line in range(rows):
        low, high = line * n, min(line * n + n, size)
        given = []
        for kind, x in zip(kinds, arrays):
            part = {"flat": x[low:high], "row": x}.get(kind)
            if part is None:
                part = x[line : line + 1] if len(x) == rows and rows > 1 else x
            given.append(part)
        for k, made in enumerate(run(steps, given)):
            if k in program["kept"]:
                full = made if steps[k][3] else np.broadcast_to(made, high - low)
                outs.setdefault(f"y{k}", []).append(full)
    found = {name: np.concatenate(parts) for name, parts in outs.items()}
    if whole:
        found = {n: a.astype(np.float64) if steps[int(n[1:])][3] else a
                 for n, a in found.items()}  # fmt: skip
    return {
        **{f"y{k}": found[f"y{k}"] for k in program["kept"]},
        "the lines are shared among the cores": True,
        "lines": rows,
        "parts of folds are rounded": False,
        "elements are read too often": False,
        "elements are written that nobody reads": False,
        "steps run too often": False,
    }


LOOP_HINT = (
    "Print text(...) and read it as a student's. Folds of a level come first, then "
    "what is made of them, then one loop over the line: reads, steps, and writes of "
    "what lies in memory. The last line can be shorter than n."
)
LOOPS = Check(
    *("a12.4", "the loop as Python", calls.interpreted, _loop_inputs, _loop_expected),
    {"steps": (1, 5), "folds": (0, 2), "rows": (1, 3), "n": (2, 4)},
    sizes_of(
        "steps folds rows n",
        *((1, 0, 1, 2), (3, 0, 3, 4), (4, 1, 2, 3), (8, 2, 3, 4), (12, 1, 3, 5)),
    ),
    tolerance=1e-4,
    examples=100,
    oracle="NumPy, step by step",
    hint=LOOP_HINT,
)


def _compiled_inputs(draw: Draw, name: int, rows: int, n: int) -> Inputs:
    p = named(NAMES[name]) if name < len(NAMES) else drawn(draw, 8, 1)
    kept = [len(p.steps) - 1, draw.integer(0, len(p.steps) - 1)]
    return {
        "program": p.program(set(kept)),
        "shape": [rows, n],
        "arrays": [draw.array(shape_of(kind, rows, n), low=0.5) for kind in p.kinds],
        "layouts": ["contiguous"] * len(p.kinds),
    }


def _compiled_expected(
    program: Inputs, shape: Sequence[int], arrays: Sequence[np.ndarray], **rest: Any
) -> Inputs:
    steps, outs = steps_of(program), {}
    for k, made in enumerate(run(steps, arrays)):
        if k in program["kept"]:
            full = (shape[0], 1) if steps[k][3] else tuple(shape)
            outs[f"y{k}"] = np.broadcast_to(made, full)
    return {
        **outs,
        "equal to the steps one by one, to the bit": True,
        "inputs are changed": False,
    }


COMPILED = Check(
    *("a12.4", "compiled", calls.compiled, _compiled_inputs, _compiled_expected),
    {"name": (6, 7), "rows": (2, 4), "n": (16, 17)},
    sizes_of(
        "name rows n",
        *(
            (0, 3, 40),
            (1, 3, 33),
            (2, 2, 64),
            (3, 5, 16),
            (4, 3, 20),
            (5, 2, 20),
            (6, 3, 24),
        ),
    ),
    tolerance=2e-4,
    examples=0,
    oracle="NumPy, step by step",
    hint=LOOP_HINT,
)

# -------------------------------------------------------------------------- a12.5

CHUNK, SHORT = 8192, 16  # as the library has them


def _begins(m: int, d: int, n: int, size: int) -> bool:
    """Whether an input begins anew in a line of n elements, by looking."""
    starts = list(range(0, size, n))
    if len(starts) > 8:  # the first lines, and those around each end
        ends = {m * d * k for k in range(6)} | {d * k for k in range(9)}
        starts = sorted({*starts[:3], *[end // n * n for end in ends]})
    for p in starts:
        met = np.arange(p, min(p + n, size)) // d % m
        if len(met) and not ((met == met[0]).all() or (np.diff(met) == 1).all()):
            return True
    return False


def _place(kind: int, rows: int, n: int, size: int) -> list[int]:
    """m and d of a row, a column, a channel, one number, or one for each place."""
    kinds = [n, 1], [rows, n], [rows, 2 * n], [1, size + 3 & ~3], [size, 1]
    return kinds[kind % len(kinds)]


def _line_inputs(draw: Draw, rows: int, n: int, count: int, kinds: int) -> Inputs:
    size = 2 * rows * n
    places = [_place(kinds // 5**i, rows, n, size) for i in range(count)]
    return {"places": places, "size": size}


def _line_expected(places: Sequence[Sequence[int]], size: int) -> Inputs:
    ends = [m if d == 1 else d for m, d in places if 1 < m < size]
    divides = [n for n in range(1, CHUNK + 1) if all(end % n == 0 for end in ends)]
    return {"n": max(divides)}


def _lies_inputs(draw: Draw, rows: int, n: int, line: int, kind: int) -> Inputs:
    m, d = _place(kind, rows, n, 4 * rows * n)
    length = n // line if line < 4 and n % line == 0 else line
    return {"m": m, "d": d, "n": length, "size": 4 * rows * n}


def _lies_expected(m: int, d: int, n: int, size: int) -> Inputs:
    apart = m in (1, size) or (n >= SHORT and not _begins(m, d, n, size))
    return {"it lies along the lines": apart}


PLACES = (("flat", "row", "one"), ("flat", "column", "row"), ("flat", "one", "column"))


def _broadcast_inputs(draw: Draw, rows: int, n: int, kind: int) -> Inputs:
    p = Drawn(draw, PLACES[kind], ["float32"] * 3, False)
    p.add("sub", p.add("mul", ~0, ~1), ~2)
    return {
        "program": p.program([1]) | {"folded": 0},
        "shape": [rows, n],
        "arrays": [draw.array(shape_of(k, rows, n)) for k in p.kinds],
        "layouts": [layout(draw), "contiguous", "contiguous"],
    }


BROADCAST = (
    Check(
        *("a12.5", "line_of", calls.line, _line_inputs, _line_expected),
        {"rows": (2, 9), "n": (2, 40), "count": (0, 3), "kinds": (0, 124)},
        sizes_of(
            "rows n count kinds",
            *((3, 100, 3, 23), (64, 100, 2, 5), (2, 20_000, 2, 3), (5, 8192, 1, 1)),
            *((3, 8209, 1, 0), (2, 16_384, 1, 0), (3, 24_576, 2, 20), (2, 35, 1, 2)),
        ),
        examples=40,
        oracle=DEFINITION,
        hint="A row of m numbers begins anew after m elements, a number of a column "
        "ends after d: the length of a line divides all of these.",
    ),
    Check(
        *("a12.5", "_lies_along", calls.lies, _lies_inputs, _lies_expected),
        {"rows": (2, 6), "n": (2, 48), "line": (1, 64), "kind": (0, 4)},
        sizes_of(
            "rows n line kind",
            *((2, 16, 1, 0), (3, 15, 1, 0), (2, 32, 2, 0), (2, 32, 3, 0)),
            *((4, 20, 40, 1), (2, 35, 20, 2), (2, 35, 1, 2), (2, 40, 1, 1)),
            *((3, 20, 60, 1), (2, 8, 3, 3), (2, 8, 3, 4), (2, 20, 40, 0)),
        ),
        examples=60,
        oracle=DEFINITION,
        hint="Write down which number each element of a line meets, i // d % m: all "
        "the same, or each the next one.",
    ),
    Check(
        *("a12.5", "compiled", calls.compiled, _broadcast_inputs, _compiled_expected),
        {"rows": (2, 5), "n": (2, 40), "kind": (0, 2)},
        sizes_of(
            "rows n kind",
            *((3, 40, 0), (3, 40, 1), (40, 17, 2), (33, 300, 0), (3, 9000, 1)),
            *((7, 3, 0), (7, 3, 1), (3, 16384, 2)),
        ),
        tolerance=1e-5,
        examples=4,
        oracle="NumPy, step by step",
        hint="A line begins at element p, which meets number p // d % m of an input: "
        "a row is read on from there, for a column that one number is all.",
    ),
)

# -------------------------------------------------------------------------- a12.6

SAID = {"*": "mul", "+": "add", "-": "sub", "relu": "relu", "tanh": "tanh"}


def _line_inputs_of(draw: Draw, lines: int, inputs: int) -> Inputs:
    """Lines that can all become one program, of which some results are dropped."""
    code, alive = [], [f"x{k}" for k in range(inputs)]
    made = 0
    for number in range(lines):
        kind = draw.choice(("two", "number", "one", "drop"))
        dropped = [name for name in alive if name[0] == "y"]
        if kind == "drop" and dropped:
            name = draw.choice(dropped)
            alive.remove(name)
            code.append(f"del {name}")
            continue
        a, op = draw.choice(alive[::-1]), draw.choice(("*", "+", "-"))
        b = draw.choice([x for x in alive if x[0] == "x" or op != "*"])
        if kind == "number":
            b = str(0.5 + number / 8)
        said = f"{a} {op} {b}"
        if kind in ("one", "drop"):
            said = f"{a}.{draw.choice(('tanh', 'relu'))}()"
        code.append(f"y{made} = {said}")
        alive.append(f"y{made}")
        made += 1
    shape = draw.integer(2, 4), draw.integer(2, 4)
    return {"code": code, **{f"x{k}": draw.array(shape) for k in range(inputs)}}


def _values(code: Sequence[str], **arrays: np.ndarray) -> Inputs:
    """What is there at the end, by PyTorch."""
    space: Inputs = {n: load().from_numpy(np.array(a)) for n, a in arrays.items()}
    for line in code:
        exec(line, space)
    space.pop("__builtins__", None)
    return {n: np.ascontiguousarray(x.numpy()) for n, x in space.items()}


def _line_expected_of(code: Sequence[str], **arrays: np.ndarray) -> Inputs:
    values = _values(code, **arrays)
    takes: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    read: list[str] = []
    for line in code:
        if line.startswith("del"):
            continue
        name, _, said = line.partition(" = ")
        if said.endswith(")"):
            a, _, fn = said[:-2].partition(".")
            takes[name] = [a]
        else:
            a, fn, b = said.split()
            takes[name] = [a, b]
        names[name] = SAID[fn]
        read += [a for a in takes[name] if a[0] != "y"]
    held = [name for name in names if name in values]
    used, todo = set[str](), list(held)
    while todo:
        name = todo.pop()
        if name in names and name not in used:
            used.add(name)
            todo += takes[name]
    shape = next(iter(arrays.values())).shape
    said = " ".join([fn for name, fn in names.items() if name in used])
    what = f"({len(set(read))} read, {len(held)} written)"
    return {"programs": [f"{shape} cpu: {said} {what}"] if held else [], **values}


# Lines of a program of x (n, n) and r (n), and the programs that become of them: their
# functions, how much is read and written, and the shape, if it is not x's.
SCENES: dict[str, tuple[str, list[tuple[str, int, int, str]]]] = {
    "a number is read in the middle": (
        "a = x * 2.0; s = a[0, 0].item(); b = a + 1.0; del s",
        [("mul", 2, 1, "n n"), ("add", 2, 1, "n n")],
    ),
    "an input changes before the program ran": (
        "a = x * 2.0; x.mul_(3.0); b = a + x",
        [("mul", 2, 1, "n n"), ("add", 2, 1, "n n")],
    ),
    "a branch on a value": (
        "a = x * x; a = a + 1.0 if a.sum().item() > 9.0 else a + 2.0",
        [("mul fold(add)", 1, 2, "n n"), ("add", 2, 1, "n n")],
    ),
    "a transposed view of what is noted": (
        "a = x * 2.0; b = a.T + 1.0; c = a + 1.5",
        [("mul", 2, 1, "n n"), ("add add", 4, 2, "n n")],
    ),
    "an operand that fits, and one that does not": (
        "a = x * 2.0; b = x.T - a.T",
        [("mul", 2, 1, "n n"), ("sub", 2, 1, "n n")],
    ),
    "a part of what is noted": (
        "a = x * 2.0; b = a[1:] + 1.0",
        [("mul", 2, 1, "n n"), ("add", 2, 1, "m n")],
    ),
    "a view of its end": (
        "a = r * 2.0; b = a[1:2].expand(r.shape) + r",
        [("mul", 2, 1, "n"), ("add", 2, 1, "n")],
    ),
    "another shape": (
        "a = x * 2.0; b = r * 3.0; c = a + b",
        [("mul", 2, 1, "n n"), ("mul", 2, 1, "n"), ("add", 2, 1, "n n")],
    ),
    "a row that is broadcast": (
        "a = x * r; b = (a + r).tanh()",
        [("mul add tanh", 2, 2, "n n")],
    ),
    "views of an input": (
        "a = x * x.T + x[0] * x[:, :1]; a = a - x.T",
        [("mul mul add sub", 4, 1, "n n")],
    ),
    "parts of an input": (
        "a = x * x[:1] + x[1:2]",
        [("mul add", 3, 1, "n n")],
    ),
    "a product comes between": (
        "a = x * 2.0; b = a @ x; c = b.relu() + a",
        [("mul", 2, 1, "n n"), ("relu add", 2, 1, "n n")],
    ),
    "too many steps": (
        "a = x * 0.5\nfor _ in range(34): a = a * 0.5\ndel _",
        [("mul " * 32, 2, 1, "n n"), ("mul " * 3, 2, 1, "n n")],
    ),
    "too many inputs": (
        "a = x + 0.25\nfor k in range(33): a = a + (k + 0.5)\ndel k",
        [("add " * 30, 31, 1, "n n"), ("add " * 4, 5, 1, "n n")],
    ),
    "nothing is held": ("a = (x * 2.0).tanh(); del a", []),
    "another name for it": (
        "a = x * 2.0; b = a; c = b + 1.0; del a",
        [("mul add", 3, 2, "n n")],
    ),
    "a name that is used again": (
        "a = x * 2.0; a = a + 1.0; a = a.tanh()",
        [("mul add tanh", 3, 1, "n n")],
    ),
    "a softmax": (
        "e = (x - x.amax(-1, True)).exp(); y = e / e.sum(-1, True); del e",
        [("fold(maximum) sub exp fold(add) div", 1, 1, "n n")],
    ),
    "numbers of rows": (
        "t = x.amax(-1, True); u = t * 2.0 + 1.0; y = x - u; del t",
        [("fold(maximum) mul add sub", 3, 2, "n n")],
    ),
    "numbers of rows, with others": (
        "t = x.amax(-1, True); u = (x * 2.0)[:, :1] + t; y = x - u",
        [
            ("fold(maximum) mul", 2, 2, "n n"),
            ("add", 2, 1, "n 1"),
            ("sub", 2, 1, "n n"),
        ],
    ),
    "numbers of rows as elements": (
        "t = x.amax(-1, True); y = t.expand(x.shape) + x; z = t.expand(x.shape) * r",
        [("fold(maximum) add mul", 2, 3, "n n")],
    ),
    "numbers of rows for columns": (
        "t = x.amax(-1, True); y = t.T.expand(x.shape) + x",
        [("fold(maximum)", 1, 1, "n n"), ("add", 2, 1, "n n")],
    ),
    "folds of unlike rows": (
        "a = x * 2.0; s = a.sum(-1); t = a.sum((0, 1), True) + s[:1]",
        [("mul fold(add)", 2, 2, "n n"), ("fold(add) add", 2, 1, "n n")],
    ),
    "one number of all": (
        "a = x[:1, :1].expand(1, 20000) * 2.0; t = a.amax((0, 1), True) * 3.0; "
        "b = a - t",
        [("mul fold(maximum) mul", 3, 2, "1 L"), ("sub", 2, 1, "1 L")],
    ),
    "a fold of the first dims": (
        "a = x * 2.0; t = a.sum(0); b = t + r",
        [("mul", 2, 1, "n n"), ("add", 2, 1, "n")],
    ),
}


def _scene_inputs(draw: Draw, scene: int) -> Inputs:
    code, _ = list(SCENES.values())[scene]
    n = draw.integer(2, 4)
    return {"code": [code], "x": draw.array((n, n)), "r": draw.array((n,))}


def _scene_expected(code: Sequence[str], **arrays: np.ndarray) -> Inputs:
    told = next(told for said, told in SCENES.values() if [said] == list(code))
    n, programs = len(arrays["r"]), []
    for names, read, written, size in told:
        shape = tuple(
            [{"n": n, "m": n - 1, "1": 1, "L": 20_000}[s] for s in size.split()]
        )
        end = f"({read} read, {written} written)"
        programs.append(f"{shape} cpu: {names.strip()} {end}")
    return {"programs": programs, **_values(code, **arrays)}


RECORDED = (
    Check(
        *("a12.6", "one program", calls.recorded, _line_inputs_of, _line_expected_of),
        {"lines": (1, 6), "inputs": (1, 2)},
        sizes_of("lines inputs", (1, 1), (12, 2), (20, 3)),
        tolerance=1e-4,
        examples=80,
        oracles={"programs": DEFINITION},
        hint="What no variable holds at the end of the lines is not written; what "
        "nobody needs is not in the program; a tensor that is used twice is one input.",
    ),
    *[
        Check(
            *("a12.6", name, calls.recorded),
            lambda draw, k=k: _scene_inputs(draw, k),
            _scene_expected,
            tolerance=1e-5,
            examples=2,
            oracles={"programs": DEFINITION},
            hint="When can a step not be a part of the program: of what shape is it, "
            "and in which form does it take what is noted?",
        )
        for k, name in enumerate(SCENES)
    ],
)

# -------------------------------------------------------------------------- a12.7


def _speed_inputs(draw: Draw, rows: int, n: int) -> Inputs:
    arrays = {"x": (rows, n), "weight": (n,), "bias": (n,)}
    return {name: draw.array(shape) for name, shape in arrays.items()}


def _chain_expected(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Inputs:
    for _ in range(calls.TIMES):
        x = np.maximum(x * weight + bias, np.float32(0)) + x
    return {"out": x}


def _norm_expected(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Inputs:
    for _ in range(calls.TIMES):
        away = x - x.mean(-1, keepdims=True, dtype=np.float64).astype(np.float32)
        variance = (away * away).mean(-1, keepdims=True, dtype=np.float64) + 1e-5
        x = away / np.sqrt(variance).astype(np.float32) * weight + bias
    return {"out": x}


SPEED = (
    Speed(
        *("a12.7", "scale, shift, relu, add", calls.timed_chain),
        *(calls.timed_plain_chain, _speed_inputs, _chain_expected),
        {"rows": 4000, "n": 1000},
        ((1.3, 0.5), (1.8, 1.0)),
        lambda x, weight, bias: (
            2.0 * calls.TIMES * x.nbytes,
            4.0 * calls.TIMES * x.size,
        ),
        tolerance=1e-4,
        oracle="NumPy",
        hint="Is all of it one program, in one loop, on all cores?",
    ),
    Speed(
        *("a12.7", "layer norm", calls.timed_norm),
        *(calls.timed_plain_norm, _speed_inputs, _norm_expected),
        {"rows": 4000, "n": 1000},
        ((1.2, 0.5), (1.6, 1.0)),
        lambda x, weight, bias: (
            2.0 * calls.TIMES * x.nbytes,
            8.0 * calls.TIMES * x.size,
        ),
        tolerance=1e-3,
        oracle="NumPy",
        hint="How many loops are there over a row, and what do they write?",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *(PRUNED, TEXTS, LEVELS, LOOPS, COMPILED),
    *BROADCAST,
    *RECORDED,
    *SPEED,
)
