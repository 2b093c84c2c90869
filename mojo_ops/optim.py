"""Optimizer steps: launchers of the kernels in `optim.mojo`.

With this file one can take a step of SGD (`sgd_step`) or of Adam and AdamW
(`adam_step`), in place, in one pass over memory for each parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minitorch.dtypes import DType
from minitorch.step_factors import adam_factors, momentum_factors
from minitorch.tensor_data import TensorData
from mojo_ops.bridge import Library
from mojo_ops.memory import contiguous, copy_into

kernels = Library("optim")


def _update(
    kernel: Callable,
    tensors: Sequence[Sequence[TensorData]],
    factors: Sequence[float],
) -> None:
    """Run a kernel for each parameter: tensors[0][i], its gradient, and its state.

    The factors are rounded once for all parameters of one type.
    """
    rounded: dict[DType, np.ndarray] = {}
    for given in zip(*tensors):
        dtype = given[0].storage.dtype
        numbers = rounded.get(dtype)
        if numbers is None:
            numbers = rounded[dtype] = np.array(factors, dtype.numpy)
        if any(t.storage.dtype is not dtype for t in given):
            kinds = [t.dtype.name for t in given]
            raise TypeError(f"optimizer step: tensors of one parameter differ: {kinds}")
        _update_one(kernel, given, numbers)


def _update_one(
    kernel: Callable, given: tuple[TensorData, ...], factors: np.ndarray
) -> None:
    """Run a kernel on flat arrays; given[1] is the gradient, the others change."""
    flat = list(map(contiguous, given))
    arrays = [t.flat() for t in flat]
    kernel(len(arrays[0]), given[0].storage.dtype.name, factors, *arrays)
    if flat != list(given):  # some are copies
        for i, (old, new) in enumerate(zip(given, flat)):
            if new is not old and i != 1:
                copy_into(old, new)


def sgd_step(
    params: Sequence[TensorData],
    grads: Sequence[TensorData],
    momentum_buffers: Sequence[TensorData] | None,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    first: bool,
) -> None:
    """One step in place on all tensors; `first` sets the buffers to the gradient.

    g = grad + weight_decay * p; buf = momentum * buf + (1 - dampening) * g;
    p -= lr * (g + momentum * buf if nesterov else buf if momentum else g).
    """
    if momentum_buffers is None or momentum == 0:
        _update(kernels.sgd, (params, grads), (lr, weight_decay))
        return
    if first:
        for buf in momentum_buffers:  # 0 times what was there, were it not NaN
            buf.array().fill(0)
    factors = momentum_factors(lr, momentum, dampening, weight_decay, nesterov, first)
    _update(kernels.sgd_momentum, (params, grads, momentum_buffers), factors)


def adam_step(
    params: Sequence[TensorData],
    grads: Sequence[TensorData],
    exp_avgs: Sequence[TensorData],
    exp_avg_sqs: Sequence[TensorData],
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """One Adam (or, `decoupled`, AdamW) step in place; `step` counts from 1.

    p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps).

    Source: Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled weight decay
    regularization", 2019.
    """
    factors = adam_factors(step, lr, beta1, beta2, eps, weight_decay, decoupled)
    _update(kernels.adam, (params, grads, exp_avgs, exp_avg_sqs), factors)
