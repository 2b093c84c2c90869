"""What a8 is checked with; the oracle is PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assignments.a8_fusion import calls
from assignments.checks import AnyCheck, Check, Speed, on_all_cores, sizes_of
from assignments.draw import Draw, layout
from assignments.oracles import as_torch, backward, torch_gradients
from assignments.simulated import simulates

# From here on fast_ops shares the work among its threads.
PARALLEL = 32_768
SIMULATED = simulates("cuda")  # where every thread of a GPU costs


# ------------------------------------------------------------------ bias, activation

ACTIVATIONS = (None, "relu", "gelu")  # each is compiled


def _activated(fn: str | None, x: Any) -> Any:
    import torch

    return x if fn is None else vars(torch.nn.functional)[fn](x)


def _bias_inputs(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    return {
        "fn": "relu" if rows * n >= PARALLEL else draw.choice(("relu", "gelu")),
        "x": draw.array((rows, n)),
        "bias": draw.array((n,)),
        "layout": layout(draw),
        "in_place": bool(draw.integer(0, 1)),
    }


def _bias_expected(
    fn: str | None, x: np.ndarray, bias: np.ndarray, **how: Any
) -> dict[str, Any]:
    return {"out": _activated(fn, as_torch(x) + as_torch(bias)).numpy()}


def _bias_backward_inputs(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    aligned = n == 12  # where four at once are seen for certain
    return {
        "fn": "gelu",
        "grad": draw.array((rows, n)),
        "x": draw.array((rows, n)),
        "bias": draw.array((n,)),
        "layout": "contiguous" if aligned else layout(draw),
    }


def _bias_backward_expected(
    fn: str, grad: np.ndarray, x: np.ndarray, bias: np.ndarray, layout: str
) -> dict[str, Any]:
    given = as_torch(x).requires_grad_()
    backward(_activated(fn, given + as_torch(bias)), grad)
    return {"out": given.grad.numpy()}


def _bias_gradient_inputs(draw: Draw, dims: int, rows: int, n: int) -> dict[str, Any]:
    shape = ((n,), (rows, n), (2, rows, n))[dims - 1]
    return {
        "fn": draw.choice(ACTIVATIONS),
        "x": draw.array(shape),
        "bias": draw.array((n,)),
        "grad": draw.array(shape),
        "wanted": draw.choice(((True, True), (True, False), (False, True))),
    }


def _bias_gradient_expected(
    fn: str | None, x: np.ndarray, bias: np.ndarray, grad: np.ndarray, wanted: Any
) -> dict[str, Any]:
    a, b = as_torch(x), as_torch(bias)
    a.requires_grad, b.requires_grad = wanted
    return torch_gradients(_activated(fn, a + b), grad, x=a, bias=b)


def _bias_twice_inputs(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    names = {"x": (rows, n), "bias": (n,), "grad": (rows, n), "weight": (n,)}
    arrays = {name: draw.array(shape) for name, shape in names.items()}
    return {"fn": draw.choice((None, "tanh", "gelu")), **arrays}


def _bias_twice_expected(
    fn: str | None, x: np.ndarray, bias: np.ndarray, grad: np.ndarray,
    weight: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    import torch

    leaves = [as_torch(a).requires_grad_() for a in (x, bias, grad)]
    out = _activated(fn, leaves[0] + leaves[1])
    first = torch.autograd.grad(out, leaves[:2], leaves[2], create_graph=True)
    total = (first[0] + first[1] * as_torch(weight)).sum()
    second = torch.autograd.grad(total, leaves, materialize_grads=True)
    names = ("grad_x", "grad_bias", "x", "bias", "grad")
    return {n: a.detach().numpy() for n, a in zip(names, (*first, *second))}


MATRIX = {"rows": (0, 4), "n": (1, 5)}
SMALL = sizes_of("rows n", (0, 3), (1, 1), (3, 129), (2, 12))
LARGE = sizes_of("rows n", (257, 129), (1, PARALLEL + 1))


def _with_large(make: Any) -> tuple[Check, ...]:
    """A check of small sizes everywhere, and one of large ones where those are fast."""
    return make(SMALL, ("cpu", "cuda"), ""), make(
        LARGE, ("cpu",) if SIMULATED else ("cpu", "cuda"), ", large"
    )


def _bias(edges: Any, devices: tuple[str, ...], name: str) -> Check:
    return Check(
        "a8.1",
        f"fn(x + bias){name}",
        calls.bias_activation,
        _bias_inputs,
        _bias_expected,
        MATRIX,
        edges,
        examples=1 if name else 8,
        devices=devices,
        hint="Element j of a row meets element j of the bias.",
    )


def _bias_backward(edges: Any, devices: tuple[str, ...], name: str) -> Check:
    return Check(
        "a8.1",
        f"fn_backward(grad, x + bias){name}",
        calls.bias_activation_backward,
        _bias_backward_inputs,
        _bias_backward_expected,
        MATRIX,
        edges,
        examples=1 if name else 8,
        devices=devices,
    )


BIAS = (
    Check(
        "a8.1",
        "gradients",
        calls.bias_gradients,
        _bias_gradient_inputs,
        _bias_gradient_expected,
        {"dims": (1, 3), "rows": (1, 4), "n": (1, 4)},
        length=lambda **inputs: 16,
        examples=8,
        hint="The bias was added to every row: its gradient is a sum over rows.",
    ),
    Check(
        "a8.1",
        "gradients of gradients",
        calls.bias_gradients_twice,
        _bias_twice_inputs,
        _bias_twice_expected,
        {"rows": (1, 3), "n": (1, 4)},
        sizes_of("rows n", (2, 3)),
        length=lambda **inputs: 16,
        examples=8,
        devices=("cpu",),
        hint="Where somebody records (grad_mode.enabled), each gradient has to be made "
        "of operations that have gradients; column_sums is none.",
    ),
    *_with_large(_bias),
    *_with_large(_bias_backward),
)

# --------------------------------------------------------------------- online softmax


def _row(draw: Draw, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers, some of them large, and some masked out by -inf, but not a whole row."""
    a = draw.array(shape, low=-8, high=8)
    how = draw.choice(("plain", "masked", "far", "rising"))
    if how == "masked" and a.size:
        away = draw.array(shape, "bool")
        away[..., draw.integer(0, shape[-1] - 1)] = False
        a[away] = -np.inf
    if how == "far":
        a += np.float32(draw.choice((1000, -1000)))
    if how == "rising":
        a = np.sort(a, -1)
    return a


def _pair_expected(a: np.ndarray) -> list[float]:
    top = float(a.max(initial=-np.inf))
    total = float(np.exp(a.astype(np.float64) - top).sum()) if top > -np.inf else 0.0
    return [top, total]


def _merge_inputs(draw: Draw) -> dict[str, float]:
    pairs = []
    for _ in range(2):
        top = draw.choice((draw.number(-8, 8), -math.inf))
        pairs.append((top, 0.0 if top == -math.inf else draw.number(1, 4)))
    (top0, total0), (top1, total1) = pairs
    return {"top0": top0, "total0": total0, "top1": top1, "total1": total1}


def _merge_expected(
    top0: float, total0: float, top1: float, total1: float
) -> dict[str, Any]:
    top = float(np.float32(max(top0, top1)))
    if top == -math.inf:
        return {"pair": [top, 0.0]}
    parts = zip((total0, total1), (top0, top1))
    return {"pair": [top, sum(s * math.exp(t - top) for s, t in parts)]}


def _softmax_expected(name: str, a: np.ndarray) -> dict[str, Any]:
    return {"out": as_torch(a).double().softmax(-1).float().numpy()}


def _rung(name: str, device: str, *edges: tuple[int, int]) -> Check:
    return Check(
        "a8.2",
        f"{name} on the GPU" if device == "cuda" else name,
        calls.rung,
        lambda draw, rows, n: {"name": name, "a": _row(draw, (rows, n))},
        _softmax_expected,
        {"rows": (0, 3), "n": (1, 6)},
        sizes_of("rows n", (0, 3), (1, 1), *edges),
        length=lambda name, a: 32,
        examples=8 if device == "cuda" else 20,
        devices=(device,),
        hint="When a larger number comes, what has been added so far is too large by "
        "exp(new top - old top). And exp(-inf - -inf) is NaN.",
    )


GPU_ROWS = (
    ((2, 63), (2, 64), (3, 193)) if SIMULATED else ((70, 255), (9, 257), (3, 9999))
)
SOFTMAX = (
    Check(
        "a8.2",
        "merge",
        calls.merged,
        _merge_inputs,
        _merge_expected,
        tolerance=1e-5,
        examples=40,
        devices=("cpu",),
        hint="Two groups without a number have the top -inf: exp(-inf - -inf) is NaN.",
        oracle="NumPy",
    ),
    Check(
        "a8.2",
        "online_pair",
        calls.pair,
        lambda draw, n: {"a": _row(draw, (n,)) if n else draw.array((0,))},
        lambda a: {"pair": _pair_expected(a)},
        {"n": (0, 6)},
        sizes_of("n", (0,), (1023,), (1024,), (1025,), (5000,)),
        tolerance=1e-4,
        examples=30,
        devices=("cpu",),
        hint="What has been added so far must be scaled down when a larger number "
        "comes.",
        oracle="NumPy",
    ),
    _rung("two_passes", "cpu", (3, 1025), (65, 700)),
    _rung("in_chunks", "cpu", (3, 63), (2, 64), (1, 65), (2, 5000)),
    _rung("two_passes", "cuda", *GPU_ROWS),
)

# ------------------------------------------------------------------------- layer norm


def _norm_inputs(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    shift = 100 if n == 300 else draw.choice((0, 100))  # where it is seen for certain
    return {
        "x": draw.array((rows, n)) + np.float32(shift),
        "weight": draw.array((n,)),
        "bias": draw.array((n,)),
        "eps": draw.choice((1e-5, 0.1)),
        "layout": layout(draw),
    }


def _norm_expected(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float, layout: str
) -> dict[str, Any]:
    import torch

    given = [as_torch(a).double() for a in (x, weight, bias)]
    parts = torch.native_layer_norm(given[0], [x.shape[1]], *given[1:], eps)
    out, mean, rstd = (part.float().numpy() for part in parts)
    return {"out": out, "mean": mean.reshape(-1), "rstd": rstd.reshape(-1)}


def _norm_backward_inputs(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    x = draw.array((rows, n))
    wide = x.astype(np.float64)
    return {
        "grad": draw.array((rows, n)),
        "x": x,
        "mean": wide.mean(1).astype(np.float32),
        "rstd": (1 / np.sqrt(wide.var(1) + 0.1)).astype(np.float32),
        "weight": draw.array((n,)),
    }


def _norm_backward_expected(
    grad: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray,
    weight: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    import torch

    names = {"x": x, "weight": weight, "bias": np.zeros_like(weight)}
    leaves = {n: as_torch(a).double().requires_grad_() for n, a in names.items()}
    out = torch.nn.functional.layer_norm(
        leaves["x"], weight.shape, leaves["weight"], leaves["bias"], 0.1
    )
    backward(out, grad)
    return {f"grad_{n}": a.grad.float().numpy() for n, a in leaves.items()}


def _norm_gradient_inputs(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    return {
        # A row of nearly equal numbers has no gradient that float32 can tell.
        "x": np.sort(draw.array((rows, n))) + np.arange(n, dtype=np.float32),
        "weight": draw.array((n,)),
        "bias": draw.array((n,)),
        "grad": draw.array((rows, n)),
        "wanted": draw.choice(
            ((True, True, True), (True, False, False), (False, True, True))
        ),
    }


def _norm_gradient_expected(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, grad: np.ndarray, wanted: Any
) -> dict[str, Any]:
    import torch

    a, w, b = as_torch(x), as_torch(weight), as_torch(bias)
    a.requires_grad, w.requires_grad, b.requires_grad = wanted
    out = torch.nn.functional.layer_norm(a, weight.shape, w, b)
    return torch_gradients(out, grad, x=a, weight=w, bias=b)


# Where numbers are near 100, the variance is a difference of sums of 10 000 each.
NORM_LENGTH = 400
ROWS = sizes_of("rows n", (1, 1), (5, 33), (33, 4), (2, 300))
LARGE_ROWS = sizes_of("rows n", (257, 129), (3, 4097))


def _norm(name: str, call: Any, inputs: Any, expected: Any, hint: str) -> Any:
    def make(edges: Any, devices: tuple[str, ...], more: str) -> Check:
        return Check(
            "a8.3",
            f"{name}{more}",
            call,
            inputs,
            expected,
            {"rows": (1, 4), "n": (1, 5)},
            edges,
            length=lambda **inputs: NORM_LENGTH,
            examples=1 if more else 4 if SIMULATED else 8,
            devices=devices,
            hint=hint,
        )

    return make(ROWS, ("cpu", "cuda"), ""), make(
        LARGE_ROWS, ("cpu",) if SIMULATED else ("cpu", "cuda"), ", large"
    )


NORM = (
    Check(
        "a8.3",
        "gradients of tensors",
        calls.layer_norm_gradients,
        _norm_gradient_inputs,
        _norm_gradient_expected,
        {"rows": (1, 4), "n": (2, 5)},
        length=lambda **inputs: NORM_LENGTH,
        examples=8,
    ),
    Check(
        "a8.3",
        "no gradient of the gradient",
        calls.layer_norm_twice,
        lambda draw, n: {"x": draw.array((2, n)), "weight": draw.array((n,))},
        lambda **inputs: {"raises": "RuntimeError"},
        {"n": (2, 3)},
        examples=1,
        devices=("cpu",),
        oracle="the docstring of once_differentiable",
        hint="once_differentiable, called first, refuses where somebody records: what "
        "the backend computes has no gradient, and nobody would know.",
    ),
    *_norm(
        "forward", calls.layer_norm, _norm_inputs, _norm_expected,
        "The variance is the mean of (x - mean)^2: sum(x^2) / n - mean^2 loses all "
        "digits where the mean is large.",
    ),
    *_norm(
        "backward", calls.layer_norm_backward, _norm_backward_inputs,
        _norm_backward_expected,
        "Mean and rstd depend on x as well: two terms are subtracted from the "
        "gradient. Is the memory of dw and db zero at the beginning?",
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------ AdamW


def _adam_inputs(draw: Draw, tensors: int, n: int) -> dict[str, Any]:
    shapes = [(n + 3 * k % 7,) for k in range(tensors)]
    return {
        "params": [draw.array(shape) for shape in shapes],
        "grads": [
            [draw.array(shape) for shape in shapes] for _ in range(draw.integer(1, 3))
        ],
        "lr": draw.choice((0.1, 0.5)),
        "betas": draw.choice(((0.9, 0.999), (0.5, 0.75))),
        "eps": draw.choice((0.01, 1e-8)),
        "weight_decay": draw.choice((0.0, 0.5)),
        "decoupled": draw.choice((True, False)),
        "scale": draw.choice((1.0, 0.25)),
    }


def _adam_expected(
    params: list[np.ndarray], grads: list[list[np.ndarray]], lr: float, betas: Any,
    eps: float, weight_decay: float, decoupled: bool, scale: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    import torch
    from torch.optim.adam import adam
    from torch.optim.adamw import adamw

    # What torch.optim's classes call; to make one of these would load a compiler.
    step = adamw if decoupled else adam
    leaves = [as_torch(p).double() for p in params]
    averages, squares = ([torch.zeros_like(x) for x in leaves] for _ in range(2))
    counts = [torch.tensor(0.0) for _ in leaves]
    how = {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps}
    how |= {"weight_decay": weight_decay, "amsgrad": False, "maximize": False}
    for given in grads:
        slopes = [as_torch(grad).double() * scale for grad in given]
        step(leaves, slopes, averages, squares, [], counts, foreach=False, **how)
    return {
        "after": [x.float().numpy() for x in leaves],
        "exp_avg": [x.float().numpy() for x in averages],
        "exp_avg_sq": [x.float().numpy() for x in squares],
    }


def _adam(edges: Any, devices: tuple[str, ...], name: str) -> Check:
    return Check(
        "a8.4",
        f"steps{name}",
        calls.adam_steps,
        _adam_inputs,
        _adam_expected,
        {"tensors": (1, 3), "n": (0, 4)},
        edges,
        tolerance=1e-5,
        examples=1 if name else 8,
        devices=devices,
        hint="Decoupled decay shrinks p and leaves the gradient alone. m and v start "
        "at 0, which the factors make up for.",
    )


ADAM = (
    _adam(sizes_of("tensors n", (1, 1), (9, 2)), ("simple", "cpu", "cuda"), ""),
    _adam(sizes_of("tensors n", (3, 128), (33, 1)), ("cuda",), " of many"),
    _adam(
        sizes_of("tensors n", (2, PARALLEL)),
        ("cpu",) if SIMULATED else ("cpu", "cuda"),
        ", large",
    ),
)

# ---------------------------------------------------------------------- all the cores

KERNELS = {
    "a8.1": ("bias_rows", "bias_rows_in_place", "bias_rows_backward"),
    "a8.2": ("_two_passes", "_in_chunks"),
    "a8.3": ("_layer_norm", "_layer_norm_backward"),
    "a8.4": ("_adam",),
}
ON_ALL_CORES = on_all_cores(KERNELS, calls.on_all_cores)

# ------------------------------------------------------------------------------ speed


def _speed_bias(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    return {"x": draw.array((rows, n)), "bias": draw.array((n,))}


def _speed_norm(draw: Draw, rows: int, n: int) -> dict[str, Any]:
    return {**_speed_bias(draw, rows, n), "weight": draw.array((n,))}


def _speed_norm_expected(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> dict[str, Any]:
    return {"out": _norm_expected(x, weight, bias, 1e-5, "")["out"]}


def _speed_adam_expected(p: np.ndarray, g: np.ndarray) -> dict[str, Any]:
    found = _adam_expected([p], [[g]], 0.01, (0.9, 0.999), 1e-8, 0.1, True)
    return {name: found[name][0] for name in ("after", "exp_avg")}


SPEED = (
    Speed(
        "a8.5",
        "bias and relu",
        calls.timed_bias,
        calls.timed_sum_and_relu,
        _speed_bias,
        lambda x, bias: _bias_expected("relu", x, bias),
        {"rows": 1000, "n": 1000},
        ((0.5, 0.5), (0.8, 1.0)),
        lambda x, bias: (2.0 * x.nbytes, 2.0 * x.size),
        hint="One loop, one reading and one writing of each number.",
    ),
    Speed(
        "a8.5",
        "layer norm",
        calls.timed_layer_norm,
        calls.timed_composed_norm,
        _speed_norm,
        _speed_norm_expected,
        {"rows": 500, "n": 1000},
        ((0.7, 0.5), (1.0, 1.0)),
        lambda x, weight, bias: (2.0 * x.nbytes, 6.0 * x.size),
        length=lambda **inputs: NORM_LENGTH,
        hint="Loops over a row that have no branches become vector instructions; use "
        "line_sum and line_squares.",
    ),
    Speed(
        "a8.5",
        "AdamW",
        calls.timed_adam,
        calls.timed_composed_adam,
        lambda draw, n: {"p": draw.array((n,)), "g": draw.array((n,), low=0.5)},
        _speed_adam_expected,
        {"n": 500_000},
        ((1.5, 0.5), (2.5, 1.0)),
        lambda p, g: (7.0 * p.nbytes, 12.0 * p.size),
        tolerance=1e-5,
        hint="Load each number once, and store each once.",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *BIAS,
    *SOFTMAX,
    *NORM,
    *ADAM,
    *ON_ALL_CORES,
    *SPEED,
)
