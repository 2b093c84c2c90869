"""Mojo's kernels on the memory of the device "cuda".

With this package one can run kernels that are written in Mojo on the tensors of the
backend `cuda_ops`, beside the kernels that Numba compiles, on the same streams and in
the same CUDA graphs:

    import minitorch as mt
    from mojo_ops import gpu

    x = mt.randn(1000, 1000, device="cuda")
    y = mt.Tensor(gpu.gelu(gpu.matmul(x.raw, x.raw)))

They take and return `TensorData` (`tensor.raw`), as all kernels' launchers do, and are
not recorded for gradients. `.mojo` and `.py` files of one name belong together.
"""

from mojo_ops.gpu.elementwise import add, exp, gelu, mul, relu, tanh
from mojo_ops.gpu.matmul import matmul, matmul_tiled
from mojo_ops.gpu.reduce import sum_all, sum_rows

__all__ = [
    "add",
    "exp",
    "gelu",
    "matmul",
    "matmul_tiled",
    "mul",
    "relu",
    "sum_all",
    "sum_rows",
    "tanh",
]
