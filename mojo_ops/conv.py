"""Convolution and its two gradients: calls of the kernels in `conv.mojo`.

With this file the backend passes over all images, for a convolution and for the
gradient of its input (`correlate`), and for the gradient of its weight (`weight_sums`).
`minitorch/backend/host/conv.py` explains how, and plans it.
"""

from __future__ import annotations

import numpy as np

from minitorch.backend.host.conv import SLACK, Plan, Split
from minitorch.backend.host.workspace import workspace
from minitorch.backend.primitives import Pair
from minitorch.tensor_data import TensorData
from mojo_ops.bridge import Library, get_num_threads

kernels = Library("conv")

ROWS = 8  # lines of a packed panel, as in conv.mojo


def correlate(
    source: np.ndarray, weight: np.ndarray, bias: np.ndarray, out: TensorData,
    plan: Plan, steps: Pair,
) -> bool:  # fmt: skip
    """Call the kernel with room for packed weights and for each worker."""
    dtype = out.storage.dtype
    groups, positions = plan.groups, plan.positions
    made, depth = out.shape[1] // groups, len(plan.taps)
    tasks = out.shape[0] * groups * plan.strips
    workers = min(get_num_threads(), tasks)
    packed = groups * -(-made // ROWS) * ROWS * depth
    work = workspace(packed + workers * (made * positions + plan.buffer), dtype)
    counter = np.zeros(2, np.int64)
    kernels.correlate(
        source, weight, bias, out.storage.array, plan.numbers, plan.phases,
        plan.offsets, len(plan.phases), depth, plan.buffer, plan.taps, *steps, made,
        work, work[packed:], counter, workers, tasks, dtype.itemsize,
    )  # fmt: skip
    return not counter[1]


def weight_sums(
    source: np.ndarray, grad: np.ndarray, out: TensorData, plan: Plan, images: int,
    split: Split,
) -> bool:  # fmt: skip
    """Call the kernel with room for partial sums and for each worker."""
    dtype = out.storage.dtype
    groups, positions = plan.groups, plan.positions
    blocks, splits, part = split
    made, depth = out.shape[0] // groups, len(plan.taps)
    line = positions + SLACK
    workers = min(get_num_threads(), blocks * groups * splits)
    partial = blocks * groups * splits * kernels.part_room(part, depth)
    work = workspace(partial + workers * (part * line + plan.buffer), dtype)
    counter = np.zeros(2, np.int64)
    kernels.weight_sums(
        source, grad, out.storage.array, plan.numbers, plan.phases, plan.offsets,
        len(plan.phases), depth, plan.buffer, images, made, blocks, splits, part, line,
        work, work[partial:], counter, workers, dtype.itemsize,
    )  # fmt: skip
    return not counter[1]
