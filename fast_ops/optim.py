"""Optimizer steps: one pass over memory for each parameter.

With this file the backend takes a step of SGD (`sgd`, `sgd_momentum`) or of Adam and
AdamW (`adam`), in place; the launchers of `KERNELS` are in
`minitorch/backend/host/optim.py`. Written with tensor operations, an Adam step reads
and writes each array about ten times; fused into one loop, each number is loaded once,
updated in registers and stored once.

`factors` come rounded to the parameters' type (`minitorch/step_factors.py`), so that
float32 parameters are updated in float32 arithmetic.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from fast_ops.launch import both


def _sgd(p: np.ndarray, grad: np.ndarray, factors: np.ndarray) -> None:
    """p -= lr * (grad + weight_decay * p); each thread takes one chunk of p."""
    lr, weight_decay = factors[0], factors[1]
    for i in prange(p.size):
        p[i] -= lr * (grad[i] + weight_decay * p[i])


def _sgd_momentum(
    p: np.ndarray, grad: np.ndarray, buf: np.ndarray, factors: np.ndarray
) -> None:
    """buf = momentum * buf + damp * g; p -= lr * (from_g * g + from_buf * buf).

    g = grad + weight_decay * p. Without Nesterov's idea the step is buf (0 and 1); with
    it, g + momentum * buf (1 and momentum).
    """
    lr, momentum, damp, weight_decay = factors[0], factors[1], factors[2], factors[3]
    from_g, from_buf = factors[4], factors[5]
    for i in prange(p.size):
        g = grad[i] + weight_decay * p[i]
        b = momentum * buf[i] + damp * g
        buf[i] = b
        p[i] -= lr * (from_g * g + from_buf * b)


def _adam(
    p: np.ndarray, grad: np.ndarray, m: np.ndarray, v: np.ndarray, factors: np.ndarray
) -> None:
    """Move the averages m and v toward g and g * g, and p along m / sqrt(v).

    new1 = 1 - beta1, new2 = 1 - beta2, root = 1 / sqrt(1 - beta2 ** step); g = grad +
    decay * p (Adam), or p is first multiplied by `shrink` (AdamW).
    """
    step_size, new1, beta2, new2 = factors[0], factors[1], factors[2], factors[3]
    eps, root, decay, shrink = factors[4], factors[5], factors[6], factors[7]
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


KERNELS = both(_sgd, _sgd_momentum, _adam)
