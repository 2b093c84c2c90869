"""In which type an operation runs inside of `minitorch.autocast`.

With this file an operation that is made of others can say so (`in_lower`,
`in_float32`), and a check of dtypes can ask whether operands that differ will be cast
(`will_be_cast`). What is one `Function` stands in the tables of
`minitorch/amp/autocast.py`. Outside of autocast none of this does anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from minitorch.autodiff import modes
from minitorch.dtypes import DType, computed

F = TypeVar("F", bound=Callable[..., Any])

# What an autocast region does to the floating operands of an operation.
LOWER = "lower"  # all in the region's type
FLOAT32 = "float32"  # half types in float32
WIDEST = "widest"  # all in the widest of their types
FIRST = "first"  # all in the type of the first


def _composed(policy: str) -> Callable[[F], F]:
    """Decorate a function: its operands are cast, and nothing inside of it."""

    def decorate(fn: F) -> F:
        @wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            _, mode = modes.get()
            if mode is None:
                return fn(*args, **kwargs)
            return mode.run(policy, fn, args, kwargs)

        return cast(F, run)

    return decorate


in_lower = _composed(LOWER)
in_float32 = _composed(FLOAT32)
in_widest = _composed(WIDEST)


def will_be_cast(name: str, *tensors: Any) -> bool:
    """Whether the operation `name` may have operands of these dtypes here."""
    _, mode = modes.get()
    return mode is not None and mode.casts(name, tensors)


def lower_here(x: Any) -> DType:
    """The dtype of an operation on `x` that casts to the region's type, if it does."""
    _, mode = modes.get()
    lower = None if mode is None else mode.target((x,))
    return lower or x.dtype


def float32_here(x: Any) -> DType:
    """The dtype of an operation on `x` that casts half types to float32, if it does."""
    _, mode = modes.get()
    lowered = mode is not None and mode.target((x,)) is not None
    return computed(x.dtype) if lowered else x.dtype
