"""What a4 is checked with; the oracle is PyTorch.

In the simulator blocks are small (32 threads, 128 elements) and every thread costs, so
large sizes are for GPUs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assignments.a4_gpu_kernels import calls
from assignments.checks import SIMULATOR, AnyCheck, Check
from assignments.draw import Draw, layout
from assignments.oracles import as_torch, elementwise
from assignments.simulated import simulates

FLOATS = ("float32", "float64")
MAPS = ("neg", "relu", "abs")
ZIPS = ("sub", "add", "mul")
SIMULATED = simulates("cuda")
EXAMPLES = 6 if SIMULATED else 20


def _sizes(*simulated: int, gpu: Sequence[int]) -> tuple[dict[str, int], ...]:
    """Sizes n, around the blocks of where this runs."""
    return tuple({"n": n} for n in (simulated if SIMULATED else gpu))


def _edges(offset: int, *simulated: int, gpu: Sequence[int]) -> list[dict[str, int]]:
    return [{**sizes, "offset": offset} for sizes in _sizes(*simulated, gpu=gpu)]


# ------------------------------------------------------------- indexing and guards

LAYOUTS = ("contiguous", "offset")
STEP = 128 if SIMULATED else 512  # elements of a block with one vector a thread


def _map_inputs(draw: Draw, n: int, offset: int) -> dict[str, Any]:
    a = draw.array((n,), draw.choice(FLOATS))
    return {"fn": draw.choice(MAPS), "a": a, "layout": LAYOUTS[offset]}


def _zip_inputs(draw: Draw, n: int, offset: int) -> dict[str, Any]:
    dtype = draw.choice(FLOATS)
    a, b = draw.array((n,), dtype), draw.array((n,), dtype)
    how = {"a_layout": LAYOUTS[offset], "b_layout": "contiguous"}
    # Large ones are few: all of them by the function whose operands have an order.
    fn = draw.choice(ZIPS) if n < STEP else ZIPS[0]
    return {"fn": fn, "a": a, "b": b, **how}


def _between_expected(a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    memory = np.full(a.size + 2 * calls.MARGIN, -1.0, a.dtype)
    memory[calls.MARGIN : calls.MARGIN + a.size] = a + b
    return {"memory": memory}


def _choice_inputs(draw: Draw, n: int) -> dict[str, Any]:
    one_a, one_b = draw.choice((False, True)), draw.choice((False, True))
    return {
        "condition": draw.array((n,), "bool"),
        "a": draw.array((1 if one_a else n,)),
        "b": draw.array((1 if one_b else n,)),
    }


def _choice_expected(
    condition: np.ndarray, a: np.ndarray, b: np.ndarray
) -> dict[str, Any]:
    import torch

    return {"out": torch.where(as_torch(condition), as_torch(a), as_torch(b)).numpy()}


FLAT = {"n": (0, 9)}
FLAT_OR_OFFSET = {**FLAT, "offset": (0, 1)}
FLAT_EDGES = (
    *_edges(0, *(0, 1, 127, 128, 129, 511, 512, 1024, 1333),
        gpu=(0, 1, 1023, 1024, 1025, 4095, 4097, 2**21 - 1, 2**21, 2**21 + 4097)),
    *_edges(1, 130, 515, gpu=(1026, 2**21 + 4099)),
)  # fmt: skip
INDEXING = (
    Check(
        "a4.1",
        "where",
        calls.choose,
        _choice_inputs,
        _choice_expected,
        FLAT,
        _sizes(0, 1, 129, 300, gpu=(0, 1, 1025, 70_001)),
        examples=EXAMPLES,
    ),
    Check(
        "a4.1",
        "map",
        calls.map_tensor,
        _map_inputs,
        elementwise,
        FLAT_OR_OFFSET,
        FLAT_EDGES,
        examples=EXAMPLES,
        hint="Which elements does the last block make, when n is no multiple of its "
        "tile? Is there one with no whole vector, and one that begins behind n?",
    ),
    Check(
        "a4.1",
        "zip",
        calls.zip_tensors,
        _zip_inputs,
        elementwise,
        FLAT_OR_OFFSET,
        FLAT_EDGES,
        examples=EXAMPLES,
    ),
    Check(
        "a4.1",
        "nothing else is written",
        calls.zip_between,
        lambda draw, n: {"a": draw.array((n,)), "b": draw.array((n,))},
        _between_expected,
        FLAT,
        _sizes(0, 1, 130, 1029, gpu=(0, 1, 1026, 70_001)),
        examples=EXAMPLES,
        hint="A grid has more threads than there are elements: a thread without work "
        "must do nothing.",
        oracle="NumPy",
    ),
)

MOST = 32  # places of memory for a thread, which makes eight elements at most


def _own_part(task: str, name: str, *sizes: int) -> Check:
    """More threads must mean less work for each."""
    return Check(
        task,
        f"{name}: each thread its own part",
        calls.own_part,
        lambda draw, n: {"name": name, "n": n, "most": MOST},
        lambda **_: {calls.OWN_PART: True},
        edges=tuple({"n": n} for n in sizes),
        examples=0,
        needs=SIMULATOR,
        hint="The same code runs in every thread of the grid. From what does a thread "
        "know which elements are its own?",
        oracle="the task",
    )


OWN_PARTS = (
    _own_part("a4.1", "where", 129),
    _own_part("a4.1", "map", 129, 1333),
    _own_part("a4.1", "zip", 129, 1333),
    _own_part("a4.2", "map of strides", 33),
    _own_part("a4.2", "zip with a row", 33),
    _own_part("a4.2", "zip of strides", 33),
    _own_part("a4.4", "exclusive_scan", 70),
)

# -------------------------------------------------------------------- broadcasting


def _strided_map_inputs(draw: Draw, m: int, n: int) -> dict[str, Any]:
    a = draw.array((m, n), draw.choice(FLOATS))
    return {"fn": draw.choice(MAPS), "a": a, "layout": layout(draw)}


def _broadcast_inputs(draw: Draw, m: int, n: int, dims: int = 2) -> dict[str, Any]:
    shape = (m, 1 + n % 3, 2, n)[4 - dims :] if dims != 2 else (m, n)
    left = tuple(1 if draw.integer(0, 3) == 3 else size for size in shape)
    right = tuple(1 if draw.integer(0, 2) == 2 else size for size in shape)
    how = {"a_layout": layout(draw), "b_layout": layout(draw)}
    return {
        "fn": draw.choice(ZIPS),
        "a": draw.array(left),
        "b": draw.array(right),
        **how,
    }


def _repeated_inputs(draw: Draw, m: int, n: int) -> dict[str, Any]:
    """A row, a column, or a number for each channel of images."""
    shapes = (((m, n), (n,)), ((m, n), (m, 1)), ((2, m, n), (m, 1)), ((m, n), (1,)))
    left, right = draw.choice(shapes)
    first, second = draw.array(left), draw.array(right)
    if draw.choice((False, True)):
        first, second = second, first
    how = {"a_layout": "contiguous", "b_layout": "contiguous"}
    return {"fn": draw.choice(ZIPS), "a": first, "b": second, **how}


def _window_inputs(draw: Draw, m: int, n: int) -> dict[str, Any]:
    a = draw.array((m, n))
    return {"a": a, "b": draw.array(draw.choice(((m, n), (n,), (m, 1))))}


def _window_expected(a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    m, n = a.shape
    memory = np.full((m + 2, 2 * n + 1), -1.0, a.dtype)
    memory[1:-1, 1::2] = a - b
    return {"memory": memory}


MATRIX_EDGES = tuple(
    {"m": m, "n": n}
    for m, n in (
        ((0, 3), (1, 1), (31, 1), (4, 8), (33, 33), (3, 129))
        if SIMULATED
        else ((0, 3), (1, 1), (255, 1), (16, 256), (257, 1), (129, 1025))
    )
)
BROADCASTING = (
    Check(
        "a4.2",
        "map of strides",
        calls.map_tensor,
        _strided_map_inputs,
        elementwise,
        {"m": (1, 3), "n": (1, 4)},
        MATRIX_EDGES,
        examples=2 * EXAMPLES,
    ),
    Check(
        "a4.2",
        "zip with a row, a column, a channel, a number",
        calls.zip_tensors,
        _repeated_inputs,
        elementwise,
        {"m": (1, 3), "n": (1, 4)},
        (*MATRIX_EDGES, *({"m": 3, "n": n} for n in (4, 6, 7, 8, 12))),
        examples=2 * EXAMPLES,
        hint="Element i of out meets b[i // inner % b.size]: for a row inner is 1, for "
        "a column it is the length of a row.",
    ),
    Check(
        "a4.2",
        "zip with broadcasting and strides",
        calls.zip_tensors,
        _broadcast_inputs,
        elementwise,
        {"m": (1, 3), "n": (1, 4), "dims": (1, 4)},
        MATRIX_EDGES,
        examples=4 * EXAMPLES,
    ),
    Check(
        "a4.2",
        "zip into a window",
        calls.zip_window,
        _window_inputs,
        _window_expected,
        {"m": (1, 3), "n": (1, 4)},
        MATRIX_EDGES,
        examples=EXAMPLES,
        hint="out has a first element and strides of its own, which need not be those "
        "of a tensor without gaps.",
        oracle="NumPy",
    ),
)

# ---------------------------------------------------------------------- block sums


def _total(name: str, a: np.ndarray) -> dict[str, Any]:
    return {"out": np.array(a.astype(np.float64).sum(), np.float32)}


def _rung(task: str, name: str, hint: str = "", most: int = 1100) -> Check:
    """A sum by blocks; in the simulator they have 64 threads, on a GPU 256."""
    return Check(
        task,
        name,
        calls.total,
        lambda draw, n: {"name": name, "a": draw.array((n,))},
        _total,
        {"n": (0, 5)},
        _sizes(
            *(0, 1, 63, 64, 65, 257, most),
            gpu=(0, 1, 255, 256, 257, 2047, 2049, 70_001, 1_000_003),
        ),
        length=lambda name, a: min(a.size, 4096),
        examples=EXAMPLES // 2,
        hint=hint,
        oracle="NumPy",
    )


BLOCK, EACH = (64, 8) if SIMULATED else (256, 8)  # of sum_several and sum_shuffle


def _rung_sectors(task: str, name: str) -> Check:
    """Warps that read neighbours ask for each sector of memory once."""

    def inputs(draw: Draw, blocks: int) -> dict[str, Any]:
        a = draw.array((blocks * BLOCK * EACH,))
        # Each block writes one sum; a block of its own adds several of them up.
        sums = blocks + (2 if blocks > 1 else 0)
        return {"name": name, "a": a, "least": a.nbytes // 32 + sums}

    return Check(
        task,
        f"{name}: side by side",
        calls.total_counted,
        inputs,
        lambda name, a, least: {**_total(name, a), "needless sectors": 0},
        {"blocks": (1, 2)},
        length=lambda name, a, least: min(a.size, 4096),
        examples=2,
        needs=SIMULATOR,
        hint="Neighbouring threads have to read neighbours of x, in each step.",
        oracle="NumPy",
    )


def _together(name: str, each: int) -> Check:
    """A tree, of any fan-in: no thread adds up what all others have brought."""

    def inputs(draw: Draw, blocks: int) -> dict[str, Any]:
        most = each + BLOCK - BLOCK // 4
        return {"name": name, "a": draw.array((blocks * BLOCK * each,)), "most": most}

    return Check(
        "a4.3",
        f"{name}: a tree in shared memory",
        calls.total_together,
        inputs,
        lambda name, a, most: {
            **_total(name, a), calls.SHARED: True, calls.OWN_PART: True,
        },
        edges=({"blocks": 2},),
        length=lambda name, a, most: min(a.size, 4096),
        examples=0,
        needs=SIMULATOR,
        hint=f"A block adds {BLOCK} numbers in {BLOCK.bit_length() - 1} rounds, if in "
        "each round half of the threads add a cell that another one has written.",
        oracle="NumPy",
    )  # fmt: skip


REDUCTIONS = (
    _rung(
        "a4.3",
        "sum_contiguous",
        "Every step reads what another thread wrote in the step before. Threads that "
        "have no element of x put a zero into the tree.",
        most=513,
    ),
    _rung("a4.3", "sum_several"),
    _rung_sectors("a4.3", "sum_several"),
    _together("sum_contiguous", 1),
    _together("sum_several", EACH),
)

# ---------------------------------------------------------------------- prefix sums

SCANS = (
    Check(
        "a4.4",
        "exclusive_scan",
        calls.scan,
        lambda draw, n: {"counts": draw.array((n,), "int64", 0, 9)},
        lambda counts: {
            "out": np.concatenate([[0], as_torch(counts).cumsum(0).numpy()])
        },
        {"n": (0, 7)},
        _sizes(
            *(0, 1, 3, 31, 32, 33, 257, 1090),
            gpu=(0, 1, 1023, 1024, 1025, 70_001, 1_100_000),
        ),
        examples=EXAMPLES,
        hint="out[i] is the sum of what comes before x[i], and out[n] the sum of all. "
        "Where a thread reads a cell that another one changes, a barrier belongs "
        "between the two, on both sides.",
    ),
)

# ----------------------------------------------------------------------- transpose

SIDE = 32  # of a tile
DTYPES = ("float32", "float64", "int64")


def _turned(name: str, a: np.ndarray, **rest: Any) -> dict[str, Any]:
    return {"out": np.ascontiguousarray(a.T)}


TURNS = ((0, 3), (1, 1), (SIDE - 1, SIDE), (SIDE + 1, 2 * SIDE), (3 * SIDE, 5))


def _turn(name: str, *more: tuple[int, int]) -> Check:
    return Check(
        "a4.5",
        name,
        calls.turn,
        lambda draw, m, n: {"name": name, "a": draw.array((m, n), draw.choice(DTYPES))},
        _turned,
        {"m": (1, 3), "n": (1, 3)},
        tuple({"m": m, "n": n} for m, n in (*TURNS, *more)),
        examples=EXAMPLES // 2,
        oracle="NumPy",
    )


def _side_by_side(name: str, **more: int) -> Check:
    def inputs(draw: Draw, m: int, n: int) -> dict[str, Any]:
        a = draw.array((m * SIDE, n * SIDE))
        return {"name": name, "a": a, "least": 2 * a.nbytes // 32}

    return Check(
        "a4.5",
        f"{name}: side by side",
        calls.turn_counted,
        inputs,
        lambda name, a, least: {**_turned(name, a), "needless sectors": 0, **more},
        {"m": (1, 2), "n": (1, 2)},
        examples=2,
        needs=SIMULATOR,
        hint="Neighbouring threads have to read neighbours in a row of a, and to write "
        "neighbours in a row of out. padded: do rows of the tile begin pitch apart?",
        oracle="NumPy",
    )


TRANSPOSES = (
    _turn("tiled"),
    _turn("padded", (SIDE, SIDE), (2, 270 if SIMULATED else 1030)),
    Check(
        "a4.5",
        "a batch of strided matrices",
        calls.turn_batch,
        lambda draw, m, n: {"a": draw.array((2, m, n), draw.choice(DTYPES))},
        lambda a: {"out": np.ascontiguousarray(a[:, :, 1:].transpose(0, 2, 1))},
        {"m": (4, 5), "n": (5, 6)},
        ({"m": SIDE + 1, "n": 2 * SIDE},),
        examples=EXAMPLES // 2,
        hint="The tile begins at a_first; its rows are a_steps[2] elements apart, "
        "which can be more than it has columns.",
        oracle="NumPy",
    ),
    _side_by_side("tiled"),
    _side_by_side("padded", **{"bank conflicts": 0}),
)

# ----------------------------------------------------------------------- divergence


def _cost_inputs(draw: Draw, n: int) -> dict[str, Any]:
    """Long runs of equal conditions, so that some warps agree."""
    conditions: list[bool] = []
    while len(conditions) < n:
        conditions += [draw.choice((False, True))] * draw.integer(1, 9)
    return {
        "conditions": conditions[:n],
        "then": draw.integer(0, 20),
        "other": draw.integer(0, 20),
        "warp": draw.choice((4, 2, 8, 32)),
    }


def _cost(conditions: list[bool], then: int, other: int, warp: int) -> dict[str, Any]:
    warps = [conditions[i : i + warp] for i in range(0, len(conditions), warp)]
    sides = [(then, True in lanes) for lanes in warps]
    sides += [(other, False in lanes) for lanes in warps]
    return {"cost": sum(cost for cost, taken in sides if taken)}


def _busy(block: int, warp: int) -> dict[str, Any]:
    """By marking every thread that adds, as the two kernels say it."""
    threads = np.arange(block)
    steps = [2**k for k in range(block.bit_length() - 1)]

    def warps(adds: np.ndarray) -> int:
        return len(np.unique(threads[adds] // warp))

    return {
        "divergent": [warps(threads % (2 * s) == 0) for s in steps],
        "contiguous": [warps(threads < s) for s in reversed(steps)],
    }


def _busy_inputs(draw: Draw) -> dict[str, Any]:
    return {"block": 2 ** draw.integer(0, 10), "warp": draw.choice((32, 4, 16))}


DIVERGENCE = (
    Check(
        "a4.6",
        "branch_cost",
        calls.costs,
        _cost_inputs,
        _cost,
        {"n": (0, 12)},
        ({"n": 0}, {"n": 1}, {"n": 31}, {"n": 33}, {"n": 100}),
        devices=("python",),
        hint="A side costs its instructions once for each warp that has a lane in it.",
        oracle="a count of all warps",
    ),
    Check(
        "a4.6",
        "busy warps",
        calls.busy,
        _busy_inputs,
        _busy,
        devices=("python",),
        oracle="a count of all threads",
    ),
    replace(
        _rung(
            "a4.6",
            "sum_shuffle",
            "All lanes of a warp have to take part in a shuffle: threads without "
            "elements bring a zero along.",
        ),
        devices=("cuda",),
    ),
    replace(_rung_sectors("a4.6", "sum_shuffle"), devices=("cuda",)),
)

CHECKS: tuple[AnyCheck, ...] = (
    *INDEXING,
    *OWN_PARTS,
    *BROADCASTING,
    *REDUCTIONS,
    *SCANS,
    *TRANSPOSES,
    *DIVERGENCE,
)
