"""Registers of other processors: 16 bytes wide, and 16 of them or 32 (ARM64).

LLVM makes the vectors that this processor has of them, so that their tiles run here.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRODUCTS = """
import platform, sys
platform.machine = lambda: sys.argv[1]
import numpy as np
import minitorch as mt
from fast_ops import simd

rows, vectors, bytes_ = map(int, sys.argv[2:])
assert (*simd.TILE, simd.VECTOR_BYTES) == (rows, vectors, bytes_), simd.TILE
rng = np.random.default_rng(0)

def near(ours, exact):
    error = np.abs(ours.detach().numpy() - exact).max()
    assert error <= 2e-5 * np.abs(exact).max(), error

for m, k, n in ((1, 1, 1), (7, 33, 9), (8, 64, 8), (65, 129, 67), (130, 31, 257)):
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    for x in (a, np.asfortranarray(a)):
        for y in (b, np.asfortranarray(b)):
            x32 = mt.from_numpy(x.T.astype("f4")).T if x is not a else mt.tensor(x)
            y32 = mt.from_numpy(y.T.astype("f4")).T if y is not b else mt.tensor(y)
            near(x32.float() @ y32.float(), a @ b)
x, w = rng.standard_normal((2, 3, 9, 11)), rng.standard_normal((5, 3, 3, 3))
x32, w32 = (mt.tensor(each).float().requires_grad_() for each in (x, w))
out = mt.nn.functional.conv2d(x32, w32, padding=1)
out.sum().backward()
padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
near(out, np.einsum("nchwij,ocij->nohw", taps, w))
near(w32.grad, np.broadcast_to(taps.sum((0, 2, 3)), w.shape))
q, k, v = rng.standard_normal((3, 2, 37, 16))
scores = np.exp(q @ k.transpose(0, 2, 1) / 4)
ours = [mt.tensor(each).float()[None] for each in (q, k, v)]
near(
    mt.nn.functional.scaled_dot_product_attention(*ours)[0],
    scores / scores.sum(-1, keepdims=True) @ v,
)
"""


@pytest.mark.parametrize("machine, rows", [("x86_64", 4), ("arm64", 8)])
def test_products_with_narrow_vectors(machine: str, rows: int, tmp_path: Path) -> None:
    """Of sizes around tiles, from matrices that lie along rows and along columns."""
    # Kernels that are kept know the processor, and not the one that this pretends.
    narrow = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PRODUCTS, machine, str(rows), "2", "16"]
    subprocess.run(command, check=True, env={**os.environ, **narrow}, timeout=600)
