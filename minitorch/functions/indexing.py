"""Reading and writing by position: what stands between the brackets of `x[...]`.

With this file one can see how an index becomes work: integers, slices, None and
Ellipsis make a view (`movement.Slice`); bool masks and integer tensors are turned into
one flat list of positions, and rows are picked by `index_select`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

import minitorch.dtypes as dtypes
from minitorch.arguments import (
    check_gather,
    check_index,
    dim_in,
    existing_dim,
    numpy_names,
    only_bool,
)
from minitorch.autodiff import grad_mode
from minitorch.dtypes import Number
from minitorch.executor import host_read
from minitorch.function import Context, Function
from minitorch.functions.movement import (
    Slice,
    SliceAssign,
    Window,
    expand,
    reshape,
    stack,
    unsqueeze,
    window,
)
from minitorch.functions.operands import (
    cast,
    check_alike,
    check_broadcast,
    checked_tensor,
    is_tensor,
    scalar_like,
    type_with_number,
)
from minitorch.tensor_data import Shape, TensorData, numel

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


# -------------------------------------------------------------------- operations


class Gather(Function):
    """out[i, j] = a[index[i, j], j] for dim 0; the gradient is scattered back."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, index: Tensor) -> Any:
        ctx.save_for_backward(index)
        ctx.dim, ctx.shape = dim, a.shape
        return a.backend.gather(a.raw, dim, index.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        zeros = grad.new_zeros(ctx.shape)
        return ScatterAdd.apply(zeros, ctx.dim, index, grad), None, None


class ScatterAdd(Function):
    """A copy of a with out[index[i, j], j] += src[i, j] for dim 0."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
        ctx.save_for_backward(index)
        ctx.dim = dim
        return a.backend.scatter_add(a.raw, dim, index.raw, src.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        dim: int = ctx.dim
        need_a, _, _, need_src = ctx.needs_input_grad
        to_src = Gather.apply(grad, dim, index) if need_src else None
        return grad if need_a else None, None, None, to_src


class Scatter(Function):
    """A copy of a with out[index[i, j], j] = src[i, j] for dim 0; the last one wins."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
        ctx.save_for_backward(index)
        ctx.dim = dim
        return a.backend.scatter(a.raw, dim, index.raw, src.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        dim: int = ctx.dim
        need_a, _, _, need_src = ctx.needs_input_grad
        zeros = grad.new_zeros(index.shape) if need_a else None
        to_a = Scatter.apply(grad, dim, index, zeros) if need_a else None
        to_src = Gather.apply(grad, dim, index) if need_src else None
        return to_a, None, None, to_src


class IndexSelect(Function):
    """The slices `index` [*] of `dim`, whose place the dims * take.

    A slice taken twice gets both gradients.
    """

    adds, writes = True, 0

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, index: Tensor) -> Any:
        ctx.save_for_backward(index)
        ctx.dim, ctx.shape = dim, a.raw.shape
        places = index.raw.shape
        out = a.backend.index_select(a.raw, dim, _flat(index).raw)
        if len(places) == 1:
            return out
        return TensorData(out.storage, _replaced(a.raw.shape, dim, places))

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        dim, index = ctx.dim, _flat(index)
        grad = grad.reshape(_replaced(ctx.shape, dim, index.raw.shape))
        base, home, ctx.before, ctx.home = ctx.before, ctx.home, None, None
        if base is None:
            if home is not None and home.dtype is grad.dtype:
                base = grad.wrap(home).zero_()
            else:
                base = grad.new_zeros(ctx.shape)
        raw = base.raw
        if grad_mode.enabled or raw.storage.shared or not raw.contiguous:
            return IndexAdd.apply(base, dim, index, grad), None, None
        raw.storage.version += 1  # what nobody else has is added to where it lies
        base.backend.index_add(raw, dim, index.raw, grad.raw, raw)
        return base, None, None


def _flat(index: Tensor) -> Tensor:
    return index if len(index.raw.shape) == 1 else index.reshape(-1)


def _replaced(shape: Shape, dim: int, places: Shape) -> Shape:
    return shape[:dim] + places + shape[dim + 1 :]


class IndexAdd(Function):
    """A copy of a with src's slice i added to slice index[i] of `dim`."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
        ctx.save_for_backward(index)
        ctx.dim = dim
        return a.backend.index_add(a.raw, dim, index.raw, src.raw)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        dim: int = ctx.dim
        need_a, _, _, need_src = ctx.needs_input_grad
        to_src = IndexSelect.apply(grad, dim, index) if need_src else None
        return grad if need_a else None, None, None, to_src


class IndexCopy(Function):
    """A copy of a with src's slice i in place of slice index[i] of `dim`."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
        ctx.save_for_backward(index)
        ctx.dim = dim
        out = a.backend.copy(a.raw, a.dtype)
        a.backend.index_copy_(out, dim, index.raw, src.raw)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        dim: int = ctx.dim
        inside = IndexSelect.apply(grad, dim, index)
        zeros = grad.new_zeros(inside.shape)
        return IndexCopy.apply(grad, dim, index, zeros), None, None, inside


# ------------------------------------------------------------- from index to parts


def getitem(a: Tensor, index: Any) -> Tensor:
    """a[index]"""
    if is_tensor(index) and index.dtype.category == 1 and index.dim() and a.dim():
        return _rows(a, index)
    items, advanced = _expand_index(a, index)
    if advanced:
        return _advanced_get(a, items)
    parts, new_dims = _basic_parts(a.raw.shape, items)
    out = Slice.apply(a, parts)
    for dim in new_dims:
        out = out.unsqueeze(dim)
    return out


def setitem(a: Tensor, index: Any, value: Any) -> None:
    """a[index] = value, in place"""
    items, advanced = _expand_index(a, index)
    if advanced:
        _advanced_set(a, items, _to_write(a, value))
        return
    parts, new_dims = _basic_parts(a.raw.shape, items)
    if new_dims:
        overwrite(getitem(a, index), (), value)
    else:
        overwrite(a, parts, value)


def _to_write(a: Tensor, value: Any) -> Tensor:
    """`value`, a tensor or numbers, in a's dtype and on its device."""
    storage = a.raw.storage
    if isinstance(value, (int, float)):
        return scalar_like(a, value, storage.dtype)
    raw = getattr(value, "raw", None)
    if raw is None:
        value = a.new_tensor(value, storage.dtype)
    elif raw.storage.dtype is not storage.dtype:
        value = cast(value, storage.dtype)
    return value if value.raw.storage.device == storage.device else value.to(a.device)


def overwrite(a: Tensor, parts: Window, value: Any) -> Tensor:
    """Put `value`, a tensor or numbers, into the window of `a`, in place."""
    part = window(a.raw, parts) if parts else a.raw
    shape = part.shape
    if isinstance(value, (int, float)):
        number = dtypes.check_number(value, part.storage.dtype)
        return a.assign_(
            lambda old: filled(old, number, parts),
            lambda: a.backend.fill(part, number),
        )
    value = _to_write(a, value)
    lead = len(value.raw.shape) - len(shape)
    if lead > 0 and all(n == 1 for n in value.shape[:lead]):
        value = value.reshape(value.shape[lead:])
    raw = value.raw
    if raw.shape != shape:
        _check_assignable(raw.shape, shape)
        raw = raw.expand(shape)
    return a.assign_(
        lambda old: SliceAssign.apply(old, value.expand(shape), parts),
        lambda: a.backend.copy_into(part, raw),
        value,
    )


def filled(a: Tensor, number: Number, parts: Window = ()) -> Tensor:
    """A copy of `a` with a number in the window, recorded."""
    shape = window(a.raw, parts).shape
    return SliceAssign.apply(a, a.new_full(shape, number), parts)


def _check_assignable(value: tuple[int, ...], target: tuple[int, ...]) -> None:
    if check_broadcast("assignment", value, target) != target:
        raise ValueError(
            f"assignment: a value of shape {value} does not fit into the indexed "
            f"shape {target}; each size must be equal, or 1"
        )


def _is_advanced(item: Any) -> bool:
    return hasattr(item, "raw") or isinstance(item, (list, range, np.ndarray))


def _as_index_tensor(a: Tensor, item: Any) -> Any:
    """A list or array among the indices as a tensor of a's device."""
    if hasattr(item, "raw"):
        here = item.raw.storage.device == a.raw.storage.device
        return item if here else item.to(a.device)
    array = np.asarray(item, dtype=None if np.size(item) else np.int64)
    return a.new_tensor(array, dtypes.from_numpy_dtype(array.dtype))


def _expand_index(a: Tensor, index: Any) -> tuple[list[Any], bool]:
    """The index as a list with one item for each dimension, Ellipsis filled in.

    With it comes whether tensors are among the items: masks, or lists of positions.
    """
    items: list[Any] = []
    used, gap, advanced = 0, None, False
    for item in index if isinstance(index, tuple) else (index,):
        if item is Ellipsis:
            if gap is not None:
                raise IndexError("index: only one ... is allowed")
            gap = len(items)
            continue
        dims = 0 if item is None else 1
        if type(item) not in _BASIC and _is_advanced(item):
            item = _as_index_tensor(a, item)
            if item.dim() == 0 and item.dtype.category == 1:
                item = int(item)  # one position, not a list
            else:
                advanced = True
                dims = item.dim() if item.dtype is dtypes.bool_ else 1
        used += dims
        items.append(item)
    total = len(a.raw.shape)
    if used > total:
        raise IndexError(
            f"index: {used} indices for a tensor with {total} dimension(s) of "
            f"shape {a.raw.shape}"
        )
    at = len(items) if gap is None else gap
    items[at:at] = [_WHOLE] * (total - used)
    return items, advanced


_BASIC = {int, slice, type(None)}
_WHOLE = slice(None)


def _basic_parts(shape: Shape, items: list[Any]) -> tuple[Window, list[int]]:
    """Slices of the dims of `shape`, and the positions of new dims in the result."""
    parts: list[tuple[int, int, Any, int]] = []
    new_dims = []
    dim = out_dim = 0
    for item in items:
        if item is None:
            new_dims.append(out_dim)
            out_dim += 1
            continue
        if isinstance(item, slice):
            if item is not _WHOLE:
                start, length, step = _slice_range(item, shape[dim])
                if length != shape[dim] or step != 1:
                    parts.append((dim, start, length, step))
            out_dim += 1
        else:
            parts.append((dim, _checked_position(item, shape[dim], dim), None, 1))
        dim += 1
    return tuple(parts), new_dims


def _slice_range(item: slice, size: int) -> tuple[int, int, int]:
    if item.step is not None and operator.index(item.step) <= 0:
        raise ValueError(
            f"index: the step is {item.step}; it must be above 0; use flip()"
        )
    start, stop, step = item.indices(size)
    return start, max(0, -(-(stop - start) // step)), step


def _checked_position(item: Any, size: int, dim: int) -> int:
    if isinstance(item, (bool, np.bool_)):
        raise TypeError("index: a bool is no index here; use a bool tensor as a mask")
    try:
        position = operator.index(item)
    except TypeError:
        raise TypeError(
            f"index: got a {type(item).__name__}; expected ints, slices, None, ..., "
            f"bool masks or integer tensors"
        ) from None
    if not -size <= position < size:
        raise IndexError(
            f"index: {position} is out of range for dimension {dim} of size {size}"
        )
    return position % size


# ------------------------------------------------- masks and integer index tensors


def _rows(a: Tensor, index: Tensor) -> Tensor:
    """a[index] for one tensor of whole numbers: index [*], a [n, ...] -> [*, ...]."""
    if index.raw.storage.device != a.raw.storage.device:
        index = index.to(a.device)
    if a.backend.host_memory:  # which knows at once that an index is out of range
        try:
            return IndexSelect.apply(a, 0, cast(index, dtypes.int64))
        except IndexError:
            pass  # some are negative, or an error in words of this function follows
    return IndexSelect.apply(a, 0, _positions(a, index, a.raw.shape[0], 0))


def _advanced_get(a: Tensor, items: list[Any]) -> Tensor:
    a, flat, index_shape, front, place = _prepare(a, items)
    rows = a.reshape((numel(a.shape[:front]), *a.shape[front:]))
    out = IndexSelect.apply(rows, 0, flat)
    rest = a.shape[front:]
    out = out.reshape((*index_shape, *rest))
    return _move_front(out, len(index_shape), place)


def _advanced_set(a: Tensor, items: list[Any], value: Tensor) -> None:
    if any(item is None for item in items):
        raise ValueError(
            "assignment: None together with index tensors is not supported"
        )
    view, flat, index_shape, front, place = _prepare(a.detach(), items)
    target = (*view.shape[front : front + place], *index_shape)
    target += tuple(view.shape[front + place :])
    _check_assignable(value.shape, target)
    value = value.expand(target)
    n = len(index_shape)
    order = [*range(place, place + n), *range(place), *range(place + n, len(target))]
    rest = view.shape[front:]
    src = value.permute(order).reshape((numel(index_shape), *rest))
    # All positions of a's elements, indexed as a is, say where each value has to go.
    positions = a.arange_like().view(a.shape)
    view, flat, *_ = _prepare(positions, items)
    rows = view.reshape((numel(view.shape[:front]), *rest))
    where = IndexSelect.apply(rows, 0, flat).reshape(-1)
    src = src.reshape(-1)

    def recorded(old: Tensor) -> Tensor:
        return IndexCopy.apply(old.reshape(-1), 0, where, src).reshape(a.shape)

    def quietly() -> None:
        if a.raw.is_contiguous():
            flat_a = a.raw.view((numel(a.shape),))
            a.backend.index_copy_(flat_a, 0, where.raw, src.raw)
        else:
            a.backend.copy_into(a.raw, recorded(a.detach()).raw)

    a.assign_(recorded, quietly, value)


def _prepare(
    a: Tensor, items: list[Any]
) -> tuple[Tensor, Tensor, tuple[int, ...], int, int]:
    """Bring the indexed dims to the front and make one flat position of all indices.

    Returns the permuted tensor, the flat positions [n], the shape that the indices
    broadcast to, how many dims are indexed, and where the index dims go in the rest.
    """
    a, items, inside = _split_masks(a, items)
    a = getitem(a, tuple(slice(None) if _is_advanced(i) else i for i in items))
    items = [i for i in items if not _is_int(i)]  # their dims are gone
    dims = [dim for dim, item in enumerate(items) if _is_advanced(item)]
    tensors = [items[dim] for dim in dims]
    shape = check_broadcast("index tensors", *[t.shape for t in tensors])
    flat = None
    for dim, item in zip(dims, tensors):
        if id(item) not in inside:
            item = _positions(a, item, a.shape[dim], dim)
        flat = item if flat is None else flat * a.shape[dim] + item
    assert flat is not None
    flat = flat.expand(shape).reshape(-1)
    rest = [d for d in range(a.dim()) if d not in dims]
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    place = sum(d < dims[0] for d in rest) if together else 0
    return a.permute([*dims, *rest]), flat, shape, len(dims), place


def _is_int(item: Any) -> bool:
    return item is not None and not isinstance(item, slice) and not _is_advanced(item)


def _split_masks(a: Tensor, items: list[Any]) -> tuple[Tensor, list[Any], set[int]]:
    """Each bool mask replaced by the integer positions where it holds.

    A mask without dims stands for a new dim of size 1 and takes all of it or nothing.
    Returns the ids of these positions, too, which need no check.
    """
    out: list[Any] = []
    inside: set[int] = set()
    for item in items:
        if not (_is_advanced(item) and item.dtype is dtypes.bool_):
            out.append(item)
            continue
        dim = sum(i is not None for i in out)
        covered = a.shape[dim : dim + item.dim()]
        if item.shape != covered:
            raise IndexError(
                f"index: the mask is {item.raw.shape}, but the dimensions it stands "
                f"for are {covered}; the shapes must be equal"
            )
        if item.dim() == 0:
            a = a.unsqueeze(dim)
            item = item.unsqueeze(0)
        mask = host_read("boolean mask", item.raw)
        places = [a.new_tensor(where, dtypes.int64) for where in np.nonzero(mask)]
        inside |= set(map(id, places))
        out += places
    return a, out, inside


def _positions(a: Tensor, item: Any, size: int, dim: int) -> Tensor:
    """Index values in [0, size): negative ones counted from the end."""
    if item.dtype.category != 1:
        raise TypeError(
            f"index: index tensors must be int64, int32 or bool; got {item.dtype.name}"
        )
    item = cast(item, dtypes.int64)
    low, high = number_range(item)
    if low < -size or high >= size:
        bad = low if low < -size else high
        raise IndexError(
            f"index: {bad} is out of range for dimension {dim} of size {size}"
        )
    return item if low >= 0 else item.where(item >= 0, item + size)


MOST_READ = 4096  # so many numbers come from a GPU in the time of a launch


def number_range(index: Tensor) -> tuple[int, int]:
    """The smallest and the largest number, with one read by the host; 0 and -1 where
    there is none."""
    if not index.raw.size:
        return 0, -1
    if index.raw.size > MOST_READ and not index.backend.host_memory:
        index = stack([index.min(), index.max()])
    values = host_read("check of an index", index.raw)
    # The place first, and then what is there: a quarter of the time of min() and max().
    return int(values.item(values.argmin())), int(values.item(values.argmax()))


def _move_front(out: Tensor, n: int, place: int) -> Tensor:
    """Move the first n dims behind the `place` dims that follow them."""
    if place == 0 or n == 0:
        return out
    order = [*range(n, n + place), *range(n), *range(n + place, out.dim())]
    return out.permute(order)


# --------------------------------------------------------------- what users call


@numpy_names
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at `index` of `dim`, without that dim."""
    dim = existing_dim("select", input, dim)
    place = _checked_position(index, input.raw.shape[dim], dim)
    return Slice.apply(input, ((dim, place, None, 1),))


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask, broadcast with this, holds, in one dim."""
    shape = checked_tensor("masked_select", input).raw.shape
    mask = only_bool("masked_select", mask)
    both = check_broadcast("masked_select", shape, mask.raw.shape)
    chosen = host_read("boolean mask", mask.raw.expand(both))
    places = input.wrap(input.backend.from_numpy(np.flatnonzero(chosen)))
    input = input if both == shape else expand(input, both)
    return IndexSelect.apply(reshape(input, -1), 0, places)


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of all elements that are not 0, int64 [n, dims].

    Args:
        as_tuple: a tuple of one [n] for each dimension instead, as an index has them.
    """
    a = checked_tensor("nonzero", input)
    values = host_read("nonzero()", a.raw)
    if as_tuple:
        found = np.nonzero(values if values.shape else values.reshape(1))
        return tuple([a.new_tensor(where, dtypes.int64) for where in found])
    places = np.stack(np.nonzero(values), 1) if a.raw.shape else np.argwhere(values)
    return a.wrap(a.backend.from_numpy(places))


@numpy_names
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i, j] = input[index[i, j], j] for dim 0, and so on."""
    dim = check_gather("gather", input, dim, index)
    return Gather.apply(input, dim, index)


@numpy_names
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with out[index[i, j], j] += src[i, j] for dim 0, and so on."""
    return ScatterAdd.apply(input, *scattered("scatter_add", input, dim, index, src))


def scattered(
    name: str, input: Tensor, dim: Any, index: Tensor, src: Tensor
) -> tuple[int, Tensor, Tensor]:
    """The dim, the index, and the part of `src` that has one."""
    dim = check_gather(name, input, dim, index)
    check_alike(name, input, src)
    sizes, given = index.raw.shape, src.raw.shape
    if sizes == given:
        return dim, index, src
    if len(sizes) != len(given) or any(n > m for n, m in zip(sizes, given)):
        raise ValueError(
            f"{name}: index is {sizes} and src {given}; no size of index may be above "
            f"src's"
        )
    for d, n in enumerate(sizes):
        src = src.narrow(d, 0, n)
    return dim, index, src


@numpy_names
def scatter(input: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """A copy with out[index[i, j], j] = src[i, j] for dim 0; `src` may be a number."""
    src = tensor_or_full("scatter", input, index, src)
    return Scatter.apply(input, *scattered("scatter", input, dim, index, src))


def tensor_or_full(name: str, input: Tensor, index: Tensor, src: Any) -> Tensor:
    """`src`, or that number for each index."""
    if is_tensor(src):
        return src
    type_with_number(name, input, src)
    return input.new_full(index.shape, src)


@numpy_names
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices `index` [n] of `dim`; without dims, the one element."""
    name = "index_select"
    dim = dim_in(name, input, dim)
    if is_tensor(index) and not index.dim():
        index = index.unsqueeze(0)
    index = check_index(name, input, index, 1)
    if input.dim():
        return IndexSelect.apply(input, dim, index)
    if len(index) != 1:
        raise ValueError(
            f"{name}: the index is {index.raw.shape}; a tensor without dimensions "
            f"has one element, so that it must be one 0"
        )
    return index_select(input.reshape(1), 0, index).reshape(())


@numpy_names
def repeat_interleave(
    input: Tensor,
    repeats: int | Tensor,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each element along `dim` so many times, next to each other (a copy).

    Args:
        repeats: for all, or an int tensor [n] (or [1]) with one count for each.
        dim: None: of all elements, in one dimension.
        output_size: what the result's size along `dim` is, where it is known.
    """
    checked_tensor("repeat_interleave", input)
    if dim is None:
        input, dim = reshape(input, -1), 0
    dim = existing_dim("repeat_interleave", input, dim)
    out = (_repeated_each if is_tensor(repeats) else _repeated)(input, repeats, dim)
    if output_size not in (None, size := out.raw.shape[dim]):
        raise ValueError(
            f"repeat_interleave: output_size is {output_size}; the repeats make it "
            f"{size}"
        )
    return out


def _repeated(input: Tensor, repeats: Any, dim: int) -> Tensor:
    if type(repeats) is not int or repeats < 0:
        raise ValueError(
            f"repeat_interleave: repeats is {repeats!r}; expected 0 or more, or a "
            f"tensor of them"
        )
    shape = input.raw.shape
    before, after = shape[: dim + 1], shape[dim + 1 :]
    wide = expand(unsqueeze(input, dim + 1), (*before, repeats, *after))
    return reshape(wide, (*shape[:dim], shape[dim] * repeats, *after))


def _repeated_each(input: Tensor, repeats: Any, dim: int) -> Tensor:
    size = input.raw.shape[dim]
    counts = repeats.tolist()
    if repeats.dtype.category != 1 or repeats.dim() != 1 or min(counts, default=0) < 0:
        raise ValueError(
            f"repeat_interleave: repeats is {repeats}; expected a vector of ints, each "
            f"0 or more"
        )
    if len(counts) not in (1, size):
        raise ValueError(
            f"repeat_interleave: {len(counts)} counts for a dimension of {size}"
        )
    places = np.repeat(np.arange(size), counts)
    where = input.new_tensor(places, dtype=dtypes.int64)
    return index_select(input, dim, where)
