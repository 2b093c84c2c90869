"""Convolution and its two gradients: launchers of `conv.mojo`.

With this file one can convolve x [N, C, H, W] with weight [O, C/groups, KH, KW]
(`conv2d`) and bring a gradient back to x (`conv2d_backward_input`) and to the weight
(`conv2d_backward_weight`), with any stride, padding, dilation and number of groups.

How an image is laid out is planned by `fast_ops/conv.py`, which explains it. Weights
and gradients that are not finite are left to `fast_ops/conv_exact.py`, as there.
"""

from __future__ import annotations

import numpy as np

from fast_ops.conv import (
    PARTIAL,
    SLACK,
    TASKS,
    Pair,
    Plan,
    backward_axis,
    forward_axis,
    make_plan,
    zip_product,
)
from fast_ops.conv_exact import (
    exact_backward_input,
    exact_backward_weight,
    exact_output,
)
from fast_ops.workspace import workspace
from minitorch.tensor_data import Shape, TensorData
from mojo_ops.bridge import Library, get_num_threads
from mojo_ops.memory import contiguous, empty

kernels = Library("conv")

ROWS = 8  # lines of a packed panel, as in conv.mojo
DOT_ROWS = 4  # channels of a tile of `WeightSums`, at most


def conv2d(
    x: TensorData,
    weight: TensorData,
    bias: TensorData | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """x [N, C, H, W], weight [O, C/groups, KH, KW] -> [N, O, OH, OW].

    Cross-correlation, as in all deep-learning libraries;
    OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1.
    """
    made, channels, *taps = weight.shape
    h, w = (
        forward_axis(x.shape[2 + i], taps[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    out = empty((x.shape[0], made, h.outputs, w.outputs), x.dtype)
    if out.size:
        steps = (taps[0] * taps[1], taps[1], 1)
        plan = make_plan(
            h, w, x.shape[0], groups, channels, made // groups, steps, x.dtype.itemsize
        )
        size = channels * taps[0] * taps[1]
        if not _correlate(x, weight, bias, out, plan, (made // groups * size, size)):
            exact_output(x, weight, bias, out, stride, padding, dilation)
    return out


def conv2d_backward_input(
    grad: TensorData,
    weight: TensorData,
    x_shape: Shape,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """The gradient for x [N, C, H, W] from grad [N, O, OH, OW]."""
    dx = empty(x_shape, grad.dtype)
    if dx.size == 0:
        return dx
    made, channels, *taps = weight.shape
    kernel_size = taps[0] * taps[1]
    steps = (channels * kernel_size, taps[1], 1)
    row = (made // groups * channels * kernel_size, kernel_size)
    for rest in zip_product(tuple(range(stride[0])), tuple(range(stride[1]))):
        h, w = (
            backward_axis(
                x_shape[2 + i], grad.shape[2 + i], taps[i], stride[i], padding[i],
                dilation[i], rest[i],
            )
            for i in range(2)
        )  # fmt: skip
        if h.outputs and w.outputs:
            plan = make_plan(
                h, w, x_shape[0], groups, made // groups, channels, steps,
                grad.dtype.itemsize,
            )  # fmt: skip
            if not _correlate(grad, weight, None, dx, plan, row):
                exact_backward_input(grad, weight, dx, stride, padding, dilation)
                break
    return dx


def _correlate(
    source: TensorData, weight: TensorData, bias: TensorData | None, out: TensorData,
    plan: Plan, steps: Pair,
) -> bool:  # fmt: skip
    """Call the kernel with room for packed weights and for each worker.

    `steps` are the distances of groups and of channels in the weight. Returns whether
    the weight is finite; if not, `out` is still to be made.
    """
    groups, columns, strip = (int(plan.numbers[i]) for i in (1, 9, 10))
    made, depth, dtype = out.shape[1] // groups, len(plan.taps), out.dtype
    if bias is None:
        shift = np.zeros(out.shape[1], dtype.numpy)
    else:
        shift = contiguous(bias).flat()
    tasks = out.shape[0] * groups * plan.strips
    workers = min(get_num_threads(), tasks)
    packed = groups * -(-made // ROWS) * ROWS * depth
    work = workspace(packed + workers * (made * strip * columns + plan.buffer), dtype)
    counter = np.zeros(2, np.int64)
    kernels.correlate(
        contiguous(source).flat(), contiguous(weight).flat(), shift,
        out.storage.array, plan.numbers, plan.phases, plan.offsets, len(plan.phases),
        depth, plan.buffer, plan.taps, *steps, made, work, work[packed:],
        counter, workers, tasks, dtype.itemsize,
    )  # fmt: skip
    return not counter[1]


def conv2d_backward_weight(
    grad: TensorData,
    x: TensorData,
    weight_shape: Shape,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> TensorData:
    """The gradient for weight [O, C/groups, KH, KW] from grad [N, O, OH, OW]."""
    made, channels, *taps = weight_shape
    dw = empty(weight_shape, grad.dtype)
    if grad.size == 0 or x.size == 0 or dw.size == 0:
        dw.storage.array.fill(0)
        return dw
    h, w = (
        forward_axis(x.shape[2 + i], taps[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    steps = (taps[0] * taps[1], taps[1], 1)
    # TASKS images: strips only bound the memory here, they are no tasks.
    plan = make_plan(
        h, w, TASKS, groups, channels, made // groups, steps, x.dtype.itemsize
    )
    if not _weight_sums(grad, x, dw, plan):
        exact_backward_weight(grad, x, dw, stride, padding, dilation)
    return dw


def _weight_sums(grad: TensorData, x: TensorData, dw: TensorData, plan: Plan) -> bool:
    """Call the kernel; the work is cut by images first, then by channels.

    Returns whether all sums are finite.
    """
    groups, columns, strip = (int(plan.numbers[i]) for i in (1, 9, 10))
    made, depth, images = dw.shape[0] // groups, len(plan.taps), x.shape[0]
    blocks = max(1, min(images, 2 * TASKS, PARTIAL // dw.size))
    splits = max(1, min(-(-TASKS // (blocks * groups)), made // DOT_ROWS))
    part = -(-made // splits)
    splits = -(-made // part)  # none may be empty
    line = strip * columns + SLACK
    workers = min(get_num_threads(), blocks * groups * splits)
    parts = blocks * groups * splits * kernels.part_room(part, depth)
    work = workspace(parts + workers * (part * line + plan.buffer), x.dtype)
    counter = np.zeros(2, np.int64)
    kernels.weight_sums(
        contiguous(x).flat(), contiguous(grad).flat(), dw.storage.array, plan.numbers,
        plan.phases, plan.offsets, len(plan.phases), depth, plan.buffer, images, made,
        blocks, splits, part, line, work, work[parts:], counter, workers,
        x.dtype.itemsize,
    )  # fmt: skip
    return not counter[1]
