"""Run a program with both libraries, line by line, and say where they first differ.

With this file a program is a list of lines of Python that hold for PyTorch and for
minitorch alike, such as

    a = torch.tensor([1.0, 2.0], requires_grad=True)
    b = a.exp()
    b.sum().backward()

`difference(lines, device)` is None, or the line and what was expected of it: an error
where PyTorch raises one, else equal dtypes, shapes, values, gradients and places in the
graph. After each line the numbers of PyTorch are written over ours, so that rounding
does not add up from line to line, and what comes next can be compared closely.
"""

from __future__ import annotations

import ast
import functools
import linecache
import math
import re
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch.autograd.graph import saved_tensors_hooks

import minitorch
from fuzz.differences import accepted
from minitorch.backend import get_backend

Names = dict[str, Any]
PREAMBLE = "from math import inf, nan"
OURS = (ValueError, TypeError, RuntimeError, IndexError, ZeroDivisionError)
ROUNDINGS = 64  # that one line may lose, in units of the last place


class OnDevice:
    """minitorch, whose functions that make tensors make them on one device."""

    MAKERS = frozenset(("tensor", "zeros", "ones", "full", "arange", "eye"))

    def __init__(self, device: str) -> None:
        self.device = device

    def __getattr__(self, name: str) -> Any:
        found = getattr(minitorch, name)
        if name in self.MAKERS:
            found = functools.partial(found, device=self.device)
        setattr(self, name, found)
        return found


def statements(text: str) -> list[str]:
    """The lines of a program's text, without imports and comments."""
    body = ast.parse(text).body
    is_line = [not isinstance(s, (ast.Import, ast.ImportFrom)) for s in body]
    is_line[0] = is_line[0] and ast.get_docstring(ast.parse(text)) is None
    return [ast.unparse(s) for s, kept in zip(body, is_line) if kept]


def names_for(library: Any) -> Names:
    """What a program finds when it starts."""
    return {"torch": library, "inf": math.inf, "nan": math.nan}


@functools.lru_cache(maxsize=4096)
def _compiled(line: str) -> Any:
    return compile(line, "<program>", "exec")


def attempt(line: str, names: Names) -> Exception | None:
    """Execute one line; the exception that it raises, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(_compiled(line), names)
        except Exception as error:
            return error
    return None


def tensors(names: Names) -> dict[str, torch.Tensor]:
    """The tensors among the names of a program that runs with PyTorch."""
    return {n: x for n, x in names.items() if isinstance(x, torch.Tensor)}


def difference(program: Sequence[str], device: str) -> str | None:
    """Where minitorch on `device` first differs from PyTorch, or None."""
    if device == "cuda":  # the line with a bad index raises, not one after it
        with patch("cuda_ops.runtime.device.BLOCKING", True):
            return _difference(program, device)
    return _difference(program, device)


def _difference(program: Sequence[str], device: str) -> str | None:
    ours, theirs = names_for(OnDevice(device)), names_for(torch)
    for number, line in enumerate(program, 1):
        expected, got = attempt(line, theirs), attempt(line, ours)
        if isinstance(expected, NameError) or accepted(expected, got):
            return None
        if got is None and VERSION_ERROR in str(expected):
            what = _saved_before_the_change(program[:number], ours)
        else:
            what = _error_difference(expected, got)
        if what is None and expected is None:
            what = _state_difference(line, ours, theirs)
        if what is not None:
            return f"line {number}, `{line}`, on {device!r}: {what}"
        if expected is not None:
            return None
    return None


# -------------------------------------------------------------------------- errors

VERSION_ERROR = "needed for gradient computation has been modified by an inplace"


def _saved_before_the_change(program: Sequence[str], ours: Names) -> str | None:
    """Where PyTorch refuses and we do not: gradients are of the numbers as they were.

    Operations that are composed here save results of their own, for example, where
    PyTorch saves an operand, which the program then changed.
    """
    then = names_for(torch)
    with saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x):
        errors = [attempt(line, then) for line in program]
    return None if any(errors) else _state_difference(program[-1], ours, then)


def _error_difference(expected: Exception | None, got: Exception | None) -> str | None:
    if expected is None and got is None:
        return None
    if got is None:
        return f"PyTorch raises {_told(expected)}; nothing is raised here"
    if expected is None:
        return f"raises {_told(got)}; PyTorch raises nothing"
    return (
        None
        if is_clean(got, expected)
        else f"the error is not one of ours: {_told(got)}"
    )


def _told(error: Any) -> str:
    lines = "".join(traceback.format_tb(error.__traceback__)[-1:]).rstrip()
    return f"{type(error).__name__}: {str(error)[:400]}\n{lines}"


def is_clean(error: Exception, expected: Exception) -> bool:
    """Whether the library meant to raise this: a `raise` of ours, with a message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if frame.filename == "<program>":  # Python's own, in the line itself
        return type(error) is type(expected)
    line = linecache.getline(frame.filename, frame.lineno or 0)
    return (
        isinstance(error, OURS) and line.split()[:1] == ["raise"] and bool(str(error))
    )


# -------------------------------------------------------------------------- values


def _state_difference(line: str, ours: Names, theirs: Names) -> str | None:
    """The new variable of an assignment, or, after any other line, all of them."""
    target, equals, _ = line.partition(" = ")
    assigned = equals and target.isidentifier()
    precision = _precision(line, theirs)
    for name in [target] if assigned else list(tensors(theirs)):
        expected, got = theirs[name], ours[name]
        if not isinstance(expected, torch.Tensor):
            if got != expected:
                return f"{name} is {got!r}; PyTorch has {expected!r}"
            continue
        what = _tensor_difference(name, got, expected, precision)
        if what is None and expected.is_leaf | expected.retains_grad:
            what = _grad_difference(f"{name}.grad", got.grad, expected.grad, precision)
        if what is not None:
            return what
    return None


def numbers(x: torch.Tensor) -> list[torch.Tensor]:
    """The elements of a tensor, and those of its gradient."""
    has_grad = (x.is_leaf or x.retains_grad) and x.grad is not None
    return [x.detach(), x.grad.detach()] if has_grad else [x.detach()]


def largest(x: torch.Tensor) -> float:
    """The largest finite number of a tensor and its gradient, 0 without any."""
    finite = [part[part.isfinite()].abs() for part in numbers(x)]
    return max((float(part.max()) for part in finite if part.numel()), default=0.0)


class Precision(NamedTuple):
    """How closely the results of a line can be compared.

    Attributes:
        scale: the size of products of the numbers that they are computed from.
        eps: the relative distance of these, 0 where it is that of the result.
    """

    scale: float
    eps: float


def _precision(line: str, theirs: Names) -> Precision:
    words = set(re.findall(r"\w+", line))
    everything = not words.isdisjoint(("backward", "grad"))
    used = [x for n, x in tensors(theirs).items() if everything or n in words]
    sizes = [largest(x) for x in used if x.dtype is not torch.bool]
    # The gradient of a float64 leaf may have come through float32 results.
    coarse = everything and any(x.dtype is torch.float32 for x in used)
    eps = float(np.finfo(np.float32).eps) if coarse else 0.0
    return Precision(max(1.0, 0.0, *sizes) ** 2, eps)


def _grad_difference(
    name: str, got: Any, expected: Any, precision: Precision
) -> str | None:
    if expected is None:
        return None if got is None else f"{name} is {got}; PyTorch has None"
    return _tensor_difference(name, got, expected, precision)


def _tensor_difference(
    name: str, got: Any, expected: torch.Tensor, precision: Precision
) -> str | None:
    """Type, shape, dtype, values, and whether it takes part in differentiation."""
    if not isinstance(got, minitorch.Tensor):
        return f"{name} is {got!r}; PyTorch has {expected}"
    # A view learns what has become of its base since when it is used next.
    older = got._base is not None and got._view_version < got.raw.storage.rebased
    places = () if older else ("requires_grad", "is_leaf")
    for attribute in ("shape", "dtype", *places):
        mine, theirs = _plain(getattr(got, attribute)), getattr(expected, attribute)
        if mine != _plain(theirs):
            return f"{name}.{attribute} is {mine}; PyTorch has {_plain(theirs)}"
    a, b = got.detach().numpy(), expected.detach().numpy()
    if not _close(a, b, precision):
        return f"{name} is\n{a!r}\nPyTorch has\n{b!r}"
    if a.dtype.kind == "f" and a.tobytes() != b.tobytes():
        backend = get_backend(got.device)
        backend.copy_into(got.raw, backend.from_numpy(np.array(b, order="C")))
    return None


def _plain(value: Any) -> Any:
    """A shape or a dtype in a form that both libraries share."""
    if isinstance(value, (bool, tuple)):
        return value if isinstance(value, bool) else tuple(value)
    return str(value).rpartition(".")[2]


def _close(a: np.ndarray, b: np.ndarray, precision: Precision) -> bool:
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    rounding = ROUNDINGS * max(precision.eps, float(np.finfo(a.dtype).eps))
    return np.allclose(a, b, rounding, rounding * precision.scale, equal_nan=True)
