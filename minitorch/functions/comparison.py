"""Comparisons and tests, whose results are bools and have no gradient.

With this file one can ask which elements are equal, larger, close, both true, or not
numbers at all. Operands broadcast, and may be numbers; the result is a bool tensor of
their common shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch.executor import host_read
from minitorch.functions.operands import (
    check_alike,
    check_same_device,
    checked_tensor,
    operands,
)

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


def compare(fn: Callable, input: Tensor, other: Any) -> Tensor:
    """A bool tensor of fn(input, other); comparisons have no gradient."""
    a, b = operands(fn.__name__, input, other)
    return a.wrap(a.backend.zip(fn, a.raw, b.raw, dtypes.bool_))


def test(fn: Callable, input: Tensor) -> Tensor:
    """A bool tensor of fn(input)."""
    a = checked_tensor(fn.__name__, input)
    return a.wrap(a.backend.map(fn, a.raw, dtypes.bool_))


def lt(input: Tensor, other: Any) -> Tensor:
    """input < other"""
    return compare(operators.lt, input, other)


def le(input: Tensor, other: Any) -> Tensor:
    """input <= other"""
    return compare(operators.le, input, other)


def gt(input: Tensor, other: Any) -> Tensor:
    """input > other"""
    return compare(operators.gt, input, other)


def ge(input: Tensor, other: Any) -> Tensor:
    """input >= other"""
    return compare(operators.ge, input, other)


def eq(input: Tensor, other: Any) -> Tensor:
    """input == other"""
    return compare(operators.eq, input, other)


def ne(input: Tensor, other: Any) -> Tensor:
    """input != other"""
    return compare(operators.ne, input, other)


def logical_and(input: Tensor, other: Any) -> Tensor:
    """Whether both are not 0."""
    return compare(operators.logical_and, input, other)


def logical_or(input: Tensor, other: Any) -> Tensor:
    """Whether at least one is not 0."""
    return compare(operators.logical_or, input, other)


def logical_xor(input: Tensor, other: Any) -> Tensor:
    """Whether exactly one is not 0."""
    return compare(operators.logical_xor, input, other)


def logical_not(input: Tensor) -> Tensor:
    """Whether the element is 0."""
    return test(operators.logical_not, input)


def isnan(input: Tensor) -> Tensor:
    """Where elements are NaN."""
    return test(operators.isnan, input)


def isinf(input: Tensor) -> Tensor:
    """Where elements are infinite."""
    return test(operators.isinf, input)


def isfinite(input: Tensor) -> Tensor:
    """Where elements are neither infinite nor NaN."""
    return test(operators.isfinite, input)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape and equal elements: a Python bool."""
    check_same_device("equal", input, other)
    if input.raw.shape != other.raw.shape:
        return False
    (a, b), backend = operands("equal", input, other), input.backend
    same = backend.zip(operators.eq, a.raw, b.raw, dtypes.bool_)
    if not backend.host_memory:
        dims, every = tuple(range(len(same.shape))), operators.logical_and
        same = backend.reduce(every, same, dims, True, dtypes.bool_)
    found = host_read("equal()", same)
    return bool(np.count_nonzero(found) == found.size)


def isclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """Where |input - other| <= atol + rtol |other|: a bool tensor."""
    check_alike("isclose", input, other)
    a, b = operands("isclose", input.detach(), other.detach())
    close = a == b
    if a.dtype is not dtypes.bool_:
        close = close | ((a - b).abs() <= atol + rtol * b.abs())
    return close | (a.isnan() & b.isnan()) if equal_nan else close


def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> bool:
    """Whether |input - other| <= atol + rtol |other| everywhere: a Python bool."""
    check_same_device("allclose", input, other)
    return bool(isclose(input, other, rtol, atol, equal_nan).all())
