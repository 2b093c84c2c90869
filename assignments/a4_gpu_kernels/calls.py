"""What a4 runs in the student's process: kernels of cuda_ops, by their launchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from assignments.calling import operand, read, results

MARGIN = 3  # elements around an output that a kernel must leave alone


def _operator(name: str) -> Callable[..., Any]:
    from minitorch import operators

    return vars(operators)[name]


def map_tensor(device: str, fn: str, a: np.ndarray, layout: str) -> dict[str, Any]:
    """`map` of cuda_ops."""
    from cuda_ops import elementwise

    x = operand(device, a, layout)
    return results({"out": elementwise.map(_operator(fn), x)}, {"a": x})


def zip_tensors(
    device: str, fn: str, a: np.ndarray, b: np.ndarray, a_layout: str, b_layout: str
) -> dict[str, Any]:
    """`zip` of cuda_ops."""
    from cuda_ops import elementwise

    x, y = operand(device, a, a_layout), operand(device, b, b_layout)
    return results({"out": elementwise.zip(_operator(fn), x, y)}, {"a": x, "b": y})


def choose(
    device: str, condition: np.ndarray, a: np.ndarray, b: np.ndarray
) -> dict[str, Any]:
    """`where` of cuda_ops."""
    from cuda_ops import elementwise

    c, x, y = (operand(device, part) for part in (condition, a, b))
    out = elementwise.where(c, x, y)
    return results({"out": out}, {"condition": c, "a": x, "b": y})


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
    elementwise.zip(operators.add, x, y, None, out)
    return {"memory": read(TensorData(storage, around.shape, (1,), 0))}
