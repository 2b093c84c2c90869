"""What a tensor is, asked with functions.

With this file one can ask whether something is a tensor, how large one is, and which
type an operation on two would have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
from minitorch.dtypes import DType, Number
from minitorch.functions.operands import checked_tensor
from minitorch.functions.operands import is_tensor as _is_tensor

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a minitorch tensor."""
    return _is_tensor(obj)


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating type."""
    return checked_tensor("is_floating_point", input).dtype.is_floating_point


def numel(input: Tensor) -> int:
    """How many elements there are."""
    return checked_tensor("numel", input).raw.size


def result_type(tensor1: Tensor | Number, tensor2: Tensor | Number) -> DType:
    """The dtype of an operation on two tensors or numbers: float32 of int64 and 2.0."""
    return dtypes.result_type(*_strength(tensor1), *_strength(tensor2))


def _strength(x: Any) -> tuple[DType, int]:
    if is_tensor(x):
        return x.dtype, x.dim()
    try:
        return dtypes.infer(x), dtypes.NUMBER
    except TypeError as error:
        raise TypeError(f"result_type: {error}, or a tensor") from None
