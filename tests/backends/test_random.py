"""Random numbers, bit for bit, and dropout, on every installed backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from backends.shared import by_float, by_layout, large, name_of
from helpers import FLOATS, array_of, assert_close, assert_equal, make, numbers
from minitorch import operators
from minitorch.backend import get_backend
from minitorch.dtypes import DType, float32, float64, int32, int64
from minitorch.tensor_data import Shape

SEEDS = [(0, 0), (1234, 7), (2**63 + 5, 2**32 - 3), (2**32 + 1, 2**33 + 2)]


def philox_by_numpy(count: int, seed: int, offset: int) -> np.ndarray:
    """Words by whole-array arithmetic, straight from the paper's ten rounds."""
    blocks = np.array([offset + i for i in range((count + 3) // 4)], np.uint64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1 = blocks & low, blocks >> shift
    c2 = c3 = np.zeros_like(blocks)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0 = (p1 >> shift) ^ c1 ^ np.uint64(k0)
        c2 = (p0 >> shift) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & low, p0 & low
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3], 1).reshape(-1)[:count].astype(np.int64)


@pytest.mark.parametrize("seed, offset", SEEDS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4,), (3, 5), (1025,)])
def test_random_numbers_bit_for_bit(
    backend: Any, seed: int, offset: int, shape: Shape
) -> None:
    words = philox_by_numpy(math.prod(shape), seed, offset).reshape(shape)
    simple = get_backend("simple")
    for dtype in FLOATS:
        uniform = ((words >> 8) / 2**24).astype(dtype.numpy)
        assert_equal(backend.uniform(shape, dtype, seed, offset), uniform)
        normal = array_of(simple.normal(shape, dtype, seed, offset))
        if dtype is float32:
            assert_equal(backend.normal(shape, dtype, seed, offset), normal)
        else:  # the last bit of `log` and `cos` is up to the machine
            drawn = backend.normal(shape, dtype, seed, offset)
            assert_close(drawn, normal, tolerance=1e-14)
    for low, high in ((0, 2), (-5, 6), (10, 10 + 2**31)):
        integers = low + (words * (high - low) >> 32)
        assert_equal(backend.randint(low, high, shape, int64, seed, offset), integers)
    narrow = (-5 + (words * 11 >> 32)).astype(np.int32)
    assert_equal(backend.randint(-5, 6, shape, int32, seed, offset), narrow)


def test_known_words_of_philox() -> None:
    """The answer to zeros that the authors publish with their code (Random123)."""
    zeros = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert operators.philox(0, 0, 0, 0) == zeros
    assert tuple(philox_by_numpy(4, 0, 0)) == zeros


def test_random_numbers_of_many_elements(backend: Any) -> None:
    n = large(backend, (2003,), (70_003,))[0]
    words = philox_by_numpy(n, 9, 1)
    drawn = array_of(backend.uniform((n,), float32, 9, 1))
    np.testing.assert_array_equal(drawn, ((words >> 8) / 2**24).astype(np.float32))
    assert 0 <= drawn.min() and drawn.max() < 1
    normal = array_of(backend.normal((n,), float64, 9, 1))
    assert abs(normal.mean()) < 4 / math.sqrt(n) and abs(normal.var() - 1) < 0.2
    radius = np.sqrt(-2 * np.log((words[0] + 1) / 2**32))
    angle = 2 * np.pi * words[1] / 2**32
    expected = [radius * np.cos(angle), radius * np.sin(angle)]
    np.testing.assert_allclose(normal[:2], expected, rtol=1e-12)


def test_an_offset_continues_the_sequence(backend: Any) -> None:
    whole = array_of(backend.uniform((40,), float32, 5, 100))
    part = backend.uniform((28,), float32, 5, 103)
    assert_equal(part, whole[12:])


@by_float
@by_layout
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_dropout(backend: Any, dtype: DType, layout: str, p: float) -> None:
    for shape in ((), (0, 3), (7,), (33, 5), large(backend, (4, 9), (300, 130))):
        a = numbers(shape, dtype, layout=layout)
        out = backend.dropout(make(a, name_of(backend), layout), p, 77, 3)
        words = philox_by_numpy(a.size, 77, 3).reshape(shape)
        scale = dtype.numpy.type(1 / (1 - p) if p < 1 else 0)
        assert_equal(out, np.where(words >= p * 2**32, a * scale, 0).astype(a.dtype))
