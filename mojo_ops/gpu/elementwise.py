"""Elementwise operations by Mojo's kernels: the launchers of `elementwise.mojo`.

With this file one can apply a function to every element of a tensor on the device
"cuda" (`relu`, `exp`, `tanh`, `gelu`), or to the elements of two (`add`, `mul`). They
take float32 of any strides, and return a new tensor without gaps.
"""

from __future__ import annotations

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.memory import contiguous, empty
from cuda_ops.runtime.launch import ceil_div
from minitorch.tensor_data import TensorData
from mojo_ops.gpu.check import check_float32
from mojo_ops.gpu.kernels import MojoKernel

THREADS = 128  # as in elementwise.mojo
STEP = 4 * THREADS
LARGE = 2**21  # elements from which on a thread has several vectors under way
VECTORS = 2  # of 4 elements, that a thread makes of large arrays


class _Pair:
    """The two kernels of a function: for arrays of any size, and for large ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.flat = MojoKernel("elementwise", f"{name}_flat", THREADS)
        self.large = MojoKernel("elementwise", f"{name}_large", THREADS)

    def __call__(self, *operands: TensorData) -> TensorData:
        """The function of all elements of operands of one shape."""
        check_float32(self.name, *operands)
        shape = operands[0].shape
        if any(a.shape != shape for a in operands):
            raise ValueError(
                f"{self.name}: shapes are {[a.shape for a in operands]}; "
                f"expected one shape (expand the smaller operand first)"
            )
        out = empty(shape, operands[0].dtype)
        arrays = [contiguous(a).flat() for a in operands]
        n = out.size
        kernel, tile = self.flat, STEP
        if n >= LARGE:
            kernel, tile = self.large, STEP * VECTORS
        z = out.storage.array
        pointers = [array.pointer for array in (*arrays, z)]
        kernel[ceil_div(n, tile), THREADS](*pointers, n, int(is_aligned(*arrays, z)))
        return out


_RELU, _EXP, _TANH, _GELU = map(_Pair, ("relu", "exp", "tanh", "gelu"))
_ADD, _MUL = map(_Pair, ("add", "mul"))


def relu(a: TensorData) -> TensorData:
    """x where x > 0, else 0."""
    return _RELU(a)


def exp(a: TensorData) -> TensorData:
    """e ** x."""
    return _EXP(a)


def tanh(a: TensorData) -> TensorData:
    """The hyperbolic tangent of x."""
    return _TANH(a)


def gelu(a: TensorData) -> TensorData:
    """x * P(X <= x) for a standard normal X."""
    return _GELU(a)


def add(a: TensorData, b: TensorData) -> TensorData:
    """a [*] + b [*] -> [*], of one shape (expand a smaller one first)."""
    return _ADD(a, b)


def mul(a: TensorData, b: TensorData) -> TensorData:
    """a [*] * b [*] -> [*], of one shape (expand a smaller one first)."""
    return _MUL(a, b)
