"""The backend of the device "mojo": functions in Mojo, and those that are yet to come.

With this file `minitorch` runs tensors on the device "mojo". The launchers are those of
`minitorch/backend/host`; what has no Mojo kernel yet is taken from the CPU backend, at
the end of this file. Importing it compiles nothing: a family is compiled when one of
its kernels is first called.
"""

from __future__ import annotations

from fast_ops import quantized as fast_quantized
from fast_ops import sort as fast_sort
from fast_ops import sparse as fast_sparse
from minitorch.backend.host import HostBackend
from mojo_ops import attention, conv, elementwise, linear, matmul, reduce
from mojo_ops.bridge import FlatKernels
from mojo_ops.build import check_platform
from mojo_ops.fallback import from_cpu
from mojo_ops.memory import MojoMemory


class MojoBackend(MojoMemory, HostBackend):
    """Mojo on all cores of the processor."""

    _elementwise = FlatKernels("elementwise")
    _reduce = FlatKernels("reduce")
    _indexing = FlatKernels("indexing")
    _softmax = FlatKernels("softmax")
    _norm = FlatKernels("norm")
    _optim = FlatKernels("optim")
    _pool = FlatKernels("pool")
    _random = FlatKernels("random")

    _bias_rows = staticmethod(linear.bias_rows)
    _bias_rows_backward = staticmethod(linear.bias_rows_backward)
    _correlate = staticmethod(conv.correlate)
    _weight_sums = staticmethod(conv.weight_sums)
    _attend = staticmethod(attention.attend)
    _attend_backward = staticmethod(attention.attend_backward)

    # A function with its file's name hides the module from here on.

    map = staticmethod(elementwise.map)
    zip = staticmethod(elementwise.zip)
    reduce = staticmethod(reduce.reduce)
    matmul = staticmethod(matmul.matmul)

    # ------------------------------------------------------------ not in Mojo yet

    sort = staticmethod(from_cpu(fast_sort.sort))
    median = staticmethod(from_cpu(fast_sort.median))
    csr_matmul = staticmethod(from_cpu(fast_sparse.csr_matmul))
    csr_sample = staticmethod(from_cpu(fast_sparse.csr_sample))
    csr_transpose = staticmethod(from_cpu(fast_sparse.csr_transpose))
    csr_pattern = staticmethod(from_cpu(fast_sparse.csr_pattern))
    csr_gather = staticmethod(from_cpu(fast_sparse.csr_gather))
    csr_to_dense = staticmethod(from_cpu(fast_sparse.csr_to_dense))

    quantized_few = staticmethod(from_cpu(fast_quantized.quantized_linear))
    unpack_fours = staticmethod(from_cpu(fast_quantized.dequantize))


check_platform()
