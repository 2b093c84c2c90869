"""Pooling of the CUDA backend against PyTorch and, bit for bit, against fast_ops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import quick
from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import pick

pytest.importorskip("numba_cuda")
from cuda_ops import pool
from cuda_ops.memory import from_numpy, to_numpy

cpu = get_backend("cpu")

Pair = tuple[int, int]
functional = torch.nn.functional


def data(tensor: torch.Tensor) -> TensorData:
    return from_numpy(tensor.detach().numpy())


def host(tensor: torch.Tensor) -> TensorData:
    return cpu.from_numpy(tensor.detach().numpy())


windows = st.tuples(st.integers(1, 4), st.integers(1, 4))
sizes = st.tuples(st.integers(7, pick(9, 60)), st.integers(7, pick(11, 90)))
planes = st.tuples(st.integers(1, pick(2, 9)), st.integers(1, 3))
types = st.sampled_from([torch.float32, torch.float64])


@quick
@given(planes, sizes, windows, windows, windows, st.booleans(), types)
def test_max_pool(
    count: Pair, size: Pair, kernel: Pair, stride: Pair, dilation: Pair, pad: bool,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    dilation = (min(dilation[0], 2), min(dilation[1], 2))
    padding = (kernel[0] // 2, kernel[1] // 2) if pad else (0, 0)
    x = torch.randint(-3, 3, (*count, *size)).to(dtype).requires_grad_()  # many ties
    how = (kernel, stride, padding, dilation)
    out, index = functional.max_pool2d(x, *how, return_indices=True)
    got, got_index = pool.max_pool2d(data(x), *how)
    np.testing.assert_array_equal(to_numpy(got), out.detach().numpy())
    np.testing.assert_array_equal(to_numpy(got_index), index.numpy())
    grad = torch.randn_like(out)
    (dx,) = torch.autograd.grad(out, x, grad)
    back = to_numpy(pool.max_pool2d_backward(data(grad), got_index, tuple(x.shape)))
    np.testing.assert_allclose(back, dx.numpy(), rtol=1e-5, atol=1e-6)
    ordered = cpu.max_pool2d_backward(host(grad), host(index), tuple(x.shape))
    np.testing.assert_array_equal(back, cpu.to_numpy(ordered))


@pytest.mark.parametrize("size", [(3, 5), (8, 8), (9, 15), (17, 16)])
def test_scatter_in_bands_and_portions(size: Pair) -> None:
    size = tuple(s * pick(1, 8) for s in size)  # around what a block holds
    x = torch.randn(3, 2, *size, requires_grad=True)
    how = ((3, 3), (1, 1), (1, 1), (1, 1))
    out, index = functional.max_pool2d(x, *how, return_indices=True)
    grad = torch.randn_like(out)
    got = pool.max_pool2d_backward(data(grad), data(index), tuple(x.shape))
    expected = cpu.max_pool2d_backward(host(grad), host(index), tuple(x.shape))
    np.testing.assert_array_equal(to_numpy(got), cpu.to_numpy(expected))


@quick
@given(planes, sizes, windows, windows, st.booleans(), st.booleans(), types)
def test_avg_pool(
    count: Pair, size: Pair, kernel: Pair, stride: Pair, pad: bool, count_pad: bool,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    padding = (kernel[0] // 2, kernel[1] // 2) if pad else (0, 0)
    x = torch.randn(*count, *size, dtype=dtype, requires_grad=True)
    how = (kernel, stride, padding)
    out = functional.avg_pool2d(x, *how, count_include_pad=count_pad)
    got = to_numpy(pool.avg_pool2d(data(x), *how, count_pad))
    np.testing.assert_allclose(got, out.detach().numpy(), rtol=1e-5, atol=1e-6)
    grad = torch.randn_like(out)
    (dx,) = torch.autograd.grad(out, x, grad)
    back = pool.avg_pool2d_backward(data(grad), tuple(x.shape), *how, count_pad)
    np.testing.assert_allclose(to_numpy(back), dx.numpy(), rtol=1e-5, atol=1e-6)


def pool_two(plane: list[list[float]], padding: Pair = (0, 0)) -> tuple[float, int]:
    """The first window of a plane, 2 x 2."""
    x = from_numpy(np.array([[plane]], np.float32))
    out, index = pool.max_pool2d(x, (2, 2), (2, 2), padding, (1, 1))
    return float(to_numpy(out).flat[0]), int(to_numpy(index).flat[0])


def test_first_maximum_and_first_nan_win() -> None:
    assert pool_two([[1, 5], [5, 5]]) == (5.0, 1)
    value, place = pool_two([[9, np.nan], [np.nan, np.inf]])
    assert np.isnan(value)
    assert place == 1


def test_padding_is_never_the_maximum() -> None:
    assert pool_two([[-7, 0], [0, 0]], (1, 1)) == (-7.0, 0)
    assert pool_two([[-np.inf, 0], [0, 0]], (1, 1)) == (-np.inf, 0)


def test_strided_operand() -> None:
    x = np.arange(120, dtype=np.float32).reshape(1, 2, 10, 6) % 37
    wide = from_numpy(x)
    turned = TensorData(wide.storage, (1, 2, 6, 10), (120, 60, 1, 6), 0)
    how = ((2, 3), (2, 2), (1, 0), (1, 1))
    got, index = pool.max_pool2d(turned, *how)
    expected, places = functional.max_pool2d(
        torch.from_numpy(x).permute(0, 1, 3, 2), *how, return_indices=True
    )
    np.testing.assert_array_equal(to_numpy(got), expected.numpy())
    np.testing.assert_array_equal(to_numpy(index), places.numpy())
    means = pool.avg_pool2d(turned, *how[:3], True)
    expected = functional.avg_pool2d(torch.from_numpy(x).permute(0, 1, 3, 2), *how[:3])
    np.testing.assert_allclose(to_numpy(means), expected.numpy(), rtol=1e-5)


def test_no_planes() -> None:
    x = torch.empty(0, 3, 6, 6)
    out, index = pool.max_pool2d(data(x), (2, 2), (2, 2), (0, 0), (1, 1))
    assert out.shape == index.shape == (0, 3, 3, 3)
    assert pool.max_pool2d_backward(out, index, (0, 3, 6, 6)).shape == (0, 3, 6, 6)
    how = ((2, 2), (2, 2), (0, 0))
    assert pool.avg_pool2d(data(x), *how, True).shape == (0, 3, 3, 3)
    assert pool.avg_pool2d_backward(out, (0, 3, 6, 6), *how, True).size == 0


def test_many_planes_take_several_launches() -> None:
    most, pool.MOST = pool.MOST, 40
    try:
        x = torch.randn(5, 1, 4, 4)
        out, _ = pool.max_pool2d(data(x), (2, 2), (2, 2), (0, 0), (1, 1))
        means = pool.avg_pool2d(data(x), (2, 2), (2, 2), (0, 0), True)
        back = pool.avg_pool2d_backward(
            data(torch.ones(5, 1, 2, 2)), (5, 1, 4, 4), (2, 2), (2, 2), (0, 0), True
        )
    finally:
        pool.MOST = most
    np.testing.assert_array_equal(to_numpy(out), functional.max_pool2d(x, 2).numpy())
    np.testing.assert_allclose(
        to_numpy(means), functional.avg_pool2d(x, 2).numpy(), rtol=1e-5
    )
    np.testing.assert_array_equal(to_numpy(back), np.full((5, 1, 4, 4), 0.25))
