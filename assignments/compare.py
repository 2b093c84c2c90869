"""Compare what came out with what should have come out, strictly.

With this file a grader or a test finds the first difference between two sets of named
values (`difference`): names, types, shapes, dtypes, NaN only where it is expected, and
numbers within a tolerance that depends on the dtype and on how many terms were added
up (`tolerance`). It imports nothing but NumPy.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Value = Any  # an array, bool, int, float, str, None, or lists, tuples, dicts of these


@dataclass(frozen=True)
class Difference:
    """Why an output is wrong.

    Attributes:
        name: of the output; "" if it is about all of them.
        reason: in one line.
        got, expected: both values, to print; "" where that says nothing.
        where: the first place where they differ, and how many there are.
    """

    name: str
    reason: str
    got: str = ""
    expected: str = ""
    where: str = ""


def tolerance(dtype: np.dtype, length: int = 1) -> float:
    """The error that is allowed for sums of `length` terms of about 1, in any order."""
    if dtype.kind != "f":
        return 0.0
    return float(np.finfo(dtype).eps) * (16 + 2 * length)


def difference(
    expected: Mapping[str, Value],
    outputs: Any,
    inputs: Mapping[str, Value],
    allowed: float | None = None,
    length: int = 1,
) -> Difference | None:
    """The first thing that is wrong with `outputs`, or None.

    Args:
        expected: the right value for each name.
        outputs: what the call returned. Names that are also names of inputs are the
            operands after the call, and must not have changed.
        inputs: what the call was given.
        allowed: errors up to `allowed * (1 + |expected|)`; by dtype if None.
        length: how many terms a result is the sum of, at most.
    """
    if not isinstance(outputs, dict):
        return Difference("", f"the call returned a {type(outputs).__name__}, no dict")
    if "raises" in outputs and "raises" not in expected:
        return Difference("", f"raised {outputs['raises']}, which it should not")
    operands = {name: inputs[name] for name in outputs if name in inputs}
    wanted = {**operands, **expected}
    if set(outputs) != set(wanted):
        return Difference(
            "", f"outputs are {sorted(outputs)}; expected {sorted(wanted)}"
        )
    for name, value in expected.items():
        found = _compare(name, outputs[name], value, allowed, length)
        if found is not None:
            return found
    for name, value in operands.items():
        if name not in expected and not same(outputs[name], value):
            return Difference(
                name,
                f"the operand {name} was changed",
                show(outputs[name]),
                show(value),
            )
    return None


def same(a: Value, b: Value) -> bool:
    """Whether two values are the same, bit for bit (arrays) or equal (others)."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
        )
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return type(a) is type(b) and a == b


def _compare(
    name: str, got: Value, expected: Value, allowed: float | None, length: int
) -> Difference | None:
    if isinstance(expected, np.ndarray):
        return _compare_arrays(name, got, expected, allowed, length)
    if isinstance(expected, float) and type(got) is float:
        pair = np.array(got), np.array(expected)
        found = _compare_arrays(name, *pair, allowed, length)
        return found and Difference(name, found.reason, repr(got), repr(expected))
    if isinstance(expected, (list, tuple)) and isinstance(got, (list, tuple)):
        if len(got) != len(expected):
            entries = "entry" if len(got) == 1 else "entries"
            reason = f"{name} has {len(got)} {entries}; expected {len(expected)}"
            return Difference(name, reason, show(got), show(expected))
        parts = enumerate(zip(got, expected))
        return _first(
            _compare(f"{name}[{i}]", g, e, allowed, length) for i, (g, e) in parts
        )
    if isinstance(expected, dict) and isinstance(got, dict):
        if list(got) != list(expected):
            reason = f"{name} has other names, or in another order"
            return Difference(name, reason, show(list(got)), show(list(expected)))
        pairs = ((key, got[key], expected[key]) for key in expected)
        return _first(
            _compare(f"{name}[{k!r}]", g, e, allowed, length) for k, g, e in pairs
        )
    if type(got) is type(expected) and got == expected:
        return None
    if type(got) is type(expected) is bool and " " in name:  # a fact, in words
        said = "this is not so" if expected else "this should not be so"
        return Difference(name, f"{name}: {said}")
    if type(got) is type(expected) or expected is None or got is None:
        return Difference(name, f"{name} is wrong", show(got), show(expected))
    reason = f"{name} is a {type(got).__name__}; expected a {type(expected).__name__}"
    return Difference(name, reason, show(got), show(expected))


def _first(found: Any) -> Difference | None:
    return next((d for d in found if d is not None), None)


def _compare_arrays(
    name: str, got: Any, expected: np.ndarray, allowed: float | None, length: int
) -> Difference | None:
    reason = ""
    if type(got) is not np.ndarray:
        reason = f"{name} is a {type(got).__name__}; expected an array"
    elif got.shape != expected.shape:
        reason = f"{name} has the shape {got.shape}; expected {expected.shape}"
    elif got.dtype != expected.dtype:
        reason = f"{name} has the dtype {got.dtype}; expected {expected.dtype}"
    if reason:
        return Difference(name, reason, show(got), show(expected))
    limit = tolerance(expected.dtype, length) if allowed is None else allowed
    wrong = _wrong(got, expected, limit)
    if not wrong.any():
        return None
    at = tuple(map(int, np.unravel_index(np.argmax(wrong), wrong.shape)))
    place = f"{name}[{', '.join(map(str, at))}]" if at else name
    return Difference(
        name,
        f"{name} has wrong values",
        *(show(got, at), show(expected, at)),
        f"{place} is {got[at]}; expected {expected[at]} "
        f"({int(wrong.sum())} of {wrong.size} wrong)",
    )


def _wrong(got: np.ndarray, expected: np.ndarray, limit: float) -> np.ndarray:
    """Which elements differ: by more than `limit * (1 + |expected|)` for floats."""
    if expected.dtype.kind != "f":
        return np.asarray(got != expected)
    x, y = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = np.abs(x - y) <= limit * (1 + np.abs(y))
    special = ~np.isfinite(x) | ~np.isfinite(y)
    equal = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.asarray(~np.where(special, equal, close))


# -------------------------------------------------------------------------- printing

FEW = 40  # elements that are printed of an array, at most
# Elements that are printed on each side of a wrong one: in a vector, and in the rows
# and the columns of a matrix.
IN_VECTOR, IN_MATRIX = (8,), (2, 3)
LONGEST = 2000  # characters of a value


def show(value: Value, at: Sequence[int] = ()) -> str:
    """A value as a student may read it, never long: arrays with dtype and shape.

    Args:
        at: an index in an array, of what has to be seen of it.
    """
    text = _array(value, at) if isinstance(value, np.ndarray) else _short.repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _array(value: np.ndarray, at: Sequence[int]) -> str:
    """An array, or a small part of it around an element.

    Of an array of many dimensions a matrix is shown, the one with this element.
    """
    part, cut = value, []
    rows = math.prod(value.shape[:-1])
    if value.size and (value.size > FEW or (value.ndim > 2 and rows > IN_MATRIX[0])):
        cut = _cut(value.shape, at)
        part = value[tuple(cut)]
    text = np.array2string(part, precision=6, separator=", ", max_line_width=66)
    text = re.sub(r"\n\n+", "\n", text)  # between matrices
    said = str(value.dtype)
    if value.ndim:
        said += f" [{', '.join(map(str, value.shape))}]"
    if cut:
        said += f", here [{', '.join(map(_name, cut, value.shape))}]"
    return f"{text}  ({said})"


def _cut(shape: Sequence[int], at: Sequence[int]) -> list[int | slice]:
    """What to show of an array: a part of a row or of a matrix, around an index."""
    index = tuple(at) or (0,) * len(shape)
    around = IN_VECTOR if len(shape) == 1 else IN_MATRIX
    matrix = zip(shape[-2:], index[-2:], around)
    return [*index[:-2], *(_window(*dimension) for dimension in matrix)]


def _window(size: int, at: int, around: int) -> slice:
    """`around` elements on each side of `at`, and more on one where others end."""
    first = max(0, min(at - around, size - 2 * around - 1))
    return slice(first, min(size, first + 2 * around + 1))


def _name(part: int | slice, size: int) -> str:
    """An index as one writes it: 3, 2:7, or : for all."""
    if not isinstance(part, slice):
        return str(part)
    return ":" if part == slice(0, size) else f"{part.start}:{part.stop}"


class _Short(reprlib.Repr):
    """Lists and dicts with a few of their entries, and arrays as `show` has them."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 4, 400, 400
        self.maxlist = self.maxtuple = self.maxdict = 16

    def repr1(self, x: Value, level: int) -> str:
        return _array(x, ()) if isinstance(x, np.ndarray) else super().repr1(x, level)

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return repr(x) if bits <= LONGEST else f"<an integer of {bits} bits>"


_short = _Short()
