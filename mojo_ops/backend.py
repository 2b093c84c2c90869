"""The backend of the device "mojo": functions in Mojo, and those that are yet to come.

With this file `minitorch` runs tensors on the device "mojo". What has no Mojo kernel
yet is taken from the CPU backend, at the end of this file. Importing it compiles
nothing: a family is compiled when one of its kernels is first called.
"""

from __future__ import annotations

from fast_ops import sort as fast_sort
from fast_ops import sparse as fast_sparse
from minitorch.backend import Backend
from mojo_ops import (
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
)
from mojo_ops.build import check_platform
from mojo_ops.fallback import from_cpu


class MojoBackend(Backend):
    """Mojo on all cores of the processor."""

    # A function with its file's name comes last of the file: it hides the module.

    empty = staticmethod(memory.empty)
    full = staticmethod(memory.full)
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

    uniform = staticmethod(random.uniform)
    normal = staticmethod(random.normal)
    randint = staticmethod(random.randint)
    dropout = staticmethod(random.dropout)

    sgd_step = staticmethod(optim.sgd_step)
    adam_step = staticmethod(optim.adam_step)

    # ------------------------------------------------------------ not in Mojo yet

    sort = staticmethod(from_cpu(fast_sort.sort))
    csr_matmul = staticmethod(from_cpu(fast_sparse.csr_matmul))
    csr_sample = staticmethod(from_cpu(fast_sparse.csr_sample))
    csr_transpose = staticmethod(from_cpu(fast_sparse.csr_transpose))
    csr_pattern = staticmethod(from_cpu(fast_sparse.csr_pattern))
    csr_gather = staticmethod(from_cpu(fast_sparse.csr_gather))
    csr_to_dense = staticmethod(from_cpu(fast_sparse.csr_to_dense))


check_platform()
