"""Softmax, losses, convolution, pooling, normalization, dropout: against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from operations import assert_same

import minitorch
from helpers import LAYOUTS, make
from minitorch import Tensor, float32, float64
from minitorch.functions import conv, norm, pool, softmax
from minitorch.functions.random import dropout
from minitorch.grad_check import gradcheck, gradgradcheck


def compare(
    mine: Callable[..., Any],
    theirs: Callable[..., Any],
    arrays: list[Any],
    device: str,
    layout: str,
    dtype: Any = float64,
) -> None:
    """Values and gradients of both, for float arrays (None is passed on)."""
    tolerance = 1e-11 if dtype is float64 else 2e-5
    fixed = [a if a is None else _fit(a, layout).astype(dtype.numpy) for a in arrays]
    xs = [a if a is None else Tensor(make(a, device, layout)) for a in fixed]
    ts = [a if a is None else torch.tensor(a, requires_grad=True) for a in fixed]
    for x in xs:
        if x is not None:
            x.requires_grad_()
    out, expected = mine(*xs), theirs(*ts)
    assert_same(out, expected, tolerance, layout)
    weights = np.cos(np.arange(expected.numel())).reshape(expected.shape)
    out.backward(minitorch.tensor(weights, dtype=dtype, device=device))
    expected.backward(torch.tensor(weights, dtype=expected.dtype))
    for x, t in zip(xs, ts):
        if x is not None:
            assert_same(x.grad, t.grad, tolerance, f"{layout} gradient")


def _fit(array: np.ndarray, layout: str) -> np.ndarray:
    if layout == "expanded" and array.ndim and array.size:
        return np.ascontiguousarray(np.broadcast_to(array[:1], array.shape))
    return array


def normal(*shape: int) -> np.ndarray:
    """Standard normal numbers that depend on the shape alone."""
    return np.random.default_rng(shape or 0).standard_normal(shape)


def leaf(device: str, *shape: int) -> Tensor:
    """A small float64 leaf."""
    return minitorch.tensor(normal(*shape), device=device).requires_grad_()


by_layout = pytest.mark.parametrize("layout", LAYOUTS)

# ------------------------------------------------------------------------- softmax


def test_softmax_of_large_numbers(device):
    values = [[1e4, 0.0, -1e4], [float("-inf"), 0.0, 1.0], [-1e30, -1e30, -1e30]]
    x, t = minitorch.tensor(values, device=device), torch.tensor(values)
    assert_same(x.softmax(1), t.softmax(1), 1e-6)
    assert_same(x.log_softmax(1), t.log_softmax(1), 1e-6)
    assert_same(x.logsumexp(1), t.logsumexp(1), 1e-6)
    whole = [[float("-inf")] * 3, [float("inf"), 1.0, 2.0]]
    x, t = minitorch.tensor(whole, device=device), torch.tensor(whole)
    assert_same(x.softmax(1), t.softmax(1), 1e-6)
    assert_same(x.logsumexp(1), t.logsumexp(1), 1e-6)


@by_layout
@pytest.mark.parametrize("shape", [(4, 3), (1, 1), (0, 3), (5, 17)])
def test_cross_entropy(device, layout, shape):
    target = np.random.default_rng(0).integers(0, shape[1], shape[0])
    y, u = minitorch.tensor(target, device=device), torch.tensor(target)
    for dtype in (float32, float64):
        compare(
            lambda x: softmax.cross_entropy(x, y),
            lambda x: F.cross_entropy(x, u, reduction="none"),
            [normal(*shape)],
            device,
            layout,
            dtype,
        )


def test_cross_entropy_ignores_rows(device):
    target = np.array([1, -100, 0, 2, -100])
    y, u = minitorch.tensor(target, device=device), torch.tensor(target)
    compare(
        lambda x: softmax.cross_entropy(x, y),
        lambda x: F.cross_entropy(x, u, reduction="none"),
        [normal(5, 3)],
        device,
        "contiguous",
    )
    x = leaf(device, 5, 3)
    assert gradcheck(lambda x: softmax.cross_entropy(x, y), [x])
    with pytest.raises(RuntimeError, match="compose it"):
        gradgradcheck(lambda x: softmax.cross_entropy(x, y), [x])
    last = minitorch.tensor([2, 2, 2, 2, 0], device=device)
    losses = softmax.cross_entropy(x, last, ignore_index=2)
    assert losses.tolist()[:4] == [0.0] * 4 and losses[4].item() > 0


# --------------------------------------------------------------------- convolution

CONV2D = [
    ((2, 3, 6, 5), (4, 3, 3, 3), {}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((2, 3, 6, 5), (4, 3, 3, 2), {"stride": 2, "padding": 1}),
    ((2, 3, 7, 6), (4, 3, 3, 3), {"stride": (2, 3), "padding": (1, 2)}),
    ((1, 2, 8, 7), (3, 2, 3, 2), {"dilation": (2, 3), "padding": 2}),
    ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    ((2, 4, 5, 5), (4, 1, 2, 3), {"groups": 4}),
    ((2, 3, 5, 5), (2, 3, 3, 5), {"padding": "same"}),
    ((2, 3, 5, 5), (2, 3, 3, 3), {"padding": "valid"}),
    ((3, 5, 5), (2, 3, 3, 3), {}),
    ((0, 3, 5, 5), (2, 3, 3, 3), {}),
    ((2, 3, 5, 5), (2, 3, 5, 5), {"padding": 3, "stride": 4}),
]


@pytest.mark.parametrize("case", range(len(CONV2D)))
@pytest.mark.parametrize("with_bias", [False, True])
def test_conv2d(device, case, with_bias):
    x, weight, options = CONV2D[case]
    x = (3, 5, 5) if x == (3, 5, 5) else x
    arrays = [normal(*x), normal(*weight), normal(weight[0]) if with_bias else None]
    for layout in LAYOUTS if case in (2, 5) else ("contiguous", "permuted"):
        compare(
            lambda x, w, b: conv.conv2d(x, w, b, **options),
            lambda x, w, b: F.conv2d(x, w, b, **options),
            arrays,
            device,
            layout,
        )
    compare(
        lambda x, w, b: conv.conv2d(x, w, b, **options),
        lambda x, w, b: F.conv2d(x, w, b, **options),
        arrays,
        device,
        "contiguous",
        float32,
    )


CONV1D = [
    ((2, 3, 8), (4, 3, 3), {}),
    ((2, 4, 9), (4, 2, 3), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
    ((3, 8), (4, 3, 1), {}),
    ((2, 3, 7), (2, 3, 3), {"padding": "same"}),
]


@pytest.mark.parametrize("x, weight, options", CONV1D)
def test_conv1d(device, x, weight, options):
    compare(
        lambda x, w, b: conv.conv1d(x, w, b, **options),
        lambda x, w, b: F.conv1d(x, w, b, **options),
        [normal(*x), normal(*weight), normal(weight[0])],
        device,
        "permuted",
    )


def test_conv_gradients_by_differences(device):
    x, w, b = leaf(device, 1, 2, 4, 3), leaf(device, 2, 1, 2, 2), leaf(device, 2)
    options = {"stride": (2, 1), "padding": (1, 0), "groups": 2}
    assert gradcheck(lambda *a: conv.conv2d(*a, **options), [x, w, b])
    assert gradgradcheck(lambda *a: conv.conv2d(*a, **options), [x, w, b])
    y, v = leaf(device, 1, 2, 5), leaf(device, 2, 2, 2)
    assert gradcheck(lambda *a: conv.conv1d(*a, padding=1), [y, v])
    assert gradgradcheck(lambda *a: conv.conv1d(*a, padding=1), [y, v])


# ------------------------------------------------------------------------- pooling

POOL = [
    ((2, 3, 6, 6), {"kernel_size": 2}),
    ((2, 3, 7, 5), {"kernel_size": (3, 2), "stride": (2, 1)}),
    ((1, 2, 5, 5), {"kernel_size": 3, "stride": 1, "padding": 1}),
    ((2, 5, 5), {"kernel_size": 2, "stride": 2}),
    ((0, 2, 4, 4), {"kernel_size": 2}),
    ((1, 1, 3, 3), {"kernel_size": 3}),
]


@by_layout
@pytest.mark.parametrize("shape, options", POOL)
def test_pools(device, shape, options, layout):
    def largest(x: Any) -> Any:
        return pool.max_pool2d(x, **options)[0]

    array = [normal(*shape)]
    if layout != "expanded":
        compare(largest, lambda x: F.max_pool2d(x, **options), array, device, layout)
        _, mine = pool.max_pool2d(Tensor(make(array[0], device, layout)), **options)
        t = torch.tensor(array[0])
        assert_same(mine, F.max_pool2d(t, return_indices=True, **options)[1])
    for count in (True, False):
        extra = {**options, "count_include_pad": count}
        compare(
            lambda x, e=extra: pool.avg_pool2d(x, **e),
            lambda x, e=extra: F.avg_pool2d(x, **e),
            array,
            device,
            layout,
        )


def test_dilated_max_pool_and_nan(device):
    array = normal(1, 2, 7, 7)
    array[0, 0, 3, 3] = np.nan
    x, t = minitorch.tensor(array, device=device), torch.tensor(array)
    mine = pool.max_pool2d(x, 2, stride=1, dilation=2)
    theirs = F.max_pool2d(t, 2, stride=1, dilation=2, return_indices=True)
    assert_same(tuple(mine), theirs)


def test_a_window_of_padding_alone_is_at_position_0(device):
    x = leaf(device, 2, 2, 3, 1)
    out, index = pool.max_pool2d(x, 2, padding=1, dilation=2)
    assert out.isinf().all() and not index.any()
    (g,) = minitorch.grad(out, x, minitorch.ones(out.shape, device=device).to(x.dtype))
    assert g.flatten(2).tolist() == [[[2.0, 0.0, 0.0]] * 2] * 2


def test_second_gradients_of_no_images(device):
    x = leaf(device, 0, 2, 4, 5)
    out = pool.max_pool2d(x, 2)[0]
    start = minitorch.ones(out.shape, device=device).to(x.dtype).requires_grad_()
    (g,) = minitorch.grad(out, x, start, create_graph=True)
    assert minitorch.grad(g.sum(), start)[0].shape == out.shape


def test_pool_gradients_by_differences(device):
    x = leaf(device, 1, 1, 4, 5)
    for fn in (
        lambda x: pool.max_pool2d(x, 2, 1)[0],
        lambda x: pool.avg_pool2d(x, (2, 3), 2, padding=1),
        lambda x: pool.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False),
    ):
        assert gradcheck(fn, [x]) and gradgradcheck(fn, [x])


# ------------------------------------------------------------------- normalization


@by_layout
@pytest.mark.parametrize(
    "shape, dims", [((4, 5), (5,)), ((2, 3, 4), (3, 4)), ((3,), 3)]
)
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm(device, shape, dims, affine, layout):
    size = dims if isinstance(dims, tuple) else (dims,)
    arrays = [normal(*shape), *([normal(*size), normal(*size)] if affine else [])]
    for dtype in (float64, float32):
        if dtype is float32 and layout == "expanded":
            continue  # equal elements: only rounding is left to divide by
        compare(
            lambda x, *p: norm.layer_norm(x, dims, *p),
            lambda x, *p: F.layer_norm(x, size, *p),
            arrays,
            device,
            layout,
            dtype,
        )


@by_layout
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 2), (2, 3, 2, 2)])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm(device, shape, affine, layout):
    arrays = [normal(*shape), *([normal(3), normal(3)] if affine else [])]
    if layout == "expanded" and shape == (5, 3):
        return  # equal elements: only rounding is left to divide by
    compare(
        lambda x, *p: norm.batch_norm(x, *p)[0],
        lambda x, *p: F.batch_norm(x, None, None, *p, training=True),
        arrays,
        device,
        layout,
    )
    x = Tensor(make(_fit(arrays[0], layout), device, layout))
    _, mean, var = norm.batch_norm(x)
    dims = [0, *range(2, len(shape))]
    assert mean.allclose(x.mean(dims)) and var.allclose(x.var(dims, correction=0))


def test_norm_gradients_by_differences(device):
    x, w, b = leaf(device, 3, 4), leaf(device, 4), leaf(device, 4)
    assert gradcheck(lambda *a: norm.layer_norm(a[0], 4, *a[1:]), [x, w, b])
    assert gradcheck(lambda *a: norm.batch_norm(*a)[0], [x, w, b])
    for fn in (lambda x: norm.layer_norm(x, 4), lambda x: norm.batch_norm(x)[0]):
        with pytest.raises(RuntimeError, match="compose it"):
            gradgradcheck(fn, [x])


def test_statistics_have_no_gradient(device):
    _, mean, var = norm.batch_norm(leaf(device, 3, 2))
    assert not mean.requires_grad and not var.requires_grad


# -------------------------------------------------------------------------- dropout


@by_layout
def test_dropout(device, layout):
    array = np.abs(_fit(normal(20, 30), layout)) + 1
    x = Tensor(make(array, device, layout)).requires_grad_()
    generator = minitorch.Generator(3)
    y = dropout(x, 0.25, generator)
    kept = y.detach().numpy() != 0
    assert 0.6 < kept.mean() < 0.9
    assert np.allclose(y.detach().numpy()[kept], array[kept] / 0.75)
    y.sum().backward()
    assert np.allclose(x.grad.numpy(), kept / 0.75)
    again = dropout(x, 0.25, minitorch.Generator(3))
    assert again.detach().equal(y.detach())
    assert not dropout(x, 0.25, generator).detach().equal(y.detach())


def test_dropout_of_all_or_nothing(device):
    x = leaf(device, 4, 5)
    assert dropout(x, 0.0).detach().equal(x.detach())
    assert dropout(x, 1.0).tolist() == [[0.0] * 5] * 4

    def fixed(x: Tensor) -> Tensor:
        return dropout(x, 0.5, minitorch.Generator(1))

    assert gradcheck(fixed, [x]) and gradgradcheck(fixed, [x])
