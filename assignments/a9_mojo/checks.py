"""What a9 is checked with; the oracle is PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.a9_mojo import calls
from assignments.checks import AnyCheck, Check, Speed
from assignments.draw import Draw
from assignments.oracles import elementwise, product

FLOATS = ("float32", "float64")
MAPS = ("neg", "relu", "abs", "isnan")
PER_TASK = 16384  # elements of a task, as in elementwise.mojo


# -------------------------------------------------------------------------- products

# Around the vectors of 4, 8 and 16 numbers, the tiles of two of them, and their rows.
EDGES: Sequence[tuple[int, int, int]] = (
    (0, 3, 2),
    (2, 0, 3),
    (3, 5, 15),
    (4, 7, 16),
    (5, 3, 17),
    (4, 9, 31),
    (8, 2, 32),
    (7, 6, 33),
    (17, 4, 65),
    (33, 20, 100),
    (3, 2, 1030),
    (257, 5, 3),
)
SIZES = {"m": (1, 5), "k": (1, 4), "n": (1, 5)}


def _product_inputs(name: str) -> Any:
    def inputs(draw: Draw, m: int, k: int, n: int) -> dict[str, Any]:
        dtype = draw.choice(FLOATS)
        a, b = draw.array((m, k), dtype), draw.array((k, n), dtype)
        return {"name": name, "a": a, "b": b}

    return inputs


def _terms(name: str, a: np.ndarray, b: np.ndarray) -> int:
    return 2 * a.shape[1]


def _product(task: str, name: str) -> Check:
    return Check(
        task,
        name,
        calls.product,
        _product_inputs(name),
        product,
        SIZES,
        tuple({"m": m, "k": k, "n": n} for m, k, n in EDGES),
        length=_terms,
        examples=12,
    )


def _same_bits(task: str, name: str) -> Check:
    def expected(name: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
        out = product(a, b)["out"]
        return {str(i): out for i in range(3)}

    return Check(
        task,
        f"{name} on 1, 2 and 3 threads",
        calls.same_bits,
        _product_inputs(name),
        expected,
        SIZES,
        ({"m": 70, "k": 11, "n": 37}, {"m": 64, "k": 8, "n": 64}),
        length=_terms,
        examples=4,
    )


PRODUCTS = (
    _product("a9.1", "matmul_naive"),
    _product("a9.2", "matmul_vectorized"),
    _product("a9.3", "matmul_parallel"),
    _same_bits("a9.3", "matmul_parallel"),
    _product("a9.4", "matmul_tiled"),
    _same_bits("a9.4", "matmul_tiled"),
)

# ------------------------------------------------------------------------------- map


def _map_inputs(draw: Draw, n: int) -> dict[str, Any]:
    return {"fn": draw.choice(MAPS), "a": draw.array((n,), draw.choice(FLOATS))}


MAP = Check(
    "a9.5",
    "map",
    calls.map_tensor,
    _map_inputs,
    elementwise,
    {"n": (0, 6)},
    tuple(
        {"n": n}
        for n in (0, 1, 1025, PER_TASK - 1, PER_TASK, PER_TASK + 1, 3 * PER_TASK + 7)
        * 2
    ),
    examples=12,
)

# ----------------------------------------------------------------------------- speed


def _matrices(draw: Draw, n: int) -> dict[str, Any]:
    return {"a": draw.array((n, n)), "b": draw.array((n, n))}


def _speed(name: str, call: Any, steps: Sequence[tuple[float, float]]) -> Speed:
    return Speed(
        "a9.6",
        name,
        call,
        calls.timed_loop_order,
        _matrices,
        product,
        {"n": 256},
        steps,
        lambda a, b: (3.0 * a.nbytes, 2.0 * a.shape[0] * a.shape[1] * b.shape[1]),
        length=lambda a, b: 2 * a.shape[1],
    )


CHECKS: tuple[AnyCheck, ...] = (
    *PRODUCTS,
    MAP,
    _speed("matmul_vectorized", calls.timed_vectorized, ((1.5, 0.5), (2.5, 1.0))),
    _speed("matmul_tiled", calls.timed_tiled, ((4.5, 0.5), (7.0, 1.0))),
)
