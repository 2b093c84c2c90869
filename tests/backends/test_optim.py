"""Steps of optimizers, on every installed backend, beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from backends.shared import by_float, name_of, tensor
from helpers import assert_close, make, numbers
from minitorch.dtypes import DType, float32

SIZES = ((), (5,), (0,), (7, 9), (1025,))


def check_steps(
    backend: Any, dtype: DType, layout: str, make_rival: Callable, states: int,
    step: Callable,
) -> None:  # fmt: skip
    """Three steps of our optimizer and of torch's, on parameters of several sizes."""
    arrays = [numbers(shape, dtype, 1) for shape in SIZES]
    rivals = [tensor(a).double().requires_grad_() for a in arrays]
    rival = make_rival(rivals)
    ours = [make(a, name_of(backend), layout) for a in arrays]
    state = [
        [make(np.zeros_like(a), name_of(backend), layout) for a in arrays]
        for _ in range(states)
    ]
    for count in (1, 2, 3):
        grads = [numbers(shape, dtype, 10 + count) for shape in SIZES]
        for parameter, grad in zip(rivals, grads):
            parameter.grad = tensor(grad).double()
        rival.step()
        step(ours, [make(g, name_of(backend), layout) for g in grads], state, count)
    for a, b in zip(ours, rivals):
        assert_close(
            a,
            b.detach().numpy().astype(dtype.numpy),
            tolerance=2e-6 if dtype is float32 else 1e-11,
        )


@by_float
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped"])
@pytest.mark.parametrize(
    "momentum, dampening, weight_decay, nesterov",
    [
        (0, 0, 0, False),
        (0, 0, 0.1, False),
        (0.9, 0, 0, False),
        (0.9, 0.5, 0.1, False),
        (0.9, 0, 0.1, True),
    ],
)
def test_sgd(
    backend: Any, dtype: DType, layout: str, momentum: float, dampening: float,
    weight_decay: float, nesterov: bool,
) -> None:  # fmt: skip
    how = (momentum, dampening, weight_decay, nesterov)

    def step(params: Any, grads: Any, state: Any, count: int) -> None:
        buffers = state[0] if momentum else None
        backend.sgd_step(params, grads, buffers, 0.1, *how, count == 1)

    def rival(params: Any) -> Any:
        return torch.optim.SGD(params, 0.1, *how[:3], nesterov=nesterov)

    check_steps(backend, dtype, layout, rival, 1, step)


@by_float
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(
    backend: Any, dtype: DType, layout: str, weight_decay: float, decoupled: bool
) -> None:
    def step(params: Any, grads: Any, state: Any, count: int) -> None:
        numbers_of_adam = (0.01, 0.9, 0.999, 1e-8, weight_decay, decoupled)
        backend.adam_step(params, grads, *state, count, *numbers_of_adam)

    def rival(params: Any) -> Any:
        kind = torch.optim.AdamW if decoupled else torch.optim.Adam
        return kind(params, 0.01, weight_decay=weight_decay)

    check_steps(backend, dtype, layout, rival, 2, step)


def test_optimizers_without_parameters(backend: Any) -> None:
    backend.sgd_step([], [], None, 0.1, 0, 0, 0, False, True)
    backend.adam_step([], [], [], [], 1, 0.1, 0.9, 0.999, 1e-8, 0, False)


@by_float
def test_adam_on_many_sizes_with_a_scale(backend: Any, dtype: DType) -> None:
    """One loop or launch for all parameters, whatever sizes they have.

    Sizes lie around the chunks in which kernels share the work; some tensors are
    permuted, and a factor for the gradients comes as a tensor.
    """
    if name_of(backend) in ("cpu", "mojo"):
        shapes = [(1,), (16383,), (0,), (3, 16384), (16385,), (7, 5), (129,)]
    else:
        shapes = [(1,), (127,), (0,), (3, 128), (129,), (7, 5), (257,)]
    layouts = ["contiguous", "permuted"] * 4
    arrays = [numbers(shape, dtype, 1) for shape in shapes]
    rivals = [tensor(a).double().requires_grad_() for a in arrays]
    rival = torch.optim.AdamW(rivals, 0.01, weight_decay=0.1)
    made = [[make(a, name_of(backend), k) for a, k in zip(arrays, layouts)]]
    made += [
        [make(np.zeros_like(a), name_of(backend), k) for a, k in zip(arrays, layouts)]
        for _ in range(2)
    ]
    scale = make(np.array(0.25, dtype.numpy), name_of(backend))
    for count in (1, 2, 3):
        grads = [numbers(shape, dtype, 10 + count) for shape in shapes]
        for p, grad in zip(rivals, grads):
            p.grad = tensor(grad).double() / 4
        rival.step()
        ours = [make(g, name_of(backend), k) for g, k in zip(grads, reversed(layouts))]
        options = (0.01, 0.9, 0.999, 1e-8, 0.1, True)
        backend.adam_step(made[0], ours, *made[1:], count, *options, scale)
    tolerance = 2e-6 if dtype is float32 else 1e-11
    for a, b in zip(made[0], rivals):
        assert_close(a, b.detach().numpy().astype(dtype.numpy), tolerance=tolerance)


@by_float
def test_sum_of_squares(backend: Any, dtype: DType) -> None:
    shapes = [(), (5,), (0,), (129,), (3, 128)]
    arrays = [numbers(shape, dtype, 1) for shape in shapes]
    found = backend.sum_of_squares(
        [make(a, name_of(backend), "permuted") for a in arrays]
    )
    expected = sum((a.astype(np.float64) ** 2).sum() for a in arrays)
    tolerance = 1e-6 if dtype is float32 else 1e-13
    assert_close(found, np.array(expected, dtype.numpy), tolerance=tolerance)
    assert found.shape == ()
