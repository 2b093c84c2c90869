"""Get the operands of an operation ready: one device, one dtype, tensors all.

With this file an operator on tensors can accept what users write: Python numbers, mixed
dtypes, NumPy scalars; and it explains what it cannot accept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import minitorch.dtypes as dtypes
from minitorch.autodiff import Variable
from minitorch.dtypes import DType
from minitorch.function import Context, Function
from minitorch.functions.autocasting import will_be_cast
from minitorch.tensor_data import broadcast_shapes

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


class Cast(Function):
    """The same numbers in another dtype; the gradient is converted back."""

    hands_on = True

    @staticmethod
    def forward(ctx: Context, a: Tensor, dtype: DType) -> Any:
        ctx.dtype = a.dtype
        return a.backend.copy(a.raw, dtype)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        return grad.to(ctx.dtype), None


def uncast(a: Tensor) -> DType:
    """The type of which `a` may have its gradient: that which it was cast from."""
    cast_here = a.node is not None and getattr(a.node, "function", None) is Cast
    return a.node.dtype if cast_here else a.dtype  # type: ignore[union-attr]


def cast(a: Tensor, dtype: DType) -> Tensor:
    """`a` itself if it has that dtype already, else a converted copy."""
    return a if a.raw.storage.dtype is dtype else Cast.apply(a, dtype)


def scalar_like(a: Tensor, value: Any, dtype: DType) -> Tensor:
    """A tensor without dims that holds `value`, on a's device."""
    if type(value) is not float or dtype.category != 2:
        value = dtypes.check_number(value, dtype)
    return a.wrap(a.backend.number(value, dtype))


def is_tensor(value: Any) -> bool:
    """Whether `value` is one of our tensors."""
    return isinstance(value, Variable) and hasattr(value, "raw")


def kind_of(value: Any) -> str:
    """The type of `value` and where it is from: "torch.Tensor", but "int"."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def not_a_tensor(name: str, value: Any) -> TypeError:
    """The error for something that is no tensor, such as a list of numbers."""
    return TypeError(
        f"{name}: expected a minitorch tensor, got {kind_of(value)}; make one "
        f"with minitorch.tensor(...)"
    )


def checked_tensor(name: str, value: Any) -> Tensor:
    """`value`, if it is a tensor."""
    if not (isinstance(value, Variable) and hasattr(value, "raw")):
        raise not_a_tensor(name, value)
    return value  # type: ignore[return-value]


def operands(name: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Two tensors of one device and dtype whose shapes broadcast.

    Raises:
        TypeError: an operand is neither a tensor nor a number.
        RuntimeError: the tensors are on different devices.
        ValueError: the shapes do not broadcast.
    """
    x, y = getattr(a, "raw", None), getattr(b, "raw", None)
    if x is None:
        return _number_first(name, a, b)
    if y is None:
        dtype = type_with_number(name, a, b)
        if x.storage.dtype is not dtype:
            a = cast(a, dtype)
        return a, scalar_like(a, b, dtype)
    if x.storage.device != y.storage.device:
        raise RuntimeError(different_devices(name, a, b))
    if x.shape != y.shape:
        check_broadcast(name, x.shape, y.shape)
    if x.storage.dtype is y.storage.dtype:
        return a, b
    dtype = dtypes.result_type(x.dtype, x.dims, y.dtype, y.dims)
    return cast(a, dtype), cast(b, dtype)


def _number_first(name: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """The same where the first operand is a Python number."""
    if not is_tensor(b):
        raise not_a_tensor(name, a)
    dtype = type_with_number(name, b, a)
    return scalar_like(b, a, dtype), cast(b, dtype)


def type_with_number(name: str, a: Tensor, number: Any) -> DType:
    """The type of an operation on a tensor and a Python number."""
    raw = a.raw
    kind: Any = type(number)
    try:
        return dtypes.beside_number(raw.storage.dtype, len(raw.shape), kind)
    except TypeError as error:
        raise TypeError(f"{name}: {error}, or a tensor") from None


def check_broadcast(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The broadcast shape; an error that begins with the operation's name."""
    try:
        return broadcast_shapes(*shapes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def different_devices(name: str, a: Tensor, b: Tensor) -> str:
    """The message for operands on two devices."""
    return (
        f"{name}: one tensor is on '{a.device}' and the other on '{b.device}'; "
        f"move one, for example with .to('{a.device}')"
    )


def check_same_device(name: str, first: Tensor, *others: Tensor) -> None:
    """All must be tensors, and on one device."""
    try:
        device = first.raw.storage.device
        for other in others:
            if other.raw.storage.device != device:
                raise RuntimeError(different_devices(name, first, other))
    except AttributeError:
        wrong = (x for x in (first, *others) if not is_tensor(x))
        raise not_a_tensor(name, next(wrong, None)) from None


def check_alike(name: str, first: Tensor, *others: Tensor) -> None:
    """All must be tensors on one device, and have one dtype."""
    try:
        like = first.raw.storage
        for other in others:
            storage = other.raw.storage
            if storage.dtype is not like.dtype or storage.device != like.device:
                break
        else:
            return
    except AttributeError:
        pass
    check_same_device(name, first, *others)
    dtype = first.raw.storage.dtype
    for other in others:
        if other.raw.storage.dtype is not dtype:
            if will_be_cast(name, first, *others):
                return
            raise TypeError(
                f"{name}: one tensor is {dtype.name} and another "
                f"{other.dtype.name}; convert one with .to(dtype)"
            )


def to_floating(name: str, a: Tensor) -> Tensor:
    """`a` in a floating dtype: integers and bools become float32, as in PyTorch."""
    try:
        floating = a.raw.storage.dtype.is_floating_point
    except AttributeError:
        raise not_a_tensor(name, a) from None
    return a if floating else cast(a, dtypes.float32)


def to_counting(name: str, a: Tensor) -> Tensor:
    """`a` in a dtype for sums and products: integers and bools become int64."""
    try:
        floating = a.raw.storage.dtype.is_floating_point
    except AttributeError:
        raise not_a_tensor(name, a) from None
    return a if floating else cast(a, dtypes.int64)


def unbroadcast(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Add up a gradient over the dims along which an operand of `shape` was repeated.

    An element that broadcasting used many times receives the sum of the gradients.
    """
    # BEGIN SOLUTION a2.2
    if grad.raw.shape == shape:
        return grad
    lead = len(grad.shape) - len(shape)
    dims = list(range(lead))
    dims += [i for i, n in enumerate(shape, lead) if n == 1 and grad.shape[i] != 1]
    return grad.sum(dims, keepdim=True).reshape(shape)
    # END SOLUTION a2.2
