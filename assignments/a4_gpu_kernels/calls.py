"""What a4 runs in the student's process: kernels of cuda_ops, by their launchers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from assignments.calling import (
    operand,
    operands_of,
    operator_of,
    read,
    results,
    watched,
    watched_call,
)

SHARED, OWN_PART = "shared memory was used", "each thread does its own part"
MARGIN = 3  # elements around an output that a kernel must leave alone


def map_tensor(device: str, fn: str, a: np.ndarray, layout: str) -> dict[str, Any]:
    """`map` of cuda_ops."""
    from cuda_ops import elementwise

    run = partial(elementwise.map, operator_of(fn))
    return watched_call(run, {"a": operand(device, a, layout)})


def zip_tensors(
    device: str, fn: str, a: np.ndarray, b: np.ndarray, a_layout: str, b_layout: str
) -> dict[str, Any]:
    """`zip` of cuda_ops."""
    from cuda_ops import elementwise

    given = {"a": operand(device, a, a_layout), "b": operand(device, b, b_layout)}
    return watched_call(partial(elementwise.zip, operator_of(fn)), given)


def choose(
    device: str, condition: np.ndarray, a: np.ndarray, b: np.ndarray
) -> dict[str, Any]:
    """`where` of cuda_ops."""
    from cuda_ops import elementwise

    given = operands_of(device, condition=condition, a=a, b=b)
    return watched_call(elementwise.where, given)


def zip_between(device: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """`zip` into the middle of a larger array: all of it, afterwards."""
    from cuda_ops import elementwise
    from minitorch import operators
    from minitorch.backend import get_backend
    from minitorch.tensor_data import TensorData

    around = np.full(a.size + 2 * MARGIN, -1.0, a.dtype)
    storage = get_backend(device).from_numpy(around).storage
    out = TensorData(storage, a.shape, (1,), MARGIN)
    x, y = operand(device, a), operand(device, b)
    with watched():
        elementwise.zip(operators.add, x, y, None, out)
    return {"memory": read(TensorData(storage, around.shape, (1,), 0))}


def zip_window(device: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """`zip` into every second column of a larger matrix: all of it, afterwards."""
    from cuda_ops import elementwise
    from minitorch import operators
    from minitorch.backend import get_backend
    from minitorch.tensor_data import TensorData

    m, n = a.shape
    around = np.full((m + 2, 2 * n + 1), -1.0, a.dtype)
    storage = get_backend(device).from_numpy(around).storage
    wide = around.shape[1]
    out = TensorData(storage, a.shape, (wide, 2), wide + 1)
    x, y = operand(device, a), operand(device, b)
    with watched():
        elementwise.zip(operators.sub, x, y, None, out)
    return {"memory": read(TensorData(storage, around.shape, (wide, 1), 0))}


def own_part(device: str, name: str, n: int, most: int) -> dict[str, Any]:
    """Whether a thread of a kernel uses `most` places of memory, and no more."""
    from cuda_ops import elementwise
    from cuda_ops.scan import exclusive_scan
    from minitorch import operators

    def ones(*shape: int, layout: str = "contiguous", dtype: str = "float32") -> Any:
        return operand(device, np.ones(shape, dtype), layout)

    x, columns = ones(n), ones(8, n, layout="permuted")
    run: dict[str, Callable[[], Any]] = {
        "where": lambda: elementwise.where(ones(n, dtype="bool"), x, x),
        "map": lambda: elementwise.map(operators.neg, x),
        "zip": lambda: elementwise.zip(operators.add, x, x),
        "map of strides": lambda: elementwise.map(operators.neg, columns),
        "zip with a row": lambda: elementwise.zip(operators.add, ones(8, n), x),
        "zip of strides": lambda: elementwise.zip(operators.add, columns, columns),
        "exclusive_scan": lambda: exclusive_scan(ones(n, dtype="int64")),
    }
    with watched() as watch:
        run[name]()
    return {OWN_PART: watch.busiest <= most}


def total(device: str, name: str, a: np.ndarray) -> dict[str, Any]:
    """A rung of the ladder of sums."""
    from cuda_ops.ladders import reduce as reduce_ladder

    return watched_call(vars(reduce_ladder)[name], operands_of(device, a=a))


def total_counted(device: str, name: str, a: np.ndarray, least: int) -> dict[str, Any]:
    """How many sectors of memory a sum asks for beyond the least number."""
    from cuda_ops.ladders import reduce as reduce_ladder

    x = operand(device, a)
    with watched() as watch:
        out = vars(reduce_ladder)[name](x)
    needless = max(0, watch.total.sectors - least)
    return {**results({"out": out}, {"a": x}), "needless sectors": needless}


def total_together(device: str, name: str, a: np.ndarray, most: int) -> dict[str, Any]:
    """Whether a block's threads share the work of a sum, by shared memory."""
    from cuda_ops.ladders import reduce as reduce_ladder

    x = operand(device, a)
    with watched() as watch:
        out = vars(reduce_ladder)[name](x)
    shared = watch.total.shared_requests > 0
    found = {SHARED: shared, OWN_PART: watch.busiest <= most}
    return {**results({"out": out}, {"a": x}), **found}


def scan(device: str, counts: np.ndarray) -> dict[str, Any]:
    """`exclusive_scan`."""
    from cuda_ops.scan import exclusive_scan

    return watched_call(exclusive_scan, operands_of(device, counts=counts))


def turn(device: str, name: str, a: np.ndarray) -> dict[str, Any]:
    """A rung of the ladder of transposes."""
    from cuda_ops import transpose

    return watched_call(vars(transpose)[name], operands_of(device, a=a))


def turn_batch(device: str, a: np.ndarray) -> dict[str, Any]:
    """`move` for a batch of matrices, from the middle of a larger one."""
    from cuda_ops import transpose
    from minitorch.backend import get_backend

    x = operand(device, a)
    batch, m, n = a.shape
    out = get_backend(device).from_numpy(np.zeros((batch, n - 1, m), a.dtype))
    steps = (0, m * n, n, 1), (0, (n - 1) * m, 1, m)
    with watched():
        transpose.move(
            x.flat(), 1, steps[0], out.flat(), 0, steps[1], (1, batch, m, n - 1)
        )
    return results({"out": out}, {"a": x})


def turn_counted(device: str, name: str, a: np.ndarray, least: int) -> dict[str, Any]:
    """What a transpose asks memory for: sectors beyond the least number, and how many
    turns of shared memory are lost to banks, which only padding avoids."""
    from cuda_ops import transpose

    x = operand(device, a)
    with watched() as watch:
        out = vars(transpose)[name](x)
    found = {"needless sectors": max(0, watch.total.sectors - least)}
    if name == "padded":
        found["bank conflicts"] = watch.total.bank_conflicts
    return {**results({"out": out}, {"a": x}), **found}


def costs(
    device: str, conditions: list[bool], then: int, other: int, warp: int
) -> dict[str, Any]:
    """`branch_cost`."""
    from assignments.a4_gpu_kernels.divergence import branch_cost

    return {"cost": branch_cost(list(conditions), then, other, warp)}


def busy(device: str, block: int, warp: int) -> dict[str, Any]:
    """`busy_divergent` and `busy_contiguous`."""
    from assignments.a4_gpu_kernels import divergence

    return {
        "divergent": list(divergence.busy_divergent(block, warp)),
        "contiguous": list(divergence.busy_contiguous(block, warp)),
    }
