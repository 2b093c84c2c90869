"""Convolution of the CPU backend against PyTorch: phases, strips, groups, threads."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import Case, convolutions

from fast_ops import conv
from minitorch.backend import get_backend
from minitorch.backend.host.conv import backward_axis, forward_axis, line_length
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")


def data(tensor: torch.Tensor) -> TensorData:
    return cpu.from_numpy(tensor.detach().numpy())


def check(case: Case, dtype: torch.dtype) -> None:
    """Compare the output and both gradients with PyTorch's in float64."""
    random = torch.Generator().manual_seed(0)
    weight_shape = (case.made, case.x[1] // case.groups, *case.kernel)
    x, weight, bias = (
        torch.randn(shape, generator=random, dtype=dtype)
        for shape in (case.x, weight_shape, (case.made,))
    )
    how = case[3:]
    wide = [t.double().requires_grad_() for t in (x, weight, bias)]
    out = torch.nn.functional.conv2d(*wide, *how)
    grad = torch.randn(out.shape, generator=random, dtype=dtype)
    dx, dw, _ = torch.autograd.grad(out, wide, grad.double())
    got = (
        (cpu.conv2d(data(x), data(weight), data(bias), *how), out),
        (cpu.conv2d_backward_input(data(grad), data(weight), case.x, *how), dx),
        (cpu.conv2d_backward_weight(data(grad), data(x), weight_shape, *how), dw),
    )
    rtol = 1e-12 if dtype is torch.float64 else 3e-5
    for ours, theirs in got:
        expected = theirs.detach().numpy()
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(
            cpu.to_numpy(ours), expected, rtol=rtol, atol=rtol * scale
        )


CASES = [
    Case((5, 16, 28, 28), 32, (3, 3), padding=(1, 1)),
    Case((4, 1, 28, 28), 16, (5, 5), padding=(2, 2)),
    Case((1, 3, 70, 75), 8, (7, 7), (2, 2), (3, 3)),  # several strips
    Case((1, 4, 150, 130), 9, (3, 3), padding=(1, 1), dilation=(2, 2)),
    Case((2, 17, 9, 40), 35, (1, 1), (2, 2)),  # a stride longer than the kernel
    Case((2, 3, 12, 11), 4, (2, 2), (3, 3)),  # rows of x that no window sees
    Case((2, 3, 3, 3), 4, (3, 3), (5, 5), (1, 1)),
    Case((2, 2, 5, 5), 3, (3, 3), padding=(5, 4)),  # windows of padding only
    Case((3, 6, 7, 7), 6, (3, 3), padding=(1, 1), groups=6),  # depthwise
    Case((2, 4, 8, 9), 6, (3, 2), (2, 1), (1, 2), groups=2),
    Case((2, 40, 7, 7), 40, (3, 3), padding=(1, 1)),
    Case((1, 1, 1, 1), 1, (1, 1)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_pytorch(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype)


@given(
    convolutions(
        (1, 3), (1, 3), st.integers(1, 3), (1, 9), (5, 37), (1, 4), (0, 4), (1, 2)
    )
)
def test_any_geometry(case: Case) -> None:
    check(case, torch.float32)


def test_no_images() -> None:
    x, weight = torch.empty(0, 2, 5, 5), torch.randn(3, 2, 3, 3)
    how = ((1, 1), (1, 1), (1, 1), 1)
    out = cpu.conv2d(data(x), data(weight), None, *how)
    assert out.shape == (0, 3, 5, 5)
    assert cpu.conv2d_backward_input(out, data(weight), x.shape, *how).size == 0
    dw = cpu.conv2d_backward_weight(out, data(x), tuple(weight.shape), *how)
    np.testing.assert_array_equal(cpu.to_numpy(dw), np.zeros(weight.shape))


def test_strided_operands() -> None:
    x = torch.randn(3, 9, 4, 8).permute(0, 2, 1, 3)[:, :, ::2]
    weight, bias = torch.randn(3, 3, 4, 5).permute(3, 2, 0, 1), torch.randn(10)[::2]
    how = ((1, 1), (1, 1), (1, 1), 1)
    got = cpu.conv2d(data(x), data(weight), data(bias), *how)
    expected = torch.nn.functional.conv2d(x, weight, bias, *how).numpy()
    np.testing.assert_allclose(cpu.to_numpy(got), expected, rtol=1e-4, atol=1e-4)


def test_rows_share_their_padding() -> None:
    same = forward_axis(28, 3, 1, 1, 1)
    assert (same.outputs, line_length(same)) == (28, 29)  # not 30
    valid = forward_axis(28, 3, 1, 0, 1)
    assert (valid.outputs, line_length(valid)) == (26, 28)


def test_every_position_of_x_belongs_to_one_remainder() -> None:
    seen = []
    for rest in range(3):
        axis = backward_axis(11, 4, 2, 3, 1, 1, rest)
        seen += [axis.out_at + axis.out_step * i for i in range(axis.outputs)]
    assert sorted(seen) == list(range(11))


@pytest.mark.parametrize("images", [1, 7, 40])
def test_same_bits_on_any_number_of_threads(images: int) -> None:
    x, weight = torch.randn(images, 3, 19, 18), torch.randn(5, 3, 3, 3)
    grad = torch.randn(images, 5, 19, 18)
    how = ((1, 1), (1, 1), (1, 1), 1)

    def run() -> list[np.ndarray]:
        made = (
            cpu.conv2d(data(x), data(weight), None, *how),
            cpu.conv2d_backward_input(data(grad), data(weight), x.shape, *how),
            cpu.conv2d_backward_weight(data(grad), data(x), weight.shape, *how),
        )
        return [cpu.to_numpy(each) for each in made]

    many = run()
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        for one, other in zip(run(), many):
            np.testing.assert_array_equal(one, other)
    finally:
        numba.set_num_threads(threads)


def test_a_small_image_wakes_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv, "get_num_threads", lambda: pytest.fail("threads"))
    x, weight = torch.randn(2, 1, 40, 40), torch.randn(3, 1, 3, 3)
    out = cpu.conv2d(data(x), data(weight), None, (1, 1), (0, 0), (1, 1), 1)
    expected = torch.nn.functional.conv2d(x, weight)
    np.testing.assert_allclose(cpu.to_numpy(out), expected, rtol=1e-5, atol=1e-5)
