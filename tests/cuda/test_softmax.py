"""Softmax and cross-entropy of the CUDA backend against PyTorch on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import minitorch
from helpers import FLOATS, array_of, make, numbers
from minitorch import dtypes
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import pick

pytest.importorskip("numba_cuda")
from cuda_ops import cross_entropy as loss
from cuda_ops import softmax as ops
from cuda_ops.block.rows import BLOCK, LONGEST
from cuda_ops.ladders import softmax as softmax_ladder
from cuda_ops.memory import synchronize, to_numpy

# Rows of one number, around a vector, a warp, vectors or none, a block, a large block.
WIDTHS = [1, 7, 8, 9, 10, 31, 32, 33, 128, 132, 256, 259, 260]
WIDTHS += [8 * BLOCK, 8 * BLOCK + 4, LONGEST - 1, LONGEST]
LONG = [LONGEST + 4, LONGEST + 1, pick(2 * LONGEST + 3, 1_000_003)]


def assert_close(ours: TensorData, expected: np.ndarray, **tolerance: float) -> None:
    assert ours.shape == expected.shape
    np.testing.assert_allclose(to_numpy(ours), expected, **tolerance)  # type: ignore[arg-type]


def check_rows(a: np.ndarray, dim: int, layout: str = "contiguous") -> None:
    """Both functions and both gradients along `dim`."""
    x, g = make(a, "cuda", layout), numbers(a.shape, dtypes.float64, 1).astype(a.dtype)
    for ours, backward, theirs in (
        (ops.softmax, ops.softmax_backward, torch.softmax),
        (ops.log_softmax, ops.log_softmax_backward, torch.log_softmax),
    ):
        wide = torch.tensor(a, dtype=torch.float64, requires_grad=True)
        expected = theirs(wide, dim)
        (slope,) = torch.autograd.grad(expected, wide, torch.tensor(g).double())
        out = ours(x, dim)
        tol = {"rtol": 2e-5, "atol": 2e-6} if a.itemsize == 4 else {"rtol": 1e-11}
        assert_close(out, expected.detach().numpy(), **tol)
        size = max(1.0, float(np.abs(g.sum(dim)).max(initial=0)))  # of what cancels
        tol["atol"] = tol.get("atol", 1e-12) * size
        assert_close(backward(make(g, "cuda", layout), out, dim), slope.numpy(), **tol)


@pytest.mark.parametrize("n", WIDTHS)
def test_last_dim(n: int) -> None:
    rows = pick(1 if n > 200 and n % 4 == 0 else 5, 37)
    check_rows(numbers((rows, n), dtypes.float32) * 3, 1)


@pytest.mark.parametrize("n", [33, 300])
def test_last_dim_float64(n: int) -> None:
    check_rows(numbers((2, n), dtypes.float64) * 3, 1)


@pytest.mark.parametrize("n", LONG)
def test_rows_too_long_for_registers(n: int) -> None:
    check_rows(numbers((pick(2, 3), n), dtypes.float32), 1)


@pytest.mark.parametrize("n", [LONGEST + 4, LONGEST + 1, 2 * LONGEST + 3])
def test_many_rows_too_long_for_registers(n: int) -> None:
    """A block each: one launch."""
    a = numbers((ops.MANY, n), dtypes.float32)
    check_rows(a, 1)
    x = make(a, "cuda")
    with minitorch.cuda.graph(noted := minitorch.cuda.CUDAGraph()):
        ops.softmax(x, 1)
    (launched,) = noted.kernels
    assert launched.startswith("softmax_long")


@pytest.mark.parametrize(
    "shape,dim",
    [((3, 5, 7), 1), ((4, 3), 0), ((33, 17), 0), ((2, 40, 1), 1), ((2, 9, 33), 1)],
)
def test_other_dims(shape: tuple[int, ...], dim: int) -> None:
    check_rows(numbers(shape, dtypes.float32), dim)


@pytest.mark.parametrize("layout", ["offset", "permuted", "stepped", "negative"])
def test_layouts(layout: str) -> None:
    for dim in (0, 1):
        check_rows(numbers((5, 36), dtypes.float32, layout=layout), dim, layout)


def test_large_and_infinite_scores() -> None:
    inf, nan = np.inf, np.nan
    a = np.array(
        [[1e4, 1e4 + 1, -1e4], [-inf, 0, 1], [-inf] * 3, [inf, 0, 1], [nan, 0, 500]],
        np.float32,
    )
    for dim in (0, 1):
        for ours, theirs in (
            (ops.softmax, torch.softmax), (ops.log_softmax, torch.log_softmax)
        ):  # fmt: skip
            expected = theirs(torch.tensor(a), dim).numpy()
            assert_close(ours(make(a, "cuda"), dim), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1,)])
def test_empty_and_single(shape: tuple[int, ...]) -> None:
    check_rows(numbers(shape, dtypes.float32), len(shape) - 1)
    check_rows(numbers(shape, dtypes.float32), 0)


def test_without_dimensions() -> None:
    x = make(np.float32(3.0), "cuda")
    assert array_of(ops.softmax(x, 0)) == 1
    assert array_of(ops.log_softmax(x, 0)) == 0


def test_same_bits_in_every_run() -> None:
    x = make(numbers((3, LONG[1]), dtypes.float32), "cuda")
    assert np.array_equal(to_numpy(ops.softmax(x, 1)), to_numpy(ops.softmax(x, 1)))


# -------------------------------------------------------------------- cross-entropy


def expected_of(logits: torch.Tensor, target: np.ndarray) -> torch.Tensor:
    """PyTorch's losses of rows."""
    labels = torch.tensor(target)
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape",
    [(1, 1), (5, 10), (3, 36), (5, 257), (2, 8 * BLOCK + 8), (5, 8 * BLOCK + 7)],
)
def test_cross_entropy(shape: tuple[int, int], dtype: dtypes.DType) -> None:
    a, g = numbers(shape, dtype) * 4, numbers(shape[:1], dtype, 1)
    target = np.arange(shape[0]) * 7 % shape[1]
    target[-1] = -100 if shape[0] > 1 else target[-1]
    wide = torch.tensor(a, dtype=torch.float64, requires_grad=True)
    expected = expected_of(wide, target)
    (slope,) = torch.autograd.grad(expected, wide, torch.tensor(g).double())
    x, t = make(a, "cuda"), make(target, "cuda")
    losses, logsumexp = loss.cross_entropy(x, t, -100)
    tol = {"rtol": 2e-5, "atol": 1e-6} if a.itemsize == 4 else {"rtol": 1e-11}
    assert_close(losses, expected.detach().numpy(), **tol)
    assert_close(logsumexp, torch.logsumexp(wide, 1).detach().numpy(), **tol)
    dx = loss.cross_entropy_backward(make(g, "cuda"), x, t, logsumexp, -100)
    assert_close(dx, slope.numpy(), **tol)
    (slopes,) = torch.autograd.grad(expected_of(wide, target).sum(), wide)
    again = loss.cross_entropy_slopes(x, t, -100)
    assert_close(again, expected.detach().numpy(), **tol)
    assert_close(x, slopes.numpy(), **tol)


@pytest.mark.parametrize("gap", [0, 1, 4])
def test_gradients_go_to_rows_that_lie_in_another_way(gap: int) -> None:
    """Vectors of a row are none in an array in which it begins elsewhere."""
    a = numbers((4, 37), dtypes.float32) * 4
    x, t = make(a, "cuda"), make(np.array([0, 36, -100, 5]), "cuda")
    _, logsumexp = loss.cross_entropy(x, t, -100)
    g = make(np.ones(4, np.float32), "cuda")
    room = make(np.zeros((4, 37 + gap), np.float32), "cuda")
    out = TensorData(room.storage, (4, 37), room.strides, 0)
    loss.cross_entropy_backward(g, x, t, logsumexp, -100, out)
    expected = loss.cross_entropy_backward(g, x, t, logsumexp, -100)
    assert_close(out, to_numpy(expected), rtol=1e-6)
    assert not to_numpy(room)[:, 37:].any()


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_a_bad_target_is_named(bad: int) -> None:
    x = make(numbers((40, 3), dtypes.float32), "cuda")
    target = np.zeros(40, np.int64)
    target[33] = bad
    with pytest.raises(IndexError, match=rf"cross_entropy.*{bad}\b.*0 to 2"):
        loss.cross_entropy(x, make(target, "cuda"), -100)
        synchronize()
    with pytest.raises(IndexError, match=rf"cross_entropy.*{bad}\b.*0 to 2"):
        loss.cross_entropy_slopes(x, make(target, "cuda"), -100)
        synchronize()
    target[33] = 1  # the next call is as good as any
    losses, _ = loss.cross_entropy(x, make(target, "cuda"), -100)
    assert np.isfinite(to_numpy(losses)).all()


def test_cross_entropy_of_nothing() -> None:
    x = make(np.zeros((0, 3), np.float32), "cuda")
    t = make(np.zeros(0, np.int64), "cuda")
    losses, logsumexp = loss.cross_entropy(x, t, -100)
    assert losses.shape == logsumexp.shape == (0,)
    g = make(np.zeros(0, np.float32), "cuda")
    assert loss.cross_entropy_backward(g, x, t, logsumexp, -100).shape == (0, 3)


# ------------------------------------------------------------------------- ladder


@pytest.mark.parametrize("rung", softmax_ladder.LADDER)
@pytest.mark.parametrize("shape", [(1, 1), (3, 33), (2, BLOCK), (2, 4 * BLOCK + 4)])
def test_ladder(rung: object, shape: tuple[int, int]) -> None:
    a = numbers(shape, dtypes.float32) * 5
    expected = torch.softmax(torch.tensor(a).double(), 1).numpy()
    assert_close(rung(make(a, "cuda")), expected, rtol=2e-5)  # type: ignore[operator]
    assert rung(make(a[:0], "cuda")).shape == (0, shape[1])  # type: ignore[operator]
