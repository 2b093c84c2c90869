"""What a5 is checked with; the oracle is NumPy, and PyTorch of large products.

In the simulator tiles are 4 x 4 (coarsened: 16 x 16, vectorized: 32 x 32), on a GPU
and where sectors are counted 32 x 32 (64 x 64, 64 x 128).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.a5_matmul_ladder import calls
from assignments.checks import GPU, SIMULATOR, AnyCheck, Check, Speed
from assignments.draw import Draw, layout
from assignments.oracles import product
from assignments.simulated import simulates

SIMULATED = simulates("cuda")
FLOATS = ("float32", "float64")
# Sums of 300 products of numbers with 10 bits after the point are off by 0.03 at most.
TF32 = 0.05
Size = tuple[int, int, int]


def _product(a: np.ndarray, b: np.ndarray, **rest: Any) -> dict[str, Any]:
    return {"out": a @ b}


def _length(a: np.ndarray, **rest: Any) -> int:
    return 2 * a.shape[1]


def _matrices(draw: Draw, m: int, k: int, n: int, dtype: str) -> dict[str, np.ndarray]:
    return {"a": draw.array((m, k), dtype), "b": draw.array((k, n), dtype)}


def _sizes(simulated: Sequence[Size], gpu: Sequence[Size]) -> list[dict[str, int]]:
    """Edge sizes (m, k, n), around the tiles of where this runs."""
    chosen = simulated if SIMULATED else gpu
    return [{"m": m, "k": k, "n": n} for m, k, n in chosen]


# ------------------------------------------------------------------------ the rungs

EMPTY = ((0, 3, 2), (2, 0, 3), (1, 1, 1))
ON_A_GPU = (
    *EMPTY,
    *((31, 32, 33), (32, 33, 31), (64, 64, 64), (65, 63, 129), (257, 300, 130)),
    *((3, 1030, 2), (1025, 17, 40)),
)
SMALL: dict[str, Sequence[Size]] = {
    "matmul_naive": (*EMPTY, (3, 4, 5), (4, 5, 3), (9, 2, 7), (2, 3, 1030)),
    "matmul_coalesced": (*EMPTY, (3, 4, 5), (4, 5, 3), (9, 2, 7), (2, 3, 1030)),
    "matmul_tiled": (*EMPTY, (3, 4, 5), (4, 5, 3), (9, 8, 7), (2, 1026, 3)),
    "matmul_coarsened": (*EMPTY, (15, 4, 17), (16, 5, 16), (33, 3, 2), (2, 130, 3)),
    "matmul_vectorized": (*EMPTY, (31, 8, 33), (32, 33, 4), (5, 40, 6)),
    "matmul_tensor_core": (*EMPTY, (31, 8, 33), (4, 70, 12)),
}


def _rung(task: str, name: str, strided: bool = False, hint: str = "") -> Check:
    exact = name != "matmul_tensor_core"
    dtypes = FLOATS if exact else FLOATS[:1]

    def inputs(draw: Draw, m: int, k: int, n: int) -> dict[str, Any]:
        numbers = _matrices(draw, m, k, n, draw.choice(dtypes))
        how = (layout(draw), layout(draw)) if strided else ("contiguous",) * 2
        return {"name": name, **numbers, "layouts": how}

    return Check(
        task,
        name,
        calls.product,
        inputs,
        _product,
        {"m": (1, 5), "k": (1, 5), "n": (1, 5)},
        _sizes(SMALL[name], ON_A_GPU),
        tolerance=None if exact else TF32,
        length=_length,
        examples=4 if SIMULATED else 12,
        hint=hint,
        oracle="NumPy",
    )


def _side_by_side(
    task: str, name: str, size: int, steps: int, least: int, hint: str
) -> Check:
    """Neighbouring threads must use neighbouring memory: sectors are counted.

    The tiles are those of a GPU, and a and b [size, steps] and [steps, size] a block.
    """

    def inputs(draw: Draw) -> dict[str, Any]:
        numbers = _matrices(draw, size, steps, size, "float32")
        return {"name": name, **numbers, "least": least}

    return Check(
        task,
        f"{name}: side by side",
        calls.counted,
        inputs,
        lambda a, b, **rest: {**_product(a, b), "needless sectors": 0},
        length=_length,
        examples=1,
        needs=SIMULATOR,
        hint=hint,
        oracle="NumPy",
    )


# A warp's request for 32 neighbours touches 4 sectors, one for a single number 1.
COALESCED = 32 * (8 * (1 + 4) + 4)  # 32 warps: a, b for each of 8 k, and out
TILED = 32 * (4 + 4 + 4)  # 32 warps: a line of a, b and out
COARSENED = 16 * (2 * (4 + 4) + 8 * 4)  # 16 warps: twice a and b, 8 lines of out

RUNGS = (
    _rung("a5.1", "matmul_naive"),
    _rung("a5.2", "matmul_coalesced"),
    _side_by_side(
        "a5.2",
        "matmul_coalesced",
        *(32, 8, COALESCED),
        "Neighbouring threads must make neighbouring columns of one row.",
    ),
    _rung("a5.3", "matmul_tiled"),
    _side_by_side(
        "a5.3",
        "matmul_tiled",
        *(32, 32, TILED),
        "Each thread copies one element of each tile; the sums read shared memory.",
    ),
    _rung("a5.4", "matmul_coarsened"),
    _side_by_side(
        "a5.4",
        "matmul_coarsened",
        *(64, 16, COARSENED),
        "Each thread copies one element of each tile, whatever it makes of them.",
    ),
    _rung(
        "a5.5",
        "matmul_vectorized",
        strided=True,
        hint="Which tile lies in slot, and which one is being overwritten in free? The "
        "last tiles have no copies to start, but close() all the same.",
    ),
    Check(
        "a5.5",
        "in slices of k",
        calls.in_slices,
        lambda draw, m, k, n: _matrices(draw, m, k, n, "float32"),
        _product,
        edges=_sizes([(16, 35, 33)], [(65, 400, 70)]),
        sizes={"m": (1, 3), "k": (1, 40), "n": (1, 3)},
        length=_length,
        examples=2,
        oracle="NumPy",
    ),
    _rung("a5.8", "matmul_tensor_core", strided=True),
)

# ------------------------------------------------------------------------- roofline


def _block(draw: Draw) -> tuple[int, int]:
    return draw.choice(((1, 1), (4, 4), (32, 32), (64, 128), (2, 3)))


def _count_inputs(draw: Draw, m: int, n: int, k: int) -> dict[str, Any]:
    return {"size": (m, n, k), "block": _block(draw), "itemsize": draw.choice((4, 8))}


def _counted(
    size: tuple[int, int, int], block: tuple[int, int], itemsize: int
) -> dict[str, Any]:
    """By walking through all blocks."""
    (m, n, k), (rows, cols) = size, block
    elements = m * n
    for top in range(0, m, rows):
        for left in range(0, n, cols):
            elements += k * (min(rows, m - top) + min(cols, n - left))
    return {"flops": 2 * m * n * k, "bytes": itemsize * elements}


def _machine(draw: Draw) -> dict[str, float]:
    return {"peak": draw.number(1.0, 64.0), "bandwidth": draw.number(0.5, 8.0)}


def _limit_inputs(draw: Draw) -> dict[str, Any]:
    machine = _machine(draw)
    factor = draw.choice((0.5, 1.5, 0.99, 1.01, 1.0))
    if factor == 1:  # a power of 2, so that products and quotients are exact
        machine["bandwidth"] = draw.choice((0.5, 1.0, 2.0, 4.0, 8.0))
    ridge = machine["peak"] / machine["bandwidth"]
    return {"intensity": ridge * factor, **machine}


def _limit(intensity: float, peak: float, bandwidth: float) -> str:
    return "memory" if intensity * bandwidth < peak else "arithmetic"


def _roof(
    size: tuple[int, int, int], block: tuple[int, int], peak: float, bandwidth: float
) -> dict[str, Any]:
    counted = _counted(size, block, 4)
    intensity = counted["flops"] / counted["bytes"]
    return {
        **counted,
        "intensity": intensity,
        "attainable": min(peak, intensity * bandwidth),
        "limit": _limit(intensity, peak, bandwidth),
    }


SIDES = {"m": (1, 70), "n": (1, 70), "k": (1, 70)}
SHAPES = ((1, 1, 1), (64, 64, 64), (65, 129, 33), (3, 500, 7), (32, 1, 1024))
SHAPE_EDGES = [{"m": m, "n": n, "k": k} for m, n, k in SHAPES]
ROOFS = (
    Check(
        "a5.6",
        "flops and traffic",
        calls.counts,
        _count_inputs,
        _counted,
        SIDES,
        SHAPE_EDGES,
        hint="How many blocks need one row of a? How many need one column of b?",
        oracle="a walk through all blocks",
    ),
    Check(
        "a5.6",
        "limit",
        calls.limits,
        _limit_inputs,
        lambda **inputs: {"limit": _limit(**inputs)},
        hint="At the ridge both limits are the same: peak = intensity * bandwidth.",
        oracle="the definition",
    ),
    Check(
        "a5.6",
        "roofline",
        calls.roof,
        lambda draw, m, n, k: {
            "size": (m, n, k),
            "block": _block(draw),
            **_machine(draw),
        },
        _roof,
        SIDES,
        SHAPE_EDGES,
        tolerance=1e-9,
        oracle="the definition",
    ),
)

# ---------------------------------------------------------------------------- speed


def _speed(
    name: str, call: Any, rival: Any, n: int, half: float, whole: float, hint: str
) -> Speed:
    """A ratio for products of n x n; n is such that launches are a small part of it."""

    def inputs(draw: Draw, n: int) -> dict[str, Any]:
        return _matrices(draw, n, n, n, "float32")

    return Speed(
        "a5.7",
        name,
        call,
        rival,
        inputs,
        product,
        {"n": n},
        ((half, 0.5), (whole, 1.0)),
        lambda a, b: (3.0 * a.nbytes, 2.0 * a.shape[0] * a.shape[1] * b.shape[1]),
        length=_length,
        needs=GPU,
        hint=hint,
    )


SPEEDS = (
    _speed(
        "coalesced against naive",
        calls.timed_coalesced,
        calls.timed_naive,
        1024,
        1.4,
        1.8,
        "A load of a warp should touch neighbouring addresses.",
    ),
    _speed(
        "tiled against coalesced",
        calls.timed_tiled,
        calls.timed_coalesced,
        1024,
        1.4,
        2.0,
        "Does the innermost loop read shared memory alone?",
    ),
    _speed(
        "coarsened against tiled",
        calls.timed_coarsened,
        calls.timed_tiled,
        2048,
        1.1,
        1.3,
        "Is the element of b in a register while it is used for all rows?",
    ),
    _speed(
        "vectorized against coarsened",
        calls.timed_vectorized,
        calls.timed_coarsened,
        2048,
        1.1,
        1.3,
        "Copies must be on their way while the tile that is there is multiplied.",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (*RUNGS, *ROOFS, *SPEEDS)
