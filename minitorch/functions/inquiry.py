"""What a tensor is, asked with functions.

With this file one can ask whether something is a tensor, and how large one is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
