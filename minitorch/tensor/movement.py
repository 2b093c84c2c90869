"""Views, and copies that move elements: the names of `Tensor`.

With this file one can find what a movement means: `a.t()` is `t` in
`minitorch/functions/movement.py`. Methods that take a shape or dims take them one by
one, `a.reshape(2, 3)`, or as one argument, `a.reshape((2, 3))`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minitorch.arguments import shape_for
from minitorch.functions import matrices, movement
from minitorch.functions.operands import checked_tensor

if TYPE_CHECKING:
    from minitorch.tensor.core import Tensor


class Movement:
    """The methods that say anew where elements lie, or bring them together."""

    __slots__ = ()

    def view(self: Any, *shape: Any) -> Tensor:
        """The same memory in another shape; an error where that needs a copy."""
        return movement.View.apply(self, shape_for(self, "view", shape))

    def reshape(self: Any, *shape: Any) -> Tensor:
        """The same elements in another shape: a view if possible, else a copy."""
        return movement.reshape(self, shape)

    def expand(self: Any, *shape: Any) -> Tensor:
        """Dims of size 1 repeated without a copy; -1 keeps a size."""
        return movement.expand(self, shape)

    def permute(self: Any, *dims: Any) -> Tensor:
        """Dimension i of the view is dimension dims[i] of this."""
        return movement.permute(self, dims)

    def roll(self: Any, shifts: Any, dims: Any = None) -> Tensor:
        """Elements moved on along `dims`; what falls off comes in again (a copy)."""
        return movement.roll(self, shifts, dims)

    def flip(self: Any, *dims: Any) -> Tensor:
        """The order of the elements along `dims` reversed (a copy)."""
        return movement.flip(self, dims)

    def repeat(self: Any, *times: Any) -> Tensor:
        """The tensor repeated `times` along each dim (a copy)."""
        return movement.repeat(self, times)

    def view_as(self: Any, other: Tensor) -> Tensor:
        """A view in other's shape."""
        shape = checked_tensor("view_as", other).raw.shape
        return movement.View.apply(self, shape_for(self, "view_as", shape))

    def reshape_as(self: Any, other: Tensor) -> Tensor:
        """Reshaped to other's shape."""
        return movement.reshape(self, checked_tensor("reshape_as", other).raw.shape)

    def expand_as(self: Any, other: Tensor) -> Tensor:
        """Expanded to other's shape."""
        return movement.expand(self, checked_tensor("expand_as", other).raw.shape)

    @property
    def T(self: Any) -> Tensor:
        """The dimensions in reverse order."""
        return movement.reversed_dims(self)

    @property
    def mT(self: Any) -> Tensor:
        """The last two dimensions exchanged."""
        dims = len(self.raw.shape)
        if dims < 2:
            raise ValueError(f"mT: expected 2 dimensions or more, got {self.raw.shape}")
        return movement.Permute.apply(self, (*range(dims - 2), dims - 1, dims - 2))

    transpose = swapaxes = movement.transpose
    t = movement.t
    movedim = movement.movedim
    broadcast_to = movement.broadcast_to
    squeeze = movement.squeeze
    unsqueeze = movement.unsqueeze
    flatten = movement.flatten
    unflatten = movement.unflatten
    ravel = movement.ravel
    narrow = movement.narrow
    split = movement.split
    chunk = movement.chunk
    unbind = movement.unbind
    contiguous = movement.contiguous
    clone = movement.clone
    pad = movement.pad
    diag = matrices.diag
    tril = movement.tril
    triu = movement.triu
    cat = staticmethod(movement.cat)
    stack = staticmethod(movement.stack)
