"""Random kernels of the CPU backend: bit for bit what `operators.philox` says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from minitorch import dtypes, operators
from minitorch.backend import get_backend
from minitorch.tensor_data import Shape

cpu = get_backend("cpu")

# The published test vectors of Random123 for philox4x32-10: counter, key, result.
ONES = 2**32 - 1
KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((ONES,) * 4, (ONES, ONES), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
]


def philox4x32(counter: Sequence[int], key: Sequence[int]) -> tuple[int, ...]:
    """Ten rounds as in the paper's section 3, with a counter of four words."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        left, right = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = right >> 32 ^ c1 ^ k0, right & ONES
        c2, c3 = left >> 32 ^ c3 ^ k1, left & ONES
        k0, k1 = (k0 + 0x9E3779B9) & ONES, (k1 + 0xBB67AE85) & ONES
    return c0, c1, c2, c3


SEEDS = [(0, 0), (7, 3), (2**40 + 5, 2**32 - 2), (2**63 + 1, 2**33 + 9)]
SHAPES: list[Shape] = [(), (0,), (1,), (5,), (255,), (257,), (3, 5, 7)]


def words(size: int, seed: int, offset: int) -> list[int]:
    found: list[int] = []
    low = 2**32 - 1
    for block in range(offset, offset + (size + 3) // 4):
        key = seed & low, (seed >> 32) & low
        found += operators.philox(block & low, (block >> 32) & low, *key)
    return found[:size]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_known_answers(
    counter: Sequence[int], key: Sequence[int], expected: str
) -> None:
    got = philox4x32(counter, key)
    assert " ".join(f"{word:08x}" for word in got) == expected


@pytest.mark.parametrize("numbers", [(0, 0, 0, 0), (1, 2, 3, 4), (2**32 - 1,) * 4])
def test_philox_is_the_published_one(numbers: tuple[int, ...]) -> None:
    low, high, *key = numbers
    assert operators.philox(*numbers) == philox4x32((low, high, 0, 0), key)


@pytest.mark.parametrize(("seed", "offset"), SEEDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_uniform_and_randint(shape: Shape, seed: int, offset: int) -> None:
    size = int(np.prod(shape))
    drawn = words(size, seed, offset)
    for dtype in (dtypes.float32, dtypes.float64):
        got = cpu.to_numpy(cpu.uniform(shape, dtype, seed, offset))
        expected = np.array([(w >> 8) / 2**24 for w in drawn], dtype.numpy)
        np.testing.assert_array_equal(got, expected.reshape(shape))
    for low, high in ((0, 10), (-5, 2**31 - 6)):
        got = cpu.to_numpy(cpu.randint(low, high, shape, dtypes.int64, seed, offset))
        expected = np.array([low + (w * (high - low) >> 32) for w in drawn], np.int64)
        np.testing.assert_array_equal(got, expected.reshape(shape))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_normal(shape: Shape) -> None:
    size = int(np.prod(shape))
    drawn = words(size + 1, 11, 4)
    expected: list[float] = []
    for i in range(0, size, 2):
        expected += operators.box_muller(drawn[i], drawn[i + 1])
    got = cpu.to_numpy(cpu.normal(shape, dtypes.float64, 11, 4))
    # the product with cos or sin is as exact as the angle: 2 pi * 2 ** -53
    np.testing.assert_allclose(got.reshape(-1), expected[:size], rtol=1e-12, atol=1e-14)


def test_large_draws_are_the_same_sequence() -> None:
    size = 40_001
    got = cpu.to_numpy(cpu.uniform((size,), dtypes.float32, 3, 1))
    expected = [(w >> 8) / 2**24 for w in words(size, 3, 1)]
    np.testing.assert_array_equal(got, np.array(expected, np.float32))
    later = cpu.to_numpy(cpu.uniform((100,), dtypes.float32, 3, 26))
    np.testing.assert_array_equal(later, got[100:200])
    normal = cpu.to_numpy(cpu.normal((size,), dtypes.float32, 3, 1))
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03


@pytest.mark.parametrize("p", [0.0, 0.25, 0.9, 1.0])
def test_dropout(p: float) -> None:
    for size in (0, 6, 5000):
        x = np.random.default_rng(0).standard_normal((2, size)).astype(np.float32)
        got = cpu.to_numpy(cpu.dropout(cpu.from_numpy(x), p, 9, 2))
        keep = np.array([w >= p * 2**32 for w in words(2 * size, 9, 2)], bool)
        scale = np.float32(1 / (1 - p)) if p < 1 else np.float32(0)
        expected = np.where(keep.reshape(x.shape), x * scale, np.float32(0))
        np.testing.assert_array_equal(got, expected)


def test_dropout_follows_the_index_not_the_memory() -> None:
    x = np.ones((30, 20), np.float32)
    straight = cpu.dropout(cpu.from_numpy(x), 0.5, 1, 0)
    turned = cpu.dropout(cpu.from_numpy(x.T.copy()).permute((1, 0)), 0.5, 1, 0)
    np.testing.assert_array_equal(cpu.to_numpy(straight), cpu.to_numpy(turned))
