"""Linear layers and bias + activation as one operation: against torch and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from operations import assert_same

import minitorch
from helpers import FLOATS, LAYOUTS, array_of, assert_close, loaded, make, numbers
from minitorch import Tensor, float32, float64, operators
from minitorch.dtypes import DType, int64
from minitorch.functions.linear import bias_activation, linear
from minitorch.grad_check import gradcheck, gradgradcheck
from minitorch.nn import functional as F
from minitorch.tensor_data import Shape

ACTIVATIONS: dict[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
    None: lambda x: x,
    "relu": torch.relu,
    "gelu": TF.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": TF.silu,
}
INPUTS = [(3,), (1, 3), (5, 3), (2, 4, 3), (2, 1, 2, 3), (0, 3), (2, 0, 3)]

by_layout = pytest.mark.parametrize("layout", LAYOUTS)
by_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
by_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)


def leaf(device: str, *shape: int, seed: int = 0) -> Tensor:
    """A small float64 leaf."""
    array = numbers(shape, float64, seed)
    return minitorch.tensor(array, device=device).requires_grad_()


def compare(
    mine: Callable[..., Any],
    theirs: Callable[..., Any],
    arrays: list[Any],
    device: str,
    layouts: tuple[str, ...],
) -> None:
    """Values and gradients of both in float64; arrays that are None are passed on."""
    xs = [
        a if a is None else Tensor(make(a, device, layout)).requires_grad_()
        for a, layout in zip(arrays, layouts)
    ]
    ts = [a if a is None else torch.tensor(a, requires_grad=True) for a in arrays]
    out, expected = mine(*xs), theirs(*ts)
    assert_same(out, expected, 1e-12)
    up = np.cos(np.arange(expected.numel())).reshape(expected.shape)
    out.backward(minitorch.tensor(up, device=device))
    expected.backward(torch.tensor(up))
    for x, t in zip(xs, ts):
        if x is not None:
            assert_same(x.grad, t.grad, 1e-12)


# ------------------------------------------------------------------------- linear


@pytest.mark.parametrize("shape", INPUTS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape: Shape, bias: bool, device: str) -> None:
    arrays = [numbers(shape, float64), numbers((4, 3), float64)]
    arrays.append(numbers((4,), float64) if bias else None)
    compare(linear, TF.linear, arrays, device, ("contiguous",) * 3)


@pytest.mark.parametrize("outs, ins", [(0, 3), (3, 0), (1, 1), (1, 3), (3, 1)])
def test_linear_of_edge_sizes(outs: int, ins: int, device: str) -> None:
    arrays = [
        numbers(shape, float64, layout="") for shape in ((2, ins), (outs, ins), (outs,))
    ]
    compare(linear, TF.linear, arrays, device, ("contiguous",) * 3)


@by_layout
@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3)], ids=str)
def test_linear_in_every_layout(layout: str, shape: Shape, device: str) -> None:
    arrays = [numbers(shape, float64, layout=layout) for shape in (shape, (4, 3), (4,))]
    compare(linear, TF.linear, arrays, device, (layout,) * 3)


def test_a_large_linear(device: str) -> None:
    rows, ins, outs = (5, 6, 7) if device == "simple" else (300, 130, 140)
    x, w, b = (numbers(s) for s in ((rows, ins), (outs, ins), (outs,)))
    mine = [Tensor(make(a, device)).requires_grad_() for a in (x, w, b)]
    linear(*mine).sum().backward()
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, w, b)]
    TF.linear(*theirs).sum().backward()
    for m, t in zip(mine, theirs):
        assert_same(m.grad, t.grad, 1e-4)


@pytest.mark.parametrize("wanted", range(1, 8))
def test_linear_gives_the_gradients_that_are_wanted(wanted: int, device: str) -> None:
    values = [leaf(device, *shape) for shape in ((2, 3), (4, 3), (4,))]
    for i, value in enumerate(values):
        value.requires_grad_(bool(wanted >> i & 1))
    linear(*values).sum().backward()
    for i, value in enumerate(values):
        assert (value.grad is not None) == bool(wanted >> i & 1)
        assert value.grad is None or value.grad.raw.shape == value.raw.shape


def test_linear_is_one_operation_with_contiguous_gradients(device: str) -> None:
    x, w, b = (leaf(device, *shape) for shape in ((2, 3), (4, 3), (4,)))
    out = linear(x, w, b)
    assert repr(out.grad_fn) == "<LinearBackward>"
    assert [edge[0] for edge in out.grad_fn.edges] == [x, w, b]
    out.sum().backward()
    assert x.grad.is_contiguous() and w.grad.is_contiguous()


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_twice(shape: Shape, bias: bool, device: str) -> None:
    values = [leaf(device, *shape), leaf(device, 2, 3)]
    if bias:
        values.append(leaf(device, 2))
    assert gradcheck(linear, values)
    assert gradgradcheck(linear, values)


def test_linear_of_integers(device: str) -> None:
    x, w = numbers((2, 3), int64), numbers((4, 3), int64)
    b = numbers((4,), int64)
    out = linear(*(Tensor(make(a, device)) for a in (x, w, b)))
    np.testing.assert_array_equal(array_of(out.raw), x @ w.T + b)


def test_linear_notices_a_changed_weight(device: str) -> None:
    x, w = leaf(device, 2, 3), leaf(device, 4, 3)
    out = linear(x, w).sum()
    with minitorch.no_grad():
        w.mul_(2.0)
    with pytest.raises(RuntimeError, match="Linear: a tensor of shape"):
        out.backward()


def test_linear_says_what_does_not_fit() -> None:
    x, w, b = minitorch.ones(2, 3), minitorch.ones(4, 3), minitorch.ones(4)
    with pytest.raises(ValueError, match=r"input is \(2, 4\) and the weight \(4, 3\)"):
        linear(minitorch.ones(2, 4), w)
    with pytest.raises(ValueError, match=r"input is \(\) and"):
        linear(minitorch.ones(()), w)
    with pytest.raises(ValueError, match=r"weight is \(3,\); expected \(out_features"):
        linear(x, minitorch.ones(3))
    with pytest.raises(ValueError, match=r"weight is \(4, 3\) and the bias \(3,\)"):
        linear(x, w, minitorch.ones(3))
    with pytest.raises(ValueError, match=r"the bias must be \(4,\)"):
        linear(x, w, minitorch.ones(1, 4))
    with pytest.raises(TypeError, match="float32 and another float64"):
        linear(x, w.double())
    with pytest.raises(TypeError, match="float32 and another float64"):
        linear(x, w, b.double())
    with pytest.raises(TypeError, match="bool"):
        linear(x.bool(), w.bool())
    with pytest.raises(RuntimeError, match="'cpu' and the other on 'simple'"):
        linear(x, w, b.to("simple"))


# -------------------------------------------------------------- bias and activation


@by_activation
@pytest.mark.parametrize("shape", INPUTS, ids=str)
def test_bias_activation(activation: str | None, shape: Shape, device: str) -> None:
    arrays = [numbers(shape, float64), numbers((3,), float64, 1)]
    compare(
        lambda x, b: F.bias_activation(x, b, activation),
        lambda x, b: ACTIVATIONS[activation](x + b),
        arrays,
        device,
        ("contiguous",) * 2,
    )


@by_activation
@by_layout
def test_bias_activation_in_every_layout(
    activation: str | None, layout: str, device: str
) -> None:
    shapes = (2, 4, 3), (3,)
    arrays = [numbers(shape, float64, 1, layout) for shape in shapes]
    compare(
        lambda x, b: bias_activation(x, b, activation),
        lambda x, b: ACTIVATIONS[activation](x + b),
        arrays,
        device,
        (layout, layout),
    )


@by_activation
def test_bias_activation_twice(activation: str | None, device: str) -> None:
    values = [leaf(device, 2, 3, seed=1), leaf(device, 3, seed=2)]
    assert gradcheck(lambda x, b: bias_activation(x, b, activation), values)
    assert gradgradcheck(lambda x, b: bias_activation(x, b, activation), values)
    assert gradgradcheck(
        lambda x: bias_activation(x, values[1].detach(), activation), values[:1]
    )


@by_activation
def test_bias_activation_gives_the_gradients_that_are_wanted(
    activation: str | None, device: str
) -> None:
    x, b = leaf(device, 2, 3), leaf(device, 3)
    bias_activation(x.detach(), b, activation).sum().backward()
    alone = b.grad
    b.grad = None
    bias_activation(x, b, activation).sum().backward()
    assert alone is not None and b.grad is not None and x.grad is not None
    np.testing.assert_array_equal(alone.numpy(), b.grad.numpy())
    bias_activation(x, b.detach(), activation).sum().backward()
    np.testing.assert_allclose(x.grad.sum(0).numpy(), 2 * b.grad.numpy(), rtol=1e-12)


def test_bias_activation_says_what_does_not_fit() -> None:
    x, b = minitorch.ones(2, 3), minitorch.ones(3)
    with pytest.raises(ValueError, match=r"x is \(2, 3\) and the bias \(2,\)"):
        bias_activation(x, minitorch.ones(2))
    with pytest.raises(ValueError, match=r"x is \(\) and the bias \(3,\)"):
        bias_activation(minitorch.ones(()), b)
    with pytest.raises(ValueError, match="activation is 'swish'; expected one of 'rel"):
        bias_activation(x, b, "swish")
    with pytest.raises(TypeError, match="float32 and another float64"):
        bias_activation(x, b.double())
    with pytest.raises(TypeError, match="x is int64; expected a floating type"):
        bias_activation(x.long(), b.long())
    with pytest.raises(RuntimeError, match="'cpu' and the other on 'simple'"):
        bias_activation(x, b.to("simple"))


# -------------------------------------------------------- the functions of backends

FUNCTIONS: list[tuple[Callable, Callable]] = [
    (operators.relu, lambda x: np.maximum(x, 0)),
    (operators.tanh, np.tanh),
    (operators.gelu, lambda x: TF.gelu(torch.from_numpy(x)).numpy()),
]
SIZES = [(0, 3), (3, 0), (1, 1), (1, 17), (33, 1), (9, 31), (16, 16), (7, 33)]


def large(device: str) -> list[Shape]:
    """Shapes that threads share, for compiled backends."""
    return [] if device == "simple" else [(1025, 33), (3, 20_000), (40_000, 1)]


@by_float
@by_layout
def test_backends_add_a_bias(dtype: DType, layout: str, device: str) -> None:
    backend = loaded(device)
    for shape in [*SIZES, *large(device)]:
        x = numbers(shape, dtype, 0, layout)
        b = numbers(shape[1:], dtype, 1, layout)
        given, bias = make(x, device, layout), make(b, device, layout)
        assert_close(backend.bias_activation(given, bias, None), x + b)
        for fn, expected in FUNCTIONS:
            out = backend.bias_activation(given, bias, fn)
            assert out.is_contiguous() and out.storage is not given.storage
            assert_close(out, expected(x + b), tolerance=_tolerance(dtype))


@by_float
@by_layout
def test_backends_carry_a_gradient_through(
    dtype: DType, layout: str, device: str
) -> None:
    backend = loaded(device)
    for shape in [*SIZES, *large(device)]:
        grad = numbers(shape, dtype, 2, layout)
        x = numbers(shape, dtype, 0, layout)
        b = numbers(shape[1:], dtype, 1, layout)
        t = torch.tensor(x + b, requires_grad=True)
        TF.silu(t).backward(torch.tensor(grad))
        out = backend.bias_activation_backward(
            make(grad, device, layout),
            make(x, device, layout),
            make(b, device, layout),
            operators.silu_backward,
        )
        assert_close(out, t.grad.numpy(), tolerance=_tolerance(dtype))


def _tolerance(dtype: DType) -> float:
    return 3e-6 if dtype is float32 else 1e-12


@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_backends_add_a_bias_in_place(layout: str, device: str) -> None:
    backend = loaded(device)
    for shape in [*SIZES, *large(device)]:
        x, b = numbers(shape), numbers(shape[1:], seed=1)
        given, bias = make(x, device, layout), make(b, device)
        assert backend.bias_activation(given, bias, operators.relu, given) is given
        assert_close(given, np.maximum(x + b, 0))
        out = make(np.zeros(shape, np.float32), device, layout)
        assert backend.bias_activation(make(x, device), bias, None, out) is out
        assert_close(out, x + b)


def test_backends_add_a_bias_into_overlapping_memory(device: str) -> None:
    backend = loaded(device)
    x = numbers((9, 4))
    a = make(x, device)
    low, high = a.slice(0, 0, 8), a.slice(0, 1, 8)
    bias = make(numbers((4,)), device)
    backend.bias_activation(low, bias, None, high)
    assert_close(high, x[:8] + numbers((4,)))
    a = make(x, device)
    backend.bias_activation(a, a.select(0, 2), None, a)  # the bias is a row of x
    assert_close(a, x + x[2])


def test_backends_take_a_function_of_the_user(device: str) -> None:
    def clipped(x: float) -> float:
        return min(max(x, -0.5), 0.5)

    x, b = numbers((5, 7)), numbers((7,), seed=1)
    out = loaded(device).bias_activation(make(x, device), make(b, device), clipped)
    assert_close(out, np.clip(x + b, -0.5, 0.5))


def test_a_bias_keeps_nan_and_infinity(device: str) -> None:
    x = np.array([[np.nan, np.inf, -np.inf, 1.0]], np.float32)
    b = np.array([1.0, -np.inf, 1.0, np.inf], np.float32)
    given, bias = make(x, device), make(b, device)
    out = loaded(device).bias_activation(given, bias, operators.relu)
    with np.errstate(invalid="ignore"):
        assert_close(out, np.maximum(x + b, 0))
