"""Rotary positions: where a vector stands in a sequence is an angle it is turned by.

With this file one can turn queries and keys before their products are taken. A product
of two vectors that are turned by p and q steps depends on q - p alone, so attention
sees how far apart two positions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minitorch.arguments import check_floating
from minitorch.function import Context, Function
from minitorch.functions.movement import cat
from minitorch.functions.operands import cast, check_broadcast, check_same_device

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class Rotary(Function):
    """out = (a cos - b sin, b cos + a sin) for the halves (a, b) of x.

    Each pair (a_i, b_i) is a point in the plane that is turned; the gradient is turned
    back. Source: Su et al., "RoFormer: enhanced transformer with rotary position
    embedding", 2021; that the pairs are (i, i + E/2) is Llama's layout.
    """

    composed = True

    # BEGIN SOLUTION a10.3
    @staticmethod
    def forward(ctx: Context, x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        ctx.save_for_backward(cos, sin)
        a, b = x.chunk(2, -1)
        return cat([a * cos - b * sin, b * cos + a * sin], -1)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        cos, sin = ctx.saved_tensors
        return Rotary.apply(grad, cos, -sin), None, None

    # END SOLUTION a10.3


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [*, E] with the points (x_i, x_(i + E/2)) turned by angles i, i < E/2.

    Args:
        cos, sin: of the angles, [*, E/2], which must broadcast to x's; constants.

    Errors: ValueError for shapes that do not fit, TypeError for an x that is no float.
    """
    check_floating("rotary", x)
    check_same_device("rotary", x, cos, sin)
    width = x.raw.shape[-1] if x.dim() else 1
    points = (*x.raw.shape[:-1], width // 2)
    shapes = cos.raw.shape, sin.raw.shape
    if width % 2 or check_broadcast("rotary", points, *shapes) != points:
        raise ValueError(
            f"rotary: x is {x.raw.shape}, cos and sin are {shapes[0]} and {shapes[1]}; "
            f"x's last size must be even, and theirs half of it"
        )
    return Rotary.apply(x, cast(cos.detach(), x.dtype), cast(sin.detach(), x.dtype))
