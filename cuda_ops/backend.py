"""The backend of the device "cuda": every function of `minitorch.backend.Backend`.

`minitorch` loads this module when a tensor is first put on the device "cuda". Without a
GPU, and without the simulator, that is an error which says how to get either. Beside
the protocol there is what shares memory with other libraries (`cuda_ops/dlpack.py`),
and what copies without waiting (`pin_memory`, `from_numpy_async`, `to_numpy_async`).
"""

from __future__ import annotations

from cuda_ops.conv import conv2d, conv2d_backward_input, conv2d_backward_weight
from cuda_ops.device import require_device
from cuda_ops.dlpack import cuda_array_interface as cuda_array_interface
from cuda_ops.dlpack import dlpack_device as dlpack_device
from cuda_ops.dlpack import from_cuda_array as from_cuda_array
from cuda_ops.dlpack import from_dlpack as from_dlpack
from cuda_ops.dlpack import to_dlpack as to_dlpack
from cuda_ops.elementwise import map, where, zip
from cuda_ops.indexing import gather, index_add, index_copy_, index_select, scatter_add
from cuda_ops.linear import bias_activation, bias_activation_backward
from cuda_ops.matmul import matmul
from cuda_ops.memory import (
    copy,
    copy_into,
    empty,
    from_numpy,
    full,
    synchronize,
    to_numpy,
)
from cuda_ops.memory import from_numpy_async as from_numpy_async
from cuda_ops.memory import is_pinned as is_pinned
from cuda_ops.memory import pin_memory as pin_memory
from cuda_ops.memory import to_numpy_async as to_numpy_async
from cuda_ops.norm import (
    batch_norm,
    batch_norm_backward,
    dropout_residual_layer_norm,
    dropout_residual_layer_norm_backward,
    layer_norm,
    layer_norm_backward,
)
from cuda_ops.optim import adam_step, sgd_step
from cuda_ops.pool import (
    avg_pool2d,
    avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
)
from cuda_ops.random import dropout, normal, randint, uniform
from cuda_ops.reduce import argmax, argmin, cumsum, reduce
from cuda_ops.softmax import (
    cross_entropy,
    cross_entropy_backward,
    log_softmax,
    log_softmax_backward,
    mean_loss,
    softmax,
    softmax_backward,
)
from cuda_ops.sort import sort
from cuda_ops.sparse import (
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

require_device()
