"""Multiply matrices.

With this file one can multiply two matrices, or two stacks of them (`matmul`).
"""

from __future__ import annotations

import math

from minitorch.simple_ops.lists import read, tensor
from minitorch.tensor_data import TensorData, broadcast_shapes


def matmul(a: TensorData, b: TensorData) -> TensorData:
    """a [*, M, K] @ b [*, K, N] -> out [*, M, N]; the batch dimensions * broadcast.

    out[i, j] = a[i, 0] * b[0, j] + ... + a[i, K-1] * b[K-1, j]
    """
    # BEGIN SOLUTION a2.5
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    left = read(a.expand((*batch, m, k)))
    right = read(b.expand((*batch, k, n)))
    out = []
    for matrix in range(math.prod(batch)):
        for i in range(m):
            row = matrix * m * k + i * k  # where row i of this matrix of a begins
            for j in range(n):
                column = matrix * k * n + j  # and column j of this matrix of b
                total = 0
                for p in range(k):
                    total += left[row + p] * right[column + p * n]
                out.append(total)
    return tensor(out, (*batch, m, n), a.dtype)
    # END SOLUTION a2.5
