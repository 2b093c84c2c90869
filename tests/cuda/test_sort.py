"""Sorting on the GPU, against PyTorch, and the prefix sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import minitorch
from minitorch import dtypes
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import big

pytest.importorskip("numba_cuda")
from cuda_ops import memory, scan, sort

TILE = sort.TILE
LENGTHS = [1, 2, 7, 8, 9, TILE - 1, TILE, TILE + 1, 2 * TILE, 5 * TILE + 3]
KINDS = {
    "f4": np.float32,
    "f8": np.float64,
    "i8": np.int64,
    "i4": np.int32,
    "bool": np.bool_,
}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Few different values, so that stability shows; NaN, infinities, both zeros."""
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind[0] == "i":
        info = np.iinfo(KINDS[kind])
        edge = np.array([info.min, info.max, 0, -1, 1, 5], KINDS[kind])
        return rng.choice(edge, shape)
    edge = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 1e-40], KINDS[kind])
    return rng.choice(edge, shape)


def check(x: np.ndarray, view: TensorData, dim: int, descending: bool) -> None:
    values, index = sort.sort(view, dim, descending)
    t = torch.from_numpy(x)
    expected = torch.sort(t, dim=dim, descending=descending, stable=True)
    np.testing.assert_array_equal(memory.to_numpy(index), expected.indices.numpy())
    np.testing.assert_array_equal(
        memory.to_numpy(values), np.take_along_axis(x, expected.indices.numpy(), dim)
    )
    assert values.is_contiguous() and index.is_contiguous()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("descending", [False, True])
def test_lengths_around_a_tile(n: int, descending: bool) -> None:
    rng = np.random.default_rng(n)
    for shape in ((n,), (3, n)):
        x = numbers(rng, shape, "f4")
        check(x, memory.from_numpy(x), len(shape) - 1, descending)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("descending", [False, True])
def test_types(kind: str, descending: bool) -> None:
    x = numbers(np.random.default_rng(1), (2, TILE + 5), kind)
    check(x, memory.from_numpy(x), 1, descending)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_dims_and_strides(dim: int) -> None:
    x = np.random.default_rng(2).normal(size=(5, 3, 6)).astype(np.float32)
    check(x, memory.from_numpy(x), dim, False)
    turned = memory.from_numpy(x).permute((2, 0, 1))
    check(np.ascontiguousarray(x.transpose(2, 0, 1)), turned, dim, True)


def test_zeros_keep_their_sign_and_order() -> None:
    x = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    values, index = sort.sort(memory.from_numpy(x), 0, False)
    assert memory.to_numpy(index).tolist() == [0, 1, 2, 3]
    assert np.signbit(memory.to_numpy(values)).tolist() == [False, True, False, True]


def test_empty_and_no_dims() -> None:
    values, index = sort.sort(memory.from_numpy(np.empty((3, 0), "f4")), 1, False)
    assert values.shape == index.shape == (3, 0)
    values, index = sort.sort(memory.from_numpy(np.float32([2.5]).reshape(())), 0, True)
    assert memory.to_numpy(values) == 2.5 and memory.to_numpy(index) == 0


@pytest.mark.skipif(not big, reason="a million elements take hours in the simulator")
def test_a_million() -> None:
    x = np.random.default_rng(3).normal(size=2**20 + 77).astype(np.float32)
    check(x, memory.from_numpy(x), 0, False)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_the_median_of_a_line_is_one_launch(dtype: dtypes.DType) -> None:
    """Of half types, too; a line that is too long for that is sorted."""
    for n in (sort.LONGEST, sort.LONGEST + 1):
        x = minitorch.tensor(np.random.default_rng(n).normal(size=n), device="cuda")
        x = x.to(dtype)
        with minitorch.cuda.graph(noted := minitorch.cuda.CUDAGraph()):
            values, index = x.median(0)
        noted.replay()
        assert (len(noted.kernels) == 1) is (n == sort.LONGEST)
        assert values.dtype is dtype and x[index.item()].item() == values.item()
        assert (x < values).sum().item() <= (n - 1) // 2 < (x <= values).sum().item()


@pytest.mark.parametrize("n", [0, 1, scan.TILE - 1, scan.TILE, scan.TILE + 1, 1100])
def test_exclusive_scan(n: int) -> None:
    x = np.random.default_rng(n).integers(0, 9, n)
    out = memory.to_numpy(scan.exclusive_scan(memory.from_numpy(x)))
    np.testing.assert_array_equal(out, np.concatenate([[0], np.cumsum(x)]))
    assert out.dtype == dtypes.int64.numpy
