"""The tensor: numbers in any number of dimensions, with arithmetic and gradients.

With this package one can follow what an expression does. `Tensor` is put together from
rooms, one a file: `core` (what a tensor is, and its gradients), `elementwise`,
`reductions`, `movement`, `indexing`, `in_place` and `interop`. A room gives names to
the functions of `minitorch/functions`, where the mathematics stands. Names and meanings
are PyTorch's. New tensors come from `minitorch/creation.py`.
"""

from minitorch.dtypes import Number
from minitorch.functions.order import ValuesIndices
from minitorch.tensor.core import Size, Tensor
from minitorch.tensor.hooks import Handle, grad

__all__ = ["Handle", "Number", "Size", "Tensor", "ValuesIndices", "grad"]
