"""Softmax, cross-entropy and their gradients, on every installed backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.shared import (
    by_float,
    by_layout,
    indices,
    inf,
    large,
    long,
    name_of,
    nan,
    tensor,
)
from helpers import (
    FLOATS,
    array_of,
    assert_close,
    assert_equal,
    layouts,
    make,
    numbers,
    quick,
    shapes,
)
from minitorch import dtypes
from minitorch.dtypes import DType, float32, float64
from minitorch.tensor_data import Shape


@quick
@given(data=st.data(), shape=shapes(min_dims=1), layout=layouts)
def test_softmax(backend: Any, data: Any, shape: Shape, layout: str) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from(FLOATS))
    check_softmax(backend, 3 * numbers(shape, dtype, 1, layout), dim, layout)


def check_softmax(backend: Any, a: np.ndarray, dim: int, layout: str) -> None:
    tolerance = 1e-5 if a.dtype == np.float32 else 1e-12
    grad = numbers(a.shape, dtypes.from_numpy_dtype(a.dtype), 2, layout)
    x, g = make(a, name_of(backend), layout), make(grad, name_of(backend), layout)
    for function, forward, backward in (
        (torch.softmax, backend.softmax, backend.softmax_backward),
        (torch.log_softmax, backend.log_softmax, backend.log_softmax_backward),
    ):
        tx = tensor(a).double().requires_grad_()
        expected = function(tx, dim)
        (dx,) = torch.autograd.grad(expected, tx, tensor(grad).double())
        out = forward(x, dim)
        assert out.is_contiguous()
        assert_close(out, expected.detach().numpy().astype(a.dtype), None, tolerance)
        back = backward(g, out, dim)
        assert_close(back, dx.numpy().astype(a.dtype), None, 4 * tolerance)


@by_float
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_of_large_tensors(backend: Any, dtype: DType, dim: int) -> None:
    shape = large(backend, (3, 20, 9), (13, 129, 33))
    check_softmax(backend, numbers(shape, dtype), dim, "contiguous")


def test_softmax_of_a_long_line(backend: Any) -> None:
    shape = large(backend, (2, 600), (2, 40_000))
    check_softmax(backend, numbers(shape, float64), 1, "contiguous")
    check_softmax(backend, numbers(shape, float32), 1, "contiguous")


def test_softmax_of_one_number(backend: Any) -> None:
    x = make(np.float32(3.5), name_of(backend))
    assert_equal(backend.softmax(x, 0), np.float32(1))
    assert_equal(backend.log_softmax(x, 0), np.float32(0))


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_extreme_numbers(backend: Any, dim: int) -> None:
    a = np.array([[1e4, -1e4, 3e38], [0, -inf, -inf], [1e4, 5, 1]], np.float32)
    a = a if dim == 1 else np.ascontiguousarray(a.T)
    x = make(a, name_of(backend))
    expected = torch.softmax(tensor(a), dim).numpy()
    assert_close(backend.softmax(x, dim), expected, tolerance=1e-6)
    expected = torch.log_softmax(tensor(a), dim).numpy()
    assert_close(backend.log_softmax(x, dim), expected, tolerance=1e-6)


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_passes_on_nan(backend: Any, dim: int) -> None:
    a = numbers((20, 20))
    a[3, 4] = nan
    a[7, 7] = inf
    x = make(a, name_of(backend))
    for fn, forward in (
        (torch.softmax, backend.softmax),
        (torch.log_softmax, backend.log_softmax),
    ):
        expected = torch.isnan(fn(tensor(a), dim)).numpy()
        np.testing.assert_array_equal(np.isnan(array_of(forward(x, dim))), expected)


@by_float
@by_layout
@pytest.mark.parametrize("rows, classes", [(1, 1), (5, 3), (0, 4), (33, 17), (3, 1030)])
def test_cross_entropy(
    backend: Any, dtype: DType, layout: str, rows: int, classes: int
) -> None:
    a = 4 * numbers((rows, classes), dtype, 1, layout)
    target = indices((rows,), classes)
    target[::3] = -100  # ignored
    x = make(a, name_of(backend), layout)
    kind = layout if layout != "expanded" else "contiguous"
    labels = make(target, name_of(backend), kind)
    tx = tensor(a).double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(tx, tensor(target), reduction="none")
    losses, total = backend.cross_entropy(x, labels, -100)
    tolerance = 2e-6 if dtype is float32 else 1e-12
    assert_close(losses, expected.detach().numpy().astype(a.dtype), None, 2 * tolerance)
    all_totals = torch.logsumexp(tx, 1).detach().numpy()[target != -100]
    np.testing.assert_allclose(array_of(total)[target != -100], all_totals, tolerance)
    grad = numbers((rows,), dtype, 2)
    (dx,) = torch.autograd.grad(expected, tx, tensor(grad).double())
    back = backend.cross_entropy_backward(
        make(grad, name_of(backend), kind), x, labels, total, -100
    )
    assert_close(back, dx.numpy().astype(a.dtype), None, 4 * tolerance)


@by_float
@pytest.mark.parametrize("rows", [0, 1, 5, 70, 1025])
def test_mean_loss_counts_on_the_device(backend: Any, dtype: DType, rows: int) -> None:
    a, target = numbers((rows,), dtype), indices((rows,), 9)
    target[::4] = 3
    x, labels = make(a, name_of(backend)), make(target, name_of(backend))
    mean, share = backend.mean_loss(x, labels, 3)
    kept = a[target != 3].astype(float)
    assert mean.shape == share.shape == ()
    if not kept.size:
        assert np.isnan(array_of(mean)) and np.isinf(array_of(share))
        return
    tolerance = 2e-6 if dtype is float32 else 1e-12
    np.testing.assert_allclose(array_of(mean), kept.mean(), tolerance, tolerance)
    np.testing.assert_allclose(array_of(share), 1 / kept.size, tolerance)


def test_all_rows_may_have_one_gradient(backend: Any) -> None:
    """As the losses of a mean have: [5], with a stride of 0."""
    x = make(numbers((5, 3)), name_of(backend))
    target = make(long(0, 1, 2, 1, 0), name_of(backend))
    _, total = backend.cross_entropy(x, target, -7)
    grad = numbers((5,), layout="expanded")
    assert len(set(grad.tolist())) == 1
    one = make(grad, name_of(backend), "expanded")
    each = make(grad, name_of(backend))
    outs = [
        array_of(backend.cross_entropy_backward(g, x, target, total, -7))
        for g in (one, each)
    ]
    assert np.array_equal(*outs)


@pytest.mark.parametrize("bad", [3, -1, -100])
def test_cross_entropy_names_a_target_out_of_range(backend: Any, bad: int) -> None:
    x = make(numbers((4, 3)), name_of(backend))
    target = make(long(0, 1, bad, 2), name_of(backend))
    with pytest.raises(IndexError, match=rf"cross_entropy.*{bad}\b.*0 to 2"):
        backend.cross_entropy(x, target, -7)
        backend.synchronize()


def test_cross_entropy_may_ignore_a_class(backend: Any) -> None:
    a, target = numbers((4, 3)), long(0, 1, 1, 2)
    losses, _ = backend.cross_entropy(
        make(a, name_of(backend)), make(target, name_of(backend)), 1
    )
    expected = torch.nn.functional.cross_entropy(
        tensor(a), tensor(target), ignore_index=1, reduction="none"
    )
    assert_close(losses, expected.numpy())


@pytest.mark.parametrize("classes", [3, 5])
def test_cross_entropy_of_rows_with_gaps_and_nan(backend: Any, classes: int) -> None:
    """Where a row is no whole vectors, either; and -inf is no NaN."""
    wide = numbers((3, 8), float32)
    wide[0, classes - 1], wide[1, 1], wide[2, 0] = np.nan, np.nan, -np.inf
    scores = make(wide, name_of(backend)).slice(1, 0, classes)
    target = long(0, 0, 1)
    found = backend.cross_entropy(scores, make(target, scores.device), -100)
    whole = tensor(wide[:, :classes])
    assert_close(found[1], whole.logsumexp(1).numpy(), tolerance=4e-6)


@pytest.mark.parametrize("classes", [5, 139])
def test_cross_entropy_of_rows_with_gaps(backend: Any, classes: int) -> None:
    """The gradient takes the place of the scores, and the gap stays as it is."""
    wide = 4 * numbers((6, classes + 3), float32)
    x = make(wide, name_of(backend))
    scores, labels = x.slice(1, 0, classes), make(indices((6,), classes), x.device)
    tx = tensor(wide[:, :classes]).requires_grad_()
    target = tensor(indices((6,), classes))
    expected = torch.nn.functional.cross_entropy(tx, target, reduction="none")
    losses, total = backend.cross_entropy(scores, labels, -100)
    assert_close(losses, expected.detach().numpy(), tolerance=4e-6)
    (slopes,) = torch.autograd.grad(expected.sum(), tx, retain_graph=True)
    rows = make(wide, name_of(backend)).slice(1, 0, classes)
    losses = backend.cross_entropy_slopes(rows, labels, -100)
    assert_close(losses, expected.detach().numpy(), tolerance=4e-6)
    assert_close(rows, slopes.numpy(), tolerance=1e-5)
    grad = numbers((6,), float32, 2)
    (dx,) = torch.autograd.grad(expected, tx, tensor(grad))
    g = make(grad, x.device)
    out = backend.cross_entropy_backward(g, scores, labels, total, -100, scores)
    assert out is scores
    assert_close(out, dx.numpy(), tolerance=1e-5)
    assert_equal(x.slice(1, classes, 3), wide[:, classes:])
    apart = x.permute((1, 0)).slice(0, 0, 6)
    few = make(indices((6,), 6), x.device)
    out = backend.cross_entropy_backward(g, apart, few, total, 0, apart)
    assert out is apart
