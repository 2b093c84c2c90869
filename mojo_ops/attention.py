"""FlashAttention and its gradients: calls of the kernels in `attention.mojo`.

With this file the backend has attention (`attend`) and its gradients
(`attend_backward`); the launchers are in `minitorch/backend/host/attention.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minitorch.backend.attention import Drop
from minitorch.backend.host.attention import QUERIES, Sizes
from minitorch.backend.host.workspace import workspace
from minitorch.tensor_data import TensorData
from mojo_ops.bridge import Library, get_num_threads

kernels = Library("attention")

KEYS, ROWS = 128, 8  # in a block and in a tile, as in attention.mojo
BLOCK = (KEYS + ROWS) * QUERIES
LOW_32 = 0xFFFFFFFF


def attend(
    operands: Sequence[TensorData], logsumexp: np.ndarray, sizes: Sizes, scale: float,
    causal: bool, mask: TensorData | None, drop: Drop,
) -> None:  # fmt: skip
    """Operands: query, key, value and out."""
    B, H, _, L, *_ = sizes
    tasks = B * H * -(-L // QUERIES)
    how = scale, causal, mask, drop, tasks
    _run(kernels.attend, operands, logsumexp, sizes, *how)


def attend_backward(
    operands: Sequence[TensorData], logsumexp: np.ndarray, sizes: Sizes, scale: float,
    causal: bool, mask: TensorData | None, drop: Drop, parts: int,
) -> None:  # fmt: skip
    """Operands: gradients of query, of key and value in parts, and of out; then those
    of `attend`."""
    B, _, K, *_ = sizes
    how = scale, causal, mask, drop, B * K * parts, parts
    _run(kernels.attend_backward, operands, logsumexp, sizes, *how)


def _run(
    kernel: Any, operands: Sequence[TensorData], logsumexp: np.ndarray, sizes: Sizes,
    scale: float, causal: bool, mask: TensorData | None, drop: Drop, tasks: int,
    *parts: int,
) -> None:  # fmt: skip
    """Call a kernel with its plan, and with room for each worker."""
    p, seed, offset = drop
    plan = [*sizes, causal, seed & LOW_32, seed >> 32 & LOW_32, offset]
    plan.append(math.ceil(p * 2.0**32))
    arrays = [a.storage.array for a in operands]
    for a in operands:
        plan += [a.offset, *a.strides[-4:]]
    if mask is None:
        arrays.append(logsumexp[:0])
        plan += [0] * 5
    else:
        arrays.append(mask.storage.array)
        plan += [mask.offset, *mask.strides]
    *_, E, V = sizes
    room = 3 * BLOCK + 3 * QUERIES + (E + V) * (2 * QUERIES + KEYS + ROWS) + 64
    workers = min(get_num_threads(), tasks)
    kernel(
        *arrays, logsumexp, np.array(plan, np.int64), scale, 1 / (1 - p) if p else 0.0,
        workspace(room * workers, operands[-1].dtype), room, np.zeros(1, np.int64),
        workers, *parts,
    )  # fmt: skip
