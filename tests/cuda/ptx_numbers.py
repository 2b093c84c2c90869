"""Numbers of PTX in NumPy: types, the host's memory, and what instructions compute.

With this file `ptx_steps.py` has a function for each instruction that makes a number
of numbers (`COMPUTED`, `compared`, `converted`, `UPDATED`), with a GPU's roundings.
They take arrays with a number for each thread.

Source: "PTX ISA", version 9.0, chapter on instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from ptx_steps import Op

U = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
TYPES: dict[str, Any] = {
    "pred": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    **{f"{kind}{8 * n}": U[n] for kind in "bu" for n in U},
    "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
}  # fmt: skip
TYPES = {name: np.dtype(kind) for name, kind in TYPES.items()}
WORD = np.dtype(np.uint32)
SPACES = ("global", "shared", "local", "param", "const")


class Unsupported(NotImplementedError):
    """An instruction that is not run here."""


class Fault(AssertionError):
    """What a GPU would have answered with an error, or with wrong numbers."""


class _Everywhere:
    """The host's memory from `START` on as one array."""

    START = 4096

    def __init__(self, kind: np.dtype) -> None:
        self.__array_interface__ = {
            "data": (self.START, False), "shape": (2**48 // kind.itemsize,),
            "typestr": kind.str, "version": 3,
        }  # fmt: skip


HOST = {n: np.asarray(_Everywhere(np.dtype(U[n]))) for n in U}


def places(addresses: np.ndarray, size: int) -> np.ndarray:
    """Where in `HOST[size]` these addresses are."""
    return (addresses - _Everywhere.START).astype(np.int64) // size


# ---------------------------------------------------------------------- arithmetic


def rounded(x: np.ndarray, mode: str, kind: Any) -> np.ndarray:
    """float64 to a narrower type: to the nearest, to zero, down or up."""
    near = x.astype(kind)
    if mode == "rn" or mode == "rna":
        return near
    back = near.astype(np.float64)
    low, high = (back < x) & (mode != "rm"), (back > x) & (mode != "rp")
    if mode == "rz":
        low, high = low & (x < 0), high & (x > 0)
    up, down = (np.nextafter(near, kind.type(end)) for end in (np.inf, -np.inf))
    return np.where(low, up, np.where(high, down, near))


def fma64(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in float64, rounded once: the product is a sum of two numbers."""
    split = 134217729.0
    p, x, y = a * b, a * split, b * split
    x, y = x - (x - a), y - (y - b)
    low = (a - x) * (b - y) - (((p - x * y) - (a - x) * y) - x * (b - y))
    s = p + c
    t = s - p
    exact = s + ((p - (s - t)) + (c - t) + low)
    return np.where(np.isfinite(exact), exact, s)


def floats(a: Any) -> bool:
    return a.dtype.kind not in "iub"  # bfloat16 is of kind V


def directed(fn: Callable) -> Callable:
    """A function of floats with a rounding that may be another than the nearest."""

    def compute(op: Op, *xs: Any) -> Any:
        kind, mode = xs[0].dtype, op.rounding
        if kind.itemsize < 8:
            wide = fn(*[x.astype(np.float64) for x in xs])
            return rounded(wide, mode, kind)
        if mode != "rn":
            raise Unsupported(op.text)
        return fma64(*xs) if len(xs) == 3 else fn(*xs)

    return compute


def quotient(a: Any, b: Any) -> Any:
    """Integers, rounded to zero."""
    q = a // b
    return q + ((a % b != 0) & ((a < 0) != (b < 0))).astype(q.dtype)


def high(a: Any, b: Any) -> Any:
    """The upper half of a product of integers."""
    if a.dtype.itemsize < 8:
        bits, wide = 8 * a.dtype.itemsize, np.int64 if a.dtype.kind == "i" else U[8]
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    made = np.broadcast_arrays(a, b)
    exact = [int(x) * int(y) >> 64 for x, y in zip(*[m.tolist() for m in made])]
    return np.array([x % 2**64 for x in exact], U[8]).view(a.dtype)


def times(op: Op, a: Any, b: Any) -> Any:
    """mul, of integers and floats."""
    if floats(a):
        return a * b if op.rounding == "rn" else directed(np.multiply)(op, a, b)
    if "wide" in op.words:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return a.astype(wide) * b.astype(wide)
    return high(a, b) if "hi" in op.words else a * b


def plus(op: Op, a: Any, b: Any) -> Any:
    return a + b if op.rounding == "rn" else directed(np.add)(op, a, b)


def times_plus(op: Op, a: Any, b: Any, c: Any) -> Any:
    """fma of floats; mad of integers, whose c may be wide."""
    if floats(a):
        return directed(lambda a, b, c: a * b + c)(op, a, b, c)
    p = times(op, a, b)
    return p + c.astype(p.dtype)


def permuted(a: Any, b: Any, selector: Any) -> Any:
    """prmt: each byte is one of the eight of a and b, or its sign."""
    both = a.astype(U[8]) | b.astype(U[8]) << U[8](32)
    out = np.zeros_like(both)
    for i in range(4):
        s = selector.astype(U[8]) >> U[8](4 * i)
        byte = both >> ((s & U[8](7)) * U[8](8)) & U[8](255)
        sign = np.where(byte & U[8](128), U[8](255), U[8](0))
        out = out | np.where(s & U[8](8), sign, byte) << U[8](8 * i)
    return out.astype(WORD)


def inserted(a: Any, b: Any, at: Any, count: Any) -> Any:
    """bfi: `count` bits of a take the place of those of b from `at` on."""
    bits = a.dtype.type(8 * a.dtype.itemsize)
    one, at, count = a.dtype.type(1), at.astype(a.dtype), count.astype(a.dtype)
    full = np.where(count >= bits, ~a.dtype.type(0), (one << count) - one) << at
    return (a << at & full) | (b & ~full)


def fewer(fn: Callable, other: Callable) -> Callable:
    """min or max: of floats the other number, not NaN, unless that is asked for."""

    def compute(op: Op, a: Any, b: Any) -> Any:
        return other(a, b) if "NaN" in op.words else fn(a, b)

    return compute


def plain(fn: Callable) -> Callable:
    return lambda op, *xs: fn(*xs)


def flipped(op: Op, a: Any) -> Any:
    return ~a if op.name == "not" else -a


COMPUTED: dict[str, Callable] = {
    "add": plus, "sub": lambda op, a, b: plus(op, a, flipped(op, b)),
    "mul": times, "fma": times_plus, "mad": times_plus,
    "div": lambda op, a, b: a / b if floats(a) else quotient(a, b),
    "rem": plain(np.fmod), "min": fewer(np.fmin, np.minimum),
    "max": fewer(np.fmax, np.maximum), "neg": flipped, "not": flipped,
    "abs": plain(np.abs), "and": plain(np.bitwise_and), "or": plain(np.bitwise_or),
    "xor": plain(np.bitwise_xor), "mov": plain(lambda a: a),
    "shl": lambda op, a, n: np.left_shift(a, n.astype(a.dtype)),
    "shr": lambda op, a, n: np.right_shift(a, n.astype(a.dtype)),
    "selp": plain(lambda a, b, p: np.where(p, a, b)),
    "copysign": plain(lambda a, b: np.copysign(b, a)),  # the sign of the first
    "sqrt": plain(np.sqrt), "rsqrt": plain(lambda a: 1 / np.sqrt(a)),
    "rcp": plain(np.reciprocal), "ex2": plain(np.exp2), "lg2": plain(np.log2),
    "sin": plain(np.sin), "cos": plain(np.cos), "tanh": plain(np.tanh),
    "popc": plain(np.bitwise_count), "prmt": plain(permuted), "bfi": plain(inserted),
}  # fmt: skip
COUNTS = {"shl": 1, "shr": 1, "bfi": 2}  # then 32 bits
COMPARED: dict[str, Callable] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal,
    "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
JOINED = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
UPDATED: dict[str, Callable] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "exch": lambda old, b: b,
    "inc": lambda old, b: np.where(old >= b, 0, old + 1),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - 1),
    "cas": lambda old, b, c: np.where(old == b, c, old),
}  # fmt: skip


def compared(op: Op, a: Any, b: Any) -> Any:
    """setp: "ltu" is also true of what is no number, "lt" is not."""
    how = next(w for w in op.words if w in COMPARED or w[:-1] in COMPARED or w in
               ("num", "nan"))  # fmt: skip
    if how in ("num", "nan"):
        return (np.isnan(a) | np.isnan(b)) == (how == "nan")
    if how in COMPARED:
        return COMPARED[how](a, b) & ~((a != a) | (b != b))
    return COMPARED[how[:-1]](a, b) | (a != a) | (b != b)


def converted(op: Op, a: Any) -> Any:
    """cvt: between integers and floats of all sizes."""
    to, mode = TYPES[op.words[-2]], next((w for w in op.words if w[0] == "r"), "")
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    floating = floats(a)
    if floating and mode in whole:
        a = whole[mode](a)
    if op.words[-2] == "tf32":  # ties go away from zero
        return (a.view(U[4]) + U[4](0x1000) & U[4](0xFFFFE000)).view(np.float32)
    if to.kind in "iu":
        if not floating and "sat" not in op.words:
            return a.astype(to)
        ends = np.iinfo(to)
        x = a.astype(np.float64) if floating else a
        out = np.where(x >= float(ends.max), to.type(ends.max), x.astype(to))
        out = np.where(x <= float(ends.min), to.type(ends.min), out)
        none = 0 if a.dtype.itemsize < 8 and to.itemsize < 8 else 1 << 63
        return np.where(np.isnan(x), U[8](none).astype(to), out) if floating else out
    if "sat" in op.words:
        a = np.where(np.isnan(a), 0, np.clip(a, 0, 1)).astype(a.dtype)
    if a.dtype.itemsize <= to.itemsize and floating:
        return a.astype(to)
    if mode in ("rz", "rm", "rp"):
        return rounded(a.astype(np.float64), mode, to)
    return a.astype(to)
