"""Attention of the backends of the host beside PyTorch's, at the edges of blocks."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import minitorch
import minitorch.nn.functional as F
from backends.shared import name_of
from backends.test_attention import Sizes, attended, expected, operands
from fast_ops import attention, threads
from helpers import array_of, loaded, make, numbers
from minitorch.backend.host import memory
from minitorch.dtypes import float32, float64

Q, K = attention.QUERIES, attention.KEYS

# B, H, K, L, S, E, V: block - 1, block, block + 1; head sizes; groups; other keys.
SIZES: tuple[Sizes, ...] = (
    *[(1, 2, 2, n, n, 64, 64) for n in (1, Q - 1, Q, Q + 1, K - 1, K, K + 1, 1000)],
    *[(1, 2, 2, 70, 70, e, e) for e in (16, 24, 80, 128, 256)],
    (1, 2, 2, 2 * K + 3, 2 * K + 3, 32, 48),
    (2, 6, 2, 90, 90, 16, 8),
    (8, 4, 1, 9, 300, 32, 32),
    (1, 2, 1, Q + 1, 1, 24, 8),
    (1, 2, 2, 300, 70, 32, 32),
    (1, 2, 2, 70, 300, 32, 32),
    (1, 2, 2, 300, 4097, 64, 64),  # long sums
)


@pytest.fixture(params=["cpu", "mojo"], scope="module")
def host(request: pytest.FixtureRequest) -> Any:
    return loaded(request.param)


def by_pytorch(arrays: list[np.ndarray], scale: float, causal: bool) -> list[Any]:
    """out and the three gradients, in the dtype of the arrays."""
    q, k, v = (torch.tensor(a).requires_grad_() for a in arrays[:3])
    out = TF.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=True
    )
    grads = torch.autograd.grad(out, (q, k, v), torch.tensor(arrays[3]))
    return [x.detach().numpy() for x in (out, *grads)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_error_is_about_that_of_pytorch(
    host: Any, sizes: Sizes, causal: bool
) -> None:
    """At most twice as large in float32, three times for gradients; or a last bit.

    With one key, two sums of about 8 cancel in the gradient of the query, which is 0.
    """
    arrays, scale = operands(sizes, float32), sizes[-2] ** -0.5
    right = expected(arrays, scale, causal)
    mine = [array_of(x) for x in attended(host, arrays, scale, causal)]
    assert abs(mine[1] - right[1]).max() < 1e-6 * abs(right[1]).max() + 1e-6
    theirs = by_pytorch(arrays, scale, causal)
    for name, got, other, x, times in zip(
        ("out", "query", "key", "value"),
        (mine[0], *mine[2:]), theirs, (right[0], *right[2:]), (2, 3, 3, 3), strict=True,
    ):  # fmt: skip
        one = np.finfo(np.float32).eps * (abs(x).max() or 8)
        assert abs(got - x).max() <= times * abs(other - x).max() + one, name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes", ((2, 4, 1, 1, 300, 32, 32), SIZES[4], *SIZES[-6:-1]), ids=str
)
def test_float64(host: Any, sizes: Sizes, causal: bool) -> None:
    arrays = operands(sizes, float64)
    right = expected(arrays, 0.2, causal)
    for got, x in zip(attended(host, arrays, 0.2, causal), right, strict=True):
        np.testing.assert_allclose(array_of(got), x, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "sizes", [(1, 2, 1, 400, 400, 16, 16), (3, 6, 6, 70, 70, 8, 8)]
)
def test_the_number_of_threads_changes_no_bit(sizes: Sizes) -> None:
    """Neither where queries are cut into parts, nor where heads are many."""
    arrays, before = operands(sizes, float32), threads.get_num_threads()
    results = []
    try:
        for n in (1, threads.max_num_threads()):
            threads.set_num_threads(n)
            results.append(attended(loaded("cpu"), arrays, 0.3, True))
    finally:
        threads.set_num_threads(before)
    for one, many in zip(*results, strict=True):
        assert np.array_equal(array_of(one), array_of(many))


@pytest.mark.parametrize("kind", ["bool", "numbers"])
def test_dropout_and_masks_in_all_blocks(host: Any, kind: str) -> None:
    """Of several threads, parts, and keys that are no multiple of four."""
    arrays = operands((1, 4, 2, Q + 9, K + 7, 16, 24), float32)
    mask = np.random.default_rng(0).random((1, 1, Q + 9, K + 7)) > 0.2
    mask[..., : Q // 2, :K] = False
    if kind == "numbers":
        mask = np.where(mask, 0.3, -np.inf).astype(np.float32)
    whole, drop = np.broadcast_to(mask, (1, 4, *mask.shape[2:])), (0.2, 77, 2**33 - 9)
    given = make(mask, name_of(host)).expand(whole.shape)
    for causal in (False, True):
        right = expected(arrays, 0.25, causal, whole, drop)
        got = attended(host, arrays, 0.25, causal, mask=given, drop=drop)
        for x, y in zip(got, right, strict=True):
            np.testing.assert_allclose(array_of(x), y, rtol=0, atol=2e-5)


def test_no_memory_holds_the_weights(host: Any) -> None:
    """L x S float32 are 64 MiB here, and three steps keep several of them."""

    def step(length: int) -> None:
        x = minitorch.rand(1, 1, length, 16, device=name_of(host), requires_grad=True)
        y = F.scaled_dot_product_attention(x, x, x, None, 0.2, is_causal=True)
        y.sum().backward()

    step(64)  # a compiler at work has as much memory
    memory.release()
    tracemalloc.start()
    step(4096)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * 2**20


def test_heads_of_features_are_read_where_they_are(host: Any) -> None:
    """As models make them, [B, T, 3, H, E]: nothing is copied before the kernel."""
    qkv = make(numbers((2, 9, 3, 2, 5)), name_of(host))
    for part in range(3):
        heads = qkv.select(2, part).permute((0, 2, 1, 3))
        assert host._in_rows(heads) is heads
        assert host._written(heads) is heads
