"""Pooling of the CPU backend against PyTorch: padding, dilation, ties, NaN."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")

Pair = tuple[int, int]
functional = torch.nn.functional


def data(tensor: torch.Tensor) -> TensorData:
    return cpu.from_numpy(tensor.detach().numpy())


windows = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(
    size=st.tuples(st.integers(7, 20), st.integers(7, 37)),
    kernel=windows,
    stride=windows,
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pad=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_max_pool(
    size: Pair, kernel: Pair, stride: Pair, dilation: Pair, pad: bool,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    padding = (kernel[0] // 2, kernel[1] // 2) if pad else (0, 0)
    x = torch.randint(-3, 3, (2, 3, *size)).to(dtype).requires_grad_()  # many ties
    how = (kernel, stride, padding, dilation)
    out, index = functional.max_pool2d(x, *how, return_indices=True)
    got, got_index = cpu.max_pool2d(data(x), *how)
    np.testing.assert_array_equal(cpu.to_numpy(got), out.detach().numpy())
    np.testing.assert_array_equal(cpu.to_numpy(got_index), index.numpy())
    grad = torch.randn_like(out)
    (dx,) = torch.autograd.grad(out, x, grad)
    back = cpu.max_pool2d_backward(data(grad), got_index, tuple(x.shape))
    np.testing.assert_allclose(cpu.to_numpy(back), dx.numpy(), rtol=1e-5, atol=1e-6)


@given(
    size=st.tuples(st.integers(7, 20), st.integers(7, 37)),
    kernel=windows,
    stride=windows,
    pad=st.booleans(),
    count_pad=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_avg_pool(
    size: Pair, kernel: Pair, stride: Pair, pad: bool, count_pad: bool,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    padding = (kernel[0] // 2, kernel[1] // 2) if pad else (0, 0)
    x = torch.randn(2, 3, *size, dtype=dtype, requires_grad=True)
    how = (kernel, stride, padding)
    out = functional.avg_pool2d(x, *how, count_include_pad=count_pad)
    got = cpu.avg_pool2d(data(x), *how, count_pad)
    np.testing.assert_allclose(
        cpu.to_numpy(got), out.detach().numpy(), rtol=1e-5, atol=1e-6
    )
    grad = torch.randn_like(out)
    (dx,) = torch.autograd.grad(out, x, grad)
    back = cpu.avg_pool2d_backward(data(grad), tuple(x.shape), *how, count_pad)
    np.testing.assert_allclose(cpu.to_numpy(back), dx.numpy(), rtol=1e-5, atol=1e-6)


def pool_two(plane: list[list[float]], padding: Pair = (0, 0)) -> tuple[float, int]:
    """The first window of a plane, 2 x 2."""
    x = cpu.from_numpy(np.array([[plane]], np.float32))
    out, index = cpu.max_pool2d(x, (2, 2), (2, 2), padding, (1, 1))
    return float(cpu.to_numpy(out).flat[0]), int(cpu.to_numpy(index).flat[0])


def test_first_maximum_and_first_nan_win() -> None:
    assert pool_two([[1, 5], [5, 5]]) == (5.0, 1)
    value, place = pool_two([[9, np.nan], [np.nan, np.inf]])
    assert np.isnan(value)
    assert place == 1


def test_padding_is_never_the_maximum() -> None:
    assert pool_two([[-7, 0], [0, 0]], (1, 1)) == (-7.0, 0)
    assert pool_two([[-np.inf, 0], [0, 0]], (1, 1)) == (-np.inf, 0)


def test_no_planes() -> None:
    x = torch.empty(0, 3, 6, 6)
    out, index = cpu.max_pool2d(data(x), (2, 2), (2, 2), (0, 0), (1, 1))
    assert out.shape == index.shape == (0, 3, 3, 3)
    assert cpu.max_pool2d_backward(out, index, (0, 3, 6, 6)).shape == (0, 3, 6, 6)
