"""Convolution of sequences as it is written down: a loop for each index.

With this file one can convolve x [N, C, L] with weight [O, C, K] (`conv1d_direct`),
with any stride, padding and dilation, and see what the first parallel kernel of a
convolution looks like. Each output is one sum, so each is written by one thread, and
nothing has to be locked.

`conv.py` is where the backend goes for speed: there a convolution is a product of
matrices whose numbers stay in registers.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import kernel
from fast_ops.memory import contiguous, empty
from minitorch.tensor_data import TensorData


@kernel(parallel=True)
def _conv1d(x, weight, out, stride, padding, dilation):
    """One task for each sequence of outputs.

    # x [N, C, L], weight [O, C, K] -> out [N, O, OL]

        parallel for n, o:  for q:
            out[n, o, q] = sum over c, k of x[n, c, at] * weight[o, c, k]
                           with at = q * stride + k * dilation - padding

    where elements outside of x are 0. A thread makes out[n, o, :] and writes nothing
    else. The sum stays in a register, and the innermost loop runs along a row of the
    weight. All O tasks of one n read the same rows of x, which are in the cache then.
    """
    # BEGIN SOLUTION a6.1
    length = x.shape[2]
    for task in prange(out.shape[0] * out.shape[1]):
        n, o = divmod(np.int64(task), out.shape[1])
        for q in range(out.shape[2]):
            start = q * stride - padding
            total = out.dtype.type(0)
            for c in range(x.shape[1]):
                for k in range(weight.shape[2]):
                    at = start + k * dilation
                    if 0 <= at < length:
                        total += x[n, c, at] * weight[o, c, k]
            out[n, o, q] = total
    # END SOLUTION a6.1


def conv1d_direct(
    x: TensorData,
    weight: TensorData,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> TensorData:
    """x [N, C, L], weight [O, C, K] -> [N, O, OL].

    OL = (L + 2 padding - dilation (K - 1) - 1) // stride + 1.
    """
    reach = dilation * (weight.shape[2] - 1) + 1
    length = (x.shape[2] + 2 * padding - reach) // stride + 1
    out = empty((x.shape[0], weight.shape[0], length), x.dtype)
    if out.size:
        rows = (contiguous(a).flat().reshape(a.shape) for a in (x, weight))
        _conv1d(*rows, out.flat().reshape(out.shape), stride, padding, dilation)
    return out
