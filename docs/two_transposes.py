"""Two kernels of Numba's to look into: docs/gpu_kernels.md shows their x-rays.

With this file one can try `minitorch xray docs/two_transposes.py:straight`, and
`...:through_a_tile`. What the command wants of a file is a function `xray`, which
launches the kernels, as a program would.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

SIDE = 32
ROWS = 8  # of threads


@cuda.jit
def straight(a, out):
    """out[j, i] = a[i, j]"""
    j = cuda.blockIdx.x * SIDE + cuda.threadIdx.x
    for k in range(cuda.threadIdx.y, SIDE, ROWS):
        i = cuda.blockIdx.y * SIDE + k
        if i < a.shape[0] and j < a.shape[1]:
            out[j, i] = a[i, j]


@cuda.jit
def through_a_tile(a, out):
    """The same; neighbours write neighbours."""
    tile = cuda.shared.array((SIDE, SIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    for k in range(y, SIDE, ROWS):
        if top + k < a.shape[0] and left + x < a.shape[1]:
            tile[k, x] = a[top + k, left + x]
    cuda.syncthreads()
    for k in range(y, SIDE, ROWS):
        if left + k < out.shape[0] and top + x < out.shape[1]:
            out[left + k, top + x] = tile[x, k]


def xray() -> None:
    """Launch both kernels on a matrix whose last tiles are cut short."""
    a, out = np.zeros((2000, 2040), np.float32), np.zeros((2040, 2000), np.float32)
    blocks = -(-a.shape[1] // SIDE), -(-a.shape[0] // SIDE)
    for kernel in (straight, through_a_tile):
        kernel[blocks, (SIDE, ROWS)](a, out)
