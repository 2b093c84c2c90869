"""Bias and activation: what follows the matrix product of a layer, in one pass.

With this file one can add a bias to every row of a matrix and apply a function of one
number to the sums (`bias_activation`), and carry a gradient back through that function
(`bias_activation_backward`). Written as two operations, the sums would be stored and
loaded once more: 16 bytes an element in place of 8. Here they only exist in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, int64, uint32

from cuda_ops.block.intrinsics import device, load, load4, store, store4
from cuda_ops.elementwise import ROW, repeat_mode, zip_repeated
from cuda_ops.memory import STEP, THREADS, contiguous, copy_into, empty, overlap
from cuda_ops.runtime.launch import Kernels, ceil_div
from minitorch import operators
from minitorch.tensor_data import TensorData


def bias_rows(fn: Callable) -> Callable:
    """Make the kernel out[r, j] = fn(x[r, j] + bias[j]).

    # x [R, N], bias [N] -> out [R, N]

    `zip_repeated` with a row: thread t makes four neighbours, with one load of 16 bytes
    from x and one from the bias, which stays in the cache.
    """

    @device
    def after_bias(x, b):
        # BEGIN SOLUTION a8.1
        return fn(x + b)
        # END SOLUTION a8.1

    return zip_repeated(after_bias)


def bias_rows_backward(fn: Callable) -> Callable:
    """Make the kernel out[r, j] = fn(grad[r, j], x[r, j] + bias[j]); as `bias_rows`.

    # grad [R, N], x [R, N], bias [N] -> out [R, N]
    """

    def loop(grad, x, bias, out, mode):
        # BEGIN SOLUTION a8.1
        i = int64(cuda.grid(1)) * 4
        n = uint32(bias.size)
        if mode == ROW and i + 4 <= out.size:
            g0, g1, g2, g3 = load4(grad, i)
            x0, x1, x2, x3 = load4(x, i)
            b0, b1, b2, b3 = load4(bias, int64(uint32(i) % n))
            store4(
                out, i, fn(g0, x0 + b0), fn(g1, x1 + b1), fn(g2, x2 + b2),
                fn(g3, x3 + b3),
            )  # fmt: skip
        else:
            for j in range(i, min(i + 4, out.size)):
                b = load(bias, int64(uint32(j) % n))
                store(out, j, fn(load(grad, j), load(x, j) + b))
        # END SOLUTION a8.1

    return loop


ROWS = Kernels(
    bias_rows,
    (operators.gelu, operators.relu),
    ["float32[] float32[] float32[] int64 int64"],
)
BACKWARD = Kernels(
    bias_rows_backward,
    (operators.gelu_backward,),
    ["float32[] float32[] float32[] float32[] int64"],
)


def bias_activation(
    x: TensorData,
    bias: TensorData,
    fn: Callable | None,
    out: TensorData | None = None,
) -> TensorData:
    """out = fn(x + bias), or x + bias where `fn` is None, for x [R, N] and bias [N].

    Into `out` [R, N] if given, which may be x.
    """
    fn = fn or operators.identity
    if out is None:
        out = empty(x.shape, x.storage.dtype)
    elif not out.is_contiguous() or overlap(bias, out) or not _usable(x, out):
        copy_into(out, bias_activation(x, bias, fn))
        return out
    a, b, z = contiguous(x).flat(), contiguous(bias).flat(), out.flat()
    mode = repeat_mode(len(b), 1, a, b, z)
    ROWS[fn][ceil_div(len(z), STEP), THREADS](a, b, z, 1, mode)
    return out


def _usable(x: TensorData, out: TensorData) -> bool:
    """Whether x is `out` itself, element by element, or far from it."""
    if x.storage is out.storage and x.offset == out.offset and x.is_contiguous():
        return True
    return not overlap(x, out)


def bias_activation_backward(
    grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
) -> TensorData:
    """The gradient for x [R, N]: fn_backward(grad, x + bias)."""
    out = empty(x.shape, x.storage.dtype)
    z: Any = out.flat()
    g, a, b = contiguous(grad).flat(), contiguous(x).flat(), contiguous(bias).flat()
    mode = min(repeat_mode(len(b), 1, a, b, z), repeat_mode(len(b), 1, g, b, z))
    BACKWARD[fn_backward][ceil_div(len(z), STEP), THREADS](g, a, b, z, mode)
    return out
