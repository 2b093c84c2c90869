"""Tensors that a module learns.

With this file one can mark a tensor as learnable: `Parameter(tensor)`. A module that is
given one as an attribute finds it again in `parameters()` and in `state_dict()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitorch.tensor import Tensor


class Parameter(Tensor):
    """A leaf tensor that a module registers when it becomes one of its attributes.

    Args:
        data: the numbers; the memory is shared, the graph behind them is not.
        requires_grad: whether backward passes leave a gradient in `.grad`.

    Attributes:
        dealt: which numbers of it each rank has (a `Layout`), where ranks share it.
        home: () -> a tensor in whose memory its gradient is to lie. The next backward
            pass may write it there, if there is no gradient yet; None: anywhere.
    """

    __slots__ = ("dealt", "home")

    dealt: Any
    home: Callable[[], Tensor | None] | None

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter: got a {type(data).__name__}; expected a tensor, for "
                f"example Parameter(minitorch.zeros(3))"
            )
        super().__init__(data.raw)
        if requires_grad:
            self.requires_grad_()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A leaf with a copy of the numbers, and no gradient yet, as in PyTorch."""
        copied = super().__deepcopy__(memo)
        copied.grad = None
        return copied

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
