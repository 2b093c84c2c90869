"""The backend of the device "cuda": kernels compiled by Numba CUDA, on a GPU.

`minitorch` loads this module when a tensor is first put on the device "cuda". Without a
GPU, and without the simulator, that is an error which says how to get either. Beside
the kernels there is what shares memory with other libraries
(`cuda_ops/runtime/dlpack.py`), and what copies without waiting.

All functions work on the current GPU. As long as a process uses one, that is where all
tensors are; from the second on, the functions of a tensor change to its GPU first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, cast

from cuda_ops import (
    arg_reduce,
    batch_norm,
    cross_entropy,
    cumsum,
    elementwise,
    fused,
    fused_norm,
    fused_rows,
    indexing,
    linear,
    memory,
    norm,
    optim,
    pool,
    quantized,
    random,
    reduce,
    row_folds,
    softmax,
    sort,
    sparse,
    ternary,
)
from cuda_ops.attention import attention
from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.conv import conv
from cuda_ops.matmul import matmul
from cuda_ops.memory import LIMIT
from cuda_ops.runtime import device, dlpack
from minitorch.backend import Backend
from minitorch.backend.around import Around
from minitorch.backend.attention import KEEP_ALL, Drop
from minitorch.backend.fusion import Program
from minitorch.backend.registry import renew
from minitorch.dtypes import ALL, rounded
from minitorch.tensor_data import Shape, TensorData


class CUDABackend(Backend):
    """NVIDIA GPUs, or Numba's simulator of some."""

    host_memory = False
    takes_half = Backend.takes_half | {
        "argmax", "argmin", "band", "bias_activation", "bias_activation_backward",
        "clamp", "cross_entropy", "cross_entropy_backward", "cross_entropy_slopes",
        "dequantize", "dropout", "gather", "index_copy_", "index_select", "layer_norm",
        "layer_norm_backward", "log_softmax", "log_softmax_backward", "map", "mean",
        "paged_attention", "reduce", "roll", "softmax", "softmax_backward",
        "vector_norm", "where", "zip", "zip3",
    }  # fmt: skip
    tries_half = frozenset({
        "attention", "attention_backward", "conv2d", "conv2d_backward_input",
        "conv2d_backward_weight", "matmul", "matmul_to", "median", "quantized_linear",
    })  # fmt: skip

    def current_index(self) -> int:
        """The number of the current GPU."""
        return device.current_index()

    def at(self, index: int, functions: Backend) -> Backend:
        """`functions`, on the GPU of this number."""
        here, there = device.current.gpu, device.gpu(index)
        if here is there and len(device.gpus) == 1:
            return functions
        return cast(Backend, Around(functions, lambda _, fn: _on(there, fn)))

    # A function with its file's name comes last of the file: it hides the module.

    empty = staticmethod(memory.empty)
    full = staticmethod(memory.full)
    arange = staticmethod(memory.arange)
    from_numpy = staticmethod(memory.from_numpy)
    to_numpy = staticmethod(memory.to_numpy)
    copy = staticmethod(memory.copy)
    copy_into = staticmethod(memory.copy_into)
    synchronize = staticmethod(memory.synchronize)
    from_numpy_async = staticmethod(memory.from_numpy_async)
    to_numpy_async = staticmethod(memory.to_numpy_async)
    from_peer = staticmethod(memory.from_peer)
    is_pinned = staticmethod(memory.is_pinned)
    pin_memory = staticmethod(memory.pin_memory)

    map = staticmethod(elementwise.map)
    zip = staticmethod(elementwise.zip)
    if ternary.WRITTEN:
        zip3 = staticmethod(ternary.zip3)
    where = staticmethod(elementwise.where)
    clamp = staticmethod(elementwise.clamp)
    band = staticmethod(elementwise.band)

    def fill(self, out: TensorData, value: float) -> None:
        """By one kernel, or by none, where `out` lies without gaps."""
        if out.contiguous:
            memory.fill(out.flat(), rounded(value, out.dtype))
        else:
            super().fill(out, value)

    argmax = staticmethod(arg_reduce.argmax)
    argmin = staticmethod(arg_reduce.argmin)
    extreme = staticmethod(arg_reduce.extreme)
    cumprod = staticmethod(cumsum.cumprod)
    cumsum = staticmethod(cumsum.cumsum)
    mean = staticmethod(reduce.mean)
    vector_norm = staticmethod(reduce.vector_norm)
    reduce = staticmethod(reduce.reduce)

    topk = staticmethod(sort.topk)
    sort = staticmethod(sort.sort)

    linear_gradients = staticmethod(matmul.linear_gradients)
    matmul_to = staticmethod(matmul.matmul_to)
    matmul = staticmethod(matmul.matmul)

    bias_activation = staticmethod(linear.bias_activation)
    bias_activation_backward = staticmethod(linear.bias_activation_backward)
    linear = staticmethod(linear.linear)

    unpack_fours = staticmethod(quantized.dequantize)

    gather = staticmethod(indexing.gather)
    scatter_add = staticmethod(indexing.scatter_add)
    scatter = staticmethod(indexing.scatter)
    index_select = staticmethod(indexing.index_select)
    index_add = staticmethod(indexing.index_add)
    index_copy_ = staticmethod(indexing.index_copy_)

    def cat(self, tensors: Sequence[TensorData], dim: int) -> TensorData:
        """Small ones four at a time."""
        return indexing.cat_small(tensors, dim) or super().cat(tensors, dim)

    roll = staticmethod(indexing.roll)

    conv2d = staticmethod(conv.conv2d)
    conv2d_backward_input = staticmethod(conv.conv2d_backward_input)
    conv2d_backward_weight = staticmethod(conv.conv2d_backward_weight)

    max_pool2d = staticmethod(pool.max_pool2d)
    max_pool2d_backward = staticmethod(pool.max_pool2d_backward)
    avg_pool2d = staticmethod(pool.avg_pool2d)
    avg_pool2d_backward = staticmethod(pool.avg_pool2d_backward)

    log_softmax = staticmethod(softmax.log_softmax)
    log_softmax_backward = staticmethod(softmax.log_softmax_backward)
    cross_entropy_backward = staticmethod(cross_entropy.cross_entropy_backward)
    cross_entropy_slopes = staticmethod(cross_entropy.cross_entropy_slopes)
    mean_loss = staticmethod(cross_entropy.mean_loss)
    nll = staticmethod(cross_entropy.nll)
    mean_nll = staticmethod(cross_entropy.mean_nll)
    nll_backward = staticmethod(cross_entropy.nll_backward)
    check_probabilities = staticmethod(cross_entropy.check_probabilities)
    cross_entropy = staticmethod(cross_entropy.cross_entropy)
    softmax_backward = staticmethod(softmax.softmax_backward)
    softmax = staticmethod(softmax.softmax)

    def attention(
        self, out: TensorData, logsumexp: TensorData, query: TensorData,
        key: TensorData, value: TensorData, scale: float, causal: bool,
        mask: TensorData | None = None, drop: Drop = KEEP_ALL,
        newest: TensorData | None = None,
    ) -> Any:  # fmt: skip
        """By a kernel where there is one for the operands, else by the default.

        Most kernels have a block for rows of queries, which a few would not fill.
        """
        args = out, logsumexp, query, key, value, scale, causal, mask, drop
        few = attention.attention_of_few(*args, newest)
        if few or attention.attention(*args):
            return None
        return NotImplemented if query.dtype.half else super().attention(*args)

    def paged_attention(
        self, out: TensorData, query: TensorData, memory: TensorData,
        tables: TensorData, lengths: TensorData, scale: float,
    ) -> None:  # fmt: skip
        """For few queries the blocks are read where they are."""
        args = out, query, memory, tables, lengths, scale
        if not attention.paged_attention(*args):
            super().paged_attention(*args)

    def attention_backward(
        self, query_grad: TensorData, key_grad: TensorData, value_grad: TensorData,
        grad: TensorData, query: TensorData, key: TensorData, value: TensorData,
        out: TensorData, logsumexp: TensorData, scale: float, causal: bool,
        mask: TensorData | None = None, drop: Drop = KEEP_ALL,
    ) -> Any:  # fmt: skip
        """As `attention`."""
        grads, inputs = (query_grad, key_grad, value_grad), (grad, query, key, value)
        args = *grads, *inputs, out, logsumexp, scale, causal, mask, drop
        if attention.attention_backward(*args):
            return None
        return NotImplemented if query.dtype.half else super().attention_backward(*args)

    # These have kernels for rows that fit into registers, and else the default.

    def var(
        self, x: TensorData, dims: Sequence[int], count: float, divisor: float
    ) -> TensorData:
        found = row_folds.var(x, dims, divisor, False)
        return super().var(x, dims, count, divisor) if found is None else found

    def std(
        self, x: TensorData, dims: Sequence[int], count: float, divisor: float
    ) -> TensorData:
        found = row_folds.var(x, dims, divisor, True)
        return super().std(x, dims, count, divisor) if found is None else found

    def rms_norm(
        self, x: TensorData, weight: TensorData | None, eps: float
    ) -> tuple[TensorData, TensorData]:
        return norm.rms_norm(x, weight, eps) or super().rms_norm(x, weight, eps)

    def median(self, a: TensorData, dim: int) -> Any:
        found = sort.median(a, dim)
        if found is None and not a.dtype.half:
            return super().median(a, dim)
        return NotImplemented if found is None else found

    def logsumexp(self, a: TensorData, dims: Sequence[int]) -> TensorData:
        found = row_folds.logsumexp(a, dims)
        return super().logsumexp(a, dims) if found is None else found

    layer_norm = staticmethod(norm.layer_norm)
    layer_norm_backward = staticmethod(norm.layer_norm_backward)
    batch_norm_backward = staticmethod(batch_norm.batch_norm_backward)
    batch_norm_inference = staticmethod(batch_norm.batch_norm_inference)
    batch_norm = staticmethod(batch_norm.batch_norm)
    dropout_residual_layer_norm = staticmethod(fused_norm.dropout_residual_layer_norm)
    dropout_residual_layer_norm_backward = staticmethod(
        fused_norm.dropout_residual_layer_norm_backward
    )

    csr_matmul = staticmethod(sparse.csr_matmul)
    csr_sample = staticmethod(sparse.csr_sample)
    csr_transpose = staticmethod(sparse.csr_transpose)
    csr_pattern = staticmethod(sparse.csr_pattern)
    csr_gather = staticmethod(sparse.csr_gather)
    csr_to_dense = staticmethod(sparse.csr_to_dense)

    uniform = staticmethod(random.uniform)
    normal = staticmethod(random.normal)
    randint = staticmethod(random.randint)
    dropout = staticmethod(random.dropout)

    def random_(
        self, out: TensorData, normal: bool, seed: int, offset: int,
        scale: float, shift: float,
    ) -> None:  # fmt: skip
        """Straight into `out`, where it lies without gaps."""
        if out.contiguous and is_aligned(out.flat()):
            random.random_(out, normal, seed, offset, scale, shift)
        else:
            super().random_(out, normal, seed, offset, scale, shift)

    fused_types = frozenset(ALL)

    def fused(
        self, program: Program, shape: Shape, inputs: Sequence[TensorData],
        outs: Mapping[int, TensorData],
    ) -> None:  # fmt: skip
        """By a kernel made for it, from two functions on."""
        size = math.prod(shape)
        if len(program.steps) < 2 or not 0 < size < LIMIT:
            super().fused(program, shape, inputs, outs)
        elif program.folds_whole(shape):
            self._fused_whole(program, shape, inputs, outs, fused.run)
        elif program.folded:
            fused_rows.run(program, shape, inputs, outs)
        else:
            fused.run(program, shape, inputs, outs)

    sgd_step = staticmethod(optim.sgd_step)
    adam_step = staticmethod(optim.adam_step)
    sum_of_squares = staticmethod(optim.sum_of_squares)
    copy_all = staticmethod(optim.copy_all)

    to_dlpack = staticmethod(dlpack.to_dlpack)
    from_dlpack = staticmethod(dlpack.from_dlpack)
    dlpack_device = staticmethod(dlpack.dlpack_device)
    cuda_array_interface = staticmethod(dlpack.cuda_array_interface)
    from_cuda_array = staticmethod(dlpack.from_cuda_array)


def _on(gpu: device.Gpu, fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, on a GPU whether it is the current one or not."""

    @wraps(fn)  # a graph looks for the learning rate among the parameters
    def call(*args: Any, **kwargs: Any) -> Any:
        if device.current.gpu is gpu:
            return fn(*args, **kwargs)
        with device.on(gpu):
            return fn(*args, **kwargs)

    return call


device.when_several.append(renew)
device.require_device()
