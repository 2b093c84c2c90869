"""Arithmetic, comparisons and functions of each element: the names of `Tensor`.

With this file one can find what an operator means: `a * b` is `mul` in
`minitorch/functions/elementwise.py`, and so is `a.mul(b)`. Nothing is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from minitorch.arguments import only_bool, without_bools
from minitorch.functions import activation, choice, comparison, elementwise, ternary
from minitorch.functions import matmul as products
from minitorch.functions.operands import is_tensor, operands

if TYPE_CHECKING:
    from minitorch.tensor.core import Tensor


class Elementwise:
    """Operators, and functions that treat every element by itself."""

    __slots__ = ()

    def __add__(self: Any, other: Any) -> Tensor:
        x, y = self.raw, getattr(other, "raw", None)
        if y is None or x.storage.dtype is y.storage.dtype:
            return elementwise.Add.apply(*operands("add", self, other))
        return elementwise.plus(self, other)

    __radd__ = __add__

    def __sub__(self: Any, other: Any) -> Tensor:
        return elementwise.Sub.apply(*without_bools("sub", self, other))

    def __rsub__(self: Any, other: Any) -> Tensor:
        return elementwise.sub(other, self)

    __mul__ = __rmul__ = elementwise.mul
    __truediv__ = elementwise.div
    __floordiv__ = elementwise.floor_divide
    __mod__ = elementwise.remainder
    __pow__ = elementwise.pow
    __matmul__ = products.matmul
    __neg__ = elementwise.neg
    __abs__ = elementwise.abs

    def __rtruediv__(self: Any, other: Any) -> Tensor:
        return elementwise.div(other, self)

    def __rfloordiv__(self: Any, other: Any) -> Tensor:
        return elementwise.floor_divide(other, self)

    def __rmod__(self: Any, other: Any) -> Tensor:
        return elementwise.remainder(other, self)

    def __rpow__(self: Any, other: Any) -> Tensor:
        return elementwise.pow(other, self)

    add = elementwise.add
    sub = elementwise.sub
    mul = elementwise.mul
    div = elementwise.div
    pow = elementwise.pow
    lerp = ternary.lerp
    addcmul = ternary.addcmul
    addcdiv = ternary.addcdiv
    neg = elementwise.neg
    abs = elementwise.abs
    sign = elementwise.sign
    floor = elementwise.floor
    ceil = elementwise.ceil
    round = elementwise.round
    exp = elementwise.exp
    expm1 = elementwise.expm1
    log = elementwise.log
    log1p = elementwise.log1p
    log2 = elementwise.log2
    log10 = elementwise.log10
    sqrt = elementwise.sqrt
    rsqrt = elementwise.rsqrt
    reciprocal = elementwise.reciprocal
    square = elementwise.square
    sin = elementwise.sin
    cos = elementwise.cos
    acos = elementwise.acos
    sinh = elementwise.sinh
    cosh = elementwise.cosh
    tanh = elementwise.tanh
    erf = elementwise.erf
    sigmoid = elementwise.sigmoid
    relu = elementwise.relu

    gelu = activation.gelu
    silu = activation.silu
    elu = activation.elu
    leaky_relu = activation.leaky_relu
    softplus = activation.softplus

    matmul = products.matmul
    mm = products.mm
    bmm = products.bmm
    mv = products.mv
    dot = products.dot
    outer = products.outer
    addmm = products.addmm

    maximum = choice.maximum
    minimum = choice.minimum
    clamp = choice.clamp
    clip = choice.clip
    masked_fill = choice.masked_fill

    def where(self: Any, condition: Tensor, other: Any) -> Tensor:
        """This where the bool tensor `condition` holds, else other."""
        return choice.where(condition, self, other)

    # -------------------------------------------------------------- comparisons

    __lt__ = comparison.lt
    __le__ = comparison.le
    __gt__ = comparison.gt
    __ge__ = comparison.ge

    def __eq__(self: Any, other: object) -> Any:
        return comparison.eq(self, other) if _comparable(other) else NotImplemented

    def __ne__(self: Any, other: object) -> Any:
        return comparison.ne(self, other) if _comparable(other) else NotImplemented

    def __and__(self: Any, other: Any) -> Tensor:
        return self.logical_and(only_bool("&", other, only_bool("&", self)))

    def __or__(self: Any, other: Any) -> Tensor:
        return self.logical_or(only_bool("|", other, only_bool("|", self)))

    def __xor__(self: Any, other: Any) -> Tensor:
        return self.logical_xor(only_bool("^", other, only_bool("^", self)))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self: Any) -> Tensor:
        return only_bool("~", self).logical_not()

    lt = comparison.lt
    le = comparison.le
    gt = comparison.gt
    ge = comparison.ge
    eq = comparison.eq
    ne = comparison.ne
    logical_and = comparison.logical_and
    logical_or = comparison.logical_or
    logical_xor = comparison.logical_xor
    logical_not = comparison.logical_not
    isnan = comparison.isnan
    isinf = comparison.isinf
    isfinite = comparison.isfinite
    equal = comparison.equal
    isclose = comparison.isclose
    allclose = comparison.allclose


def _comparable(other: object) -> bool:
    """What == looks at, or refuses with an error: an array is no plain False."""
    kinds = (int, float, np.number, np.bool_, np.ndarray)
    return is_tensor(other) or isinstance(other, kinds)
