"""Random numbers on the GPU are those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from fast_ops.memory import to_numpy as cpu_numpy
from minitorch import dtypes
from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import big

pytest.importorskip("numba_cuda")
from cuda_ops import memory, random

on_cpu = get_backend("cpu")
SEEDS = [(0, 0), (2**63 + 12345, 7), (42, 2**32 - 3), (2**64 - 1, 2**40)]
LENGTHS = [0, 1, 2, 3, 4, 5, 127, 128, 129, 131, *([100_003] if big else [])]


def same(ours: TensorData, theirs: TensorData) -> None:
    np.testing.assert_array_equal(memory.to_numpy(ours), cpu_numpy(theirs))


@pytest.mark.parametrize("seed, offset", SEEDS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_uniform_is_the_cpus(seed: int, offset: int, dtype: dtypes.DType) -> None:
    for n in LENGTHS:
        args = ((n,), dtype, seed, offset)
        same(random.uniform(*args), on_cpu.uniform(*args))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_normal_is_the_cpus(dtype: dtypes.DType) -> None:
    for n in LENGTHS:
        args = ((n,), dtype, 3, 2**33)
        ours = memory.to_numpy(random.normal(*args))
        theirs = cpu_numpy(on_cpu.normal(*args))
        if dtype is dtypes.float32:
            np.testing.assert_array_max_ulp(ours, theirs, 1)
            assert np.count_nonzero(ours != theirs) <= 1
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.int32, dtypes.float32], ids=str)
@pytest.mark.parametrize("low, high", [(0, 1), (-5, 12), (0, 2**31), (7, 8)])
def test_randint_is_the_cpus(low: int, high: int, dtype: dtypes.DType) -> None:
    for n in (1, 6, 130):
        args = (low, high, (n,), dtype, 9, 1)
        same(random.randint(*args), on_cpu.randint(*args))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_dropout_is_the_cpus(p: float, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(9, 15)).astype(dtype)
    x[0, 0] = np.nan
    same(
        random.dropout(memory.from_numpy(x), p, 5, 3),
        on_cpu.dropout(on_cpu_tensor(x), p, 5, 3),
    )


def on_cpu_tensor(x: np.ndarray) -> TensorData:
    from fast_ops.memory import from_numpy

    return from_numpy(x)


def test_dropout_of_views() -> None:
    x = np.arange(60, dtype=np.float32).reshape(6, 10) + 1
    whole, host = memory.from_numpy(x), on_cpu_tensor(x)
    for view in (
        lambda t: t.permute((1, 0)),
        lambda t: t.slice(0, 1, 5),  # begins at an address that is no multiple of 16
        lambda t: t.slice(1, 1, 3, 2),
    ):
        ours = random.dropout(view(whole), 0.3, 1, 0)
        same(ours, on_cpu.dropout(view(host), 0.3, 1, 0))


def test_a_base_moves_all_numbers() -> None:
    """What a CUDA graph does at each replay."""
    base = memory.from_numpy(np.zeros(1, np.int64)).flat()
    args = ((10,), dtypes.float32, 11, 4)
    with random.counted_from(base):
        same(random.uniform(*args), on_cpu.uniform(*args))
        random.advance(base, 3)
        same(random.uniform(*args), on_cpu.uniform(*args[:3], 7))
    same(random.uniform(*args), on_cpu.uniform(*args))
