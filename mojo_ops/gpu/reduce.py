"""Sums by Mojo's kernels: the launchers of `reduce.mojo`.

With this file one can add up the rows of a matrix on the device "cuda" (`sum_rows`) or
all elements of a tensor (`sum_all`). Several blocks share a row where there are few
rows; a second launch adds up what they found. The order is the same in every run, and
so is the result, to the last bit.
"""

from __future__ import annotations

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.memory import contiguous, empty, full
from cuda_ops.runtime.arrays import DeviceArray, allocate
from cuda_ops.runtime.launch import ceil_div
from minitorch.tensor_data import TensorData
from mojo_ops.gpu.check import check_float32
from mojo_ops.gpu.kernels import MojoKernel

THREADS = 256  # as in reduce.mojo
UNIT = 16 * THREADS  # elements that a block has under way: 4 vectors a thread
LEAST = 4 * UNIT  # elements of a piece, at least, where blocks share a row
BLOCKS = 1056  # blocks that fill the GPU: 8 for each of 132 multiprocessors
SHORT = {8: 128, 32: 1024}  # lanes of a warp for a row of at most so many elements

sum_pieces = MojoKernel("reduce", "sum_pieces", THREADS)
sum_short = {
    lanes: MojoKernel("reduce", f"sum_short_{lanes}", THREADS) for lanes in SHORT
}


def sum_rows(a: TensorData) -> TensorData:
    """a [R, n] -> [R]: the sum of each row. Any strides."""
    check_float32("sum_rows", a)
    if a.dims != 2:
        raise ValueError(
            f"sum_rows: a is {a.shape}; expected a matrix [R, n] (reshape it)"
        )
    rows, n = a.shape
    if n == 0:
        return full((rows,), 0, a.dtype)
    out = empty((rows,), a.dtype)
    _sum(contiguous(a).flat(), rows, n, out.storage.array)
    return out


def sum_all(a: TensorData) -> TensorData:
    """a [*] -> []: the sum of all elements. Any strides."""
    check_float32("sum_all", a)
    if a.size == 0:
        return full((), 0, a.dtype)
    out = empty((), a.dtype)
    _sum(contiguous(a).flat(), 1, a.size, out.storage.array)
    return out


def _sum(x: DeviceArray, rows: int, n: int, out: DeviceArray) -> None:
    """x [rows, n] -> out [rows]."""
    even = int(is_aligned(x) and (rows == 1 or n % 4 == 0))
    lanes = next((lanes for lanes, most in SHORT.items() if n <= most), 0)
    if lanes and rows > 1:
        blocks = ceil_div(rows * lanes, THREADS)
        sum_short[lanes][blocks, THREADS](x.pointer, out.pointer, rows, n, even)
        return
    pieces = max(1, min(BLOCKS // max(rows, 1), n // LEAST))
    piece = ceil_div(ceil_div(n, pieces), UNIT) * UNIT
    pieces = ceil_div(n, piece)
    made = out if pieces == 1 else allocate(rows * pieces, x.kind)
    sum_pieces[(rows, pieces), THREADS](x.pointer, made.pointer, n, piece, even)
    if made is not out:
        _sum(made, rows, pieces, out)
