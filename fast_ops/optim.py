"""Optimizer steps: one pass over memory for each parameter.

With this file one can take a step of SGD (`sgd_step`) or of Adam and AdamW
(`adam_step`), in place. Written with tensor operations, an Adam step reads and writes
each array about ten times; fused into one loop, each number is loaded once, updated in
registers and stored once.

All factors are rounded to the parameters' type before the loop, so that float32
parameters are updated in float32 arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL_LIMIT, compile_kernel
from fast_ops.memory import contiguous, copy_into
from minitorch.dtypes import DType
from minitorch.step_factors import adam_factors, momentum_factors
from minitorch.tensor_data import TensorData


def _sgd(p: np.ndarray, grad: np.ndarray, lr: float, weight_decay: float) -> None:
    """p -= lr * (grad + weight_decay * p); each thread takes one piece of p."""
    for i in prange(p.size):
        p[i] -= lr * (grad[i] + weight_decay * p[i])


def _sgd_momentum(
    p: np.ndarray, grad: np.ndarray, buf: np.ndarray, lr: float, momentum: float,
    damp: float, weight_decay: float, from_g: float, from_buf: float,
) -> None:  # fmt: skip
    """buf = momentum * buf + damp * g; p -= lr * (from_g * g + from_buf * buf).

    g = grad + weight_decay * p. Without Nesterov's idea the step is buf (0 and 1); with
    it, g + momentum * buf (1 and momentum).
    """
    for i in prange(p.size):
        g = grad[i] + weight_decay * p[i]
        b = momentum * buf[i] + damp * g
        buf[i] = b
        p[i] -= lr * (from_g * g + from_buf * b)


def _adam(
    p: np.ndarray, grad: np.ndarray, m: np.ndarray, v: np.ndarray, step_size: float,
    new1: float, beta2: float, new2: float, eps: float, root: float, decay: float,
    shrink: float,
) -> None:  # fmt: skip
    """Move the averages m and v toward g and g * g, and p along m / sqrt(v).

    new1 = 1 - beta1, new2 = 1 - beta2, root = 1 / sqrt(1 - beta2 ** step); g = grad +
    decay * p (Adam), or p is first multiplied by `shrink` (AdamW).
    """
    # BEGIN SOLUTION a8.4
    for i in prange(p.size):
        x = p[i] * shrink
        g = grad[i] + decay * x
        m_i = m[i] + new1 * (g - m[i])
        v_i = beta2 * v[i] + new2 * g * g
        m[i] = m_i
        v[i] = v_i
        p[i] = x - step_size * m_i / (math.sqrt(v_i) * root + eps)
    # END SOLUTION a8.4


sgd = (compile_kernel(_sgd), compile_kernel(_sgd, parallel=True))
sgd_momentum = (
    compile_kernel(_sgd_momentum),
    compile_kernel(_sgd_momentum, parallel=True),
)
adam = (compile_kernel(_adam), compile_kernel(_adam, parallel=True))


def _update(
    kernels: tuple[Any, Any],
    tensors: Sequence[Sequence[TensorData]],
    factors: Sequence[float],
) -> None:
    """Run a kernel for each parameter: tensors[0][i], its gradient, and its state.

    The factors are rounded once for all parameters of one type.
    """
    rounded: dict[DType, list[Any]] = {}
    for given in zip(*tensors):
        dtype = given[0].storage.dtype
        numbers = rounded.get(dtype)
        if numbers is None:
            numbers = rounded[dtype] = list(np.array(factors, dtype.numpy))
        for t in given:
            if t.storage.dtype is not dtype:
                kinds = [t.dtype.name for t in given]
                raise TypeError(
                    f"optimizer step: tensors of one parameter differ: {kinds}"
                )
        _update_one(kernels, given, numbers)


def _update_one(
    kernels: tuple[Any, Any], given: tuple[TensorData, ...], numbers: list[Any]
) -> None:
    """Run a kernel on flat arrays; given[1] is the gradient, the others change."""
    flat = list(map(contiguous, given))
    arrays = [t.flat() for t in flat]
    kernels[len(arrays[0]) >= SERIAL_LIMIT](*arrays, *numbers)
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
        _update(sgd, (params, grads), (lr, weight_decay))
        return
    if first:
        for buf in momentum_buffers:  # 0 times what was there, were it not NaN
            buf.array().fill(0)
    factors = momentum_factors(lr, momentum, dampening, weight_decay, nesterov, first)
    _update(sgd_momentum, (params, grads, momentum_buffers), factors)


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
    _update(adam, (params, grads, exp_avgs, exp_avg_sqs), factors)
