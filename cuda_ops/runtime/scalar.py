"""Scalar functions for kernels: the formulas of `minitorch/operators.py`, compiled.

With this file a kernel can call a function of `operators.py`, or a user's own:

    gelu = device_function(operators.gelu, float32=True)

In Numba's arithmetic a float literal is a float64, and `x * 0.5` with a float32 x is a
float64 product: 2 to 64 times slower, depending on the chip. So a function has two
forms. In the float32 form every number that stands in the formula, in the module
around it or in a closure is a float32; the other form is the formula as it stands. A
template's kernel (`cuda_ops.runtime.launch.Kernels`) takes the float32 form if its
arguments have float32 numbers and no float64. A few formulas that make integers or
bools on their way, or have a form of fewer instructions, have a float32 form written by
hand (`FORMS`).

In the simulator the Python function itself is called.
"""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Callable
from functools import cache
from types import CellType, FunctionType
from typing import Any

import numpy as np
from numba import cuda

from cuda_ops.simulator import SIMULATED
from minitorch import operators
from minitorch.operators import compilable

f32 = np.float32
ZERO, HALF, ONE = f32(0.0), f32(0.5), f32(1.0)
MINUS_2U, CUBIC = f32(-2.0 * operators.SQRT_2_OVER_PI), f32(0.044715)
SLOPE, CUBIC_SLOPE = f32(2.0 * operators.SQRT_2_OVER_PI), f32(3.0 * 0.044715)


# ------------------------------------------------------- float32 forms, by hand


def sign_narrow(x: float) -> float:
    """-1, 0 or 1 (NaN stays NaN)"""
    y = ONE if x > ZERO else x
    return -ONE if x < ZERO else y


def abs_backward_narrow(grad: float, x: float) -> float:
    """grad * sign(x), with sign(NaN) = 0"""
    y = ONE if x > ZERO else ZERO
    return grad * (-ONE if x < ZERO else y)


def floor_narrow(x: float) -> float:
    """The largest whole number that is not above x"""
    return cuda.libdevice.floorf(x)


def ceil_narrow(x: float) -> float:
    """The smallest whole number that is not below x"""
    return cuda.libdevice.ceilf(x)


def round_narrow(x: float) -> float:
    """The nearest whole number, halves to the even one"""
    return cuda.libdevice.rintf(x)


def rsqrt_narrow(x: float) -> float:
    """1 / sqrt(x), rounded correctly twice; the chip's own rsqrt is 1 ulp worse"""
    return ONE / math.sqrt(x)


def floor_divide_narrow(x: float, y: float) -> float:
    """floor(x / y), of the quotient as it would be without rounding"""
    if y == ZERO:
        return x / y
    rest = cuda.libdevice.fmodf(x, y)
    whole = (x - rest) / y
    if rest != ZERO and (rest < ZERO) != (y < ZERO):
        whole -= ONE
    if whole == ZERO:
        return cuda.libdevice.copysignf(ZERO, x / y)
    near = cuda.libdevice.floorf(whole)
    return near + ONE if whole - near > HALF else near


def remainder_narrow(x: float, y: float) -> float:
    """x - floor(x / y) * y, with the sign of y"""
    rest = cuda.libdevice.fmodf(x, y)
    if rest != ZERO and (rest < ZERO) != (y < ZERO):
        rest += y
    return rest if rest != ZERO else cuda.libdevice.copysignf(ZERO, y)


# (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)), for which the GPU has instructions.


def gelu_tanh_narrow(x: float) -> float:
    """x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)"""
    power = cuda.libdevice.fast_expf(MINUS_2U * (x + CUBIC * x * x * x))
    return cuda.libdevice.fast_fdividef(x, ONE + power)


def gelu_tanh_backward_narrow(grad: float, x: float) -> float:
    """grad * (s + x s (1 - s) 2u'), s = 1 / (1 + exp(-2u))"""
    power = cuda.libdevice.fast_expf(MINUS_2U * (x + CUBIC * x * x * x))
    s = cuda.libdevice.fast_fdividef(ONE, ONE + power)
    return grad * (s + x * s * (ONE - s) * (SLOPE * (ONE + CUBIC_SLOPE * x * x)))


# Python's // and % for float64, which Numba compiles into something that is NaN for
# infinite numbers.


def floor_divide_wide(x: float, y: float) -> float:
    """As `floor_divide_narrow`, for float64"""
    if y == 0.0:
        return x / y
    rest = cuda.libdevice.fmod(x, y)
    whole = (x - rest) / y
    if rest != 0.0 and (rest < 0.0) != (y < 0.0):
        whole -= 1.0
    if whole == 0.0:
        return cuda.libdevice.copysign(0.0, x / y)
    near = cuda.libdevice.floor(whole)
    return near + 1.0 if whole - near > 0.5 else near


def remainder_wide(x: float, y: float) -> float:
    """As `remainder_narrow`, for float64"""
    rest = cuda.libdevice.fmod(x, y)
    if rest != 0.0 and (rest < 0.0) != (y < 0.0):
        rest += y
    return rest if rest != 0.0 else cuda.libdevice.copysign(0.0, y)


FORMS: dict[Callable, Callable] = {
    operators.sign: sign_narrow,
    operators.abs_backward: abs_backward_narrow,
    operators.floor: floor_narrow,
    operators.ceil: ceil_narrow,
    operators.round: round_narrow,
    operators.rsqrt: rsqrt_narrow,
    operators.floor_divide: floor_divide_narrow,
    operators.remainder: remainder_narrow,
    operators.gelu_tanh: gelu_tanh_narrow,
    operators.gelu_tanh_backward: gelu_tanh_backward_narrow,
}


FORMS64: dict[Callable, Callable] = {
    operators.floor_divide: floor_divide_wide,
    operators.remainder: remainder_wide,
}


# ----------------------------------------------------- float32 forms, by rewriting


def _as_float32(value: Any) -> Any:
    """A Python number of a formula as float32; anything else as it is."""
    return f32(value) if type(value) in (float, int) else value


def _itself(value: Any) -> Any:
    return value


def _rebuilt(fn: Callable, number: Callable, float32: bool) -> Callable:
    """`fn` with `number(value)` for all its constants, and compilable callees.

    Constants stand in the code, in the module around it and in a closure. Plain Python
    functions that `fn` calls become device functions.
    """

    def name(value: Any) -> Any:
        if isinstance(value, FunctionType):
            return device_function(value, float32)
        return number(value)

    loads = (i for i in dis.get_instructions(fn) if i.opname == "LOAD_GLOBAL")
    found = {i.argval for i in loads} & fn.__globals__.keys()
    names = {n: name(fn.__globals__[n]) for n in found}
    if float32:
        names.setdefault("float", f32)  # float(x) is no float64 here
    names.update(__builtins__=builtins, __name__=fn.__module__)
    cells = tuple(CellType(name(c.cell_contents)) for c in fn.__closure__ or ())
    constants = tuple(number(value) for value in fn.__code__.co_consts)
    code = fn.__code__.replace(co_consts=constants)
    return FunctionType(code, names, fn.__name__, fn.__defaults__, cells)


def _on_python_numbers(fn: Callable) -> Callable:
    """`fn` for the simulator: called with Python's numbers, as its text is meant.

    The result is a NumPy number again: floats of 64 bits, and integers that have
    wrapped around as a chip's do.
    """

    def simulated(*numbers: Any) -> Any:
        out = fn(*[x.item() if hasattr(x, "item") else x for x in numbers])
        if type(out) is float:
            return np.float64(out)
        if type(out) is int:
            return np.int64((out + 2**63) % 2**64 - 2**63)
        return out

    return simulated


@cache
def device_function(fn: Callable, float32: bool = False, float64: bool = False) -> Any:
    """A scalar function for use in kernels.

    It is inlined by Numba, so that a kernel can be compiled on a machine without a GPU.

    Args:
        fn: a function of `minitorch/operators.py`, or a user's own: numbers in, a
            number out. It may call other plain functions of its module.
        float32: whether all numbers that stand in it are to be float32, and the forms
            above are to be used.
        float64: whether the forms for float64 numbers are to be used.
    """
    if not isinstance(fn, FunctionType):
        return fn
    if SIMULATED:
        return _on_python_numbers(fn)
    if float32 and fn in FORMS:
        formula = FORMS[fn]
    elif float64 and fn in FORMS64:
        formula = FORMS64[fn]
    else:
        number = _as_float32 if float32 else _itself
        formula = _rebuilt(compilable(fn), number, float32)
    return cuda.jit(device=True, inline="always")(formula)
