"""Convolutions of halves on tensor cores against PyTorch's in float64, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Case, convolutions

import minitorch
from helpers import array_of, make, numbers
from minitorch.backend import half_backends
from minitorch.dtypes import DType, bfloat16, finfo, float16, float32
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import big, pick

pytest.importorskip("numba_cuda")
from cuda_ops.conv import columns, conv, moved, unfolded
from cuda_ops.matmul import matmul as products
from cuda_ops.memory import empty


class Found(NamedTuple):
    """An output and two gradients."""

    out: Any
    dx: Any
    dw: Any


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor cores multiply, however small a convolution is."""
    if not products.runs_here(products.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    monkeypatch.setattr(products, "_pays_on_tensor_cores", lambda *_: True)
    monkeypatch.setattr(unfolded, "_pays", lambda *_: True)


@pytest.fixture(params=[False, True], ids=["columns", "moved"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns, or a frame that moves wherever steps are of one pixel."""
    monkeypatch.setattr(
        unfolded, "moves", lambda h, w, _: request.param and h.step == w.step == 1
    )


def watch_columns(monkeypatch: pytest.MonkeyPatch, note: Callable) -> None:
    """`note` is called where columns, or a frame, are asked for."""
    for module, name in ((unfolded, "columns_of"), (moved, "_framed")):
        run = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, run=run: note() or run(*args))


def shapes_of(case: Case) -> list[tuple[int, ...]]:
    """Of x, weight, bias and grad."""
    weight = (case.made, case.x[1] // case.groups, *case.kernel)
    shapes: list[tuple[int, ...]] = [case.x, weight, (case.made,)]
    meta = [torch.empty(shape, device="meta") for shape in shapes]
    return [*shapes, tuple(torch.nn.functional.conv2d(*meta, *case[3:]).shape)]


def operands(case: Case, dtype: DType) -> list[np.ndarray]:
    """x, weight, bias and grad in a half type."""
    return [
        numbers(shape, float32, seed).astype(dtype.numpy)
        for seed, shape in enumerate(shapes_of(case))
    ]


def ours(case: Case, arrays: list[np.ndarray], bias: bool = True) -> Found:
    """By functions that do not widen: they give NotImplemented."""
    x, weight, row, grad = (make(a, "cuda") for a in arrays)
    how, shape = case[3:], tuple(arrays[1].shape)
    return Found(
        conv.conv2d(x, weight, row if bias else None, *how),
        conv.conv2d_backward_input(grad, weight, case.x, *how),
        conv.conv2d_backward_weight(grad, x, shape, *how),
    )


def theirs(case: Case, arrays: list[np.ndarray], bias: bool = True) -> Found:
    x, weight, row, grad = (torch.tensor(a.astype(float)) for a in arrays)
    x, weight = x.requires_grad_(), weight.requires_grad_()
    out = torch.nn.functional.conv2d(x, weight, row if bias else None, *case[3:])
    return Found(out.detach(), *torch.autograd.grad(out, (x, weight), grad))


def check(case: Case, dtype: DType = bfloat16, bias: bool = True) -> None:
    arrays = operands(case, dtype)
    for name, got, expected in zip(
        Found._fields, ours(case, arrays, bias), theirs(case, arrays, bias)
    ):
        assert isinstance(got, TensorData), f"{name} was not made"
        compare(got, expected, dtype, name)


def compare(got: TensorData, expected: torch.Tensor, dtype: DType, name: str) -> None:
    """Up to one rounding, and what float32 loses in a sum."""
    right = expected.numpy()
    assert got.dtype is dtype and got.shape == right.shape, name
    error = np.abs(array_of(got).astype(float) - right)
    lost = 5e-5 * max(1.0, float(np.abs(right).max(initial=0.0)))
    assert (error <= finfo(dtype).eps / 2 * np.abs(right) + lost).all(), name


CASES = [
    Case((2, 3, 4, 5), 4, (3, 3), padding=(1, 1)),  # 20 positions, joined
    Case((1, 8, 4, 6), 6, (1, 1)),  # as it is
    Case((2, 4, 3, 5), 2, (1, 1)),  # one tap, but 15 positions
    Case((2, 2, 7, 6), 3, (3, 2), (2, 3), (1, 0), (2, 1)),
    Case((1, 2, 7, 5), 3, (1, 1), (2, 3)),  # phases without taps
    Case((1, 4, 6, 5), 6, (3, 2), (2, 1), (1, 2), groups=2),
    Case((2, 2, 3, 3), 3, (3, 3), padding=(4, 3)),  # windows of padding only
    Case((1, 2, 4, 4), 3, (2, 3), (3, 1), (2, 2), (2, 3)),
    Case((1, 2, 1, 9), 2, (1, 3), (1, 2), (0, 1)),
]
BIG = [
    Case((4, 64, 56, 56), 64, (3, 3), padding=(1, 1)),
    Case((3, 3, 64, 67), 64, (7, 7), (2, 2), (3, 3)),
    Case((5, 128, 28, 28), 64, (3, 3), (2, 2), (1, 1)),
    Case((17, 256, 14, 14), 256, (3, 3), padding=(1, 1)),
    Case((16, 512, 7, 7), 512, (3, 3), padding=(1, 1)),
    Case((4, 64, 15, 17), 256, (1, 1)),
    Case((4, 256, 14, 14), 512, (1, 1), (2, 2)),
    Case((2, 64, 15, 17), 128, (3, 3), padding=(2, 2), dilation=(2, 2), groups=2),
]


@pytest.mark.parametrize("case", CASES + BIG * big, ids=str)
def test_against_pytorch(case: Case, forced: None) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES[1:6:4], ids=str)
def test_float16_without_bias(case: Case, forced: None) -> None:
    check(case, float16, bias=False)


@pytest.mark.parametrize("chip, dtype", [((8, 0), bfloat16), ((7, 5), float16)])
@pytest.mark.parametrize(
    "case",
    [
        Case((2, 8, 5, 6), 8, (3, 3), padding=(1, 1)),  # 30 positions
        Case((2, 8, 4, 6), 16, (1, 1)),
        Case((2, 16, 7, 5), 8, (3, 2), (2, 1), (1, 0), groups=2),
    ],
    ids=str,
)
def test_chips_without_warpgroups(
    case: Case, chip: tuple[int, int], dtype: DType, forced: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Sums are whole vectors long; frames do not move."""
    if minitorch.cuda.is_available() and products.compute_capability() < chip:
        pytest.skip("the tensor cores of this GPU are older")
    for module in (products, unfolded):
        monkeypatch.setattr(module, "compute_capability", lambda: chip)
    check(case, dtype)
    check(case, dtype, bias=False)


def test_images_in_portions(forced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One image and two at a time, joined and apart; the last portion is smaller."""
    case = Case((3, 2, 4, 4), 3, (2, 2), padding=(1, 1))  # 25 positions, of 32
    for nbytes, tile in ((1, 128), (2 * 8 * 32 * 2, 128), (2 * 8 * 32 * 2, 1)):
        monkeypatch.setattr(columns, "COLUMN_BYTES", nbytes)
        monkeypatch.setattr(unfolded, "TILE", tile)
        check(case, bias=False)
    assert [*columns.portions(3, 2 * 8 * 32)] == [(0, 2), (2, 1)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", CASES[:2] + CASES[4:6], ids=str)
def test_products_of_several_images(
    case: Case, bias: bool, forced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apart, as large images are: each result lies where it belongs."""
    monkeypatch.setattr(unfolded, "TILE", 1)
    check(case._replace(x=(3, *case.x[1:])), bias=bias)


@settings(deadline=None, max_examples=pick(12, 60))
@given(
    convolutions(
        (1, 3), (1, 2), st.integers(2, 3), (2, 4), (3, 6), (1, 3), (1, 3), (1, 2)
    )
)
def test_any_geometry(case: Case) -> None:
    if not products.runs_here(products.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_pays_on_tensor_cores", lambda *_: True)
        patch.setattr(unfolded, "_pays", lambda *_: True)
        check(case)


@pytest.mark.parametrize("layout", ["permuted", "stepped", "negative", "offset"])
def test_strided_operands(layout: str, forced: None) -> None:
    case = CASES[5]
    arrays = operands(case, bfloat16)
    x, weight, row, grad = (make(a, "cuda", layout) for a in arrays)
    found = Found(
        conv.conv2d(x, weight, row, *case[3:]),
        conv.conv2d_backward_input(grad, weight, case.x, *case[3:]),
        conv.conv2d_backward_weight(grad, x, weight.shape, *case[3:]),
    )
    for name, got, expected in zip(Found._fields, found, theirs(case, arrays)):
        compare(got, expected, bfloat16, name)


def test_two_runs_give_the_same_bits(forced: None) -> None:
    case = pick(CASES[3], BIG[3])
    arrays = operands(case, bfloat16)
    for first, again in zip(ours(case, arrays), ours(case, arrays)):
        np.testing.assert_array_equal(
            *(array_of(a).view(np.uint16) for a in (first, again))
        )


def test_what_lies_around_the_image_is_zeros(forced: None) -> None:
    """An infinite pixel stays in its windows; an infinite tap is multiplied by 0."""
    case = Case((1, 2, 4, 4), 2, (3, 3), padding=(1, 1))
    arrays = operands(case, bfloat16)
    arrays[0][0, 0, 0, 0] = np.inf
    out = array_of(ours(case, arrays).out).astype(float)
    assert np.isinf(out[0, :, :2, :2]).all()
    assert np.isfinite(out[0, :, 2:]).all() and np.isfinite(out[0, :, :, 2:]).all()
    arrays = operands(case, bfloat16)
    arrays[1][0, 0, 0, 0] = np.inf
    out = array_of(ours(case, arrays).out).astype(float)
    assert np.isnan(out[0, 0, 0]).all() and np.isinf(out[0, 0, 1:, 1:]).all()


@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=str)
@pytest.mark.parametrize("taken", [True, False], ids=["as they are", "widened"])
def test_autograd(
    dtype: DType, taken: bool, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Through `conv2d` of tensors, on both ways; a small convolution is widened."""
    case = Case((2, 3, 5, 4), 4, (3, 3), (2, 1), (1, 1))
    calls = []
    if taken:
        request.getfixturevalue("forced")
    watch_columns(monkeypatch, lambda: calls.append(1))
    arrays = operands(case, dtype)
    x, weight, row, grad = (minitorch.Tensor(make(a, "cuda")) for a in arrays)
    x, weight, row = (t.requires_grad_() for t in (x, weight, row))
    out = minitorch.nn.functional.conv2d(x, weight, row, *case[3:])
    out.backward(grad)
    assert bool(calls) is taken
    for t, right in zip((out, x.grad, weight.grad), theirs(case, arrays)):
        compare(t.raw, right, dtype, "")
    total = torch.tensor(arrays[3].astype(float)).sum((0, 2, 3))
    compare(row.grad.raw, total, dtype, "bias")


def test_no_images() -> None:
    backend, how = half_backends["cuda"], ((1, 1), (1, 1), (1, 1), 1)
    x, weight = (
        make(np.ones(s, float16.numpy), "cuda") for s in ((0, 2, 5, 5), (3, 2, 3, 3))
    )
    out = backend.conv2d(x, weight, None, *how)
    assert out.shape == (0, 3, 5, 5) and out.dtype is float16
    dx = backend.conv2d_backward_input(out, weight, x.shape, *how)
    dw = backend.conv2d_backward_weight(out, x, weight.shape, *how)
    assert dx.shape == x.shape and not array_of(dw).any()


def test_halves_beside_float32_are_widened(forced: None) -> None:
    case = CASES[1]
    x, weight, row, _ = operands(case, bfloat16)
    mixed = make(x, "cuda"), make(weight.astype(np.float32), "cuda")
    assert conv.conv2d(*mixed, None, *case[3:]) is NotImplemented
    wide = make(row.astype(np.float32), "cuda")
    operands_of = make(x, "cuda"), make(weight, "cuda"), wide
    assert conv.conv2d(*operands_of, *case[3:]) is NotImplemented


@pytest.mark.parametrize(
    "case, pays",
    [
        (BIG[0], (True, True, True)),
        (BIG[1], (True, False, True)),  # three channels to make
        (BIG[2], (True, True, True)),
        (Case((2, 96, 28, 28), 96, (3, 3), padding=(1, 1), groups=96), (False,) * 3),
        (Case((1, 64, 4, 4), 64, (3, 3), padding=(1, 1)), (False,) * 3),  # tiny
        (Case((64, 1, 28, 28), 64, (5, 5)), (False,) * 3),  # short sums
    ],
    ids=str,
)
def test_what_pays(
    case: Case, pays: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not products.runs_here(products.matmul_warpgroup):
        pytest.skip("this GPU has no wgmma: its compute capability is not 9.0")
    watch_columns(monkeypatch, taking)
    x, weight, _, grad = (empty(s, bfloat16) for s in shapes_of(case))
    how = case[3:]
    calls: tuple[Callable[[], Any], ...] = (
        lambda: conv.conv2d(x, weight, None, *how),
        lambda: conv.conv2d_backward_input(grad, weight, case.x, *how),
        lambda: conv.conv2d_backward_weight(grad, x, weight.shape, *how),
    )
    for call, taken in zip(calls, pays):
        if taken:
            with pytest.raises(Taken):
                call()
        else:
            assert call() is NotImplemented
    monkeypatch.setattr(unfolded, "compute_capability", lambda: (7, 5))
    assert [call() for call in calls] == [NotImplemented] * 3
    monkeypatch.setattr(unfolded, "compute_capability", lambda: (8, 0))
    if pays[0] and case.x[1] % 8 == 0:
        with pytest.raises(Taken):
            calls[0]()


class Taken(Exception):
    """Columns were asked for."""


def taking(*_: Any) -> Any:
    raise Taken
