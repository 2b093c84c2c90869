"""The backend of device "simple": every operation in plain Python, as a specification.

With this package one can read what each operation means. A file holds a family of
operations, under the same name as in the fast backends; start with `elementwise.py`.
Tensors are read into Python lists, the mathematics is a loop over numbers, and the
result is rounded once, when it is stored (`lists.py`).
"""

from minitorch.simple_ops.conv import (
    conv2d,
    conv2d_backward_input,
    conv2d_backward_weight,
)
from minitorch.simple_ops.elementwise import map, where, zip
from minitorch.simple_ops.indexing import (
    gather,
    index_add,
    index_copy_,
    index_select,
    scatter_add,
)
from minitorch.simple_ops.linear import bias_activation, bias_activation_backward
from minitorch.simple_ops.matmul import matmul
from minitorch.simple_ops.memory import (
    copy,
    copy_into,
    empty,
    from_numpy,
    full,
    synchronize,
    to_numpy,
)
from minitorch.simple_ops.norm import (
    batch_norm,
    batch_norm_backward,
    dropout_residual_layer_norm,
    dropout_residual_layer_norm_backward,
    layer_norm,
    layer_norm_backward,
)
from minitorch.simple_ops.optim import adam_step, sgd_step
from minitorch.simple_ops.pool import (
    avg_pool2d,
    avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
)
from minitorch.simple_ops.random import dropout, normal, randint, uniform
from minitorch.simple_ops.reduce import argmax, argmin, cumsum, reduce
from minitorch.simple_ops.softmax import (
    cross_entropy,
    cross_entropy_backward,
    log_softmax,
    log_softmax_backward,
    mean_loss,
    softmax,
    softmax_backward,
)
from minitorch.simple_ops.sort import sort
from minitorch.simple_ops.sparse import (
    csr_gather,
    csr_matmul,
    csr_pattern,
    csr_sample,
    csr_to_dense,
    csr_transpose,
)

__all__ = [
    "adam_step",
    "argmax",
    "argmin",
    "avg_pool2d",
    "avg_pool2d_backward",
    "batch_norm",
    "batch_norm_backward",
    "bias_activation",
    "bias_activation_backward",
    "conv2d",
    "conv2d_backward_input",
    "conv2d_backward_weight",
    "copy",
    "copy_into",
    "cross_entropy",
    "cross_entropy_backward",
    "csr_gather",
    "csr_matmul",
    "csr_pattern",
    "csr_sample",
    "csr_to_dense",
    "csr_transpose",
    "cumsum",
    "dropout",
    "dropout_residual_layer_norm",
    "dropout_residual_layer_norm_backward",
    "empty",
    "from_numpy",
    "full",
    "gather",
    "index_add",
    "index_copy_",
    "index_select",
    "layer_norm",
    "layer_norm_backward",
    "log_softmax",
    "log_softmax_backward",
    "map",
    "matmul",
    "max_pool2d",
    "max_pool2d_backward",
    "mean_loss",
    "normal",
    "randint",
    "reduce",
    "scatter_add",
    "sgd_step",
    "softmax",
    "softmax_backward",
    "sort",
    "synchronize",
    "to_numpy",
    "uniform",
    "where",
    "zip",
]
