"""Optimizer steps: one pass over memory for each parameter.

With this file the backend takes a step of SGD (`sgd`, `sgd_momentum`) or of Adam and
AdamW (`adam`), in place, and adds up the squares of gradients (`squares`); the
launchers of `KERNELS` are in `minitorch/backend/host/optim.py`. Written with tensor
operations, an Adam step reads and writes each array about ten times; fused into one
loop, each number is loaded once, updated in registers and stored once.

A model has large and small parameters. `adam_tensors` takes them all in one parallel
loop over chunks of equal size, so that threads neither meet behind each parameter nor
wait for the one that has the largest.

`factors` come rounded to the parameters' type (`minitorch/step_factors.py`), so that
float32 parameters are updated in float32 arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from fast_ops.launch import both, kernel


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

    new1 = 1 - beta1, new2 = 1 - beta2, root = 1 / sqrt(1 - beta2 ** step); g = scale *
    grad + decay * p (Adam), or p is first multiplied by `shrink` (AdamW).
    """
    step_size, new1, beta2, new2 = factors[0], factors[1], factors[2], factors[3]
    eps, root, decay, shrink = factors[4], factors[5], factors[6], factors[7]
    scale = factors[8]
    # BEGIN SOLUTION a8.4
    for i in prange(p.size):
        x = p[i] * shrink
        g = scale * grad[i] + decay * x
        m_i = m[i] + new1 * (g - m[i])
        v_i = beta2 * v[i] + new2 * g * g
        m[i] = m_i
        v[i] = v_i
        p[i] = x - step_size * m_i / (math.sqrt(v_i) * root + eps)
    # END SOLUTION a8.4


def _squares(x: np.ndarray) -> float:
    """The sum of the squares of x, in float64."""
    total = 0.0
    for i in prange(x.size):
        total += np.float64(x[i]) * x[i]
    return total


KERNELS = both(_sgd, _sgd_momentum, _adam, _squares)

# ------------------------------------------------------------ all tensors in one loop

CHUNK = 16384  # elements: four arrays of float32 are 256 KiB, which a core's cache has
adam_chunk = KERNELS.adam[False]


@intrinsic
def array_at(typing: Any, address: Any, size: Any, like: Any) -> Any:
    """A flat array of `size` elements at an address, of the type that `like` has."""
    result = types.Array(like.dtype, 1, "C")

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array = context.make_array(result)(context, builder)
        item = context.get_abi_sizeof(context.get_data_type(like.dtype))
        step = context.get_constant(types.intp, item)
        data = builder.inttoptr(args[0], array.data.type)
        populate_array(array, data, [args[1]], [step], step, None)
        return array._getvalue()

    return result(types.int64, types.int64, like), code


@kernel(parallel=True)
def adam_chunks(table: np.ndarray, factors: np.ndarray, chunks: int) -> None:
    """`_adam` for all tensors: each thread takes some of the chunks.

    # table [6, tensors]: addresses of p, grad, m and v; sizes; the first chunk of each
    """
    sizes, firsts = table[4], table[5]
    for c in prange(chunks):
        t = np.searchsorted(firsts, c, side="right") - 1
        start = (c - firsts[t]) * CHUNK
        size, skip = min(CHUNK, sizes[t] - start), start * factors.itemsize
        adam_chunk(
            array_at(table[0, t] + skip, size, factors),
            array_at(table[1, t] + skip, size, factors),
            array_at(table[2, t] + skip, size, factors),
            array_at(table[3, t] + skip, size, factors),
            factors,
        )


def adam_tensors(rows: list[list[np.ndarray]], factors: np.ndarray) -> None:
    """A step of Adam on the flat arrays p, grad, m and v of each row."""
    rows = [row for row in rows if row[0].size]
    table = np.empty((6, len(rows)), np.int64)
    for k in range(4):
        table[k] = [row[k].__array_interface__["data"][0] for row in rows]
    table[4] = [row[0].size for row in rows]
    ends = np.cumsum(-(-table[4] // CHUNK))
    table[5, 0], table[5, 1:] = 0, ends[:-1]
    adam_chunks(table, factors, ends[-1])
