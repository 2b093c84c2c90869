"""Operations that only say anew where elements lie, and those that copy them together.

With this file one can see which movements are free: a view writes new shapes and
strides (`minitorch/tensor_data.py`); nothing moves. The gradient of a movement is the
movement back.

Behind the classes stand the functions that users call. Those that take a shape or dims
take them as one argument; the methods of their names also take them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
from minitorch.arguments import (
    check_cat,
    checked_list,
    completed,
    dim_in,
    dims_of,
    existing_dim,
    expanded_shape,
    int_sequence,
    numpy_names,
    reduced_dims,
    shape_for,
)
from minitorch.autodiff import grad_mode
from minitorch.executor import host_read
from minitorch.function import Context, Function
from minitorch.functions.operands import unbroadcast
from minitorch.tensor_data import Shape, TensorData, normalize_dim, numel, without

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class View(Function):
    """The same elements in another shape."""

    returns_view = True

    @staticmethod
    def forward(ctx: Context, a: Tensor, shape: Shape) -> Any:
        ctx.shape = a.raw.shape
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
        ctx.shape = a.raw.shape
        return a.raw.expand(shape)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return unbroadcast(grad, ctx.shape), None


# A basic index is a tuple of (dim, start, length, step), with length None for an
# integer index, which drops the dimension.
Window = tuple[tuple[int, int, "int | None", int], ...]


def window(a: TensorData, parts: Window) -> TensorData:
    """The view of `a` that a basic index selects."""
    shape, strides, offset = list(a.shape), list(a.strides), a.offset
    for dim, start, length, step in reversed(parts):  # what is dropped comes last
        if length != 0:
            offset += start * strides[dim]
        if length is None:
            del shape[dim], strides[dim]
        else:
            shape[dim] = length
            strides[dim] *= step
    return TensorData(a.storage, tuple(shape), tuple(strides), offset)


class Slice(Function):
    """a[1:9:2, 3] and the like; the gradient is 0 outside the window."""

    returns_view = True

    @staticmethod
    def forward(ctx: Context, a: Tensor, parts: Window) -> Any:
        ctx.shape, ctx.parts = a.raw.shape, parts
        return window(a.raw, parts)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return Framed.apply(grad, ctx.shape, ctx.parts, 0), None


class Framed(Function):
    """A tensor of `shape` that is full of `value`, but for `a` in the window."""

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, shape: Shape, parts: Window, value: Any
    ) -> Any:
        ctx.parts = parts
        out = a.backend.full(shape, value, a.raw.storage.dtype)
        a.backend.copy_into(window(out, parts), a.raw)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return Slice.apply(grad, ctx.parts), None, None, None


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

        ctx.device = a.raw.storage.device
        source, target = a.backend, get_backend(device)
        copied = target.from_peer(a.raw)
        if copied is not None:
            return copied
        fn = source.to_numpy_async if non_blocking else source.to_numpy
        host = host_read(f"to('{device}')", a.raw, fn)
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

        pinned = get_backend("cuda").pin_memory(host_read("pin_memory()", a.raw))
        return a.backend.from_numpy(pinned)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        return grad


def is_pinned(a: Tensor) -> bool:
    """Whether the GPU reads and writes the memory of `a` by itself."""
    from minitorch.backend import loaded_backends

    cuda = loaded_backends.get("cuda")  # nothing is pinned before it is loaded
    return a.raw.storage.device == "cpu" and cuda is not None and cuda.is_pinned(a.raw)


class Flip(Function):
    """The elements of `dims` in reverse order (a copy, as in PyTorch)."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        raw = a.raw
        strides, offset = list(raw.strides), raw.offset
        for dim in dims:
            offset += max(raw.shape[dim] - 1, 0) * strides[dim]
            strides[dim] = -strides[dim]
        turned = TensorData(raw.storage, raw.shape, tuple(strides), offset)
        return a.backend.copy(turned, raw.storage.dtype)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return Flip.apply(grad, ctx.dims), None


class Cat(Function):
    """Tensors one after the other along `dim`; each gets its part of the gradient."""

    @staticmethod
    def forward(ctx: Context, dim: int, *tensors: Tensor) -> Any:
        raws, sizes = [], []
        for t in tensors:
            raws.append(t.raw)
            sizes.append(t.raw.shape[dim])
        ctx.dim, ctx.sizes = dim, sizes
        return tensors[0].backend.cat(raws, dim)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return None, *split(grad, ctx.sizes, ctx.dim)


class Split(Function):
    """Views one after the other along `dim`; their gradients are put together again.

    As slices, each would make a gradient of a's size for itself, to be added up. Where
    gradients lie one after the other already (see `Attention`), that is no copy.
    """

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, sizes: list[int]) -> Any:
        ctx.dim, view = dim, a.raw.slice
        return tuple([view(dim, e - n, n) for e, n in zip(accumulate(sizes), sizes)])

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Any, ...]:
        seen = None if grad_mode.enabled else joined([g.raw for g in grads], ctx.dim)
        if seen is not None:
            return grads[0].wrap(seen), None, None
        # In the order in which they lie in memory, as `a` does: heads of attention lie
        # behind positions, and the way back to features is no copy then.
        steps = grads[0].raw.strides
        order = tuple(sorted(range(len(steps)), key=lambda dim: -steps[dim]))
        back = sorted(range(len(order)), key=order.__getitem__)
        parts = [Permute.apply(grad, order) for grad in grads]
        whole = Cat.apply(back[ctx.dim], *parts)
        return Permute.apply(whole, tuple(back)), None, None


def joined(parts: Sequence[TensorData], dim: int) -> TensorData | None:
    """The tensor whose slices along `dim`, one behind the other, these are; or None."""
    first = parts[0]
    shape, steps, at = list(first.shape), first.strides, first.offset
    shape[dim] = 0
    for part in parts:
        rest = (*part.shape[:dim], shape[dim], *part.shape[dim + 1 :])
        alike = part.storage is first.storage and part.strides == steps
        if not alike or part.offset != at or rest != tuple(shape):
            return None
        shape[dim] += part.shape[dim]
        at += part.shape[dim] * steps[dim]
    return TensorData(first.storage, tuple(shape), steps, first.offset)


class Unbind(Function):
    """The slices of `dim`, as views; their gradients are put together again."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int) -> Any:
        ctx.dim = dim
        return a.raw.unbind(dim)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Any, ...]:
        return Stack.apply(ctx.dim, *grads), None


class Stack(Function):
    """Tensors one after the other along a new dim; each gets its slice of the gradient.

    That is `Cat` of views with a new dim of size 1, which are nobody else's.
    """

    @staticmethod
    def forward(ctx: Context, dim: int, *tensors: Tensor) -> Any:
        ctx.dim, raws = dim, []
        for t in tensors:
            raws.append(t.raw.unsqueeze(dim))
        return tensors[0].backend.cat(raws, dim)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return None, *unbind(grad, ctx.dim)


class Roll(Function):
    """Elements moved on along dims; the gradient moves back."""

    @staticmethod
    def forward(
        ctx: Context, a: Tensor, shifts: tuple[int, ...], dims: tuple[int, ...]
    ) -> Any:
        ctx.back, ctx.dims = tuple([-shift for shift in shifts]), dims
        return a.backend.roll(a.raw, shifts, dims)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return Roll.apply(grad, ctx.back, ctx.dims), None, None


class Band(Function):
    """a [*, M, N] where low <= column - row <= high, else 0, as is its gradient."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, low: int, high: int) -> Any:
        ctx.ends = low, high
        return a.backend.band(a.raw, low, high)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return Band.apply(grad, *ctx.ends), None, None


# ------------------------------------------------------- what users call: views


def reshape(input: Tensor, shape: Any) -> Tensor:
    """The same elements in another shape: a view if possible, else a copy."""
    return _reshaped(input, shape_for(input, "reshape", shape))


def _reshaped(a: Tensor, shape: Shape) -> Tensor:
    """The same where the shape is complete, and fits."""
    raw = a.raw
    if not raw.contiguous and raw.view(shape) is None:
        a = Clone.apply(a)
    return View.apply(a, shape)


def in_shape(a: Tensor, shape: Shape) -> Tensor:
    """`a` itself if it has that shape already, else reshaped."""
    return a if a.raw.shape == shape else reshape(a, shape)


def permute(input: Tensor, dims: Any) -> Tensor:
    """Dimension i of the view is dimension dims[i] of this."""
    total = dims_of("permute", input)
    order = int_sequence("permute", dims)
    return Permute.apply(input, _checked_order(order, total))


@lru_cache(maxsize=1024)
def _checked_order(order: tuple[int, ...], total: int) -> tuple[int, ...]:
    order = tuple([normalize_dim(d, total, "permute") for d in order])
    if sorted(order) != list(range(total)):
        raise ValueError(
            f"permute: dims are {order}; each of the {total} dimensions must be named "
            f"once"
        )
    return order


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged: [*, M, *, N, *] -> [*, N, *, M, *]"""
    total = dims_of("transpose", input)
    i = normalize_dim(dim0, total, "transpose")
    j = normalize_dim(dim1, total, "transpose")
    order = list(range(total))
    if order:
        order[i], order[j] = order[j], order[i]
    return Permute.apply(input, tuple(order))


swapaxes = transpose


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix: [M, N] -> [N, M]"""
    if dims_of("t", input) > 2:
        raise ValueError(f"t: expected at most 2 dimensions, got {input.raw.shape}")
    return reversed_dims(input)


def reversed_dims(a: Tensor) -> Tensor:
    """The dimensions in reverse order: `a.T`."""
    return Permute.apply(a, tuple(range(len(a.raw.shape) - 1, -1, -1)))


def movedim(input: Tensor, source: int, destination: int) -> Tensor:
    """One dimension moved to another place."""
    start, end = dim_in("movedim", input, source), dim_in("movedim", input, destination)
    order = list(range(input.dim() or 1))
    order.insert(end, order.pop(start))
    return Permute.apply(input, tuple(order[: input.dim()]))


def expand(input: Tensor, shape: Any) -> Tensor:
    """Dims of size 1 repeated without a copy; -1 keeps a size."""
    wanted = int_sequence("expand", shape)
    return Expand.apply(input, expanded_shape(input.raw.shape, wanted))


def broadcast_to(input: Tensor, shape: Any) -> Tensor:
    """Expanded to `shape`."""
    dims_of("broadcast_to", input)
    return expand(input, shape)


@numpy_names
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Without the dims of size 1: all of them, or those named."""
    dims = () if dim in ((), []) else reduced_dims(input, dim, "squeeze")
    shape = input.raw.shape
    return View.apply(input, without(shape, tuple([d for d in dims if shape[d] == 1])))


@numpy_names
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a new dim of size 1 at `dim`."""
    dim = normalize_dim(dim, dims_of("unsqueeze", input) + 1, "unsqueeze")
    shape = input.raw.shape
    return View.apply(input, (*shape[:dim], 1, *shape[dim:]))


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dims start_dim to end_dim as one."""
    total = dims_of("flatten", input)
    start = normalize_dim(start_dim, total, "flatten")
    end = normalize_dim(end_dim, total, "flatten")
    if start > end:
        raise ValueError(f"flatten: start_dim {start} comes after end_dim {end}")
    if start == end and total:
        return input
    shape = input.raw.shape
    one = numel(shape[start : end + 1])
    return _reshaped(input, (*shape[:start], one, *shape[end + 1 :]))


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dim as several of the given sizes, of which one may be -1."""
    dim = existing_dim("unflatten", input, dim)
    shape = input.raw.shape
    wanted = int_sequence("unflatten", (sizes,))
    parts = completed("unflatten", (shape[dim],), wanted)
    return _reshaped(input, (*shape[:dim], *parts, *shape[dim + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """All elements in one dim: a view if possible, else a copy."""
    dims_of("ravel", input)
    return reshape(input, -1)


@numpy_names
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` indices of `dim` from `start`."""
    dim = existing_dim("narrow", input, dim)
    size = input.raw.shape[dim]
    start = start + size if start < 0 else start
    if not (0 <= start and 0 <= length and start + length <= size):
        raise ValueError(
            f"narrow: start {start} and length {length} leave dimension {dim} of "
            f"size {size}"
        )
    return Slice.apply(input, ((dim, start, length, 1),))


def split(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of `split_size` indices each (the last may be smaller), or of sizes."""
    dim = existing_dim("split", input, dim)
    total, size = input.raw.shape[dim], split_size
    if isinstance(size, int):
        if size <= 0:
            raise ValueError(f"split: the size is {size}; it must be above 0")
        whole, rest = divmod(total, size)
        sizes = [size] * whole + [rest] * (rest > 0 or total == 0)
    else:
        sizes = list(size)
    if sum(sizes) != total:
        raise ValueError(
            f"split: sizes {sizes} add up to {sum(sizes)}, but dimension {dim} has "
            f"size {total}"
        )
    return tuple([part.view_of(input) for part in Split.apply(input, dim, sizes)])


@numpy_names
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of (nearly) equal size."""
    if chunks <= 0:
        raise ValueError(f"chunk: chunks is {chunks}; it must be above 0")
    dim = existing_dim("chunk", input, dim)
    size = input.raw.shape[dim]
    return split(input, -(-size // chunks) if size else [0] * chunks, dim)


@numpy_names
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices of `dim`, one tensor each."""
    dim = existing_dim("unbind", input, dim)
    return tuple([part.view_of(input) for part in Unbind.apply(input, dim)])


# ------------------------------------------------------ what users call: copies


def contiguous(input: Tensor) -> Tensor:
    """This tensor if it lies row by row without gaps, else a copy that does."""
    return input if input.raw.contiguous else Clone.apply(input)


def clone(input: Tensor) -> Tensor:
    """A contiguous copy, connected to this in the graph."""
    dims_of("clone", input)
    return Clone.apply(input)


def flip(input: Tensor, dims: Any) -> Tensor:
    """The order of the elements along `dims` reversed (a copy)."""
    named = int_sequence("flip", dims)
    return Flip.apply(input, reduced_dims(input, named, "flip") if named else ())


def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved on by `shifts` along `dims`; what falls off comes in again.

    Without `dims` the elements are moved on in row-major order.
    """
    dims_of("roll", input)
    moves = int_sequence("roll", (shifts,))
    if dims is None:
        if len(moves) != 1:
            raise ValueError(
                f"roll: {len(moves)} shifts {moves} and no dims; give one for each"
            )
        return reshape(roll(reshape(input, (-1,)), moves, 0), input.raw.shape)
    named = int_sequence("roll", (dims,))
    if len(named) != len(moves):
        raise ValueError(
            f"roll: {len(moves)} shifts {moves} for {len(named)} dims {named}; give "
            f"one for each"
        )
    dims = tuple([existing_dim("roll", input, dim) for dim in named])
    return Roll.apply(input, moves, dims)


def repeat(input: Tensor, times: Any) -> Tensor:
    """The tensor repeated `times` along each dim (a copy)."""
    counts = int_sequence("repeat", times)
    if len(counts) < input.dim() or any(n < 0 for n in counts):
        raise ValueError(
            f"repeat: {len(counts)} counts {counts} for {input.dim()} dimension(s); "
            f"give one for each, 0 or more"
        )
    shape = (1,) * (len(counts) - input.dim()) + input.raw.shape
    wide = reshape(input, [n for size in shape for n in (1, size)])
    wide = expand(wide, [n for pair in zip(counts, shape) for n in pair])
    return reshape(wide.clone(), [n * size for n, size in zip(counts, shape)])


def _axis(name: str, dim: int, axis: int) -> int:
    if dim:
        raise TypeError(f"{name}: got dim={dim} and axis={axis}; give one of the two")
    return axis


def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors one after the other along `dim`: [A, *], [B, *] -> [A + B, *] for 0

    Args:
        axis: NumPy's name of `dim`.
    """
    if axis is not None:
        dim = _axis("cat", dim, axis)
    tensors = checked_list("cat", tensors)
    dim = normalize_dim(dim, len(tensors[0].raw.shape), "cat")
    check_cat(tensors, dim)
    return Cat.apply(dim, *tensors)


concat = concatenate = cat


def stack(
    tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None
) -> Tensor:
    """N tensors of one shape along a new dim: [*], [*], ... -> [N, *] for dim 0

    Args:
        axis: NumPy's name of `dim`.
    """
    if axis is not None:
        dim = _axis("stack", dim, axis)
    tensors = checked_list("stack", tensors)
    shape = tensors[0].raw.shape
    for other in tensors:
        if other.raw.shape != shape:
            raise ValueError(
                f"stack: one tensor is {shape} and another {other.raw.shape}; all must "
                f"have one shape"
            )
    return Stack.apply(normalize_dim(dim, len(shape) + 1, "stack"), *tensors)


def pad(input: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    """`pad` is (before, after) of the last dim, then of the one before, and so on.

    Negative numbers cut elements off.
    """
    pad, dims = tuple(pad), input.dim()
    if len(pad) % 2 or len(pad) > 2 * dims:
        raise ValueError(
            f"pad: {pad} for {dims} dimension(s); give (before, after) for the last "
            f"dim, then for the one before it, and so on"
        )
    inner, outer = [], list(input.raw.shape)
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        dim = dims - 1 - i
        keep = input.raw.shape[dim] + min(before, 0) + min(after, 0)
        if keep < 0:
            raise ValueError(
                f"pad: {pad} cuts more off dimension {dim} than its size "
                f"{input.raw.shape[dim]}"
            )
        if keep < outer[dim]:
            input = narrow(input, dim, max(-before, 0), keep)
        inner.append((dim, max(before, 0), keep, 1))
        outer[dim] = keep + max(before, 0) + max(after, 0)
    value = dtypes.check_number(value, input.raw.storage.dtype)
    return Framed.apply(input, tuple(outer), tuple(inner[::-1]), value)


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Elements above the diagonal set to 0: [*, M, N] -> [*, M, N]"""
    return Band.apply(input, -_matrix("tril", input)[0], diagonal)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Elements below the diagonal set to 0: [*, M, N] -> [*, M, N]"""
    return Band.apply(input, diagonal, _matrix("triu", input)[1])


def _matrix(name: str, a: Tensor) -> Shape:
    if dims_of(name, a) < 2:
        raise ValueError(f"{name}: expected 2 dims or more, got {a.raw.shape}")
    return a.raw.shape[-2:]
