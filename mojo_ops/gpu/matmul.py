"""Matrix products by Mojo's kernels: the launchers of `matmul.mojo`.

With this file one can multiply two matrices on the device "cuda", by the kernel that
keeps its outputs in registers (`matmul`), or by the step before it (`matmul_tiled`).
Both take float32 matrices of any strides, and copy those that do not lie row by row.
`matmul` likes a to lie along M: it reads a transposed matrix in place, and turns a
large one around first, which costs a hundredth of the product and saves a tenth.
"""

from __future__ import annotations

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.memory import contiguous, copy, empty
from cuda_ops.runtime.arrays import DeviceArray
from cuda_ops.runtime.launch import ceil_div
from minitorch.tensor_data import TensorData
from mojo_ops.gpu.check import check_float32
from mojo_ops.gpu.kernels import MojoKernel

SIDE = 32  # as in matmul.mojo: outputs of a block are SIDE x SIDE, or ROWS x COLS
ROWS, COLS, THREADS = 64, 128, 128

TURN_LEAST = 2048  # rows, columns and steps of k from which on turning pays

_tiled = MojoKernel("matmul", "matmul_tiled", SIDE * SIDE)
_turned = MojoKernel("matmul", "matmul_turned_4", THREADS)
_by_vectors = MojoKernel("matmul", "matmul_pipelined_4", THREADS)
_one_by_one = MojoKernel("matmul", "matmul_pipelined_1", THREADS)


def _result(name: str, a: TensorData, b: TensorData) -> TensorData:
    """Room for a @ b, or an error."""
    check_float32(name, a, b)
    if a.dims != 2 or b.dims != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{name}: a is {a.shape} and b is {b.shape}; expected matrices [M, K] and "
            f"[K, N] (cuda_ops.matmul.matmul takes batches)"
        )
    return empty((a.shape[0], b.shape[1]), a.dtype)


def matmul_tiled(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by the kernel `matmul_tiled`."""
    out = _result("matmul_tiled", a, b)
    (M, K), N = a.shape, b.shape[1]
    x, y, z = contiguous(a).flat(), contiguous(b).flat(), out.flat()
    blocks = ceil_div(N, SIDE), ceil_div(M, SIDE)
    _tiled[blocks, _tiled.threads](x.pointer, y.pointer, z.pointer, M, N, K)
    return out


def matmul(a: TensorData, b: TensorData) -> TensorData:
    """a [M, K] @ b [K, N] -> [M, N] by the kernel `matmul_pipelined`."""
    out = _result("matmul", a, b)
    (M, K), N = a.shape, b.shape[1]
    y, z = contiguous(b).flat(), out.flat()
    vectors = N % 4 == 0 and is_aligned(y, z)
    kernel = _by_vectors if vectors else _one_by_one
    x = _along_m(a, min(M, N, K) >= TURN_LEAST) if vectors else None
    if x is not None:
        kernel = _turned
    else:
        x = contiguous(a).flat()
    blocks = ceil_div(M, ROWS) * ceil_div(N, COLS)
    kernel[blocks, THREADS](x.pointer, y.pointer, z.pointer, M, N, K)
    return out


def _along_m(a: TensorData, turn: bool) -> DeviceArray | None:
    """The elements of a [M, K] column by column, if they lie so, or `turn`; or None."""
    columns = a.permute((1, 0))
    if a.shape[0] % 4 or a.size == 0:
        return None
    if columns.is_contiguous():
        x = columns.flat()
        return x if is_aligned(x) else None
    return copy(columns, a.dtype).flat() if turn else None
