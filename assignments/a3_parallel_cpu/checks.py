"""What a3 is checked with; the oracle is PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.a3_parallel_cpu import calls
from assignments.checks import AnyCheck, Check, Speed, on_all_cores
from assignments.draw import Draw, layout
from assignments.grading.processes import cores
from assignments.oracles import STARTS, as_torch, elementwise, folded, product

FLOATS = ("float32", "float64")
MAPS = ("neg", "relu", "abs")
ZIPS = ("add", "sub", "maximum")  # the last one compares: no whole arrays
# From here on fast_ops shares the work among its threads.
PARALLEL = 32_768


# ---------------------------------------------------------------------- map and zip


def _map_inputs(draw: Draw, n: int) -> dict[str, Any]:
    a = draw.array((n,), draw.choice(FLOATS))
    return {"fn": draw.choice(MAPS), "a": a, "layout": "contiguous"}


def _zip_inputs(draw: Draw, n: int) -> dict[str, Any]:
    dtype = draw.choice(FLOATS)
    a, b = draw.array((n,), dtype), draw.array((n,), dtype)
    how = {"a_layout": "contiguous", "b_layout": "contiguous"}
    return {"fn": draw.choice(ZIPS), "a": a, "b": b, **how}


def _matrix_inputs(draw: Draw, m: int, n: int) -> dict[str, Any]:
    """Two matrices of one shape, one of them with gaps between its elements."""
    how = ["stepped", draw.choice(("contiguous", "stepped", "permuted"))]
    if draw.choice((False, True)):
        how.reverse()
    a, b = draw.array((m, n)), draw.array((m, n))
    fn = draw.choice(ZIPS)
    return {"fn": fn, "a": a, "b": b, "a_layout": how[0], "b_layout": how[1]}


def _strided_inputs(draw: Draw, m: int, n: int, dims: int = 2) -> dict[str, Any]:
    shape = (m, n) if dims == 2 else (m, 1 + n % 3, 2, n)[:dims]
    left = tuple(1 if draw.integer(0, 3) == 3 else size for size in shape)
    right = tuple(1 if draw.integer(0, 2) == 2 else size for size in shape)
    how = {"a_layout": layout(draw), "b_layout": layout(draw)}
    fn = draw.choice(("sub", "add", "mul"))
    return {"fn": fn, "a": draw.array(left), "b": draw.array(right), **how}


def _into_inputs(draw: Draw, m: int, n: int) -> dict[str, Any]:
    a, b = draw.array((m, n)), draw.array(draw.choice(((n,), (m, 1), (m, n))))
    how = {"layout": layout(draw), "out_layout": layout(draw)}
    return {"fn": draw.choice(ZIPS), "a": a, "b": b, **how}


FLAT = {"n": (0, 6)}
FLAT_EDGES = tuple({"n": n} for n in (0, 1, 1025, PARALLEL - 1, PARALLEL, PARALLEL + 7))
ELEMENTWISE = (
    Check(
        *("a3.1", "one dimension: map", calls.map_tensor),
        *(_map_inputs, elementwise, FLAT, FLAT_EDGES),
    ),
    Check(
        *("a3.1", "one dimension: zip", calls.zip_tensors),
        *(_zip_inputs, elementwise, FLAT, FLAT_EDGES),
    ),
    Check(
        *("a3.1", "two dimensions: zip of matrices with gaps", calls.zip_tensors),
        *(_matrix_inputs, elementwise),
        {"m": (1, 4), "n": (1, 5)},
        ({"m": 3, "n": 257}, {"m": 257, "n": 3}),
        hint="shape is (1, 1, rows, columns) here. How far is it from a row to the "
        "next, and from a column to the next, in each of a, b and out?",
    ),
    Check(
        "a3.1",
        "any dimensions: zip with broadcasting and strides",
        calls.zip_tensors,
        _strided_inputs,
        elementwise,
        {"m": (1, 4), "n": (1, 5), "dims": (1, 4)},
        (
            {"m": 2, "n": 8193},
            {"m": 33, "n": 1025},
            {"m": 129, "n": 300},
        ),
        examples=40,
        hint="What is the stride of a dimension that is repeated? Do pieces of a row "
        "that come after the first begin at the right element?",
    ),
    Check(
        "a3.1",
        "any dimensions: zip into strides",
        calls.zip_into,
        _into_inputs,
        elementwise,
        {"m": (1, 4), "n": (1, 5)},
        ({"m": 5, "n": 515},),
        examples=30,
    ),
)

# ------------------------------------------------------------------------ reductions


def _reduce_inputs(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    fn = draw.choice(tuple(STARTS))
    a = draw.array((rows, n), draw.choice(FLOATS), 0.5 if fn == "mul" else -2.0, 2.0)
    if fn == "mul":
        a = np.sign(a - 1).astype(a.dtype)
    return {"fn": fn, "a": a, "start": STARTS[fn], "dims": (1,)}


def _sum_inputs(name: str) -> Any:
    return lambda draw, n: {"name": name, "a": draw.array((n,))}


def _sum_expected(a: np.ndarray, **rest: Any) -> dict[str, Any]:
    return {"out": np.array(a.astype(np.float64).sum(), np.float32)}


def _elements(a: np.ndarray, **rest: Any) -> int:
    # Partial sums in float64, or in float32 of at most a block: errors stay small.
    return min(a.size, 4096)


SUM_EDGES = tuple({"n": n} for n in (0, 1, 4095, 4096, 4097, 1_000_003))


def _rung(task: str, name: str) -> Check:
    return Check(
        task,
        name,
        calls.rung,
        _sum_inputs(name),
        _sum_expected,
        {"n": (0, 6)},
        SUM_EDGES,
        length=_elements,
        oracle="NumPy",
    )


REDUCTIONS = (
    Check(
        "a3.2",
        "reduce over rows",
        calls.reduce_rows,
        _reduce_inputs,
        folded,
        {"rows": (1, 4), "n": (1, 6)},
        (
            {"rows": 3, "n": 511},
            {"rows": 3, "n": 512},
            {"rows": 3, "n": 513},
            {"rows": 70, "n": 1025},
            {"rows": 1, "n": 9000},
        ),
        length=_elements,
        examples=30,
        hint="Is the last block of a row shorter? Does each block begin with the "
        "identity of fn?",
        oracle="NumPy",
    ),
    _rung("a3.2", "sum_register"),
    _rung("a3.2", "sum_blocks"),
    Check(
        "a3.2",
        "the same bits on any number of threads",
        calls.same_bits,
        lambda draw, n: {"a": draw.array((n,)), "threads": (1, 2, 4, 2)},
        lambda a, threads: {
            "sums": np.array(a.astype(np.float64).sum(), np.float32),
            "equal": True,
        },
        {"n": (0, 5)},
        ({"n": 200_001},),
        length=_elements,
        examples=3,
        oracle="NumPy",
    ),
)

# --------------------------------------------------------------------- false sharing


def _cells_inputs(draw: Draw, n: int, parts: int) -> dict[str, Any]:
    spacing = draw.choice((1, 8, 3))
    return {"x": draw.array((n,)), "parts": parts, "spacing": spacing}


def _cells_expected(x: np.ndarray, parts: int, spacing: int) -> dict[str, Any]:
    cells = np.zeros(parts * spacing)
    for t in range(parts):
        part = x[t * x.size // parts : (t + 1) * x.size // parts]
        cells[t * spacing] = part.astype(np.float64).sum()
    return {"cells": cells}


SHARING = (
    Check(
        "a3.4",
        "cells",
        calls.cells,
        _cells_inputs,
        _cells_expected,
        {"n": (0, 8), "parts": (1, 4)},
        ({"n": 1000, "parts": 3}, {"n": 4097, "parts": 16}, {"n": 5, "parts": 8}),
        tolerance=1e-9,
        oracle="NumPy",
    ),
    _rung("a3.4", "sum_per_thread"),
    _rung("a3.4", "sum_padded"),
)

# --------------------------------------------------------------------------- products


def _product(name: str) -> Check:
    def inputs(draw: Draw, m: int, k: int, n: int) -> dict[str, Any]:
        dtype = draw.choice(FLOATS)
        a, b = draw.array((m, k), dtype), draw.array((k, n), dtype)
        return {"name": name, "a": a, "b": b}

    sizes: Sequence[tuple[int, int, int]] = (
        (0, 3, 2),
        (2, 0, 3),
        (31, 63, 65),
        (32, 64, 64),
        (33, 65, 33),
        (5, 7, 513),
        (65, 130, 1030),
    )
    return Check(
        "a3.3",
        name,
        calls.product,
        inputs,
        product,
        {"m": (1, 4), "k": (1, 4), "n": (1, 4)},
        tuple({"m": m, "k": k, "n": n} for m, k, n in sizes),
        length=lambda name, a, b: 2 * a.shape[1],
        examples=12,
    )


def _writers(name: str) -> Check:
    def inputs(draw: Draw, m: int, k: int, n: int) -> dict[str, Any]:
        return {"name": name, "a": draw.array((m, k)), "b": draw.array((k, n))}

    return Check(
        "a3.3",
        f"{name}: each element by one iteration",
        calls.writers,
        inputs,
        lambda name, a, b: {"writers of an element": 1},
        {"m": (1, 4), "k": (1, 4), "n": (1, 4)},
        ({"m": 97, "k": 2, "n": 3}, {"m": 2, "k": 65, "n": 3}),
        examples=2,
        hint="Iterations of prange run at the same time: no two may write one element.",
        oracle="the definition",
    )


# ---------------------------------------------------------------------- all the cores


KERNELS = {
    "a3.1": ("map_flat", "zip_flat", "zip_strided"),
    "a3.2": ("fold_flat", "_register", "_blocks"),
    "a3.3": ("_parallel", "_blocked"),
    "a3.4": ("_cells",),
}
ON_ALL_CORES = on_all_cores(KERNELS, calls.on_all_cores)

# ------------------------------------------------------------------------------ speed


def _large(draw: Draw, n: int) -> dict[str, Any]:
    return {"a": draw.array((n,))}


# A task of 32 rows for each core, times 24 MiB that do not stay in a third-level cache,
# with rows that do not stay in a first-level one. Where the third feeds fast (an EPYC),
# blocks make 1024 x 2048 numbers 0.9 times as fast, and these 2.2 to 3 times.
ROWS = 32 * max(2, len(cores()))


def _matrices(draw: Draw, m: int, k: int, n: int) -> dict[str, Any]:
    return {"a": draw.array((m, k)), "b": draw.array((k, n))}


SPEED = (
    Speed(
        "a3.5",
        "map",
        calls.timed_map,
        calls.timed_copy,
        _large,
        lambda a: {"out": as_torch(a).relu().numpy()},
        {"n": 1_000_000},
        ((0.1, 0.5), (0.25, 1.0)),
        lambda a: (2.0 * a.nbytes, float(a.size)),
        hint="A kernel that moves each byte once is as fast as a copy.",
    ),
    Speed(
        "a3.5",
        "sum",
        calls.timed_sum,
        calls.timed_serial_sum,
        _large,
        _sum_expected,
        {"n": 2_000_000},  # half of it takes as long as asking for it
        ((1.2, 0.5), (1.5, 1.0)),
        lambda a: (float(a.nbytes), float(a.size)),
        length=_elements,
        oracle="NumPy",
    ),
    Speed(
        "a3.5",
        "matmul",
        calls.timed_product,
        calls.timed_parallel_product,
        _matrices,
        product,
        {"m": ROWS, "k": 384, "n": 16384},
        ((1.1, 0.5), (1.3, 1.0)),
        lambda a, b: (
            float(a.nbytes + b.nbytes + a.itemsize * len(a) * b.shape[1]),
            2.0 * a.size * b.shape[1],
        ),
        length=lambda a, b: 2 * a.shape[1],
        hint="Is a block of b used for all rows of a task before the next one comes?",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *ELEMENTWISE,
    *REDUCTIONS,
    _product("matmul_parallel"),
    _product("matmul_blocked"),
    _writers("_parallel"),
    _writers("_blocked"),
    *SHARING,
    *ON_ALL_CORES,
    *SPEED,
)
