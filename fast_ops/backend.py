"""The backend of the device "cpu": kernels compiled by Numba, on all cores.

With this file `minitorch` runs tensors on the device "cpu". Importing it compiles
nothing; a kernel is compiled when it is first called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fast_ops import (
    conv,
    elementwise,
    indexing,
    linear,
    matmul,
    memory,
    norm,
    optim,
    pool,
    random,
    reduce,
    softmax,
    sort,
    sparse,
    threads,
)
from fast_ops.launch import SERIAL_LIMIT
from minitorch.backend import Backend
from minitorch.backend.indexing import cat_shape
from minitorch.tensor_data import TensorData


class CPUBackend(Backend):
    """Numba on all cores of the processor."""

    def cat(self, tensors: Sequence[TensorData], dim: int) -> TensorData:
        """As in the contract; small ones in one call, with which one thread is done."""
        shape = cat_shape(tensors, dim)
        if math.prod(shape) >= SERIAL_LIMIT:
            return super().cat(tensors, dim)
        flat = dim == 0 and all([a.contiguous for a in tensors])
        arrays = [a.flat() if flat else memory.to_numpy(a) for a in tensors]
        array = np.concatenate(arrays, dim)
        return memory.wrap(array if flat else array.ravel(), shape, tensors[0].dtype)

    # A function with its file's name comes last of the file: it hides the module.

    empty = staticmethod(memory.empty)
    full = staticmethod(memory.full)
    number = staticmethod(memory.number)
    from_numpy = staticmethod(memory.from_numpy)
    to_numpy = staticmethod(memory.to_numpy)
    copy = staticmethod(memory.copy)
    copy_into = staticmethod(memory.copy_into)

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


threads.warn_if_slow()
