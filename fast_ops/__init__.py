"""The CPU backend: kernels compiled by Numba, on all cores.

With this package `minitorch` runs tensors on the device "cpu". It brings every function
that `minitorch.backend.Backend` lists, each from the file of its family; importing it
compiles nothing, a kernel is compiled when it is first called.
"""

from __future__ import annotations

from fast_ops import threads
from fast_ops.conv import conv2d, conv2d_backward_input, conv2d_backward_weight
from fast_ops.elementwise import map, where, zip
from fast_ops.indexing import (
    gather,
    index_add,
    index_copy_,
    index_select,
    scatter_add,
)
from fast_ops.linear import bias_activation, bias_activation_backward
from fast_ops.matmul import matmul
from fast_ops.memory import (
    copy,
    copy_into,
    empty,
    from_numpy,
    full,
    synchronize,
    to_numpy,
)
from fast_ops.norm import (
    batch_norm,
    batch_norm_backward,
    dropout_residual_layer_norm,
    dropout_residual_layer_norm_backward,
    layer_norm,
    layer_norm_backward,
)
from fast_ops.optim import adam_step, sgd_step
from fast_ops.pool import (
    avg_pool2d,
    avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
)
from fast_ops.random import dropout, normal, randint, uniform
from fast_ops.reduce import argmax, argmin, cumsum, reduce
from fast_ops.softmax import (
    cross_entropy,
    cross_entropy_backward,
    log_softmax,
    log_softmax_backward,
    mean_loss,
    softmax,
    softmax_backward,
)
from fast_ops.sort import sort
from fast_ops.sparse import (
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

threads.warn_if_slow()
