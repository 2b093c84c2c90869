"""What a4w is checked with: small whole numbers, around the ends of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from assignments.a4w_gpu_warmup import calls
from assignments.a4w_gpu_warmup.calls import (
    ALONE,
    OWN_PART,
    SHARED,
    SIDE,
    THREADS,
    TOGETHER,
)
from assignments.checks import AnyCheck, Call, Check, sizes_of
from assignments.draw import Draw

Size = tuple[int, ...]
BINS = 4


def _digits(draw: Draw, *shape: int) -> np.ndarray:
    return draw.array(shape, "int64", 0, 9)


def _puzzle(
    number: int,
    call: Call,
    out: Callable[..., np.ndarray],
    inputs: Callable[..., dict[str, Any]],
    sizes: dict[str, Size],
    *edges: Size,
) -> Check:
    """A puzzle is checked at its edges, and with a few small inputs more."""
    name = call.__name__
    facts = {SHARED: True} if name in TOGETHER else {}
    facts |= {} if name in ALONE else {OWN_PART: True}

    def expected(**given: Any) -> dict[str, Any]:
        return {calls.OUTPUT.get(name, "out"): out(*given.values()), **facts}

    around = sizes_of(" ".join(sizes), *edges)
    what = f"a4w.{number}", name, call, inputs, expected, sizes, around
    return Check(*what, examples=4, oracle="NumPy")


def _in_a_line(*more: str) -> Callable[..., dict[str, Any]]:
    """Inputs a, and those called `more`, of n elements each."""
    return lambda draw, n: {name: _digits(draw, n) for name in ("a", *more)}


def _matrix(draw: Draw, m: int, n: int) -> dict[str, Any]:
    return {"a": _digits(draw, m, n)}


def _column_and_row(draw: Draw, m: int, n: int) -> dict[str, Any]:
    return {"column": _digits(draw, m), "row": _digits(draw, n)}


def _whole_blocks(draw: Draw, blocks: int) -> dict[str, Any]:
    return {"a": _digits(draw, blocks * THREADS)}


def _with_two_more(draw: Draw, n: int) -> dict[str, Any]:
    return {"a": _digits(draw, n + 2)}


def _values(draw: Draw, n: int) -> dict[str, Any]:
    return {"a": draw.array((n,), "int64", 0, BINS - 1), "counts_size": BINS}


FEW = {"n": (1, 5)}
SQUARE = {"m": (1, SIDE), "n": (1, SIDE)}
SQUARES = ((SIDE, SIDE), (1, SIDE), (SIDE, 1), (2, 3), (3, 2))
LINES = ((1,), (THREADS - 1,), (THREADS,))
BLOCKS = (*LINES, (THREADS + 1,), (3 * THREADS - 1,), (3 * THREADS,))

CHECKS: tuple[AnyCheck, ...] = (
    _puzzle(
        *(1, calls.add_ten, lambda a: a + 10),
        *(_in_a_line(), FEW, *LINES, (5 * THREADS,)),
    ),
    _puzzle(
        *(2, calls.glue_digits, lambda a, b: 10 * a + b),
        *(_in_a_line("b"), FEW, *LINES, (5 * THREADS,)),
    ),
    _puzzle(3, calls.double_guarded, lambda a: 2 * a, _in_a_line(), FEW, *LINES),
    _puzzle(4, calls.lower_triangle, np.tril, _matrix, SQUARE, *SQUARES),
    _puzzle(
        *(5, calls.times_table, lambda column, row: np.outer(column, row)),
        *(_column_and_row, SQUARE, *SQUARES),
    ),
    _puzzle(
        *(6, calls.every_second, lambda a: a[::2]),
        *(_in_a_line(), FEW, *BLOCKS, (2 * THREADS,), (2 * THREADS + 1,)),
    ),
    _puzzle(
        *(7, calls.turn_blocks, lambda a: np.fliplr(a.reshape(-1, THREADS)).ravel()),
        *(_whole_blocks, {"blocks": (1, 2)}, (1,), (3,)),
    ),
    _puzzle(
        *(8, calls.sum_of_three, lambda a: a[:-2] + a[1:-1] + a[2:]),
        *(_with_two_more, FEW, *BLOCKS),
    ),
    _puzzle(
        *(9, calls.dot_product, lambda a, b: np.array([a @ b])),
        *(_in_a_line("b"), FEW, *LINES),
    ),
    _puzzle(
        *(10, calls.count_values, lambda a, size: np.bincount(a, minlength=size)),
        *(_values, FEW, *BLOCKS),
    ),
)
