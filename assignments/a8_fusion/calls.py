"""What a8 runs in the student's process: fused operations and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.calling import (
    Timed,
    called,
    gradients,
    is_shared,
    operand,
    operands_of,
    operator_of,
    raised,
    read,
    results,
    rung_of,
    tensor,
    timed,
)

# ------------------------------------------------------------------ bias, activation


def bias_activation(
    device: str,
    fn: str | None,
    x: np.ndarray,
    bias: np.ndarray,
    layout: str,
    in_place: bool,
) -> dict[str, Any]:
    """The backend's `bias_activation`, perhaps into x itself."""
    from minitorch.backend import get_backend

    a, b = operand(device, x, layout), operand(device, bias)
    run = get_backend(device).bias_activation
    operator = None if fn is None else operator_of(fn)
    if in_place:
        return results({"out": read(run(a, b, operator, a))}, {"bias": b})
    return called(run, {"x": a, "bias": b}, operator)


def bias_activation_backward(
    device: str, fn: str, grad: np.ndarray, x: np.ndarray, bias: np.ndarray, layout: str
) -> dict[str, Any]:
    """The backend's `bias_activation_backward`."""
    from minitorch.backend import get_backend

    g, a, b = operand(device, grad), operand(device, x, layout), operand(device, bias)
    run = get_backend(device).bias_activation_backward
    return called(run, {"grad": g, "x": a, "bias": b}, operator_of(f"{fn}_backward"))


def bias_gradients(
    device: str,
    fn: str | None,
    x: np.ndarray,
    bias: np.ndarray,
    grad: np.ndarray,
    wanted: Sequence[bool],
) -> dict[str, Any]:
    """`bias_activation` of tensors, and the gradients that are wanted."""
    from minitorch.functions.linear import bias_activation

    a, b = tensor(device, x), tensor(device, bias)
    a.requires_grad, b.requires_grad = wanted
    return gradients(bias_activation(a, b, fn), grad, x=a, bias=b)


def bias_gradients_twice(
    device: str,
    fn: str | None,
    x: np.ndarray,
    bias: np.ndarray,
    grad: np.ndarray,
    weight: np.ndarray,
) -> dict[str, Any]:
    """The gradients, and those of sum(grad_x + weight * grad_bias) for all three."""
    from minitorch.functions.linear import bias_activation
    from minitorch.tensor.hooks import grad as grad_of

    given = (x, bias, grad)
    leaves = [tensor(device, a, requires_grad=True) for a in given]
    out = bias_activation(leaves[0], leaves[1], fn)
    first = grad_of(out, leaves[:2], leaves[2], create_graph=True)
    (first[0] + first[1] * tensor(device, weight)).sum().backward()
    found = [leaf.grad for leaf in leaves]
    second = [np.zeros_like(a) if g is None else read(g) for a, g in zip(given, found)]
    names = ("grad_x", "grad_bias", "x", "bias", "grad")
    return dict(zip(names, [*map(read, first), *second]))


# --------------------------------------------------------------------- online softmax


def merged(
    device: str, top0: float, total0: float, top1: float, total1: float
) -> dict[str, Any]:
    """`merge` of two pairs."""
    from fast_ops.softmax_ladder import merge

    pair = merge(*[np.float32(x) for x in (top0, total0, top1, total1)])
    return {"pair": [float(x) for x in pair]}


def pair(device: str, a: np.ndarray) -> dict[str, Any]:
    """`online_pair` of a row."""
    from fast_ops.softmax_ladder import online_pair

    return {"pair": [float(x) for x in online_pair(a.copy())]}


def rung(device: str, name: str, a: np.ndarray) -> dict[str, Any]:
    """A rung of the CPU's ladder, or of the GPU's."""
    if device == "cuda":
        from cuda_ops.ladders.softmax import LADDER
    else:
        from fast_ops.softmax_ladder import LADDER
    return called(rung_of(LADDER, name), operands_of(device, a=a))


# ------------------------------------------------------------------------- layer norm


def layer_norm(
    device: str,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    eps: float,
    layout: str,
) -> dict[str, Any]:
    """The backend's `layer_norm`."""
    from minitorch.backend import get_backend

    a, w, b = operand(device, x, layout), operand(device, weight), operand(device, bias)
    out, mean, rstd = get_backend(device).layer_norm(a, w, b, eps)
    made = {"out": out, "mean": mean, "rstd": rstd}
    return results(made, {"x": a, "weight": w, "bias": b})


def layer_norm_backward(
    device: str,
    grad: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
    weight: np.ndarray,
) -> dict[str, Any]:
    """The backend's `layer_norm_backward`."""
    from minitorch.backend import get_backend

    given = operands_of(device, grad=grad, x=x, mean=mean, rstd=rstd, weight=weight)
    dx, dw, db = get_backend(device).layer_norm_backward(*given.values())
    return results({"grad_x": dx, "grad_weight": dw, "grad_bias": db}, given)


def layer_norm_gradients(
    device: str,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    grad: np.ndarray,
    wanted: Sequence[bool],
) -> dict[str, Any]:
    """`layer_norm` of tensors, and the gradients that are wanted."""
    from minitorch.functions.norm import layer_norm

    a, w, b = tensor(device, x), tensor(device, weight), tensor(device, bias)
    a.requires_grad, w.requires_grad, b.requires_grad = wanted
    out = layer_norm(a, x.shape[-1], w, b)
    return gradients(out, grad, x=a, weight=w, bias=b)


def layer_norm_twice(device: str, x: np.ndarray, weight: np.ndarray) -> dict[str, Any]:
    """What it raises to ask for a gradient of the gradient."""
    from minitorch.functions.norm import layer_norm
    from minitorch.tensor.hooks import grad as grad_of

    a = tensor(device, x, requires_grad=True)
    out = layer_norm(a, x.shape[-1], tensor(device, weight)).sum()
    return raised(lambda: grad_of(out, a, create_graph=True))


# ------------------------------------------------------------------------------ AdamW


def adam_steps(
    device: str,
    params: Sequence[np.ndarray],
    grads: Sequence[Sequence[np.ndarray]],
    lr: float,
    betas: Sequence[float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
    scale: float,
) -> dict[str, Any]:
    """Parameters and running means after some steps, one for each entry of grads."""
    from minitorch.backend import get_backend

    step = get_backend(device).adam_step
    p = [operand(device, a) for a in params]
    m, v = ([operand(device, np.zeros_like(a)) for a in params] for _ in range(2))
    options = (lr, *betas, eps, weight_decay, decoupled)
    by = operand(device, np.array(scale, params[0].dtype))
    for number, given in enumerate(grads):
        g = [operand(device, a) for a in given]
        step(p, g, m, v, number + 1, *options, by)
    named = {"after": p, "exp_avg": m, "exp_avg_sq": v}
    return {name: [read(a) for a in tensors] for name, tensors in named.items()}


# ---------------------------------------------------------------------- all the cores


def on_all_cores(device: str, name: str, n: int) -> dict[str, Any]:
    """Whether a kernel's work on n rows is shared among the cores by `prange`."""
    from fast_ops import linear, norm, optim, softmax_ladder
    from minitorch import operators

    def new(*shape: int) -> np.ndarray:
        return np.ones(shape or (n * n,), np.float32)

    row, x, out = new(n), new(), new()
    sums = new(n), new(n)
    given = {
        "bias_rows": (linear.bias_rows(operators.relu), x, row, out),
        "bias_rows_in_place": (linear.bias_rows_in_place(operators.relu), x, row),
        "bias_rows_backward": (
            linear.bias_rows_backward(operators.relu_backward), out, x, row, new(),
        ),
        "_two_passes": (softmax_ladder._two_passes, x, out, n),
        "_in_chunks": (softmax_ladder._in_chunks, x, out, n, 1, *sums),
        "_layer_norm": (norm.KERNELS.layer_norm[True], x, row, row, 1.0, out, *sums),
        "_layer_norm_backward": (
            norm.KERNELS.layer_norm_backward[True],
            *(x, x, row, row, row, out, new(n, 2, n), *sums),
        ),
        "_adam": (optim.KERNELS.adam[True], x, out, new(), new(), new(9)),
    }  # fmt: skip
    kernel, *arguments = given[name]
    return {"shared": is_shared(kernel, *arguments)}


# ------------------------------------------------------------------------------ speed


def timed_bias(device: str, x: np.ndarray, bias: np.ndarray) -> Timed:
    """relu(x + bias) in one pass."""
    from minitorch import operators
    from minitorch.backend import get_backend

    run = lambda a, b: get_backend("cpu").bias_activation(a, b, operators.relu)
    return timed(run, operands_of(device, x=x, bias=bias))


def timed_sum_and_relu(device: str, x: np.ndarray, bias: np.ndarray) -> Timed:
    """The same as two operations."""
    from fast_ops import elementwise
    from minitorch import operators

    add = lambda a, b: elementwise.zip(operators.add, a, b)
    run = lambda a, b: elementwise.map(operators.relu, add(a, b))
    return timed(run, operands_of(device, x=x, bias=bias))


def timed_layer_norm(
    device: str, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> Timed:
    """Layer norm as one operation."""
    from minitorch.backend import get_backend

    run = lambda *operands: get_backend("cpu").layer_norm(*operands, 1e-5)[0]
    return timed(run, operands_of(device, x=x, weight=weight, bias=bias))


def timed_composed_norm(
    device: str, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> Timed:
    """The same as operations of tensors."""
    import minitorch

    given = operands_of(device, x=x, weight=weight, bias=bias)
    a, w, b = (minitorch.Tensor(t) for t in given.values())

    def go(*_: Any) -> Any:
        with minitorch.no_grad():
            away = a - a.mean(-1, keepdim=True)
            variance = (away * away).mean(-1, keepdim=True)
            return (away * (variance + 1e-5).rsqrt() * w + b).raw

    return timed(go, given)


def _adam_state(device: str, p: np.ndarray, g: np.ndarray) -> list[Any]:
    zeros = np.zeros_like(p)
    return [operand(device, a) for a in (p, g, zeros, zeros)]


def timed_adam(device: str, p: np.ndarray, g: np.ndarray) -> Timed:
    """A first step of AdamW in one pass."""
    from minitorch.backend import get_backend

    state = _adam_state(device, p, g)
    lists = [[a] for a in state]
    adam_step = get_backend("cpu").adam_step
    go = lambda: adam_step(*lists, 1, 0.01, 0.9, 0.999, 1e-8, 0.1, True)
    return go, lambda _: {"after": read(state[0]), "exp_avg": read(state[2])}


def timed_composed_adam(device: str, p: np.ndarray, g: np.ndarray) -> Timed:
    """The same as operations of tensors."""
    import minitorch

    state = [minitorch.Tensor(a) for a in _adam_state(device, p, g)]

    def go() -> None:
        x, grad, m, v = state
        with minitorch.no_grad():
            m *= 0.9
            m += grad * 0.1
            v *= 0.999
            v += grad * grad * 0.001
            x *= 1 - 0.01 * 0.1
            x -= (m / 0.1) / ((v / 0.001).sqrt() + 1e-8) * 0.01

    return go, lambda _: {"after": read(state[0]), "exp_avg": read(state[2])}
