"""Optimizer steps: one pass over memory for each parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import prange

from fast_ops.launch import compile_kernel
from fast_ops.memory import contiguous, copy_into
from minitorch.tensor_data import TensorData


def _sgd(
    p: np.ndarray, grad: np.ndarray, buf: np.ndarray, lr: float, momentum: float,
    damp: float, weight_decay: float, nesterov: bool, first: bool,
) -> None:  # fmt: skip
    for i in prange(p.size):
        g = grad[i] + weight_decay * p[i]
        b = g if first else momentum * buf[i] + damp * g
        buf[i] = b
        p[i] -= lr * (g + momentum * b if nesterov else b)


def _sgd_plain(
    p: np.ndarray, grad: np.ndarray, lr: float, weight_decay: float
) -> None:
    for i in prange(p.size):
        p[i] -= lr * (grad[i] + weight_decay * p[i])


def _adam(
    p: np.ndarray, grad: np.ndarray, m: np.ndarray, v: np.ndarray, step_size: float,
    beta1: float, beta2: float, eps: float, root: float, decay: float, shrink: float,
) -> None:  # fmt: skip
    for i in prange(p.size):
        x = p[i] * shrink
        g = grad[i] + decay * x
        m_i = m[i] + (1 - beta1) * (g - m[i])
        v_i = beta2 * v[i] + (1 - beta2) * g * g
        m[i] = m_i
        v[i] = v_i
        p[i] = x - step_size * m_i / (math.sqrt(v_i) * root + eps)


sgd_momentum = compile_kernel(_sgd, parallel=True)
sgd_plain = compile_kernel(_sgd_plain, parallel=True)
adam = compile_kernel(_adam, parallel=True)


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
    """One step in place on all tensors; `first` sets the buffers to the gradient."""
    for i, (p, grad) in enumerate(zip(params, grads)):
        x, g = contiguous(p), contiguous(grad)
        if momentum_buffers is None or momentum == 0:
            sgd_plain(x.flat(), g.flat(), float(lr), float(weight_decay))
        else:
            buf = contiguous(momentum_buffers[i])
            sgd_momentum(
                x.flat(), g.flat(), buf.flat(), float(lr), float(momentum),
                1.0 - dampening, float(weight_decay), nesterov, first,
            )  # fmt: skip
            if buf is not momentum_buffers[i]:
                copy_into(momentum_buffers[i], buf)
        if x is not p:
            copy_into(p, x)


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
    """One Adam (or, `decoupled`, AdamW) step in place; `step` counts from 1."""
    step_size = lr / (1 - beta1**step)
    root = 1 / math.sqrt(1 - beta2**step)
    decay = 0.0 if decoupled else float(weight_decay)
    shrink = 1.0 - lr * weight_decay if decoupled else 1.0
    for given in zip(params, grads, exp_avgs, exp_avg_sqs):
        flat = [contiguous(t) for t in given]
        adam(
            *(t.flat() for t in flat), step_size, float(beta1), float(beta2),
            float(eps), root, decay, shrink,
        )  # fmt: skip
        for old, new in zip(given, flat):
            if new is not old:
                copy_into(old, new)
