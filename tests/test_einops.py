"""Tensors in einops, with NumPy's arrays as what is right."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import minitorch
from minitorch import nn

einops = pytest.importorskip("einops")

X = np.random.default_rng(0).standard_normal((2, 3, 4, 6))


def pair(device="cpu"):
    return minitorch.tensor(X, device=device, requires_grad=True), X


@pytest.mark.parametrize(
    "pattern, sizes",
    [
        ("b c h w -> b (h w) c", {}),
        ("b c (h p) (w q) -> b (h w) (p q c)", {"p": 2, "q": 3}),
        ("b ... w -> w b ...", {}),
        ("b c h w -> b c 1 h w", {}),
    ],
)
def test_rearrange(pattern, sizes, device):
    x, array = pair(device)
    found = einops.rearrange(x, pattern, **sizes)
    assert found.device == device
    np.testing.assert_array_equal(
        found.detach().cpu().numpy(), einops.rearrange(array, pattern, **sizes)
    )
    (found * found).sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), 2 * array)


@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod"])
def test_reduce(how):
    x, array = pair()
    found = einops.reduce(x, "b c (h 2) w -> c h", how)
    wanted = einops.reduce(array, "b c (h 2) w -> c h", how)
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12)


def test_repeat_pack_einsum_and_lists():
    x, array = pair()
    both = [(x, minitorch), (array, np)]
    for make in (
        lambda a, m: einops.repeat(a, "b c h w -> b (c k) h w n", k=2, n=3),
        lambda a, m: einops.einsum(a, a, "b c h w, b d h w -> b c d"),
        lambda a, m: einops.rearrange([a, a + 1], "n b c h w -> b (n c) h w"),
        lambda a, m: einops.pack([a, a[:, 0]], "b * w")[0],
        lambda a, m: einops.unpack(a, [[1], [2]], "b * h w")[1],
    ):
        found, wanted = (make(*one) for one in both)
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12)
    with pytest.raises(einops.EinopsError, match="rearrange"):
        einops.rearrange(x, "b c -> c b")
    assert einops.parse_shape(x, "b c _ w") == {"b": 2, "c": 3, "w": 6}


def test_patches_in_a_network():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(12, 5)

        def forward(self, x):
            return self.embed(einops.rearrange(x, "b c (h p) w -> b (h w) (p c)", p=4))

    net = Patches()
    net(minitorch.randn(2, 3, 8, 6)).sum().backward()
    assert net.embed.weight.grad.shape == (5, 12)


@pytest.mark.parametrize("first", ["einops, minitorch", "minitorch, einops"])
def test_whoever_is_imported_first(first):
    code = (
        f"import {first}; print(einops.rearrange(minitorch.ones(2, 3), 'a b -> b a'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert b"tensor" in done.stdout
