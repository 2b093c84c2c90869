"""What a2 runs in the student's process: views, simple operations, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assignments.calling import gradients, operand, raised, read, results, tensor

# ------------------------------------------------------------- strides and positions


def strides(device: str, shape: Sequence[int]) -> dict[str, Any]:
    """`contiguous_strides`"""
    from minitorch.tensor_data import contiguous_strides

    return {"strides": contiguous_strides(tuple(shape))}


def positions(device: str, shape: Sequence[int], offset: int) -> dict[str, Any]:
    """`position_to_index` of all elements, and `index_to_position` of all indices."""
    from minitorch import tensor_data

    shape = tuple(shape)
    count = math.prod(shape)
    steps = tuple(3 * n + 1 for n in range(len(shape)))
    indices = [tensor_data.position_to_index(i, shape) for i in range(count)]
    all_indices = list(np.ndindex(shape))
    return {
        "indices": indices,
        "places": [
            tensor_data.index_to_position(i, steps, offset) for i in all_indices
        ],
    }


def permuted(
    device: str, a: np.ndarray, order: Sequence[int], layout: str
) -> dict[str, Any]:
    """`TensorData.permute`: a view with the same memory."""
    x = operand("simple", a, layout)
    view = x.permute(tuple(order))
    return {
        "view": read(view),
        "strides": view.strides,
        "offset": view.offset,
        "shares": view.storage is x.storage,
    }


# ----------------------------------------------------------------------- broadcasting


def broadcast(device: str, shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """`broadcast_shapes`"""
    from minitorch.tensor_data import broadcast_shapes

    return {"shape": broadcast_shapes(*[tuple(shape) for shape in shapes])}


def broadcast_refused(device: str, shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """`broadcast_shapes` of shapes that do not fit."""
    from minitorch.tensor_data import broadcast_shapes

    return raised(lambda: broadcast_shapes(*[tuple(shape) for shape in shapes]))


def expanded(
    device: str, a: np.ndarray, shape: Sequence[int], layout: str
) -> dict[str, Any]:
    """`TensorData.expand`: a view with the same memory."""
    x = operand("simple", a, layout)
    view = x.expand(tuple(shape))
    steps = [s for s, n in zip(view.strides, view.shape) if n != 1]
    return {"view": read(view), "steps": steps, "shares": view.storage is x.storage}


def summed(device: str, grad: np.ndarray, shape: Sequence[int]) -> dict[str, Any]:
    """`unbroadcast`"""
    from minitorch.functions.operands import unbroadcast

    return {"out": read(unbroadcast(tensor("simple", grad), tuple(shape)))}


# ------------------------------------------------------------------ map, zip, reduce


def _operator(name: str) -> Callable[..., Any]:
    from minitorch import operators

    return vars(operators)[name]


def _dtype(name: str | None) -> Any:
    from minitorch import dtypes

    return None if name is None else dtypes.by_name(name)


def map_tensor(
    device: str, fn: str, a: np.ndarray, layout: str, dtype: str | None
) -> dict[str, Any]:
    """`map`"""
    from minitorch.backend import get_backend

    x = operand(device, a, layout)
    out = get_backend(device).map(_operator(fn), x, _dtype(dtype))
    return results({"out": out}, {"a": x})


def map_into(
    device: str, fn: str, a: np.ndarray, layout: str, out_layout: str, itself: bool
) -> dict[str, Any]:
    """`map` into a tensor that exists, which may be the operand."""
    from minitorch.backend import get_backend

    x = operand(device, a, layout)
    out = x if itself else operand(device, np.zeros_like(a), out_layout)
    result = get_backend(device).map(_operator(fn), x, None, out)
    return {"out": read(out), "same": result is out}


def zip_tensors(
    device: str,
    fn: str,
    a: np.ndarray,
    b: np.ndarray,
    a_layout: str,
    b_layout: str,
    dtype: str | None,
) -> dict[str, Any]:
    """`zip`"""
    from minitorch.backend import get_backend

    x, y = operand(device, a, a_layout), operand(device, b, b_layout)
    out = get_backend(device).zip(_operator(fn), x, y, _dtype(dtype))
    return results({"out": out}, {"a": x, "b": y})


def zip_into(
    device: str, fn: str, a: np.ndarray, b: np.ndarray, layout: str, itself: bool
) -> dict[str, Any]:
    """`zip` into a tensor that exists, which may be the first operand."""
    from minitorch.backend import get_backend

    x, y = operand(device, a, layout), operand(device, b)
    out = x if itself else operand(device, np.zeros_like(a), layout)
    result = get_backend(device).zip(_operator(fn), x, y, None, out)
    return {"out": read(out), "same": result is out, "b": read(y)}


def reduce_tensor(
    device: str, fn: str, a: np.ndarray, dims: Sequence[int], start: float, layout: str
) -> dict[str, Any]:
    """`reduce`"""
    from minitorch.backend import get_backend

    x = operand(device, a, layout)
    out = get_backend(device).reduce(_operator(fn), x, tuple(dims), start)
    return results({"out": out}, {"a": x})


def fold_in_order(device: str, a: np.ndarray, dims: Sequence[int]) -> dict[str, Any]:
    """`reduce` with a function for which the order counts."""
    from minitorch.backend import get_backend

    x = operand(device, a, "contiguous")
    out = get_backend(device).reduce(lambda t, v: 2 * t + v, x, tuple(dims), 0)
    return results({"out": out}, {"a": x})


# --------------------------------------------------------------------- with gradients


TWO: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
}
ONE: dict[str, Callable[..., Any]] = {
    "Neg": lambda x: -x,
    "Exp": lambda x: x.exp(),
    "Log": lambda x: x.log(),
    "Sigmoid": lambda x: x.sigmoid(),
    "Relu": lambda x: x.relu(),
}


def two_operands(
    device: str,
    fn: str,
    a: np.ndarray,
    b: np.ndarray,
    grad: np.ndarray,
    layout: str,
    wanted: Sequence[bool],
) -> dict[str, Any]:
    """An operation on two tensors, and the gradients that are wanted."""
    x = tensor(device, a, layout, wanted[0])
    y = tensor(device, b, "contiguous", wanted[1])
    return gradients(TWO[fn](x, y), grad, a=x, b=y)


def one_operand(
    device: str, fn: str, x: np.ndarray, grad: np.ndarray, layout: str
) -> dict[str, Any]:
    """An operation on one tensor, and its gradient."""
    given = tensor(device, x, layout, True)
    return gradients(ONE[fn](given), grad, x=given)


def twice(
    device: str, fn: str, x: np.ndarray, grad: np.ndarray, weight: np.ndarray
) -> dict[str, Any]:
    """The gradient, and those of sum(weight * gradient) for x and grad."""
    from minitorch.tensor.hooks import grad as grad_of

    given, start = tensor(device, x, "contiguous", True), tensor(device, grad)
    start.requires_grad = True
    (first,) = grad_of(ONE[fn](given), given, start, create_graph=True)
    (first * tensor(device, weight)).sum().backward()
    made = {"x": given.grad, "grad": start.grad}
    zeros = np.zeros_like(x)
    second = {n: zeros if g is None else read(g) for n, g in made.items()}
    return {"first": read(first), **second}


def sums(
    device: str, x: np.ndarray, grad: np.ndarray, dims: Sequence[int], keepdim: bool
) -> dict[str, Any]:
    """`sum`, and its gradient."""
    given = tensor(device, x, "contiguous", True)
    return gradients(given.sum(tuple(dims), keepdim=keepdim), grad, x=given)


def product(
    device: str, a: np.ndarray, b: np.ndarray, a_layout: str, b_layout: str
) -> dict[str, Any]:
    """The backend's `matmul`."""
    from minitorch.backend import get_backend

    x, y = operand(device, a, a_layout), operand(device, b, b_layout)
    return results({"out": get_backend(device).matmul(x, y)}, {"a": x, "b": y})


def product_gradients(
    device: str, a: np.ndarray, b: np.ndarray, grad: np.ndarray, wanted: Sequence[bool]
) -> dict[str, Any]:
    """A matrix product, and the gradients that are wanted."""
    x = tensor(device, a, "contiguous", wanted[0])
    y = tensor(device, b, "contiguous", wanted[1])
    return gradients(x @ y, grad, a=x, b=y)


# ------------------------------------------------------------------------------- XOR


def _network(device: str, values: Sequence[np.ndarray]) -> Any:
    from assignments.a2_tensors import xor

    network = xor.Network(len(values[1]), device=device)
    network.w1, network.b1, network.w2, network.b2 = (
        tensor(device, value, requires_grad=True) for value in values
    )
    return network


def probabilities(
    device: str, values: Sequence[np.ndarray], points: np.ndarray
) -> dict[str, Any]:
    """The outputs of a network with given parameters."""
    return {"p": read(_network(device, values).forward(tensor(device, points)))}


def steps(
    device: str,
    values: Sequence[np.ndarray],
    points: np.ndarray,
    labels: np.ndarray,
    lr: float,
) -> dict[str, Any]:
    """The losses, and the parameters after two steps."""
    from assignments.a2_tensors import xor

    network = _network(device, values)
    x, y = tensor(device, points), tensor(device, labels)
    losses = [float(xor.step(network, x, y, lr)) for _ in range(2)]
    return {"losses": losses, "after": [read(p) for p in network.parameters()]}


def trained(device: str, seed: int) -> dict[str, Any]:
    """Which corners a trained network has right."""
    from assignments.a2_tensors import xor

    network = xor.train(seed=seed, device=device)
    corners = tensor(device, np.array(xor.POINTS, np.float32))
    return {"corners": [int(p > 0.5) for p in read(network.forward(corners))]}
