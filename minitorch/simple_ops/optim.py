"""Take one step of an optimizer, in place.

With this file one can move parameters against their gradients: `adam_step` (Adam and
AdamW). SGD's step is a default (`minitorch/backend/optim.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from minitorch.simple_ops.lists import read, write
from minitorch.tensor_data import TensorData


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
    scale: TensorData | None = None,
) -> None:
    """One Adam (or, `decoupled`, AdamW) step in place; `step` counts from 1.

    m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
    p -= lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).

    Weight decay adds weight_decay * p to g, or, decoupled, takes lr * weight_decay * p
    off p first. `scale` [] is a factor for all gradients; None is 1.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015;
    Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
    """
    # BEGIN SOLUTION a8.4
    fix1, fix2 = 1 - beta1**step, 1 - beta2**step  # m and v start at 0, which is low
    factor = 1.0 if scale is None else read(scale)[0]
    for k in range(len(params)):
        ps, gs, ms, vs = map(read, (params[k], grads[k], exp_avgs[k], exp_avg_sqs[k]))
        for i in range(len(ps)):
            g = factor * gs[i]
            if decoupled:
                ps[i] -= lr * weight_decay * ps[i]
            else:
                g += weight_decay * ps[i]
            ms[i] = beta1 * ms[i] + (1 - beta1) * g
            vs[i] = beta2 * vs[i] + (1 - beta2) * g * g
            ps[i] -= lr * (ms[i] / fix1) / (math.sqrt(vs[i] / fix2) + eps)
        write(params[k], ps)
        write(exp_avgs[k], ms)
        write(exp_avg_sqs[k], vs)
    # END SOLUTION a8.4
