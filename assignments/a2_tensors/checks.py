"""What a2 is checked with; the oracle is PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from assignments.a2_tensors import calls
from assignments.checks import AnyCheck, Check
from assignments.draw import Draw, layout
from assignments.oracles import (
    STARTS,
    as_torch,
    elementwise,
    folded,
    product,
    torch_gradients,
)

FLOATS = ("float32", "float64")


def shape_of(draw: Draw, dims: int, most: int = 4) -> tuple[int, ...]:
    """A shape; now and then with a size of 0."""
    sizes = [draw.integer(1, most) for _ in range(dims)]
    if dims and draw.integer(0, 9) == 9:
        sizes[draw.integer(0, dims - 1)] = 0
    return tuple(sizes)


def operand_shape(draw: Draw, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that expands to `shape`: some sizes are 1, or missing in front."""
    kept = [1 if draw.integer(0, 2) == 2 else n for n in shape]
    return tuple(
        kept[draw.integer(0, len(kept)) :] if draw.integer(0, 2) == 2 else kept
    )


def pair(draw: Draw, dims: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast."""
    shape = shape_of(draw, dims)
    return operand_shape(draw, shape), operand_shape(draw, shape)


DIMS = {"dims": (0, 4)}

# ------------------------------------------------------------- strides and positions


def _strides_expected(shape: tuple[int, ...]) -> dict[str, Any]:
    import torch

    return {"strides": torch.empty(shape).stride()}


def _positions_expected(shape: tuple[int, ...], offset: int) -> dict[str, Any]:
    indices = list(np.ndindex(shape))
    steps = [3 * n + 1 for n in range(len(shape))]
    places = [offset + sum(i * s for i, s in zip(index, steps)) for index in indices]
    return {"indices": indices, "places": places}


def _permuted_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    shape, order, rest = shape_of(draw, dims), [], list(range(dims))
    while rest:
        order.append(rest.pop(draw.integer(0, len(rest) - 1)))
    return {"a": draw.array(shape), "order": tuple(order), "layout": layout(draw)}


def _permuted_expected(
    a: np.ndarray, order: tuple[int, ...], layout: str
) -> dict[str, Any]:
    from assignments.calling import lay_out

    _, strides, offset = lay_out(a, layout)
    return {
        "view": np.array(as_torch(a).permute(order).numpy(), order="C"),
        "strides": tuple(strides[i] for i in order),
        "offset": offset,
        "shares": True,
    }


STRIDES = (
    Check(
        "a2.1",
        "contiguous_strides",
        calls.strides,
        lambda draw, dims: {"shape": shape_of(draw, dims)},
        _strides_expected,
        DIMS,
    ),
    Check(
        "a2.1",
        "positions",
        calls.positions,
        lambda draw, dims: {
            "shape": shape_of(draw, dims),
            "offset": draw.integer(0, 5),
        },
        _positions_expected,
        DIMS,
        oracle="the rule",
    ),
    Check(
        "a2.1", "permute", calls.permuted, _permuted_inputs, _permuted_expected, DIMS
    ),
)

# ----------------------------------------------------------------------- broadcasting


def _broadcast_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    shape = shape_of(draw, dims)
    return {"shapes": [operand_shape(draw, shape) for _ in range(draw.integer(1, 3))]}


def _broadcast_expected(shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    import torch

    return {"shape": tuple(torch.broadcast_shapes(*shapes))}


def _refused_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    shape = [draw.integer(2, 4) for _ in range(dims)]
    other = list(shape)
    other[draw.integer(0, dims - 1)] += draw.integer(1, 2)
    return {"shapes": [tuple(shape), tuple(other)]}


def _expanded_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    shape = shape_of(draw, dims)
    a = draw.array(operand_shape(draw, shape))
    return {"a": a, "shape": shape, "layout": layout(draw)}


def _expanded_expected(
    a: np.ndarray, shape: tuple[int, ...], layout: str
) -> dict[str, Any]:
    from assignments.calling import lay_out

    _, strides, _ = lay_out(a, layout)
    lead = len(shape) - a.ndim
    old = (*[1] * lead, *a.shape)
    steps = (*[0] * lead, *strides)
    return {
        "view": np.array(np.broadcast_to(a, shape)),
        "steps": [s if n == o else 0 for s, n, o in zip(steps, shape, old) if n != 1],
        "shares": True,
    }


def _summed_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    shape = shape_of(draw, dims)
    return {"grad": draw.array(shape, "float64"), "shape": operand_shape(draw, shape)}


def _summed_expected(grad: np.ndarray, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"out": as_torch(grad).sum_to_size(shape).numpy()}


BROADCASTING = (
    Check(
        "a2.2",
        "broadcast_shapes",
        calls.broadcast,
        _broadcast_inputs,
        _broadcast_expected,
        DIMS,
        examples=60,
    ),
    Check(
        "a2.2",
        "shapes that do not fit",
        calls.broadcast_refused,
        _refused_inputs,
        lambda shapes: {"raises": "ValueError"},
        {"dims": (1, 3)},
        oracle="the handout",
    ),
    Check(
        "a2.2",
        "expand",
        calls.expanded,
        _expanded_inputs,
        _expanded_expected,
        DIMS,
        oracle="NumPy",
    ),
    Check(
        "a2.2",
        "unbroadcast",
        calls.summed,
        _summed_inputs,
        _summed_expected,
        DIMS,
        examples=40,
    ),
)

# ------------------------------------------------------------------ map, zip, reduce

MAPS = ("neg", "abs", "relu", "identity")
ZIPS = ("add", "sub", "mul", "maximum")
COMPARISONS = ("lt", "eq", "ge")


def _map_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    dtype = draw.choice(("float32", "float64", "int64"))
    fn = draw.choice(MAPS[:1] if dtype == "int64" else MAPS)
    other = draw.choice((None, "float64")) if dtype == "float32" else None
    a = draw.array(shape_of(draw, dims), dtype, -4, 4)
    return {"fn": fn, "a": a, "layout": layout(draw), "dtype": other}


def _map_expected(
    fn: str, a: np.ndarray, layout: str, dtype: str | None
) -> dict[str, Any]:
    import torch

    given = as_torch(a)
    out = (given.clone() if fn == "identity" else vars(torch)[fn](given)).numpy()
    return {"out": out.astype(dtype or a.dtype)}


def _map_into_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    return {
        "fn": draw.choice(MAPS),
        "a": draw.array(shape_of(draw, dims)),
        "layout": layout(draw),
        "out_layout": layout(draw),
        "itself": bool(draw.integer(0, 1)),
    }


def _map_into_expected(fn: str, a: np.ndarray, **how: Any) -> dict[str, Any]:
    return {**_map_expected(fn, a, "", None), "same": True}


def _zip_inputs(draw: Draw, dims: int, n: int = 0) -> dict[str, Any]:
    compare = draw.integer(0, 2) == 2
    dtype = draw.choice(("float32", "int64"))
    shapes = pair(draw, dims)
    a, b = (draw.array(s, dtype, -3, 3) for s in shapes)
    return {
        "fn": draw.choice(COMPARISONS if compare else ZIPS),
        "a": a,
        "b": b,
        "a_layout": layout(draw),
        "b_layout": layout(draw),
        "dtype": "bool" if compare else None,
    }


def _zip_into_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    a = draw.array(shape_of(draw, dims))
    return {
        "fn": draw.choice(ZIPS),
        "a": a,
        "b": draw.array(a.shape[-1:]),
        "layout": layout(draw),
        "itself": bool(draw.integer(0, 1)),
    }


def _dims(draw: Draw, count: int) -> tuple[int, ...]:
    return tuple(i for i in range(count) if draw.integer(0, 1))


def _reduce_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    fn = draw.choice(tuple(STARTS))
    a = draw.array(shape_of(draw, dims), draw.choice(FLOATS))
    where = {"dims": _dims(draw, dims), "start": float(STARTS[fn])}
    return {"fn": fn, "a": a, **where, "layout": layout(draw)}


def _order_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    a = draw.array(shape_of(draw, dims, 3), "int64", -3, 3)
    return {"a": a, "dims": _dims(draw, dims)}


def _order_expected(a: np.ndarray, dims: tuple[int, ...]) -> dict[str, Any]:
    kept = [i for i in range(a.ndim) if i not in dims]
    count = math.prod(a.shape[i] for i in dims)
    rows = a.transpose([*kept, *dims]).reshape([*(a.shape[i] for i in kept), count])
    total = np.zeros(rows.shape[:-1], a.dtype)
    for k in range(rows.shape[-1]):
        total = 2 * total + rows[..., k]
    return {
        "out": total.reshape([1 if i in dims else n for i, n in enumerate(a.shape)])
    }


SIMPLE = (
    Check(
        "a2.3", "map", calls.map_tensor, _map_inputs, _map_expected, DIMS, examples=40
    ),
    Check(
        "a2.3",
        "map into a tensor",
        calls.map_into,
        _map_into_inputs,
        _map_into_expected,
        DIMS,
    ),
    Check(
        "a2.3", "zip", calls.zip_tensors, _zip_inputs, elementwise, DIMS, examples=60
    ),
    Check(
        "a2.3",
        "zip into a tensor",
        calls.zip_into,
        _zip_into_inputs,
        lambda fn, a, b, **how: {**elementwise(fn, a, b), "same": True},
        DIMS,
    ),
    Check(
        "a2.3",
        "reduce",
        calls.reduce_tensor,
        _reduce_inputs,
        folded,
        DIMS,
        examples=60,
        oracle="NumPy",
    ),
    Check(
        "a2.3",
        "reduce in order",
        calls.fold_in_order,
        _order_inputs,
        _order_expected,
        {"dims": (1, 3)},
        hint="Elements are folded in row-major order, beginning with start.",
        oracle="the rule",
    ),
)

# --------------------------------------------------------------------- with gradients


def _wanted(draw: Draw) -> tuple[bool, bool]:
    return draw.choice(((True, True), (True, False), (False, True)))


def _two_inputs(draw: Draw, fn: str, dims: int) -> dict[str, Any]:
    shapes, dtype = pair(draw, dims), draw.choice(FLOATS)
    a = draw.array(shapes[0], dtype)
    low = 0.5 if fn == "Div" else -2.0
    b = draw.array(shapes[1], dtype, low, 2.0)
    grad = draw.array(np.broadcast_shapes(*shapes), dtype)
    return {
        "fn": fn,
        "a": a,
        "b": b,
        "grad": grad,
        "layout": layout(draw),
        "wanted": _wanted(draw),
    }


def _two_expected(
    fn: str, a: np.ndarray, b: np.ndarray, grad: np.ndarray, wanted: Any, layout: str
) -> dict[str, Any]:
    x, y = as_torch(a).requires_grad_(wanted[0]), as_torch(b).requires_grad_(wanted[1])
    return torch_gradients(calls.TWO[fn](x, y), grad, a=x, b=y)


def _one_inputs(draw: Draw, fn: str, dims: int) -> dict[str, Any]:
    shape, dtype = shape_of(draw, dims), draw.choice(FLOATS)
    x = draw.array(shape, dtype, 0.25 if fn == "Log" else -2.0, 2.0)
    return {"fn": fn, "x": x, "grad": draw.array(shape, dtype), "layout": layout(draw)}


def _one_expected(
    fn: str, x: np.ndarray, grad: np.ndarray, layout: str
) -> dict[str, Any]:
    given = as_torch(x).requires_grad_()
    return torch_gradients(calls.ONE[fn](given), grad, x=given)


def _twice_inputs(draw: Draw, fn: str, n: int) -> dict[str, Any]:
    x = draw.array((n,), "float64", 0.25 if fn == "Log" else -2.0, 2.0)
    grad, weight = draw.array((n,), "float64"), draw.array((n,), "float64", 0.5, 1.5)
    return {"fn": fn, "x": x, "grad": grad, "weight": weight}


def _twice_expected(
    fn: str, x: np.ndarray, grad: np.ndarray, weight: np.ndarray
) -> dict[str, Any]:
    import torch

    given, start = as_torch(x).requires_grad_(), as_torch(grad).requires_grad_()
    # To hand `start` to grad() itself would import all of SymPy.
    total = (calls.ONE[fn](given) * start).sum()
    (first,) = torch.autograd.grad(total, given, create_graph=True)
    (first * as_torch(weight)).sum().backward()
    made = {"x": given.grad, "grad": start.grad}
    zeros = np.zeros_like(x)
    second = {n: zeros if g is None else g.numpy() for n, g in made.items()}
    return {"first": first.detach().numpy(), **second}


def _gradient_of_gradient(fn: str) -> Check:
    return Check(
        "a2.4",
        f"{fn}: the gradient's gradient",
        calls.twice,
        partial(_twice_inputs, fn=fn),
        _twice_expected,
        {"n": (1, 3)},
        ({"n": 9},),
        examples=10,
        devices=("simple",),  # the same operations everywhere, and many to compile
        hint="While grad_mode.enabled is set, backward must consist of operations on "
        "tensors, so that it is recorded itself.",
    )


def _sum_inputs(draw: Draw, dims: int) -> dict[str, Any]:
    shape, dtype = shape_of(draw, dims), draw.choice(FLOATS)
    folded = _dims(draw, dims) or tuple(range(dims))
    keepdim = bool(draw.integer(0, 1))
    left = [1 if i in folded else n for i, n in enumerate(shape)]
    if not keepdim:
        left = [n for i, n in enumerate(shape) if i not in folded]
    x, grad = draw.array(shape, dtype), draw.array(left, dtype)
    return {"x": x, "grad": grad, "dims": folded, "keepdim": keepdim}


def _sum_expected(
    x: np.ndarray, grad: np.ndarray, dims: Any, keepdim: bool
) -> dict[str, Any]:
    given = as_torch(x).requires_grad_()
    return torch_gradients(given.sum(tuple(dims), keepdim=keepdim), grad, x=given)


def _with_gradient(fn: str) -> Check:
    two = fn in calls.TWO
    return Check(
        "a2.4",
        fn,
        calls.two_operands if two else calls.one_operand,
        partial(_two_inputs if two else _one_inputs, fn=fn),
        _two_expected if two else _one_expected,
        {"dims": (0, 3)},
        length=lambda **inputs: inputs["grad"].size,
    )


GRADIENTS = (
    *[_with_gradient(fn) for fn in (*calls.TWO, *calls.ONE)],
    *[_gradient_of_gradient(fn) for fn in calls.ONE],
    Check(
        "a2.4",
        "Sum",
        calls.sums,
        _sum_inputs,
        _sum_expected,
        {"dims": (1, 3)},
        length=lambda **inputs: inputs["x"].size,
    ),
)

# --------------------------------------------------------------------------- products


def _product_inputs(draw: Draw, batch: int, m: int, k: int, n: int) -> dict[str, Any]:
    dtype = draw.choice(("float32", "float64", "int64"))
    left, right = pair(draw, batch)
    a = draw.array((*left, m, k), dtype, -3, 3)
    b = draw.array((*right, k, n), dtype, -3, 3)
    return {"a": a, "b": b, "a_layout": layout(draw), "b_layout": layout(draw)}


def _product_gradient_inputs(
    draw: Draw, batch: int, m: int, k: int, n: int
) -> dict[str, Any]:
    dtype = draw.choice(FLOATS)
    left, right = pair(draw, batch)
    shape = (*np.broadcast_shapes(left, right), m, n)
    a, b = draw.array((*left, m, k), dtype), draw.array((*right, k, n), dtype)
    return {"a": a, "b": b, "grad": draw.array(shape, dtype), "wanted": _wanted(draw)}


def _product_gradient_expected(
    a: np.ndarray, b: np.ndarray, grad: np.ndarray, wanted: Any
) -> dict[str, Any]:
    x, y = as_torch(a).requires_grad_(wanted[0]), as_torch(b).requires_grad_(wanted[1])
    return torch_gradients(x @ y, grad, a=x, b=y)


def _terms(a: np.ndarray, b: np.ndarray, **rest: Any) -> int:
    return a.size + b.size


MATRIX = {"batch": (0, 2), "m": (1, 4), "k": (1, 4), "n": (1, 4)}
PRODUCTS = (
    Check(
        "a2.5",
        "matmul",
        calls.product,
        _product_inputs,
        product,
        MATRIX,
        ({"batch": 0, "m": 2, "k": 0, "n": 3}, {"batch": 1, "m": 7, "k": 9, "n": 5}),
        length=_terms,
        devices=("simple",),
        examples=40,
    ),
    Check(
        "a2.5",
        "gradients",
        calls.product_gradients,
        _product_gradient_inputs,
        _product_gradient_expected,
        MATRIX,
        ({"batch": 1, "m": 17, "k": 5, "n": 33},),
        length=_terms,
        examples=40,
    ),
)

# ------------------------------------------------------------------------------- XOR


def _values(draw: Draw, hidden: int) -> list[np.ndarray]:
    shapes: tuple[tuple[int, ...], ...] = ((2, hidden), (hidden,), (hidden,), ())
    return [draw.array(shape, "float64", -1, 1) for shape in shapes]


def _network_inputs(draw: Draw, hidden: int, n: int) -> dict[str, Any]:
    points = draw.array((n, 2), "float64", 0, 1)
    return {"values": _values(draw, hidden), "points": points}


def _forward(parameters: Sequence[Any], points: Any) -> Any:
    import torch

    w1, b1, w2, b2 = parameters
    return torch.sigmoid(torch.relu(points @ w1 + b1) @ w2 + b2)


def _network_expected(values: list[np.ndarray], points: np.ndarray) -> dict[str, Any]:
    return {"p": _forward([as_torch(v) for v in values], as_torch(points)).numpy()}


def _step_inputs(draw: Draw, hidden: int, n: int) -> dict[str, Any]:
    labels = draw.array((n,), "int64", 0, 1).astype(np.float64)
    inputs = _network_inputs(draw, hidden, n)
    return {**inputs, "labels": labels, "lr": draw.choice((0.5, 0.25))}


def _step_expected(
    values: list[np.ndarray], points: np.ndarray, labels: np.ndarray, lr: float
) -> dict[str, Any]:
    import torch

    parameters = [as_torch(v).requires_grad_() for v in values]
    losses = []
    for _ in range(2):
        p = _forward(parameters, as_torch(points))
        loss = torch.nn.functional.binary_cross_entropy(p, as_torch(labels))
        grads = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, grad in zip(parameters, grads):
                parameter -= lr * grad
        losses.append(loss.item())
    return {"losses": losses, "after": [p.detach().numpy() for p in parameters]}


SIZES = {"hidden": (1, 3), "n": (1, 4)}
XOR = (
    Check(
        "a2.6",
        "forward",
        calls.probabilities,
        _network_inputs,
        _network_expected,
        SIZES,
        tolerance=1e-10,
    ),
    Check(
        "a2.6",
        "steps",
        calls.steps,
        _step_inputs,
        _step_expected,
        SIZES,
        tolerance=1e-9,
    ),
    Check(
        "a2.6",
        "training",
        calls.trained,
        lambda draw: {"seed": draw.choice((3, 4, 8))},
        lambda seed: {"corners": [0, 1, 1, 0]},
        examples=1,
        oracle="XOR",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *STRIDES,
    *BROADCASTING,
    *SIMPLE,
    *GRADIENTS,
    *PRODUCTS,
    *XOR,
)
