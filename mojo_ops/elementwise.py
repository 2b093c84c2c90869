"""Elementwise operations: launchers of the kernels in `elementwise.mojo`.

With this file one can apply a function of one number to a tensor (`map`), and of two
numbers to two tensors that broadcast (`zip`).

An operator is compiled for some types; `MAP` and `ZIP` find the loop for a type.
Operands of another type are converted first, as PyTorch promotes them, and a result of
another type than asked for is converted last. A function that is not in
`operators.mojo`, such as a user's own, is compiled by Numba and runs on the same
memory (`mojo_ops/fallback.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from minitorch import dtypes, operators
from minitorch.backend.host.memory import overlap, same_window
from minitorch.dtypes import DType, bool_, float32, int64
from minitorch.tensor_data import TensorData, broadcast_shapes
from mojo_ops import fallback
from mojo_ops.memory import copy, copy_into, empty, kernels, loops, run_map

# Operators whose results are truth values.
TESTS = frozenset(
    {
        operators.lt,
        operators.le,
        operators.gt,
        operators.ge,
        operators.eq,
        operators.ne,
        operators.logical_and,
        operators.logical_or,
        operators.logical_xor,
        operators.logical_not,
        operators.isnan,
        operators.isinf,
        operators.isfinite,
    }
)


class Rows(dict):
    """The loops of operators: `rows[fn, dtype]` is an address, 0 where there is none.

    A dict, so that a launcher pays one lookup for a loop that it used before.
    """

    def __init__(self, find: str) -> None:
        super().__init__()
        self.find = find

    def __missing__(self, key: tuple[Callable, DType]) -> int:
        fn, dtype = key
        ours = getattr(operators, fn.__name__, None) is fn
        find = kernels.find_map if self.find == "find_map" else kernels.find_zip
        self[key] = int(find(fn.__name__, dtype.name)) if ours else 0
        return self[key]


MAP = Rows("find_map")
ZIP = Rows("find_zip")


def _suitable(rows: Rows, fn: Callable, dtype: DType, wanted: DType) -> DType | None:
    """The type to compute in, for operands of `dtype` and a result of type `wanted`."""
    for candidate in (dtype, wanted, int64 if dtype is bool_ else float32):
        if rows[fn, candidate]:
            return candidate
    return None


# -------------------------------------------------------------------------------- map


def map(
    fn: Callable,
    a: TensorData,
    dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:
    """out[i] = fn(a[i]), of type `dtype` (a's if None), into `out` if given."""
    if out is not None:
        return _map_into(fn, a, out)
    given = a.storage.dtype
    dtype = dtype or given
    row = MAP[fn, given]
    if not row or dtype is not (bool_ if fn in TESTS else given):
        return _map_converted(fn, a, dtype)
    if not a.is_contiguous():
        a = copy(a, given)
    out = empty(a.shape, dtype)
    z, x = out.storage.array, a.storage.array
    n = len(z)
    if len(x) != n:
        x = x[a.offset : a.offset + n]
    kernels.map_flat(row, x, z)
    return out


def _map_into(fn: Callable, a: TensorData, out: TensorData) -> TensorData:
    row = MAP[fn, a.dtype]
    natural = bool_ if fn in TESTS else a.dtype
    if row and out.dtype is natural and (same_window(a, out) or not overlap(a, out)):
        run_map(row, a, out)
    else:
        copy_into(out, map(fn, a, out.dtype))
    return out


def _map_converted(fn: Callable, a: TensorData, dtype: DType) -> TensorData:
    """`map` where there is no loop from a's type to `dtype`."""
    inner = _suitable(MAP, fn, a.dtype, dtype)
    if inner is None:
        return fallback.map(fn, a, dtype)
    natural = bool_ if fn in TESTS else inner
    out = empty(a.shape, natural)
    run_map(MAP[fn, inner], a if a.dtype is inner else copy(a, inner), out)
    return out if natural is dtype else copy(out, dtype)


# -------------------------------------------------------------------------------- zip


def zip(
    fn: Callable,
    a: TensorData,
    b: TensorData,
    dtype: DType | None = None,
    out: TensorData | None = None,
) -> TensorData:
    """out[i] = fn(a[i], b[i]); a and b broadcast. `out` may be a or b."""
    if out is not None:
        return _zip_into(fn, a, b, out)
    given = a.storage.dtype
    dtype = dtype or given
    row = ZIP[fn, given]
    wrong = given is not b.storage.dtype
    if wrong or not row or dtype is not (bool_ if fn in TESTS else given):
        return _zip_converted(fn, a, b, dtype)
    shape = a.shape
    one = 0 if shape == b.shape else 2 if b.shape == () else -1
    if one < 0 or not (a.is_contiguous() and b.is_contiguous()):
        out = empty(broadcast_shapes(shape, b.shape), dtype)
        _zip_broadcast(row, a, b, out)
        return out
    out = empty(shape, dtype)
    z, x, y = out.storage.array, a.storage.array, b.storage.array
    n = len(z)
    if len(x) != n:
        x = x[a.offset : a.offset + n]
    if one:
        y = y if len(y) == 1 else y[b.offset : b.offset + 1]
    elif len(y) != n:
        y = y[b.offset : b.offset + n]
    kernels.zip_flat(row, x, y, z)
    return out


def _zip_broadcast(row: int, a: TensorData, b: TensorData, out: TensorData) -> None:
    """z = fn(x, y) for operands that do not both lie as `out` does."""
    n = out.size
    if a.is_contiguous() and b.is_contiguous() and out.is_contiguous():
        x, y = a.flat(), b.flat()
        if max(len(x), len(y)) == n and {len(x), len(y)} <= {1, n}:
            kernels.zip_flat(row, x, y, out.flat())
            return
    if n == 0:
        return
    a, b = a.expand(out.shape), b.expand(out.shape)
    x, y, z = a.storage.array, b.storage.array, out.storage.array
    plan, outer = loops(out.shape, a.strides, b.strides, out.strides)
    for p, q, r in outer:
        kernels.zip_strided(
            row, plan, x, a.offset + p, y, b.offset + q, z, out.offset + r
        )


def _zip_into(
    fn: Callable, a: TensorData, b: TensorData, out: TensorData
) -> TensorData:
    row = ZIP[fn, a.dtype]
    natural = bool_ if fn in TESTS else a.dtype
    fits = row and a.dtype is b.dtype and out.dtype is natural
    apart = all(same_window(t, out) or not overlap(t, out) for t in (a, b))
    if fits and apart:
        _zip_broadcast(row, a, b, out)
    else:
        copy_into(out, zip(fn, a, b, out.dtype))
    return out


def _zip_converted(
    fn: Callable, a: TensorData, b: TensorData, dtype: DType
) -> TensorData:
    """`zip` where there is no loop from the operands' types to `dtype`."""
    inner = _suitable(ZIP, fn, dtypes.promote(a.dtype, b.dtype), dtype)
    if inner is None:
        return fallback.zip(fn, a, b, dtype)
    natural = bool_ if fn in TESTS else inner
    out = empty(broadcast_shapes(a.shape, b.shape), natural)
    x, y = (t if t.dtype is inner else copy(t, inner) for t in (a, b))
    _zip_broadcast(ZIP[fn, inner], x, y, out)
    return out if natural is dtype else copy(out, dtype)
