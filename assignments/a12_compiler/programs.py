"""Programs for a12: drawn step by step, or those that everybody knows, and what is
true of them by definition.

With this file the checks have a program as its lines (`Drawn.program`), and its steps
again (`steps_of`); the levels of these (`levels_of`), what has to lie in memory
(`in_memory`), and their results by NumPy (`run`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from assignments.a12_compiler.calls import STEP, line_of_step
from assignments.checks import Inputs
from assignments.draw import Draw

UNARY = ("neg", "tanh", "relu", "abs", "sigmoid", "sin")
BINARY = ("add", "sub", "maximum", "mul")
STARTS = {"add": 0.0, "maximum": -math.inf, "minimum": math.inf}
TYPES = ("float32", "float64", "bfloat16", "float16")

Step = tuple[str, list[int], str, bool, float | None]  # fn, args, type, per row, start


class Drawn:
    """A program that is drawn step by step.

    Attributes:
        kinds: how each input lies: "flat", "row", "column" (one number a row), "one".
        types: of the inputs.
    """

    def __init__(
        self, draw: Draw, kinds: Sequence[str], types: Sequence[str], whole: bool
    ) -> None:
        self.draw, self.kinds, self.types, self.whole = draw, kinds, types, whole
        self.steps: list[Step] = []

    def per_row(self, a: int) -> bool:
        """Whether a value is one number a row."""
        return self.steps[a][3] if a >= 0 else self.kinds[~a] == "column"

    def type(self, a: int) -> str:
        return self.steps[a][2] if a >= 0 else self.types[~a]

    def values(self) -> list[int]:
        """All that a step can be given, the last results first."""
        found = [
            *reversed(range(len(self.steps))),
            *[~k for k in range(len(self.kinds))],
        ]
        if self.whole:  # no element is computed of what all elements become
            found = [a for a in found if not self.per_row(a)]
        return [a for a in found if self.type(a) != "bool"]

    def add(self, fn: str, *args: int, type: str = "", start: Any = None) -> int:
        """Write a step down; its number."""
        ones = [a for a in args if a < 0 and self.kinds[~a] == "one"]
        rows = [a for a in args if self.per_row(a)]
        row = start is not None or (bool(rows) and len(rows) + len(ones) == len(args))
        kind = type or self.type(args[-1])
        self.steps.append((fn, list(args), kind, row, start))
        return len(self.steps) - 1

    def step(self, folds: bool) -> None:
        """One more step."""
        draw, values = self.draw, self.values()
        lines = [v for v in values if not self.per_row(v) and self._is_long(v)]
        a = self._one_of(draw.choice((lines, lines, values)) or values)
        b = self._one_of(values)
        fn = draw.choice((*BINARY, *BINARY, *UNARY, "where", *["fold"] * 6))
        if fn == "fold" and folds and lines:
            fold = draw.choice(tuple(STARTS))
            self.add(fold, self._one_of(lines), start=STARTS[fold])
        elif fn == "where":
            x = [~k for k in range(len(self.kinds)) if self.kinds[k] != "column"]
            larger = self.add("gt", draw.choice(x), x[0], type="bool")
            self.add("where", larger, a, x[0])
        elif fn == "mul":  # numbers stay small
            self.add(fn, a, ~draw.integer(0, len(self.kinds) - 1))
        elif fn in BINARY:
            self.add(fn, a, b)
        else:
            self.add("tanh" if fn == "fold" else fn, a)

    def _one_of(self, values: Sequence[int]) -> int:
        """A value; mostly one of the last results, so that steps lead to each other."""
        few = values[: self.draw.choice((3, len(values)))]
        return self.draw.choice(few)

    def _is_long(self, v: int) -> bool:
        return v >= 0 or self.kinds[~v] in ("flat", "row")

    def program(self, kept: Collection[int]) -> Inputs:
        """The program as its lines; `kept` has the numbers of steps."""
        rows = any(step[3] for step in self.steps)
        return {
            "inputs": list(self.types),
            "steps": [line_of_step(k, *s) for k, s in enumerate(self.steps)],
            "kept": sorted(kept),
            "folded": int(rows),
        }


def drawn(
    draw: Draw, steps: int, folds: int,
    kinds: Sequence[str] = ("flat", "row", "column"),
    types: Sequence[str] = ("float32",), whole: bool = False,
) -> Drawn:  # fmt: skip
    """A program of some steps, or of a few more; with folds, if `folds` is not 0."""
    found = Drawn(draw, kinds, [draw.choice(types) for _ in kinds], whole)
    for _ in range(steps):
        found.step(bool(folds))
    return found


def some(draw: Draw, numbers: Sequence[int]) -> list[int]:
    """Some of the numbers; one at least."""
    kept = [k for k in numbers if draw.choice((False, True))]
    return kept or [draw.choice(numbers)]


def named(name: str) -> Drawn:
    """Programs that everybody knows."""
    p = Drawn(None, ("flat", "row", "one"), ("float32",) * 3, False)  # type: ignore[arg-type]
    x, row, one = ~0, ~1, ~2
    if name == "softmax":
        top = p.add("maximum", x, start=-math.inf)
        e = p.add("exp", p.add("sub", x, top))
        p.add("div", e, p.add("add", e, start=0.0))
    elif name == "norm":
        total = p.add("add", x, start=0.0)
        away = p.add("sub", x, p.add("mul", total, ~2))
        square = p.add("add", p.add("mul", away, away), start=0.0)
        p.add("mul", p.add("div", away, p.add("sqrt", square)), row)
    elif name == "less the top":
        top = p.add("maximum", x, start=-math.inf)
        e = p.add("exp", p.add("sub", x, top))
        p.add("sub", p.add("div", e, p.add("add", e, start=0.0)), top)
    elif name == "shares":
        p.add("div", p.add("mul", x, x), p.add("add", 0, start=0.0))
    elif name == "compensated":
        p.add("sub", p.add("sub", p.add("add", x, row), row), x)
    else:
        cube = p.add("mul", p.add("mul", x, x), x)
        p.add("mul", p.add("tanh", p.add("add", p.add("mul", cube, one), row)), x)
    return p


NAMES = ("chain", "softmax", "norm", "compensated", "less the top", "shares")


# ------------------------------------------------------------------ by definition


def steps_of(program: Inputs) -> list[Step]:
    """The steps of a program as they were drawn."""
    found: list[Step] = []
    for line in program["steps"]:
        match = STEP.fullmatch(line)
        assert match is not None
        fold, fn, args, start, kind, row = match.groups()
        given = [int(a[1:]) if a[0] == "y" else ~int(a[1:]) for a in args.split(", ")]
        found.append((fn, given, kind, bool(row), float(start) if fold else None))
    return found


def levels_of(steps: Sequence[Step]) -> list[int]:
    """For each step, the most folds on a way that leads to it."""

    @cache
    def most(a: int) -> int:
        if a < 0:
            return 0
        _, args, _, _, start = steps[a]
        return max(map(most, args)) + int(start is not None)

    return [most(k) for k in range(len(steps))]


def uses_of(steps: Sequence[Step]) -> Iterator[tuple[int, int, bool]]:
    """Whose elements are used, at which level, and whether by a fold."""
    for (_, args, _, row, start), level in zip(steps, levels_of(steps)):
        if not row or start is not None:
            for a in args:
                if a < 0 or not steps[a][3]:
                    yield a, level, start is not None


def in_memory(steps: Sequence[Step], kept: Sequence[int]) -> set[int]:
    """The steps whose elements outlive the loop that makes them."""
    at = levels_of(steps)
    found = {k for k in kept if not steps[k][3]}
    return found | {a for a, level, _ in uses_of(steps) if a >= 0 and at[a] != level}


def shape_of(kind: str, rows: int, n: int) -> tuple[int, ...]:
    """The shape of an input beside a matrix of rows with n numbers."""
    return {"flat": (rows, n), "row": (n,), "column": (rows, 1), "one": ()}[kind]


def _fold(fn: str, x: np.ndarray) -> np.ndarray:
    folds: Any = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}
    made: np.ndarray = folds[fn].reduce(x, -1, keepdims=True)
    return made


def _sigmoid(x: np.ndarray) -> Any:
    return 1 / (1 + np.exp(-x))


FUNCTIONS: dict[str, Any] = {
    "neg": np.negative, "tanh": np.tanh, "abs": np.abs, "sin": np.sin, "exp": np.exp,
    "relu": lambda x: np.maximum(x, 0), "sigmoid": _sigmoid, "add": np.add,
    "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum,
    "gt": np.greater, "where": np.where, "sqrt": np.sqrt,
}  # fmt: skip


def run(steps: Sequence[Step], given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The result of each step, by NumPy."""
    found: list[np.ndarray] = []
    for fn, args, kind, _, start in steps:
        values = [found[a] if a >= 0 else given[~a] for a in args]
        made = FUNCTIONS[fn](*values) if start is None else _fold(fn, values[0])
        found.append(made.astype(kind))
    return found
