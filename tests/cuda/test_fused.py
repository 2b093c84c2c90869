"""Kernels that the compiler makes: for every chip, at every edge, in half types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda")

import minitorch
from cuda_ops import fused_rows
from helpers import SIMULATED
from minitorch import Tensor, autograd, cuda
from minitorch.backend import fusion
from minitorch.compiler import recorder
from minitorch.compiler.recorder import Recorder
from minitorch.dtypes import bfloat16, float32


def gpu(*shape: int, dtype: Any = float32) -> Tensor:
    return minitorch.randn(*shape, device="cuda").to(dtype)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [bfloat16, minitorch.float16], ids=str)
def test_half_types_are_rounded_where_they_are_written(dtype: Any) -> None:
    """So the error is no larger than without, where each step rounds."""
    x, w = gpu(5, 68, dtype=dtype), gpu(68, dtype=dtype)

    def program(x: Tensor, w: Tensor) -> Tensor:
        y = ((x * w + 1.0).tanh() * 3.0).exp()
        return y / y.sum(-1, keepdim=True)

    made = minitorch.compile(program)(x, w)
    plain, exact = program(x, w), program(x.double(), w.double())
    assert made.dtype is dtype
    errors = [abs(result.double() - exact).max().item() for result in (made, plain)]
    assert errors[0] <= errors[1]


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_a_backward_pass_computes_again_what_was_not_kept(dtype: Any) -> None:
    x = gpu(3, 40, dtype=dtype).requires_grad_()
    program = lambda x: (x + 1.0).tanh().exp().sin()
    with Recorder(told := []):
        y = program(x)
    assert [len(f.program.kept) for f in told] == [1]
    (exact,) = autograd.grad(program(x.double()).sum(), x)
    errors = []
    for out in (y, program(x)):
        (g,) = autograd.grad(out.sum(), x)
        errors.append(abs(g.double() - exact.double()).max().item())
    assert errors[0] <= 1.5 * errors[1]


@pytest.mark.cuda
def test_a_conversion_to_a_half_type_rounds() -> None:
    x = gpu(4, 33)
    program = lambda x: (x * 1.5).bfloat16().float() - x * 1.5
    # Of a product and a difference that are one instruction, the product is exact.
    np.testing.assert_allclose(
        minitorch.compile(program)(x).cpu().numpy(), program(x).cpu().numpy(), atol=1e-6
    )


@pytest.mark.cuda
@pytest.mark.parametrize("start", [0, 1, 4])
def test_addresses(start: int) -> None:
    """Vectors of 16 bytes only where all that is read and written lies so."""
    memory, w = gpu(3 * 40 + 8), gpu(40)
    x = memory[start : start + 120].view(3, 40)
    for program in (
        lambda: (x * w + 1.0).tanh(),
        lambda: (x * w).exp() / (x * w).exp().sum(-1, keepdim=True),
        lambda: (x[:, 1:] * w[1:]).exp() - (x[:, 1:] * w[1:]).amax(-1, keepdim=True),
    ):
        np.testing.assert_allclose(
            minitorch.compile(program)().cpu().numpy(),
            program().cpu().numpy(),
            rtol=1e-5,
            atol=1e-6,
        )


@pytest.mark.cuda
@pytest.mark.parametrize(
    "n", [8, 40] if SIMULATED else [1023, 1024, 8192, 8196, 50_257]
)
def test_long_rows(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for a warp, for a block, and for a large one."""
    if SIMULATED:
        monkeypatch.setattr(fused_rows, "FOR_A_WARP", 8)
        monkeypatch.setattr(fused_rows, "FOR_A_BLOCK", 16)
    x = gpu(11, n)

    def program(x: Tensor) -> Tensor:
        e = (x * 2.0 - (x * 2.0).amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    np.testing.assert_allclose(
        minitorch.compile(program)(x).cpu().numpy(),
        (x * 2.0).softmax(-1).cpu().numpy(),
        rtol=1e-5,
        atol=1e-8,
    )


@pytest.mark.cuda
@pytest.mark.parametrize("shape", [(1,), (127,), (3, 43), (5, 128), (9, 100, 30)])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_all_of_a_tensor(
    shape: tuple[int, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block folds its part; the parts are folded, and what is made of that."""
    for module in (fusion, recorder):
        monkeypatch.setattr(module, "LONG", 0)
    x = gpu(*shape[: 2 if SIMULATED else 3], dtype=dtype)

    def program(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2.0 + 1.0
        return y.sum(), (y * y).mean() * 3.0, y.amin(), y.tanh()

    for made, expected in zip(minitorch.compile(program)(x), program(x.double())):
        assert made.dtype is dtype
        np.testing.assert_allclose(
            made.double().cpu().numpy(),
            expected.cpu().numpy(),
            rtol=1e-5 if dtype is float32 else 1e-2,
            atol=1e-4,
        )


@pytest.mark.cuda
def test_in_a_graph() -> None:
    """A step that is compiled can be captured, and replays as it ran."""
    w = gpu(6, 6).requires_grad_()
    x = gpu(3, 6)

    @minitorch.compile
    def loss(x: Tensor) -> Tensor:
        y = (x @ w).tanh() * 2.0 + 1.0
        return (y * y).mean()

    def step(x: Tensor) -> Tensor:
        found = loss(x)
        w.grad = None
        found.backward()
        return found

    plain = step(x).item()
    expected = w.grad.cpu().numpy()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        captured = step(x)
    graph.replay()
    assert captured.item() == plain
    np.testing.assert_array_equal(w.grad.cpu().numpy(), expected)


@pytest.mark.cuda
def test_streams() -> None:
    """What was noted for a stream goes to that one."""
    x, told = gpu(4, 4), []
    with Recorder(told):
        y = x * 2.0 + 1.0
        with cuda.stream(cuda.Stream()):
            assert len(told) == 1
            z = x * 3.0 - y
            cuda.Event().record()
        assert len(told) == 2
        cuda.synchronize()
    np.testing.assert_allclose(
        z.cpu().numpy(), (x * 3.0 - (x * 2.0 + 1.0)).cpu().numpy(), rtol=1e-5, atol=1e-6
    )
