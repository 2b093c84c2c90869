"""Check and complete what users pass to operations.

With this file the functions that users call can stay short: dims are counted from the
front, shapes with -1 are completed, and what does not fit raises an error that says
what was given, what was expected and what to do.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import minitorch.dtypes as dtypes
from minitorch.backend import get_backend
from minitorch.dtypes import DType
from minitorch.functions.operands import (
    cast,
    check_same_device,
    different_devices,
    is_tensor,
    not_a_tensor,
    operands,
    scalar_like,
)
from minitorch.tensor_data import Shape, normalize_dim, numel, without

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


F = TypeVar("F", bound=Callable[..., Any])
NUMPY = {"axis": "dim", "keepdims": "keepdim"}


def numpy_names(fn: F) -> F:
    """Decorate a function: it takes `axis` and `keepdims`, too, as PyTorch's do."""

    @functools.wraps(fn)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        if "axis" in kwargs or "keepdims" in kwargs:
            named = {NUMPY.get(key, key): value for key, value in kwargs.items()}
            if len(named) < len(kwargs):
                raise TypeError(
                    f"{fn.__name__}: got {', '.join(kwargs)}; axis means dim, and "
                    f"keepdims keepdim, so give one of the two"
                )
            kwargs = named
        return fn(*args, **kwargs)

    return renamed  # type: ignore[return-value]


def start_gradient(name: str, root: Tensor, gradient: Any) -> Tensor:
    """The gradient that a backward pass starts with."""
    if gradient is None:
        if root.numel() != 1:
            raise RuntimeError(
                f"{name}: a tensor of shape {root.raw.shape} needs a gradient argument "
                f"of that shape; without one it must have a single element (take "
                f".sum() or .mean())"
            )
        return root.new_full(root.raw.shape, 1)
    if not is_tensor(gradient) or gradient.raw.shape != root.raw.shape:
        given = gradient.raw.shape if is_tensor(gradient) else gradient
        raise ValueError(
            f"{name}: the gradient is {given!r}; expected a tensor of shape "
            f"{root.raw.shape}"
        )
    check_same_device(name, root, gradient)
    return cast(gradient, root.dtype)


def parse_to(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
    """The device (or None), the dtype (or None) and `non_blocking` of a `to`.

    Args:
        name: whose `to` it is, for messages.
    """
    device = kwargs.pop("device", None)
    dtype = kwargs.pop("dtype", None)
    non_blocking = kwargs.pop("non_blocking", False)
    if not isinstance(non_blocking, bool):
        raise TypeError(f"{name}: non_blocking is {non_blocking!r}; expected a bool")
    if kwargs:
        raise TypeError(f"{name}: unknown argument(s) {sorted(kwargs)}")
    for arg in args:
        if isinstance(arg, DType):
            dtype = arg
        elif is_tensor(arg):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, str):
            device = arg
        elif type(arg) is int:
            device = f"cuda:{arg}"
        else:
            raise TypeError(
                f'{name}: got {arg!r}; expected a device such as "cpu", a dtype '
                f"such as minitorch.float64, or a tensor"
            )
    if device is not None:
        get_backend(device)  # an unknown device is an error also where nothing moves
    return device, None if dtype is None else dtypes.check(dtype), non_blocking


def check_pinnable(a: Tensor) -> Tensor:
    """`a`, if it is where memory can be pinned."""
    if a.device != "cpu":
        raise RuntimeError(
            f"pin_memory: the tensor is on '{a.device}'; only memory of the device "
            f"'cpu' can be pinned"
        )
    return a


def dims_of(name: str, a: Tensor) -> int:
    """How many dimensions `a`, which must be a tensor, has."""
    try:
        return len(a.raw.shape)
    except AttributeError:
        raise not_a_tensor(name, a) from None


def dim_in(name: str, a: Tensor, dim: Any) -> int:
    """`dim` counted from the front; a tensor without dims is taken to have one."""
    return normalize_dim(dim, dims_of(name, a), name)


def reduced_dims(a: Tensor, dim: Any, name: str) -> tuple[int, ...]:
    """The named dims, counted from the front; all of them for None or ()."""
    total = dims_of(name, a)
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(total))
    if type(dim) is tuple and len(dim) == 1:
        dim = dim[0]
    if type(dim) is int:
        dim = normalize_dim(dim, total, name)
        return (dim,) if total else ()
    dims: list[Any] = list(dim) if isinstance(dim, (tuple, list)) else [dim]
    found = [normalize_dim(d, total, name) for d in dims]
    if len(set(found)) != len(found):
        raise ValueError(f"{name}: dims {tuple(dims)} name one dimension twice")
    return tuple(sorted(found)) if total else ()


def not_empty(name: str, a: Tensor, dims: Sequence[int]) -> None:
    shape = a.raw.shape
    if 0 in shape and any(shape[d] == 0 for d in dims):
        raise ValueError(
            f"{name}: shape {a.raw.shape} has no elements along dimension(s) "
            f"{tuple(dims)}, so there is no result"
        )


def check_floating(name: str, a: Tensor) -> Tensor:
    try:
        if a.raw.storage.dtype.is_floating_point:
            return a
    except AttributeError:
        raise not_a_tensor(name, a) from None
    raise TypeError(
        f"{name}: the tensor is {a.dtype.name}; it must be floating point; use "
        f".float() first"
    )


def not_bool(name: str, a: Tensor) -> Tensor:
    try:
        if a.raw.storage.dtype is not dtypes.bool_:
            return a
    except AttributeError:
        raise not_a_tensor(name, a) from None
    raise TypeError(f"{name}: not defined for bool tensors; use ^, ~ or .int()")


def without_bools(name: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """The operands of an operation that has no meaning for bools, not even for one."""
    for x in (a, b):
        raw = getattr(x, "raw", None)
        kind = type(x) if raw is None else raw.storage.dtype
        if kind is bool or kind is dtypes.bool_:
            raise TypeError(f"{name}: not defined for bools; use ^, ~ or .int()")
    return operands(name, a, b)


def times_alpha(name: str, a: Tensor, other: Any, alpha: Any) -> Any:
    """alpha * other, in the dtype of a + other."""
    b = operands(name, a, other)[1]
    if isinstance(alpha, float) and not b.dtype.is_floating_point:
        raise TypeError(
            f"{name}: alpha is {alpha}, and the operands are {b.dtype.name}; it must "
            f"be an int for them"
        )
    return b * scalar_like(b, alpha, b.dtype)


def only_bool(name: str, a: Any, like: Any = None) -> Tensor:
    if isinstance(a, bool) and like is not None:
        return scalar_like(like, a, dtypes.bool_)
    raw = getattr(a, "raw", None)
    if raw is None or raw.storage.dtype is not dtypes.bool_:
        kind = a.dtype.name if is_tensor(a) else type(a).__name__
        raise TypeError(f"{name}: expected a bool tensor, got {kind}")
    return a


def dividends(name: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """The operands of a division with a remainder: no bools, no integer zeros."""
    a, b = operands(name, a, b)
    not_bool(name, a)
    if not b.dtype.is_floating_point and a.numel() and b.numel() and not bool(b.all()):
        raise ZeroDivisionError(f"{name}: integer division by zero")
    return a, b


def filler(a: Tensor, value: Any) -> Tensor:
    """What `masked_fill` puts into `a`: a tensor of its dtype without dims."""
    dtype = a.raw.storage.dtype
    given = value if is_tensor(value) else scalar_like(a, value, dtype)
    cut = dtype.category == 1 and isinstance(value, float) and value % 1 != 0
    if cut or given.raw.storage.dtype.category > dtype.category:
        raise TypeError(
            f"masked_fill: {value} does not fit into a {a.dtype.name} tensor; use "
            f".float() first"
        )
    if given.raw.shape:
        raise ValueError(
            f"masked_fill: the value is a tensor of shape {given.raw.shape}; expected "
            f"a number or a tensor without dimensions; use where()"
        )
    return cast(given, dtype)


def existing_dim(name: str, a: Tensor, dim: Any) -> int:
    """`dim` counted from the front, of a tensor that must have dimensions."""
    if not dims_of(name, a):
        raise IndexError(
            f"{name}: dim is {dim}, but the tensor has no dimensions; unsqueeze(0) "
            f"gives it one"
        )
    return normalize_dim(dim, a.dim(), name)


def int_sequence(name: str, args: Any) -> tuple[int, ...]:
    """The ints of f(2, 3), f((2, 3)) or f([2, 3]), whose arguments are `args`."""
    if not isinstance(args, tuple):
        args = (args,)
    items = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    try:
        return tuple(map(operator.index, items))
    except TypeError:
        raise TypeError(f"{name}: expected ints, got {args}") from None


def shape_for(a: Tensor, name: str, args: Any) -> Shape:
    """A shape for a's elements, in which one -1 stands for what is left."""
    try:
        old = a.raw.shape
    except AttributeError:
        raise not_a_tensor(name, a) from None
    return completed(name, old, int_sequence(name, args))


@lru_cache(maxsize=4096)
def completed(name: str, old: Shape, shape: Shape) -> Shape:
    """`shape`, in which one -1 stands for what is left, for the elements of `old`."""
    count = numel(old)
    if shape.count(-1) == 1:
        rest = numel(tuple(n for n in shape if n != -1))
        if rest and count % rest == 0:
            shape = tuple(count // rest if n == -1 else n for n in shape)
    if any(n < 0 for n in shape) or numel(shape) != count:
        raise ValueError(
            f"{name}: shape {old} has {count} elements, which do not fit into "
            f"{shape}; sizes must multiply to {count}, and one may be -1"
        )
    return shape


@lru_cache(maxsize=4096)
def expanded_shape(shape: Shape, wanted: Shape) -> Shape:
    """`wanted`, in which -1 keeps a size, for the elements of `shape`."""
    lead = len(wanted) - len(shape)
    old = (1,) * lead + shape
    new = tuple(
        o if n == -1 and i >= lead else n for i, (o, n) in enumerate(zip(old, wanted))
    )
    if lead < 0 or any(o not in (1, n) or n < 0 for o, n in zip(old, new)):
        raise ValueError(
            f"expand: {shape} does not expand to {wanted}; sizes are compared "
            f"from the last, and only a size of 1 can change"
        )
    return new


def checked_list(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    items = list(tensors)
    try:
        first, alike = items[0].raw.storage, True
        for item in items:
            storage = item.raw.storage
            if storage.device != first.device:
                raise RuntimeError(different_devices(name, items[0], item))
            alike = alike and storage.dtype is first.dtype
    except (AttributeError, IndexError):
        raise TypeError(
            f"{name}: expected a non-empty list of tensors, got {tensors!r}"
        ) from None
    if alike:
        return items
    dtype = functools.reduce(dtypes.promote, {item.dtype for item in items})
    return [cast(t, dtype) for t in items]


def check_index(name: str, a: Tensor, index: Tensor, dims: int) -> Tensor:
    """An int64 index tensor with `dims` dimensions, on a's device."""
    if not is_tensor(index) or index.raw.storage.dtype.category != 1:
        kind = index.dtype.name if is_tensor(index) else type(index).__name__
        raise TypeError(f"{name}: the index must be an int64 tensor, got {kind}")
    if index.dim() != dims:
        raise ValueError(
            f"{name}: the index is {index.raw.shape}; expected {dims} dimension(s)"
        )
    check_same_device(name, a, index)
    return cast(index, dtypes.int64)


def check_gather(name: str, a: Tensor, dim: Any, index: Tensor) -> int:
    dim = dim_in(name, a, dim)
    check_index(name, a, index, a.dim())
    for d, (n, m) in enumerate(zip(index.raw.shape, a.raw.shape)):
        if d != dim and n > m:
            raise ValueError(
                f"{name}: the index is {index.raw.shape} and the tensor {a.raw.shape}; "
                f"apart from dimension {dim} no size of the index may be larger"
            )
    return dim


def check_cat(tensors: list[Tensor], dim: int) -> None:
    first = tensors[0].raw.shape
    for other in tensors:
        shape = other.raw.shape
        if shape == first != ():
            continue
        rest = without(first, (dim,))
        if len(shape) != len(first) or rest != without(shape, (dim,)) or not first:
            raise ValueError(
                f"cat: one tensor is {first} and another {shape}; all sizes but that "
                f"of dimension {dim} must be equal"
            )
