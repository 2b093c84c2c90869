"""The functions of the device "mojo": those in Mojo, and those that are yet to come.

With this file `minitorch` runs tensors on the device "mojo". It brings every function
that `minitorch.backend.Backend` lists, each from the file of its family; what has no
Mojo kernel yet is taken from the CPU backend, at the end of this file. Importing it
compiles nothing: a family is compiled when one of its kernels is first called.
"""

from __future__ import annotations

import fast_ops
from mojo_ops.build import check_platform
from mojo_ops.conv import conv2d, conv2d_backward_input, conv2d_backward_weight
from mojo_ops.elementwise import map, where, zip
from mojo_ops.fallback import from_cpu
from mojo_ops.indexing import gather, index_add, index_copy_, index_select, scatter_add
from mojo_ops.linear import bias_activation, bias_activation_backward
from mojo_ops.matmul import matmul
from mojo_ops.memory import (
    copy,
    copy_into,
    empty,
    from_numpy,
    full,
    synchronize,
    to_numpy,
)
from mojo_ops.norm import (
    batch_norm,
    batch_norm_backward,
    dropout_residual_layer_norm,
    dropout_residual_layer_norm_backward,
    layer_norm,
    layer_norm_backward,
)
from mojo_ops.optim import adam_step, sgd_step
from mojo_ops.pool import (
    avg_pool2d,
    avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
)
from mojo_ops.random import dropout, normal, randint, uniform
from mojo_ops.reduce import argmax, argmin, cumsum, reduce
from mojo_ops.softmax import (
    cross_entropy,
    cross_entropy_backward,
    log_softmax,
    log_softmax_backward,
    mean_loss,
    softmax,
    softmax_backward,
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

check_platform()

# ------------------------------------------------------------ not in Mojo yet

csr_gather = from_cpu(fast_ops.csr_gather)
csr_matmul = from_cpu(fast_ops.csr_matmul)
csr_pattern = from_cpu(fast_ops.csr_pattern)
csr_sample = from_cpu(fast_ops.csr_sample)
csr_to_dense = from_cpu(fast_ops.csr_to_dense)
csr_transpose = from_cpu(fast_ops.csr_transpose)
sort = from_cpu(fast_ops.sort)
