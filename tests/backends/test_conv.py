"""Convolutions and their gradients, on every installed backend."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from backends.shared import inf, name_of, nan, tensor
from helpers import FLOATS, array_of, assert_close, loaded, make, numbers
from minitorch.dtypes import DType, float32
from minitorch.tensor_data import Shape

SIMPLE = loaded("simple")

CONVS = [  # x, weight, stride, padding, dilation, groups
    ((1, 1, 4, 4), (1, 1, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    ((2, 3, 7, 6), (4, 3, 3, 2), (1, 1), (1, 0), (1, 1), 1),
    ((2, 4, 8, 7), (6, 2, 3, 3), (2, 1), (1, 2), (1, 2), 2),
    ((1, 6, 5, 9), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 6),  # depthwise
    ((3, 2, 5, 5), (4, 2, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((1, 2, 9, 9), (3, 2, 2, 3), (3, 2), (0, 1), (2, 1), 1),
    ((2, 1, 1, 20), (3, 1, 1, 5), (1, 2), (0, 2), (1, 1), 1),  # one-dimensional
    ((1, 1, 3, 3), (2, 1, 5, 5), (1, 1), (2, 2), (1, 1), 1),  # kernel beyond image
    ((2, 3, 6, 6), (17, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((0, 2, 4, 4), (3, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1),
]


def by_convolution(test: Callable) -> Callable:
    names = "x_shape, w_shape, stride, padding, dilation, groups"
    return pytest.mark.parametrize(names, CONVS)(test)


def convolve(
    x_shape: Shape, w_shape: Shape, dtype: DType, layout: str, *how: Any
) -> tuple[np.ndarray, ...]:
    """x, weight, bias, out, grad, and the gradients for x and weight, from torch."""
    x, w = numbers(x_shape, dtype, 1, layout), numbers(w_shape, dtype, 2, layout)
    b = numbers(w_shape[:1], dtype, 3)
    tx, tw = (tensor(a).double().requires_grad_() for a in (x, w))
    out = torch.conv2d(tx, tw, tensor(b).double(), *how)
    grad = numbers(tuple(out.shape), dtype, 4)
    grads = torch.autograd.grad(out, (tx, tw), tensor(grad).double())
    results = (out.detach(), *grads)
    out_, dx, dw = (r.numpy().astype(dtype.numpy) for r in results)
    return x, w, b, out_, grad, dx, dw


@by_convolution
@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
def test_conv2d(
    backend: Any, x_shape: Shape, w_shape: Shape, stride: Any, padding: Any,
    dilation: Any, groups: int, layout: str,
) -> None:  # fmt: skip
    for dtype in FLOATS if layout == "contiguous" else (float32,):
        how = (stride, padding, dilation, groups)
        x, w, b, out, grad, dx, dw = convolve(x_shape, w_shape, dtype, layout, *how)
        tx, tw, tb, tg = (make(a, name_of(backend), layout) for a in (x, w, b, grad))
        tolerance = 2e-5 if dtype is float32 else 1e-11
        assert_close(backend.conv2d(tx, tw, tb, *how), out, tolerance=tolerance)
        without = backend.conv2d(tx, tw, None, *how)
        assert_close(without, out - b[:, None, None], tolerance=tolerance)
        for_x = backend.conv2d_backward_input(tg, tw, x_shape, *how)
        assert_close(for_x, dx, tolerance=tolerance)
        for_w = backend.conv2d_backward_weight(tg, tx, w_shape, *how)
        assert_close(for_w, dw, tolerance=tolerance)


@pytest.mark.parametrize(
    "x_shape, w_shape",
    [((2, 16, 33, 31), (33, 16, 3, 3)), ((5, 3, 28, 28), (8, 3, 5, 5))],
)
def test_conv2d_of_large_images(backend: Any, x_shape: Shape, w_shape: Shape) -> None:
    if name_of(backend) == "simple":
        x_shape, w_shape = (1, 2, 12, 11), (3, 2, 3, 3)
    how = ((1, 1), (1, 1), (1, 1), 1)
    x, w, b, out, grad, dx, dw = convolve(x_shape, w_shape, float32, "", *how)
    tx, tw, tb, tg = (make(a, name_of(backend)) for a in (x, w, b, grad))
    assert_close(backend.conv2d(tx, tw, tb, *how), out, tolerance=1e-4)
    for_x = backend.conv2d_backward_input(tg, tw, x_shape, *how)
    assert_close(for_x, dx, tolerance=1e-4)
    for_w = backend.conv2d_backward_weight(tg, tx, w_shape, *how)
    assert_close(for_w, dw, tolerance=1e-3)


# What reaches over the edge: padding, strides, dilation, groups.
EDGES = [  # stride, padding, dilation, groups
    ((1, 1), (0, 0), (1, 1), 1),
    ((1, 1), (1, 1), (1, 1), 2),
    ((2, 1), (1, 2), (1, 2), 1),
    ((3, 2), (2, 0), (1, 1), 2),
]


def convolve_with(
    backend: Any, x: np.ndarray, w: np.ndarray, grad: np.ndarray, how: Any
) -> list[np.ndarray]:
    """The output of a backend and its gradients for x and the weight."""
    tx, tw, tg = (make(a, name_of(backend)) for a in (x, w, grad))
    made = (
        backend.conv2d(tx, tw, None, *how),
        backend.conv2d_backward_input(tg, tw, x.shape, *how),
        backend.conv2d_backward_weight(tg, tx, w.shape, *how),
    )
    return [array_of(each) for each in made]


def with_special(which: int, how: Any, place: Any, value: float) -> list[np.ndarray]:
    """x, weight, grad; one of them has an inf or a NaN in a plane, at `place`."""
    stride, padding, dilation, groups = how
    size = [
        (6 + 2 * p - 2 * d - 1) // s + 1 for s, p, d in zip(stride, padding, dilation)
    ]
    shapes = (2, 2, 6, 6), (4, 2 // groups, 3, 3), (2, 4, *size)
    arrays = [numbers(shape, float32, i) for i, shape in enumerate(shapes)]
    arrays[which][(1, 0, *place)] = value
    return arrays


@pytest.mark.parametrize("how", EDGES, ids=str)
@pytest.mark.parametrize("which", [0, 1, 2], ids=["x", "weight", "grad"])
def test_conv2d_has_no_products_with_padding(
    backend: Any, which: int, how: Any
) -> None:
    """0 * inf would be NaN where a window reaches over the edge."""
    if name_of(backend) == "cuda":
        pytest.xfail("the tiles of cuda_ops multiply zeros of the padding")
    for place, value in product([(0, 0), (0, -1), (-1, 0), (1, -1)], [inf, -inf, nan]):
        arrays = with_special(which, how, place, value)
        got = convolve_with(backend, *arrays, how)
        for made, expected in zip(got, convolve_with(SIMPLE, *arrays, how)):
            np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),
    reason="PyTorch unfolds x here, with the zeros of its padding",
)
@pytest.mark.parametrize("how", [how for how in EDGES if how[3] == 1], ids=str)
def test_conv2d_of_infinities_is_that_of_pytorch(how: Any) -> None:
    """For one group; for more, PyTorch itself multiplies zeros of the padding."""
    for which in range(3):
        arrays = with_special(which, how, (0, -1), inf)
        x, w, grad = (tensor(a).requires_grad_() for a in arrays)
        out = torch.conv2d(x, w, None, *how)
        expected = (out, *torch.autograd.grad(out, (x, w), grad))
        for made, theirs in zip(convolve_with(SIMPLE, *arrays, how), expected):
            np.testing.assert_allclose(
                made, theirs.detach().numpy(), rtol=1e-5, atol=1e-5
            )
