"""Convolution of the CUDA backend against PyTorch: tiles, phases, groups, tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Case, convolutions

from helpers import make
from minitorch import dtypes
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import big, pick

pytest.importorskip("numba_cuda")
from cuda_ops.conv import conv, winograd
from cuda_ops.conv import few as conv_few
from cuda_ops.conv.plan import backward_axes, forward_axis, magic
from cuda_ops.conv.weight import plan_weight
from cuda_ops.memory import from_numpy, to_numpy


def data(tensor: torch.Tensor) -> TensorData:
    return from_numpy(tensor.detach().numpy())


def tensors(case: Case, dtype: torch.dtype) -> list[torch.Tensor]:
    """x, weight and bias with random elements."""
    random = torch.Generator().manual_seed(0)
    weight = (case.made, case.x[1] // case.groups, *case.kernel)
    shapes = (case.x, weight, (case.made,))
    return [torch.randn(s, generator=random, dtype=dtype) for s in shapes]


def check(case: Case, dtype: torch.dtype = torch.float32) -> None:
    """Compare the output and both gradients with PyTorch's in float64."""
    x, weight, bias = tensors(case, dtype)
    how = case[3:]
    wide = [t.double().requires_grad_() for t in (x, weight, bias)]
    out = torch.nn.functional.conv2d(*wide, *how)
    grad = torch.randn(out.shape, dtype=dtype)
    dx, dw, _ = torch.autograd.grad(out, wide, grad.double())
    shape = tuple(weight.shape)
    compare(conv.conv2d(data(x), data(weight), data(bias), *how), out)
    compare(conv.conv2d_backward_input(data(grad), data(weight), case.x, *how), dx)
    compare(conv.conv2d_backward_weight(data(grad), data(x), shape, *how), dw)


def compare(ours: TensorData, theirs: torch.Tensor) -> None:
    expected = theirs.detach().numpy()
    rtol = 1e-11 if ours.dtype is dtypes.float64 else 3e-5
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    assert ours.shape == expected.shape
    np.testing.assert_allclose(to_numpy(ours), expected, rtol=rtol, atol=rtol * scale)


CASES = [
    Case((2, 3, 6, 7), 5, (3, 3), padding=(1, 1)),  # table, one tile and a bit
    Case((1, 1, 5, 5), 17, (5, 5), padding=(2, 2)),  # 17 channels: two tiles
    Case((1, 8, 5, 5), 4, (3, 3), padding=(1, 1)),  # packed
    Case((2, 16, 4, 4), 16, (1, 1)),  # wide, whole tiles
    Case((1, 8, 4, 4), 6, (1, 1), padding=(1, 1)),  # one tap, but not wide
    Case((1, 8, 5, 6), 3, (3, 2), (2, 1), (1, 2), (1, 2)),
    Case((2, 2, 7, 5), 3, (1, 1), (2, 3)),  # a stride longer than the kernel
    Case((2, 3, 3, 3), 4, (3, 3), (5, 5), (1, 1)),
    Case((1, 2, 3, 3), 3, (3, 3), padding=(5, 4)),  # windows of padding only
    Case((1, 3, 4, 5), 3, (3, 3), padding=(1, 1), groups=3),  # depthwise
    Case((2, 4, 4, 5), 6, (3, 2), (2, 1), (1, 2), groups=2),
    Case((1, 16, 3, 4), 16, (2, 2), groups=2),  # groups that fill tiles
    Case((1, 1, 1, 1), 1, (1, 1)),
    Case((3, 1, 9, 10), 6, (5, 5), padding=(2, 2)),  # few: tiles down and across
    Case((1, 3, 7, 16), 7, (3, 3)),  # few, whole tiles; the last channel missing
    Case((2, 3, 5, 6), 3, (2, 7), padding=(1, 5)),  # few, any taps
    Case((1, 1, 5, 6), 9, (3, 3)),  # few to make, but too many were made of them
    Case((2, 4, 5, 6), 3, (3, 3)),  # a channel more than few
]

BIG = [
    Case((5, 16, 28, 28), 32, (3, 3), padding=(1, 1)),
    Case((64, 1, 28, 28), 6, (5, 5), padding=(2, 2)),  # LeNet
    Case((33, 1, 28, 28), 8, (3, 3)),  # few
    Case((3, 3, 65, 67), 7, (5, 5), padding=(4, 3)),
    Case((64, 6, 14, 14), 16, (5, 5)),
    Case((64, 32, 26, 26), 64, (3, 3)),  # PyTorch's MNIST example
    Case((3, 3, 70, 75), 64, (7, 7), (2, 2), (3, 3)),
    Case((4, 64, 56, 56), 64, (3, 3), padding=(1, 1)),
    Case((4, 128, 28, 28), 128, (3, 3), (2, 2), (1, 1)),
    Case((17, 256, 14, 14), 256, (3, 3), padding=(1, 1)),  # Winograd
    Case((16, 256, 15, 13), 128, (3, 3), padding=(0, 2)),
    Case((2, 256, 14, 14), 512, (1, 1)),
    Case((2, 256, 14, 14), 512, (1, 1), (2, 2)),
    Case((2, 160, 7, 7), 130, (3, 3), padding=(1, 1)),
    Case((2, 96, 28, 28), 96, (3, 3), padding=(1, 1), groups=96),
    Case((2, 64, 15, 17), 128, (3, 3), padding=(2, 2), dilation=(2, 2), groups=4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_pytorch(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES[2:6:3] + CASES[9:11], ids=str)
def test_float64(case: Case) -> None:
    check(case, torch.float64)


@pytest.mark.skipif(not big, reason="these sizes are for a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", BIG, ids=str)
def test_large_against_pytorch(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype)


@settings(deadline=None, max_examples=pick(8, 50))
@given(
    convolutions(
        (1, 2), (1, 2), st.sampled_from([1, 2, 8]), (1, 5), (3, 6), (1, 3), (0, 3)
    )
)
def test_any_geometry(case: Case) -> None:
    check(case)


def test_no_images() -> None:
    x, weight = torch.empty(0, 2, 5, 5), torch.randn(3, 2, 3, 3)
    how = ((1, 1), (1, 1), (1, 1), 1)
    out = conv.conv2d(data(x), data(weight), None, *how)
    assert out.shape == (0, 3, 5, 5)
    assert conv.conv2d_backward_input(out, data(weight), (0, 2, 5, 5), *how).size == 0
    dw = conv.conv2d_backward_weight(out, data(x), tuple(weight.shape), *how)
    np.testing.assert_array_equal(to_numpy(dw), np.zeros(weight.shape))


@pytest.mark.parametrize("layout", ["permuted", "stepped", "negative"])
def test_strided_operands(layout: str) -> None:
    case = Case((2, 3, 4, 5), 4, (3, 2))
    x, weight, bias = tensors(case, torch.float32)
    ours = [make(t.numpy(), "cuda", layout) for t in (x, weight, bias)]
    expected = torch.nn.functional.conv2d(x, weight, bias, *case[3:])
    compare(conv.conv2d(*ours, *case[3:]), expected)


def test_wide_copies_need_an_even_start() -> None:
    case = Case((1, 8, 4, 4), 3, (1, 1))
    x, weight, bias = tensors(case, torch.float32)
    odd = make(x.numpy(), "cuda", "offset")
    expected = torch.nn.functional.conv2d(x, weight, bias)
    compare(conv.conv2d(odd, data(weight), data(bias), *case[3:]), expected)


def test_parts_of_a_weight_gradient_have_a_fixed_order() -> None:
    case = Case(pick((3, 2, 7, 7), (64, 2, 40, 40)), 3, (3, 3))
    x, weight, _ = tensors(case, torch.float32)
    grad = torch.randn(torch.nn.functional.conv2d(x, weight).shape)
    shapes = (tuple(grad.shape), case.x, tuple(weight.shape), *case[3:])
    step = plan_weight(dtypes.float32, *shapes, parts=5)
    assert step.parts > 2
    first, again = (
        to_numpy(conv.run_weight(step, data(grad), data(x), tuple(weight.shape)))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)


def test_few_channels_have_a_fixed_order() -> None:
    case = Case(pick((5, 2, 6, 7), (64, 2, 40, 40)), 3, (3, 3))
    x, weight, _ = tensors(case, torch.float32)
    grad = torch.randn(torch.nn.functional.conv2d(x, weight).shape)
    cut = conv_few.choose_weight_cut((3, 3), case.made, grad.shape[3])
    plan = conv_few.plan_weight(cut, tuple(weight.shape), tuple(grad.shape))
    assert plan.grid[0] > 1, "one part only"
    shapes = (tuple(weight.shape), *case[3:])
    first, again = (
        to_numpy(conv.conv2d_backward_weight(data(grad), data(x), *shapes))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("channels", [1, 6, 40, 4096])
@pytest.mark.parametrize("width", [1, 7, 28, 33, 224])
def test_few_channels_fit_into_shared_memory(channels: int, width: int) -> None:
    for taps in ((1, 1), (3, 3), (5, 5), (7, 7)):
        quads = conv_few.choose_quads(width)
        plan = conv_few.plan_input(
            conv_few.InputCut(taps, quads, 2), 5, channels, (width, width)
        )
        across, lines, stage = plan.tile
        tiles_down = plan.grid[1] // across
        assert plan.shared <= 48 * 1024 and 1 <= stage <= channels
        assert across * 4 * quads >= width and tiles_down * lines * 2 >= width
        cut = conv_few.choose_weight_cut(taps, channels, width)
        shapes = (channels, 3, *taps), (9, channels, width, width)
        weights = conv_few.plan_weight(cut, *shapes)
        assert weights.shared <= 48 * 1024
        assert weights.threads <= max(conv_few.TEAMS, cut.teams * cut.quads)
        assert weights.grid[1] * cut.outs * cut.groups >= channels
        assert weights.tile[1] * weights.tile[3] * 4 * cut.quads >= width * width


WINOGRAD = [
    Case((2, 4, 6, 6), 8, (3, 3), padding=(1, 1)),
    Case((1, 8, 5, 7), 4, (3, 3), padding=(0, 2)),  # odd outputs: half patches
    Case((3, 4, 3, 4), 4, (3, 3), padding=(3, 1)),  # patches of padding only
]


@pytest.mark.parametrize("case", WINOGRAD, ids=str)
def test_winograd_against_pytorch(case: Case) -> None:
    x, weight, bias = tensors(case, torch.float32)
    wide = x.double().requires_grad_()
    out = torch.nn.functional.conv2d(wide, weight.double(), bias.double(), *case[3:])
    grad = torch.randn(out.shape)
    (dx,) = torch.autograd.grad(out, wide, grad.double())
    shape = tuple(weight.shape)
    plan = winograd.forward_plan(case.x, shape, case.padding)
    first, again = (
        winograd.run_winograd(plan, data(x), data(weight), data(bias)) for _ in range(2)
    )
    compare(first, out)
    np.testing.assert_array_equal(to_numpy(first), to_numpy(again))
    plan = winograd.input_plan(tuple(grad.shape), shape, case.x, case.padding)
    compare(winograd.run_winograd(plan, data(grad), data(weight), None), dx)


@pytest.mark.skipif(not big, reason="the estimates are for a GPU's cuts")
def test_winograd_is_for_many_channels() -> None:
    for images, channels, size, chosen in ((256, 32, 32, False), (64, 256, 14, True)):
        x, weight = (images, channels, size, size), (channels, channels, 3, 3)
        how = ((1, 1), (1, 1), (1, 1), 1)
        problem = conv.forward_problem(x, weight, *how)
        plan = winograd.forward_plan(x, weight, (1, 1))
        estimate = conv.packed_cycles(problem)
        assert (plan.cycles < conv.WINOGRAD_GAIN * estimate) == chosen
        options = (x, problem.out_shape, (3, 3), (1, 1), (1, 1), 1)
        assert winograd.fits(dtypes.float32, *options)
        assert not winograd.fits(dtypes.float64, *options)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 49, 641, 46341, 2**31 - 1])
def test_division_by_multiplication(divisor: int) -> None:
    factor, shift = magic(divisor)
    assert factor < 2**32
    most = (2**31 - 1) // divisor
    for quotient in {0, 1, most // 2, most}:
        for n in (quotient * divisor, quotient * divisor - 1, 2**31 - 1):
            if n >= 0:
                assert n * factor >> shift == n // divisor


def test_every_pixel_belongs_to_one_phase() -> None:
    axes = backward_axes(11, 4, 2, 3, 1, 1)
    seen = [a.out_at + a.out_step * i for a in axes for i in range(a.places)]
    assert sorted(seen) == list(range(11))
    forward = forward_axis(11, 2, 3, 1, 1)
    for axis in axes:  # a pixel meets the outputs whose windows cover it
        for i in range(axis.places):
            for tap, reach in axis.taps:
                out = i * axis.step + axis.base + reach
                pixel = out * forward.step + forward.base + forward.taps[tap][1]
                assert pixel == axis.out_at + axis.out_step * i


def test_the_cut_suits_the_product() -> None:
    cuts = conv.TABLE_CUTS
    assert conv.choose(cuts, 6, 10**6, 1).outs == 16
    assert conv.choose(cuts, 32, 10**6, 1).outs == 32
    assert conv.choose(cuts, 256, 10**6, 1).outs == 128
    assert conv.choose(conv.PACKED_CUTS, 64, 10**6, 1, depth=24).depth == 8
