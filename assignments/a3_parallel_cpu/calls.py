"""What a3 runs in the student's process: kernels of fast_ops on flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.calling import (
    Timed,
    called,
    is_shared,
    most_writers,
    operand,
    operands_of,
    operator_of,
    read,
    results,
    rung_of,
    timed,
)
from assignments.fences import fenced


def map_tensor(device: str, fn: str, a: np.ndarray, layout: str) -> dict[str, Any]:
    """`map` of fast_ops."""
    from fast_ops import elementwise

    x = operand(device, a, layout)
    return results({"out": elementwise.map(operator_of(fn), x)}, {"a": x})


def zip_tensors(
    device: str, fn: str, a: np.ndarray, b: np.ndarray, a_layout: str, b_layout: str
) -> dict[str, Any]:
    """`zip` of fast_ops."""
    from fast_ops import elementwise

    x, y = operand(device, a, a_layout), operand(device, b, b_layout)
    return results({"out": elementwise.zip(operator_of(fn), x, y)}, {"a": x, "b": y})


def zip_into(
    device: str, fn: str, a: np.ndarray, b: np.ndarray, layout: str, out_layout: str
) -> dict[str, Any]:
    """`zip` into a tensor that exists, with a layout of its own."""
    from fast_ops import elementwise

    x, y = operand(device, a, layout), operand(device, b)
    out = operand(device, np.zeros_like(a), out_layout)
    elementwise.zip(operator_of(fn), x, y, None, out)
    return results({"out": out}, {"a": x, "b": y})


def reduce_rows(
    device: str, fn: str, a: np.ndarray, start: float, dims: Sequence[int]
) -> dict[str, Any]:
    """`reduce` of fast_ops over the last dims of a contiguous tensor."""
    from fast_ops.reduce import reduce

    x = operand(device, a)
    out = reduce(operator_of(fn), x, tuple(dims), start)
    return results({"out": out}, {"a": x})


def rung(device: str, name: str, a: np.ndarray) -> dict[str, Any]:
    """A rung of the ladder of sums."""
    from fast_ops import reduce_ladder

    return called(vars(reduce_ladder)[name], operands_of(device, a=a))


def same_bits(device: str, a: np.ndarray, threads: Sequence[int]) -> dict[str, Any]:
    """`sum_blocks` on several numbers of threads: must be the same to the last bit."""
    from fast_ops import reduce_ladder
    from fast_ops.threads import get_num_threads, max_num_threads, set_num_threads

    before, sums = get_num_threads(), []
    for count in threads:
        set_num_threads(min(count, max_num_threads()))
        sums.append(read(reduce_ladder.sum_blocks(operand(device, a))))
    set_num_threads(before)
    return {"sums": sums[0], "equal": all(s == sums[0] for s in sums)}


def cells(device: str, x: np.ndarray, parts: int, spacing: int) -> dict[str, Any]:
    """The kernel `_cells` itself: which cells it writes, and what into them."""
    from fast_ops.reduce_ladder import _cells

    out, given = fenced(np.zeros(parts * spacing)), fenced(np.array(x))
    _cells(given, out, spacing, 0)
    return {"cells": out, "x": given}


def product(device: str, name: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """A rung of the ladder of products."""
    from fast_ops.matmul import LADDER

    return called(rung_of(LADDER, name), operands_of(device, a=a, b=b))


def writers(device: str, name: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """How many iterations of a parallel product write one element."""
    from fast_ops import matmul

    shape = len(a), b.shape[1]
    most = most_writers(vars(matmul)[name], lambda fn, out: fn(a, b, out), shape)
    return {"writers of an element": most}


def on_all_cores(device: str, name: str, n: int) -> dict[str, Any]:
    """Whether a kernel's work on n rows is shared among the cores by `prange`."""
    from fast_ops import elementwise, matmul, reduce, reduce_ladder
    from minitorch import operators

    a, flat, cells, zero = np.ones((n, n)), np.ones(n * n), np.zeros(n), np.zeros(1)
    rows = 0, (n * n, n * n, n, 1)  # where they begin, and their steps
    given = {
        "map_flat": (elementwise.map_flat(operators.neg), flat, flat),
        "zip_flat": (elementwise.zip_flat(operators.add), flat, flat, flat),
        "zip_strided": (
            elementwise.zip_strided(operators.add), flat, *rows, flat, *rows,
            flat, *rows, (1, 1, n, n), n,
        ),
        "fold_flat": (reduce.fold_flat(operators.add), flat, n, zero, zero, cells),
        "_register": (reduce_ladder._register, flat, cells),
        "_blocks": (reduce_ladder._blocks, np.ones(n * reduce_ladder.BLOCK), cells),
        "_cells": (reduce_ladder._cells, flat, cells, 1, 0),
        "_parallel": (matmul._parallel, a, a, np.empty((n, n))),
        "_blocked": (matmul._blocked, a, a, np.empty((n, n))),
    }  # fmt: skip
    kernel, *arguments = given[name]
    return {"shared": is_shared(kernel, *arguments)}


# ----------------------------------------------------------------------------- speed


def timed_map(device: str, a: np.ndarray) -> Timed:
    """relu of a large tensor."""
    from fast_ops import elementwise
    from minitorch import operators

    relu = lambda x: elementwise.map(operators.relu, x)
    return timed(relu, operands_of(device, a=a))


def timed_copy(device: str, a: np.ndarray) -> Timed:
    """A copy of a large tensor moves as many bytes."""
    from fast_ops import memory

    return timed(lambda x: memory.copy(x, x.dtype), operands_of(device, a=a))


def timed_sum(device: str, a: np.ndarray) -> Timed:
    """The last rung of the ladder of sums."""
    from fast_ops.reduce_ladder import sum_blocks

    return timed(sum_blocks, operands_of(device, a=a))


def timed_serial_sum(device: str, a: np.ndarray) -> Timed:
    """The first rung of the ladder of sums."""
    from fast_ops.reduce_ladder import sum_serial

    return timed(sum_serial, operands_of(device, a=a))


def timed_product(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """The blocked matrix product."""
    from fast_ops.matmul import matmul_blocked

    return timed(matmul_blocked, operands_of(device, a=a, b=b))


def timed_parallel_product(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """The matrix product without blocks."""
    from fast_ops.matmul import matmul_parallel

    return timed(matmul_parallel, operands_of(device, a=a, b=b))
