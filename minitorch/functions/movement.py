"""Operations that only say anew where elements lie, and those that copy them together.

With this file one can see which movements are free: a view writes new shapes and
strides (`minitorch/tensor_data.py`); nothing moves. The gradient of a movement is the
movement back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minitorch.function import Context, Function
from minitorch.functions.operands import unbroadcast
from minitorch.tensor_data import Shape, TensorData

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class View(Function):
    """The same elements in another shape."""

    returns_view = True

    @staticmethod
    def forward(ctx: Context, a: Tensor, shape: Shape) -> Any:
        ctx.shape = a.shape
        viewed = a.raw.view(shape)
        if viewed is None:
            raise RuntimeError(
                f"view: shape {a.raw.shape} with strides {a.raw.strides} cannot be "
                f"seen as {shape} without a copy; use reshape or contiguous().view()"
            )
        return viewed

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return grad.reshape(ctx.shape), None


class Permute(Function):
    """Dimension i of the output is dimension order[i] of the input."""

    returns_view = True

    @staticmethod
    def forward(ctx: Context, a: Tensor, order: tuple[int, ...]) -> Any:
        ctx.order = order
        return a.raw.permute(order)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        order: tuple[int, ...] = ctx.order
        back = sorted(range(len(order)), key=order.__getitem__)
        return Permute.apply(grad, tuple(back)), None


class Expand(Function):
    """Dims of size 1 repeated; the gradient adds the repetitions up."""

    returns_view = True

    @staticmethod
    def forward(ctx: Context, a: Tensor, shape: Shape) -> Any:
        ctx.shape = a.shape
        return a.raw.expand(shape)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return unbroadcast(grad, ctx.shape), None


# A basic index is a tuple of (dim, start, length, step), with length None for an
# integer index, which drops the dimension.
Window = tuple[tuple[int, int, "int | None", int], ...]


def window(a: TensorData, parts: Window) -> TensorData:
    """The view of `a` that a basic index selects."""
    dropped = 0
    for dim, start, length, step in parts:
        if length is None:
            a = a.select(dim - dropped, start)
            dropped += 1
        else:
            a = a.slice(dim - dropped, start, length, step)
    return a


class Slice(Function):
    """a[1:9:2, 3] and the like; the gradient is 0 outside the window."""

    returns_view = True

    @staticmethod
    def forward(ctx: Context, a: Tensor, parts: Window) -> Any:
        ctx.shape, ctx.parts = a.shape, parts
        return window(a.raw, parts)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return SliceBackward.apply(grad, ctx.shape, ctx.parts), None


class SliceBackward(Function):
    """Zeros of `shape`, with the gradient in the window."""

    @staticmethod
    def forward(ctx: Context, grad: Tensor, shape: Shape, parts: Window) -> Any:
        ctx.parts = parts
        out = grad.backend.full(shape, 0, grad.dtype)
        grad.backend.copy_into(window(out, parts), grad.raw)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return Slice.apply(grad, ctx.parts), None, None


class SliceAssign(Function):
    """A copy of `a` with `value` in the window; each gets its part of the gradient."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, value: Tensor, parts: Window) -> Any:
        ctx.parts = parts
        out = a.backend.copy(a.raw, a.dtype)
        a.backend.copy_into(window(out, parts), value.raw)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        parts: Window = ctx.parts
        inside = Slice.apply(grad, parts)
        zeros = grad.new_zeros(inside.shape)  # inside * 0 would keep NaN and infinity
        return SliceAssign.apply(grad, zeros, parts), inside, None


class Clone(Function):
    """A contiguous copy."""

    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Any:
        return a.backend.copy(a.raw, a.dtype)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        return grad


class ToDevice(Function):
    """The same elements in another device's memory."""

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, device: str, non_blocking: bool = False
    ) -> Any:
        from minitorch.backend import get_backend

        ctx.device = a.device
        source, target = a.backend, get_backend(device)
        if non_blocking:
            host = source.to_numpy_async(a.raw)
        else:
            host = source.to_numpy(a.raw)
        if source.host_memory and target.host_memory:  # else one of them copies
            host = host.copy()
        if non_blocking:
            return target.from_numpy_async(host)
        return target.from_numpy(host)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return ToDevice.apply(grad, ctx.device, False), None, None


class Pin(Function):
    """A contiguous copy in memory that the GPU reads by itself."""

    @staticmethod
    def forward(ctx: Context, a: Tensor) -> Any:
        from minitorch.backend import get_backend

        pinned = get_backend("cuda").pin_memory(a.backend.to_numpy(a.raw))
        return a.backend.from_numpy(pinned)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        return grad


def is_pinned(a: Tensor) -> bool:
    """Whether the GPU reads and writes the memory of `a` by itself."""
    from minitorch.backend import loaded_backends

    cuda = loaded_backends.get("cuda")  # nothing is pinned before it is loaded
    return a.device == "cpu" and cuda is not None and cuda.is_pinned(a.raw)


class Flip(Function):
    """The elements of `dims` in reverse order (a copy, as in PyTorch)."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        raw = a.raw
        for dim in dims:
            size = raw.shape[dim]
            raw = raw.slice(dim, max(size - 1, 0), size, -1)
        return a.backend.copy(raw, a.dtype)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return Flip.apply(grad, ctx.dims), None


class Cat(Function):
    """Tensors one after the other along `dim`; each gets its part of the gradient."""

    @staticmethod
    def forward(ctx: Context, dim: int, *tensors: Tensor) -> Any:
        sizes = [t.shape[dim] for t in tensors]
        ctx.dim, ctx.sizes = dim, sizes
        first = tensors[0]
        shape = (*first.shape[:dim], sum(sizes), *first.shape[dim + 1 :])
        out = first.backend.empty(shape, first.dtype)
        start = 0
        for tensor, size in zip(tensors, sizes):
            first.backend.copy_into(out.slice(dim, start, size), tensor.raw)
            start += size
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        dim: int = ctx.dim
        sizes: Sequence[int] = ctx.sizes
        grads: list[Any] = [None]
        start = 0
        for size in sizes:
            grads.append(grad.narrow(dim, start, size))
            start += size
        return tuple(grads)
