"""The backend of the device "cpu": kernels compiled by Numba, on all cores.

With this file `minitorch` runs tensors on the device "cpu". The launchers are those of
`minitorch/backend/host`, which see the kernels of this package as `KERNELS` of their
families, and some of its own, where Numba's kernels take tensors of any strides.
Importing it compiles nothing; a kernel is compiled when it is first called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fast_ops import (
    attention,
    conv,
    elementwise,
    fused,
    indexing,
    linear,
    matmul,
    norm,
    optim,
    paged,
    pool,
    quantized,
    random,
    reduce,
    softmax,
    sort,
    sparse,
    threads,
)
from fast_ops.launch import SERIAL_LIMIT
from fast_ops.memory import CPUMemory
from fast_ops.sort import SHORT, first
from minitorch.backend.fusion import Program
from minitorch.backend.host import HostBackend
from minitorch.dtypes import COMPUTED
from minitorch.tensor_data import Shape, TensorData


class CPUBackend(CPUMemory, HostBackend):
    """Numba on all cores of the processor."""

    _elementwise = elementwise.KERNELS
    _reduce = reduce.KERNELS
    _indexing = indexing.KERNELS
    _softmax = softmax.KERNELS
    _norm = norm.KERNELS
    _optim = optim.KERNELS
    _pool = pool.KERNELS
    _random = random.KERNELS

    _bias_rows = staticmethod(linear.bias_rows_any)
    _bias_rows_backward = staticmethod(linear.bias_rows_backward_any)
    _correlate = staticmethod(conv.correlate)
    _weight_sums = staticmethod(conv.weight_sums)

    # A function with its file's name hides the module from here on.

    map = staticmethod(elementwise.map)
    zip = staticmethod(elementwise.zip)
    zip3 = staticmethod(elementwise.zip3)
    reduce = staticmethod(reduce.reduce)
    nll = staticmethod(softmax.nll_of_rows)

    def cumprod(self, a: TensorData, dim: int) -> TensorData:
        """out[i] = a[0] * ... * a[i] along `dim`."""
        return self._running(self._reduce.cumprod, a, dim)

    def topk(
        self, a: TensorData, k: int, dim: int, largest: bool
    ) -> tuple[TensorData, TensorData]:
        """The first k of a sort along `dim`, and their int64 positions."""
        if k > SHORT:
            return super().topk(a, k, dim, largest)
        return first(a, k, dim, largest)

    median = staticmethod(sort.median)
    sort = staticmethod(sort.sort)
    matmul = staticmethod(matmul.matmul)

    if attention.WRITTEN:
        _attend = staticmethod(attention.attend)
        _attend_backward = staticmethod(attention.attend_backward)

    def paged_attention(
        self, out: TensorData, query: TensorData, memory: TensorData,
        tables: TensorData, lengths: TensorData, scale: float,
    ) -> None:  # fmt: skip
        """For one query of each text the blocks are read where they are."""
        if query.shape[2] != 1 or out.size == 0:
            super().paged_attention(out, query, memory, tables, lengths, scale)
            return
        made = self._written(out)
        blocks = self._checked("index_select", tables, memory.shape[0], 0)
        paged.attend(
            made, self._in_rows(query), self.contiguous(memory), blocks,
            self._int64s(lengths), scale,
        )  # fmt: skip
        self._give_back(out, made)

    csr_matmul = staticmethod(sparse.csr_matmul)
    csr_sample = staticmethod(sparse.csr_sample)
    csr_transpose = staticmethod(sparse.csr_transpose)
    csr_pattern = staticmethod(sparse.csr_pattern)
    csr_gather = staticmethod(sparse.csr_gather)
    csr_to_dense = staticmethod(sparse.csr_to_dense)

    quantized_few = staticmethod(quantized.quantized_linear)
    unpack_fours = staticmethod(quantized.dequantize)

    def batch_norm_inference(
        self, x: TensorData, mean: TensorData, variance: TensorData,
        weight: TensorData | None, bias: TensorData | None, eps: float,
    ) -> TensorData:  # fmt: skip
        """One pass over x."""
        dtype, (_, channels, length) = x.storage.dtype, x.shape
        out = self.empty(x.shape, dtype)
        self._norm.batch_norm_inference[x.size >= SERIAL_LIMIT](
            self._flat(x), self._flat(mean), self._flat(variance),
            self._flat_or(weight, channels, 1.0, dtype),
            self._flat_or(bias, channels, 0.0, dtype), eps, out.storage.array, length,
        )  # fmt: skip
        return out

    def sum_of_squares(self, tensors: Sequence[TensorData]) -> TensorData:
        """One pass over each tensor, in float64."""
        arrays = [self.contiguous(t).flat() for t in tensors]
        total = sum(self._optim.squares[len(a) >= SERIAL_LIMIT](a) for a in arrays)
        return self.full((), total, tensors[0].dtype)

    fused_types = frozenset(COMPUTED)

    def fused(
        self, program: Program, shape: Shape, inputs: Sequence[TensorData],
        outs: Mapping[int, TensorData],
    ) -> None:  # fmt: skip
        """By a loop made for it, where that pays."""
        if fused.pays(program, shape):
            if program.folds_whole(shape):
                self._fused_whole(program, shape, inputs, outs, fused.run)
            else:
                fused.run(program, shape, inputs, outs)
        else:
            super().fused(program, shape, inputs, outs)

    def _step_arrays(self, kernel: Any, rows: Any, factors: Any) -> None:
        """Adam's for all parameters in one loop, where they are large together."""
        together = kernel is self._optim.adam and len(rows) > 1
        if together and sum(len(row[0]) for row in rows) >= SERIAL_LIMIT:
            optim.adam_tensors(rows, factors)
        else:
            super()._step_arrays(kernel, rows, factors)


threads.warn_if_slow()
