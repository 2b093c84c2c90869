"""What a4w runs in the student's process: each puzzle, with its own grid of threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from assignments.calling import operand, results, watched

THREADS, SIDE = 8, 4  # of a block
UNTOUCHED = -1  # what an output holds before the kernel runs; no right answer is that

MOST = 8  # reads and writes of a thread; the library's kernels have three at most

TOGETHER = ("turn_blocks", "sum_of_three", "dot_product")
ALONE = ("dot_product",)  # in which one thread does what is left
OUTPUT = {"count_values": "counts"}  # the name of its last array, where that is not out
SHARED, OWN_PART = "shared memory was used", "each thread does its own part"

Found = dict[str, Any]


def _launch(
    device: str,
    puzzle: str,
    grid: tuple[Any, Any],
    inputs: dict[str, np.ndarray],
    out: np.ndarray,
    *sizes: int,
) -> Found:
    """The output and the operands of a puzzle, on a grid of blocks and threads."""
    from cuda_ops.ladders import puzzles

    operands = {name: operand(device, a) for name, a in inputs.items()}
    made = operand(device, out)
    flat = [a.flat() for a in (*operands.values(), made)]
    with watched() as watch:
        vars(puzzles)[puzzle][grid](*flat, *sizes)
    outputs = {OUTPUT.get(puzzle, "out"): made}
    return {**results(outputs, operands), **_seen(watch, puzzle, grid)}


def _seen(watch: Any, puzzle: str, grid: tuple[Any, Any]) -> Found:
    """What right values do not show, as far as the simulator looks."""
    found = {}
    if puzzle in TOGETHER:
        found[SHARED] = watch is None or watch.total.shared_requests > 0
    if puzzle not in ALONE:
        warps = grid[0] * -(-int(np.prod(grid[1])) // 32)
        found[OWN_PART] = watch is None or watch.total.requests <= MOST * warps
    return found


def _new(*shape: int) -> np.ndarray:
    return np.full(shape, UNTOUCHED, np.int64)


def _blocks(size: int) -> tuple[int, int]:
    """Whole blocks with a thread for each of `size` elements."""
    return -(-size // THREADS), THREADS


def add_ten(device: str, a: np.ndarray) -> Found:
    """One block, with as many threads as elements."""
    return _launch(device, "add_ten", (1, a.size), {"a": a}, _new(a.size))


def glue_digits(device: str, a: np.ndarray, b: np.ndarray) -> Found:
    """One block, with as many threads as elements."""
    inputs = {"a": a, "b": b}
    return _launch(device, "glue_digits", (1, a.size), inputs, _new(a.size))


def double_guarded(device: str, a: np.ndarray) -> Found:
    """One block of THREADS threads."""
    return _launch(device, "double_guarded", (1, THREADS), {"a": a}, _new(a.size))


def lower_triangle(device: str, a: np.ndarray) -> Found:
    """One block of SIDE x SIDE threads."""
    grid, sizes = (1, (SIDE, SIDE)), a.shape
    return _launch(device, "lower_triangle", grid, {"a": a}, _new(*sizes), *sizes)


def times_table(device: str, column: np.ndarray, row: np.ndarray) -> Found:
    """One block of SIDE x SIDE threads."""
    inputs, out = {"column": column, "row": row}, _new(column.size, row.size)
    return _launch(device, "times_table", (1, (SIDE, SIDE)), inputs, out)


def every_second(device: str, a: np.ndarray) -> Found:
    """A thread for each output."""
    size = (a.size + 1) // 2
    return _launch(device, "every_second", _blocks(size), {"a": a}, _new(size))


def turn_blocks(device: str, a: np.ndarray) -> Found:
    """A thread for each element; there are whole blocks of them."""
    return _launch(device, "turn_blocks", _blocks(a.size), {"a": a}, _new(a.size))


def sum_of_three(device: str, a: np.ndarray) -> Found:
    """A thread for each output."""
    size = a.size - 2
    return _launch(device, "sum_of_three", _blocks(size), {"a": a}, _new(size))


def dot_product(device: str, a: np.ndarray, b: np.ndarray) -> Found:
    """One block of THREADS threads."""
    return _launch(device, "dot_product", (1, THREADS), {"a": a, "b": b}, _new(1))


def count_values(device: str, a: np.ndarray, counts_size: int) -> Found:
    """A thread for each element; all counts begin with 0."""
    counts = np.zeros(counts_size, np.int64)
    return _launch(device, "count_values", _blocks(a.size), {"a": a}, counts)
