"""What a step of an optimizer needs, and what is the same for all elements.

With this file the backends get the numbers that their optimizers' kernels work with:
`adam_factors` and `momentum_factors`. They depend on the options and on the number of
the step alone, so they are computed once a step, in float64, before the loop over the
elements. On a GPU, in a CUDA graph, a kernel computes them (`cuda_ops/optim.py`, which
compiles this very function).
"""

from __future__ import annotations

import math


def momentum_factors(
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    first: bool,
) -> tuple[float, ...]:
    """lr, momentum, damp, weight_decay, from_g and from_buf, for SGD with momentum.

    buf = momentum * buf + damp * g;  p -= lr * (from_g * g + from_buf * buf). Without
    Nesterov's idea the step is buf (0 and 1); with it, g + momentum * buf (1 and
    momentum). The first step sets buf to the gradient, whatever the dampening is.
    """
    damp = 1.0 if first else 1.0 - dampening
    mix = (1.0, momentum) if nesterov else (0.0, 1.0)
    return (lr, momentum, damp, weight_decay, *mix)


def adam_factors(
    step: float,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> tuple[float, ...]:
    """step_size, new1, beta2, new2, eps, root, decay and shrink, for Adam and AdamW.

    `step` counts from 1. step_size is lr with the correction of m, root that of
    sqrt(v); new1 and new2 are the shares of the new gradient in m and v. Adam adds
    decay * p to the gradient, and AdamW (`decoupled`) multiplies p by shrink; the
    other one's number has no effect.
    """
    # BEGIN SOLUTION a8.4
    return (
        lr / (1.0 - beta1**step),
        1.0 - beta1,
        beta2,
        1.0 - beta2,
        eps,
        1.0 / math.sqrt(1.0 - beta2**step),
        0.0 if decoupled else weight_decay,
        1.0 - lr * weight_decay if decoupled else 1.0,
    )
    # END SOLUTION a8.4
