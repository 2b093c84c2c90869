"""The backend of the device "simple": primitives in plain Python.

With this file `minitorch` runs tensors on the device "simple". What is not bound here
has the default of its family (`minitorch/backend`), which is made of these primitives
and is as good a specification as a loop.
"""

from __future__ import annotations

from minitorch.backend import Backend
from minitorch.simple_ops import (
    conv,
    elementwise,
    indexing,
    matmul,
    memory,
    optim,
    pool,
    random,
    reduce,
    softmax,
    sort,
    sparse,
)
from minitorch.tensor_data import TensorData


class SimpleBackend(Backend):
    """Plain loops over Python numbers."""

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
    cumprod = staticmethod(reduce.cumprod)
    reduce = staticmethod(reduce.reduce)

    sort = staticmethod(sort.sort)

    matmul = staticmethod(matmul.matmul)

    gather = staticmethod(indexing.gather)
    scatter_add = staticmethod(indexing.scatter_add)
    index_copy_ = staticmethod(indexing.index_copy_)

    conv2d = staticmethod(conv.conv2d)
    conv2d_backward_input = staticmethod(conv.conv2d_backward_input)
    conv2d_backward_weight = staticmethod(conv.conv2d_backward_weight)

    max_pool2d = staticmethod(pool.max_pool2d)
    max_pool2d_backward = staticmethod(pool.max_pool2d_backward)
    avg_pool2d = staticmethod(pool.avg_pool2d)
    avg_pool2d_backward = staticmethod(pool.avg_pool2d_backward)

    log_softmax = staticmethod(softmax.log_softmax)
    cross_entropy = staticmethod(softmax.cross_entropy)
    softmax = staticmethod(softmax.softmax)

    csr_matmul = staticmethod(sparse.csr_matmul)
    csr_sample = staticmethod(sparse.csr_sample)
    csr_transpose = staticmethod(sparse.csr_transpose)
    csr_pattern = staticmethod(sparse.csr_pattern)
    csr_to_dense = staticmethod(sparse.csr_to_dense)

    uniform = staticmethod(random.uniform)
    normal = staticmethod(random.normal)
    randint = staticmethod(random.randint)
    dropout = staticmethod(random.dropout)

    adam_step = staticmethod(optim.adam_step)

    def cross_entropy_backward(
        self, grad: TensorData, logits: TensorData, target: TensorData,
        logsumexp: TensorData, ignore_index: int, out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """As the loops say."""
        made = softmax.cross_entropy_backward(
            grad, logits, target, logsumexp, ignore_index
        )
        return self.into(out, made)
