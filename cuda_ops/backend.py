"""The backend of the device "cuda": kernels compiled by Numba CUDA, on a GPU.

`minitorch` loads this module when a tensor is first put on the device "cuda". Without a
GPU, and without the simulator, that is an error which says how to get either. Beside
the kernels there is what shares memory with other libraries
(`cuda_ops/runtime/dlpack.py`), and what copies without waiting.
"""

from __future__ import annotations

from cuda_ops import (
    elementwise,
    indexing,
    linear,
    memory,
    norm,
    optim,
    pool,
    random,
    reduce,
    softmax,
    sort,
    sparse,
)
from cuda_ops.conv import conv
from cuda_ops.matmul import matmul
from cuda_ops.runtime import dlpack
from cuda_ops.runtime.device import require_device
from minitorch.backend import Backend


class CUDABackend(Backend):
    """One NVIDIA GPU, or Numba's simulator of one."""

    host_memory = False

    # A function with its file's name comes last of the file: it hides the module.

    empty = staticmethod(memory.empty)
    full = staticmethod(memory.full)
    from_numpy = staticmethod(memory.from_numpy)
    to_numpy = staticmethod(memory.to_numpy)
    copy = staticmethod(memory.copy)
    copy_into = staticmethod(memory.copy_into)
    synchronize = staticmethod(memory.synchronize)
    from_numpy_async = staticmethod(memory.from_numpy_async)
    to_numpy_async = staticmethod(memory.to_numpy_async)
    is_pinned = staticmethod(memory.is_pinned)
    pin_memory = staticmethod(memory.pin_memory)

    map = staticmethod(elementwise.map)
    zip = staticmethod(elementwise.zip)
    where = staticmethod(elementwise.where)

    argmax = staticmethod(reduce.argmax)
    argmin = staticmethod(reduce.argmin)
    cumsum = staticmethod(reduce.cumsum)
    reduce = staticmethod(reduce.reduce)

    sort = staticmethod(sort.sort)

    matmul = staticmethod(matmul.matmul)

    bias_activation = staticmethod(linear.bias_activation)
    bias_activation_backward = staticmethod(linear.bias_activation_backward)

    gather = staticmethod(indexing.gather)
    scatter_add = staticmethod(indexing.scatter_add)
    index_select = staticmethod(indexing.index_select)
    index_add = staticmethod(indexing.index_add)
    index_copy_ = staticmethod(indexing.index_copy_)

    conv2d = staticmethod(conv.conv2d)
    conv2d_backward_input = staticmethod(conv.conv2d_backward_input)
    conv2d_backward_weight = staticmethod(conv.conv2d_backward_weight)

    max_pool2d = staticmethod(pool.max_pool2d)
    max_pool2d_backward = staticmethod(pool.max_pool2d_backward)
    avg_pool2d = staticmethod(pool.avg_pool2d)
    avg_pool2d_backward = staticmethod(pool.avg_pool2d_backward)

    softmax_backward = staticmethod(softmax.softmax_backward)
    log_softmax = staticmethod(softmax.log_softmax)
    log_softmax_backward = staticmethod(softmax.log_softmax_backward)
    cross_entropy = staticmethod(softmax.cross_entropy)
    cross_entropy_backward = staticmethod(softmax.cross_entropy_backward)
    mean_loss = staticmethod(softmax.mean_loss)
    softmax = staticmethod(softmax.softmax)

    layer_norm = staticmethod(norm.layer_norm)
    layer_norm_backward = staticmethod(norm.layer_norm_backward)
    batch_norm = staticmethod(norm.batch_norm)
    batch_norm_backward = staticmethod(norm.batch_norm_backward)
    dropout_residual_layer_norm = staticmethod(norm.dropout_residual_layer_norm)
    dropout_residual_layer_norm_backward = staticmethod(
        norm.dropout_residual_layer_norm_backward
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

    sgd_step = staticmethod(optim.sgd_step)
    adam_step = staticmethod(optim.adam_step)

    to_dlpack = staticmethod(dlpack.to_dlpack)
    from_dlpack = staticmethod(dlpack.from_dlpack)
    dlpack_device = staticmethod(dlpack.dlpack_device)
    cuda_array_interface = staticmethod(dlpack.cuda_array_interface)
    from_cuda_array = staticmethod(dlpack.from_cuda_array)


require_device()
