"""The element types of tensors, and which type an operation on two types gives.

With this file one can name a type (`minitorch.float32`), find the type of a NumPy array
(`from_numpy_dtype`) or of Python numbers (`infer`), ask for the result type of a mixed
operation (`promote`), and how far a floating type reaches (`finfo`).

int8 is for weights of one byte (`minitorch.quantization`); it computes as the other
integers do, modulo 256.

Two types have 16 bits. float16 has 10 of fraction and 5 of exponent: numbers from 6e-8
to 65,504. bfloat16 is the upper half of a float32: its range, and 7 bits of fraction.
Both are for storage; arithmetic is done in float32, and its results are rounded to the
nearest, ties to the even one (`minitorch/backend/low_precision.py`).

Source: Kalamkar et al., "A study of bfloat16 for deep learning training", 2019.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Number: TypeAlias = bool | int | float


class DType:
    """One element type. Compare with `is` or `==`; there is one object for each."""

    __slots__ = ("category", "half", "is_floating_point", "itemsize", "name", "numpy")

    def __init__(self, name: str, category: int) -> None:
        self.name = name
        self.numpy = np.dtype(name)  # ml_dtypes has told NumPy of bfloat16
        self.itemsize = self.numpy.itemsize
        self.category = category  # 0 bool, 1 integer, 2 floating point
        self.is_floating_point = category == 2
        self.half = self.is_floating_point and self.itemsize == 2

    def __repr__(self) -> str:
        return f"minitorch.{self.name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return by_name, (self.name,)


float32 = DType("float32", 2)
float64 = DType("float64", 2)
int64 = DType("int64", 1)
int32 = DType("int32", 1)
int8 = DType("int8", 1)
bool_ = DType("bool", 0)
float16 = DType("float16", 2)
bfloat16 = DType("bfloat16", 2)

COMPUTED = (float32, float64, int64, int32, bool_, int8)  # what kernels compute in
ALL = (*COMPUTED, float16, bfloat16)
_BY_NAME = {dtype.name: dtype for dtype in ALL}
_BY_NUMPY = {dtype.numpy: dtype for dtype in ALL}
_INFERRED = (  # a bool is an int, too: the first that fits
    ((bool, np.bool_), bool_),
    ((int, np.integer), int64),
    ((float, np.floating), float32),
)
_ORDER = (bool_, int8, int32, int64, float16, bfloat16, float32, float64)


def by_name(name: str) -> DType:
    """The type called `name`: `by_name("float32")`."""
    if name not in _BY_NAME:
        raise ValueError(
            f"dtype: no type is named {name!r}; use one of {list(_BY_NAME)}"
        )
    return _BY_NAME[name]


def check(dtype: Any) -> DType:
    """`dtype` itself if it is one of ours, else an error that says what to pass."""
    if not isinstance(dtype, DType):
        raise TypeError(
            f"dtype: got {dtype!r}; expected one of {', '.join(repr(d) for d in ALL)}"
        )
    return dtype


def from_numpy_dtype(dtype: np.dtype) -> DType:
    """The type for a NumPy dtype; a TypeError names the ones that exist."""
    found = _BY_NUMPY.get(dtype)
    if found is None:
        raise TypeError(
            f"dtype: NumPy's {dtype} has no counterpart here; convert it first, "
            f"with .astype(), to one of {[d.name for d in ALL]}"
        )
    return found


def computed(dtype: DType) -> DType:
    """The type in which numbers of `dtype` are computed: float32 for a half type."""
    return float32 if dtype.half else dtype


def infer(value: Any) -> DType:
    """The type that a Python number makes: bool, int64 or float32."""
    kind: Any = type(value)
    return _of_type(kind)


@lru_cache
def _of_type(kind: Any) -> DType:
    for kinds, dtype in _INFERRED:
        if issubclass(kind, kinds):
            return dtype
    raise TypeError(
        f"got a {kind.__name__}; expected a Python number (bool, int or float)"
    )


SMALL = 2**31  # every integer below it fits into every numeric type but int8


def check_number(value: Any, dtype: DType) -> Any:
    """`value`, if `dtype` has room for it: integers don't wrap around.

    Floats become integers toward zero, and those that float32 cannot hold infinite.

    Raises:
        TypeError: it is no number.
        ValueError: the number is too large, or NaN for an integer type.
    """
    integer = isinstance(value, (int, np.bool_))
    if not (integer or isinstance(value, (float, np.generic))):
        infer(value)  # which refuses it
    if dtype.category == 0 or (dtype.category == 2 and not integer):
        return value
    if integer and -SMALL <= value < SMALL and dtype.itemsize > 1:
        return value
    bound = 2 ** (8 * dtype.itemsize - 1) if dtype.category == 1 else 2**1024
    if not -bound <= value < bound:
        raise ValueError(
            f"number: {value} does not fit into {dtype.name}, which ends at -2**"
            f"{bound.bit_length() - 1} and just below 2**{bound.bit_length() - 1}; use "
            f"a larger dtype, or a floating one"
        )
    return value


def rounded(value: Number, dtype: DType) -> Any:
    """A number as NumPy's of that dtype; infinity where it is too large."""
    if dtype.category == 2 and not dtype.half and -1e38 < value < 1e38:
        return dtype.numpy.type(value)
    with np.errstate(over="ignore"):
        return np.array(float(value) if dtype.half else value).astype(dtype.numpy)[()]


def promote(a: DType, b: DType) -> DType:
    """The smaller of the types that hold both, as PyTorch has it.

    An integer and a float give the float type; two of one category, the larger. Neither
    of the half types holds the other: together they are float32.
    """
    if a.half and b.half and a is not b:
        return float32
    return a if _ORDER.index(a) >= _ORDER.index(b) else b


NUMBER = -1  # the "dims" of a Python number, which is weaker than any tensor


@lru_cache
def result_type(a: DType, a_dims: int, b: DType, b_dims: int) -> DType:
    """The type of an operation on two operands with `a_dims` and `b_dims` dimensions.

    A tensor with dims is stronger than one without, and that is stronger than a Python
    number (`NUMBER` dims). The weaker changes the type only when it is of a higher
    category: `int_tensor + 2.0` is float32, `float32_tensor + float64_number` stays
    float32.
    """
    a_level, b_level = min(a_dims, 1), min(b_dims, 1)
    if a_level == b_level:
        return promote(a, b)
    strong, weak = (a, b) if a_level > b_level else (b, a)
    return strong if strong.category >= weak.category else weak


@lru_cache
def beside_number(dtype: DType, dims: int, kind: type) -> DType:
    """The type of an operation on a tensor and a Python number of type `kind`."""
    return result_type(dtype, dims, _of_type(kind), NUMBER)


class finfo:
    """How far a floating type reaches, and how fine it is, as Python numbers.

    Attributes:
        bits: the size of a number.
        eps: the distance from 1 to the next number.
        min, max: the least and the largest finite number.
        tiny, smallest_normal: the smallest positive number with all its digits.
        resolution: 10 to the power of minus the decimal digits that are kept.
        dtype: the type's name.
    """

    def __init__(self, dtype: DType = float32) -> None:
        if not check(dtype).is_floating_point:
            raise TypeError(f"finfo: dtype is {dtype.name}; it must be floating point")
        facts = ml_dtypes.finfo(dtype.numpy)
        self.bits, self.dtype = 8 * dtype.itemsize, dtype.name
        self.eps, self.resolution = float(facts.eps), 10.0**-facts.precision
        self.min, self.max = float(facts.min), float(facts.max)
        self.tiny = self.smallest_normal = float(facts.tiny)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, "
            f"max={self.max:g}, eps={self.eps:g}, smallest_normal="
            f"{self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )
