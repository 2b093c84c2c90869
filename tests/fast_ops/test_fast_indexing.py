"""Indexing kernels of the CPU backend, against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minitorch import dtypes
from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")


def data(array: np.ndarray) -> TensorData:
    return cpu.from_numpy(np.array(array, order="C"))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def whole(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, high, shape)


SHAPES = [(9,), (5, 7), (3, 4, 5), (300, 130)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gather_and_scatter_add(shape: tuple[int, ...]) -> None:
    a = numbers(*shape)
    for dim in range(len(shape)):
        smaller = tuple(n if i == dim else n - 1 for i, n in enumerate(shape))
        for size in (shape, smaller):
            index = whole(shape[dim], *size)
            i, x = torch.from_numpy(index), torch.from_numpy(a)
            got = cpu.to_numpy(cpu.gather(data(a), dim, data(index)))
            np.testing.assert_array_equal(got, x.gather(dim, i).numpy())
            src = numbers(*shape, seed=1)
            got = cpu.scatter_add(data(a), dim, data(index), data(src))
            expected = x.scatter_add(dim, i, torch.from_numpy(src))
            np.testing.assert_allclose(
                cpu.to_numpy(got), expected.numpy(), rtol=1e-5, atol=1e-5
            )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 4, 200])
def test_slices(shape: tuple[int, ...], count: int) -> None:
    a = numbers(*shape)
    for dim in range(len(shape)):
        index = whole(shape[dim], count)
        i, x = torch.from_numpy(index), torch.from_numpy(a)
        got = cpu.to_numpy(cpu.index_select(data(a), dim, data(index)))
        np.testing.assert_array_equal(got, x.index_select(dim, i).numpy())
        src = numbers(*(count if j == dim else n for j, n in enumerate(shape)), seed=1)
        got = cpu.to_numpy(cpu.index_add(data(a), dim, data(index), data(src)))
        expected = x.index_add(dim, i, torch.from_numpy(src)).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(a, numbers(*shape))  # a itself is untouched


def test_index_copy_writes_in_order_through_strides() -> None:
    base = numbers(6, 8)
    out = data(base).permute((1, 0))
    index = np.array([3, 0, 3])
    src = numbers(3, 6, seed=2)
    cpu.index_copy_(out, 0, data(index), data(src))
    expected = base.T.copy()
    for i, j in enumerate(index):
        expected[j] = src[i]
    np.testing.assert_array_equal(cpu.to_numpy(out), expected)


def test_strided_operands() -> None:
    a, index = numbers(6, 5), whole(5, 6, 5)
    got = cpu.gather(data(a).permute((1, 0)), 0, data(index).permute((1, 0)))
    expected = np.take_along_axis(a.T, index.T, 0)
    np.testing.assert_array_equal(cpu.to_numpy(got), expected)
    every_second = data(whole(6, 8)).slice(0, 0, 4, 2)
    got = cpu.index_select(data(a), 0, every_second)
    np.testing.assert_array_equal(cpu.to_numpy(got), a[whole(6, 8)[::2]])


@pytest.mark.parametrize("bad", [-1, 4])
def test_bad_indices(bad: int) -> None:
    a = data(numbers(4, 3))
    flat = data(np.array([0, bad, 1]))
    table = data(np.array([[0, bad, 1]]))
    out = data(numbers(4, 3))
    message = f"index {bad} is outside dimension 0"
    with pytest.raises(IndexError, match=message):
        cpu.gather(a, 0, table)
    with pytest.raises(IndexError, match=message):
        cpu.scatter_add(a, 0, table, data(numbers(1, 3)))
    with pytest.raises(IndexError, match=message):
        cpu.index_select(a, 0, flat)
    with pytest.raises(IndexError, match=message):
        cpu.index_add(a, 0, flat, data(numbers(3, 3)))
    with pytest.raises(IndexError, match=message):
        cpu.index_copy_(out, 0, flat, data(numbers(3, 3)))
    np.testing.assert_array_equal(cpu.to_numpy(out), numbers(4, 3))


def test_no_dimensions() -> None:
    a = cpu.full((), 3.0, dtypes.float32)
    zero = cpu.full((), 0, dtypes.int64)
    one = cpu.full((), 1.0, dtypes.float32)
    assert cpu.to_numpy(cpu.gather(a, 0, zero)) == 3.0
    added = cpu.scatter_add(a, 0, zero, one)
    assert added.shape == () and cpu.to_numpy(added) == 4.0
