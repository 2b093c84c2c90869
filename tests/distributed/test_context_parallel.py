"""Sequences that ranks share, on ranks that are threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import parallel_checks
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from helpers import quick
from minitorch import distributed as dist
from minitorch.distributed import spawn_threads
from minitorch.distributed.tensor.experimental import own_part, ring_attention
from minitorch.models.parallel import parallelize
from minitorch.nn import functional as F


@pytest.mark.parametrize(
    "n, how",
    [
        (2, {"shape": "llama", "cp": 2}),
        (4, {"shape": "gpt2", "cp": 4, "recompute": True}),
        (4, {"shape": "llama", "cp": 2, "sequence": True}),  # layers are shared as well
    ],
)
def test_a_gpt_with_parts_of_sequences_trains_as_one(n: int, how: Any) -> None:
    run = lambda: parallel_checks.shares_layers(**how)
    assert max(spawn_threads(run, n)) < 1e-10


def group() -> Any:
    return dist.init_device_mesh("cpu", (dist.get_world_size(),)).get_group()


@quick
@given(
    n=st.integers(1, 4),
    half=st.integers(1, 3),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 3)]),
    causal=st.booleans(),
    size=st.sampled_from([0.3, 30.0]),
)
def test_the_ring_is_attention(
    n: int, half: int, heads: tuple[int, int], causal: bool, size: float
) -> None:
    """Outputs and gradients, against attention over the whole sequence."""
    length, rng = 2 * n * half, np.random.default_rng(0)
    shapes = [(2, heads[0], 4), *[(2, heads[1], k) for k in (4, 6)], (2, heads[0], 6)]
    *given, weights = (
        rng.standard_normal((b, h, length, e)) * size for b, h, e in shapes
    )
    q, k, v = (minitorch.tensor(a, requires_grad=True) for a in given)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    (out * minitorch.tensor(weights)).sum().backward()

    def program() -> None:
        g = group()
        mine = [own_part(x.detach(), g, 2).requires_grad_() for x in (q, k, v)]
        found = ring_attention(*mine, is_causal=causal, enable_gqa=True, group=g)
        (found * own_part(minitorch.tensor(weights), g, 2)).sum().backward()
        pairs = [(found, out), *((a.grad, b.grad) for a, b in zip(mine, (q, k, v)))]
        for ours, whole in pairs:
            expected = own_part(whole.detach(), g, 2).numpy()
            np.testing.assert_allclose(
                ours.detach().numpy(), expected, 1e-9, 1e-9 * size
            )

    spawn_threads(program, n)


def test_in_half_types_the_parts_are_added_in_float32() -> None:
    def program() -> float:
        g, rng = group(), np.random.default_rng(0)
        x = minitorch.tensor(rng.standard_normal((3, 1, 2, 16, 2)), device="simple")
        x = x.bfloat16()
        whole = F.scaled_dot_product_attention(*x.float(), is_causal=True)
        mine = [own_part(part, g, 2) for part in x]
        out = ring_attention(*mine, is_causal=True, group=g)
        assert out.dtype is minitorch.bfloat16
        return (out.float() - own_part(whole, g, 2)).abs().max().item()

    assert max(spawn_threads(program, 4)) < 0.02


def test_what_is_refused() -> None:
    def program() -> None:
        g, x = group(), minitorch.ones(1, 2, 4, 4)
        ids = minitorch.zeros(1, 6, dtype=minitorch.int64)
        mesh = dist.init_device_mesh("cpu", (2,))
        model = parallelize(parallel_checks.gpt("gpt2"), cp_mesh=mesh)
        cases: Any = [
            ("a sequence of 6 on 2 ranks, .* a multiple of 4", lambda: model(ids)),
            (
                "16 tokens; the model has 8 positions",
                lambda: model(minitorch.zeros(1, 16, dtype=minitorch.int64)),
            ),
            ("masks and dropout", lambda: ring_attention(x, x, x, dropout_p=0.1)),
            (
                r"are \(1, 2, 4, 4\), \(1, 1, 4, 4\) and .* with H = K",
                lambda: ring_attention(x, x[:, :1], x[:, :1]),
            ),
            (
                "a part of 3 tokens has no halves",
                lambda: ring_attention(*[x[:, :, :3]] * 3, is_causal=True, group=g),
            ),
        ]
        for message, call in cases:
            with pytest.raises(ValueError, match=message):
                call()

    spawn_threads(program, 2)
