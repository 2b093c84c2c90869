"""float32 forms of scalar functions, made so that they become vector code.

With this file a kernel can call `exp`, `tanh`, `sigmoid`, `log`, ... on float32 numbers
sixteen at a time, and a launcher can ask for the fast form of a function of
`minitorch/operators.py` (`fast_form`).

The C library's `expf` takes one number and decides, by branches, how to treat it, so a
loop around it stays scalar: 2 ns an element. The forms here have no branches and no
calls. They are polynomials in float32 (every constant below is one: a float64 literal
would make all arithmetic around it float64), and LLVM turns a loop around them into
AVX2 or AVX-512 code: 0.1 ns an element. Their error stays below 4 units in the last
place, NaN stays NaN, and overflow gives the IEEE infinity.

Each function comes in two forms. `_narrow` is for float32; for all other types the
formula of `operators.py` is compiled as it stands, so float64 keeps full accuracy.
Polynomials were fitted for the least maximal relative error (Lawson's algorithm) on the
interval that the comment above them names.

Source: Cody and Waite, "Software Manual for the Elementary Functions", 1980, for the
reduction of arguments; Muller, "Elementary Functions", 3rd edition, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from fast_ops.late import Inner
from fast_ops.launch import Unwritten, device_function
from minitorch import operators

f32 = np.float32

# Products may fuse with sums (more exact, and faster), but sums keep their order: the
# reductions of arguments below subtract almost equal numbers on purpose.
EXACT_ORDER = {"fastmath": {"contract", "nsz"}, "error_model": "numpy"}

ZERO, HALF, ONE, TWO = f32(0.0), f32(0.5), f32(1.0), f32(2.0)
INF = f32(np.inf)
NAN = f32(np.nan)

# Adding and subtracting 1.5 * 2^23 rounds a float32 to a whole number, which can then
# be read in the low bits of the sum.
ROUND = f32(12582912.0)
BIAS = f32(12582912.0 + 127.0)

LOG2_E = f32(1.4426950408889634)
LN_2_HIGH = f32(0.693359375)  # few bits, so that n * LN_2_HIGH is exact
LN_2_LOW = f32(-2.12194440e-4)


def helper(fn: Callable) -> Any:
    """Compile a piece of the formulas below, without reordering its sums."""
    return Inner(fn, **EXACT_ORDER, forceinline=True)


# ------------------------------------------------------------------------ pieces


@helper
def scaled(x: float, factor: float) -> float:
    """x * factor, as it is written.

    A factor 1 / y serves many x. Where products may be reordered, LLVM takes it back:
    x * (1 / y) becomes x / y, and a division takes several times as long.
    """
    return x * factor


@helper
def power_of_two(n: float) -> float:
    """2 ** n for a whole float32 n from -126 to 127: n goes into the exponent bits."""
    bits = np.float32(n + BIAS).view(np.int32)
    return np.int32(bits << 23).view(np.float32)


@helper
def exp_curve(r: float) -> float:
    """(e ** r - 1 - r) / r ** 2 for |r| <= ln(2) / 2, error 3e-9"""
    p = f32(0.00139504831)
    p = p * r + f32(0.00836889015)
    p = p * r + f32(0.0416662059)
    p = p * r + f32(0.166665188)
    p = p * r + f32(0.50000001)
    return p


@helper
def exp_narrow(x: float) -> float:
    """e ** x = 2 ** n * e ** r with x = n ln 2 + r and |r| <= ln(2) / 2.

    2 ** n is multiplied in two halves, so that results below 2 ** -126 (and those
    above 2 ** 127, where n is 128) come out right.
    """
    x = f32(-104.0) if x < f32(-104.0) else x  # e ** -104 is 0, e ** 89 infinite
    x = f32(89.0) if x > f32(89.0) else x
    n = (x * LOG2_E + ROUND) - ROUND
    r = (x - n * LN_2_HIGH) - n * LN_2_LOW
    y = (exp_curve(r) * r * r + r) + ONE
    half = (n * HALF + ROUND) - ROUND
    return y * power_of_two(half) * power_of_two(n - half)


@helper
def exp_flush(x: float) -> float:
    """e ** x as `exp_narrow`, but 0 where that is below 2 ** -126.

    Without those tiny results n can be added to the exponent bits of e ** r, which
    saves a third of the work. For sums and quotients nothing is lost.
    """
    t = x * LOG2_E + ROUND
    n = t - ROUND
    r = (x - n * LN_2_HIGH) - n * LN_2_LOW
    y = (exp_curve(r) * r * r + r) + ONE
    exponent = np.int32(np.float32(t).view(np.int32) << 23)
    y = np.int32(np.float32(y).view(np.int32) + exponent).view(np.float32)
    y = ZERO if x < f32(-87.336) else y
    return y if x < f32(88.72283) else x * INF  # infinity, or NaN for NaN


@helper
def log_narrow(x: float) -> float:
    """log x = n ln 2 + log m with x = 2 ** n * m and m from sqrt(1/2) to sqrt(2)."""
    tiny = x < f32(1.17549435e-38)
    scaled = x * f32(8388608.0) if tiny else x
    bits = np.float32(scaled).view(np.int32)
    n_bits = np.int32(np.int32(bits - 0x3F3504F3) >> 23)  # 0x3F3504F3 is sqrt(1/2)
    m = np.int32(bits - np.int32(n_bits << 23)).view(np.float32)
    n = f32(n_bits) - (f32(23.0) if tiny else ZERO)
    f = m - ONE
    # (log(1 + f) - f + f ** 2 / 2) / f ** 3, error 6e-9
    p = f32(-0.0763422574)
    p = p * f + f32(0.127614683)
    p = p * f + f32(-0.131602337)
    p = p * f + f32(0.142017762)
    p = p * f + f32(-0.166233538)
    p = p * f + f32(0.20001226)
    p = p * f + f32(-0.250008211)
    p = p * f + f32(0.333333317)
    f2 = f * f
    y = n * LN_2_HIGH + (f + (n * LN_2_LOW + (p * f * f2 - HALF * f2)))
    y = x if x == INF else y
    y = -INF if x == ZERO else y
    return y if x >= ZERO else NAN


@helper
def log1p_narrow(x: float) -> float:
    """log u + (x - (u - 1)) / u with u = 1 + x: the sum's rounding error, put back.

    Source: Goldberg, "What every computer scientist should know about floating-point
    arithmetic", 1991, theorem 4.
    """
    u = ONE + x
    y = log_narrow(u) + (x - (u - ONE)) / u
    y = x if x == INF else y
    return -INF if x == -ONE else y


@helper
def expm1_narrow(x: float) -> float:
    """2 ** n * (e ** r - 1) + (2 ** n - 1), with n and r of `exp_narrow`."""
    z = f32(-50.0) if x < f32(-50.0) else x
    z = f32(50.0) if z > f32(50.0) else z
    n = (z * LOG2_E + ROUND) - ROUND
    r = (z - n * LN_2_HIGH) - n * LN_2_LOW
    scale = power_of_two(n)
    y = scale * (exp_curve(r) * r * r + r) + (scale - ONE)
    return exp_flush(x) if x > f32(40.0) else y


@helper
def softplus_narrow(x: float) -> float:
    """max(x, 0) + log(1 + exp(-|x|))"""
    above = x if x > ZERO else ZERO
    return above + log1p_narrow(exp_flush(-abs(x)))


@helper
def logsigmoid_narrow(x: float) -> float:
    """min(x, 0) - log(1 + exp(-|x|))"""
    return -softplus_narrow(-x)


@helper
def binary_cross_entropy_narrow(x: float, y: float) -> float:
    """-(y log x + (1 - y) log(1 - x)), with logarithms that stop at -100"""
    yes, no, least = log_narrow(x), log1p_narrow(-x), f32(-100.0)
    yes, no = least if yes < least else yes, least if no < least else no
    return (y - ONE) * no - y * yes


@helper
def cross_entropy_of_logits_narrow(x: float, y: float) -> float:
    """(1 - y) x + log(1 + exp(-x))"""
    return (ONE - y) * x + softplus_narrow(-x)


@helper
def kl_div_narrow(x: float, y: float) -> float:
    """y (log y - x), which has no logarithm where y is 0"""
    return y * (log_narrow(ONE if y == ZERO else y) - x)


@helper
def tanh_narrow(x: float) -> float:
    """A polynomial for |x| < 0.625, else 1 - 2 / (exp(2 |x|) + 1) with x's sign."""
    z = x * x
    # (tanh(x) / x - 1) / x ** 2 in z = x ** 2, error 4e-9
    p = f32(-0.00571701101)
    p = p * z + f32(0.020650554)
    p = p * z + f32(-0.0537434867)
    p = p * z + f32(0.133314911)
    p = p * z + f32(-0.333332839)
    near = p * z * x + x
    size = abs(x)
    far = ONE - TWO / (exp_flush(size + size) + ONE)
    far = -far if x < ZERO else far
    return near if size < f32(0.625) else far


@helper
def normal_tail(x: float) -> tuple[float, float]:
    """P(X > |x|) for a standard normal X, and exp(-x ** 2 / 2).

    P(X > |x|) = exp(-z * z) / 2 * t * p(t); z = |x| / sqrt(2) and t = 1 / (1 + z / 2).
    The exponential is a factor, so that far out the result is small but still exact,
    where 1 - erf(z) would cancel to nothing.
    """
    t = ONE / (abs(x) * f32(0.35355339059327373) + ONE)
    # erfcx(z) / t for z from 0 to 10.2, error 4e-8
    p = f32(-0.0591253919)
    p = p * t + f32(0.284850752)
    p = p * t + f32(-0.487771978)
    p = p * t + f32(0.278722921)
    p = p * t + f32(-0.0270783658)
    p = p * t + f32(0.202878853)
    p = p * t + f32(0.243055119)
    p = p * t + f32(0.282382013)
    p = p * t + f32(0.282086034)
    density = exp_flush(-HALF * x * x)
    return HALF * t * p * density, density


@helper
def normal_cdf(x: float) -> tuple[float, float]:
    """P(X <= x) for a standard normal X, and exp(-x ** 2 / 2)."""
    tail, density = normal_tail(x)
    return (ONE - tail if x > ZERO else tail), density


# ----------------------------------------------------------- the narrow forms


@helper
def sigmoid_narrow(x: float) -> float:
    """1 / (1 + exp(-x))"""
    return ONE / (ONE + exp_flush(-x))


@helper
def silu_narrow(x: float) -> float:
    """x / (1 + exp(-x))"""
    return x / (ONE + exp_flush(-x))


@helper
def silu_backward_narrow(grad: float, x: float) -> float:
    """grad * s * (1 + x * (1 - s)) with s = sigmoid(x)"""
    s = ONE / (ONE + exp_flush(-x))
    return grad * s * (ONE + x * (ONE - s))


@helper
def erf_narrow(x: float) -> float:
    """1 - 2 P(X > sqrt(2) |x|), with x's sign; a polynomial for |x| < 1."""
    z = x * x
    # erf(x) / x in z = x ** 2 on [0, 1], error 4e-8
    p = f32(-0.000563140934)
    p = p * z + f32(0.00491754817)
    p = p * z + f32(-0.0267113084)
    p = p * z + f32(0.1128018)
    p = p * z + f32(-0.376123262)
    near = p * z * x + f32(1.12837912) * x
    tail, _ = normal_tail(x * f32(1.4142135623730951))
    far = ONE - TWO * tail
    far = -far if x < ZERO else far
    return near if abs(x) < ONE else far


@helper
def gelu_narrow(x: float) -> float:
    """x * P(X <= x)"""
    return x * normal_cdf(x)[0]


@helper
def gelu_backward_narrow(grad: float, x: float) -> float:
    """grad * (P(X <= x) + x * density(x))"""
    cdf, density = normal_cdf(x)
    return grad * (cdf + x * f32(operators.INV_SQRT_2PI) * density)


@helper
def gelu_tanh_narrow(x: float) -> float:
    """x * sigmoid(2 u), because 0.5 * (1 + tanh(u)) = sigmoid(2 u)"""
    u = f32(operators.SQRT_2_OVER_PI) * (x + f32(0.044715) * x * x * x)
    return x * sigmoid_narrow(u + u)


@helper
def gelu_tanh_backward_narrow(grad: float, x: float) -> float:
    """grad * (s + 2 x s (1 - s) u') with s = sigmoid(2 u)"""
    u = f32(operators.SQRT_2_OVER_PI) * (x + f32(0.044715) * x * x * x)
    s = sigmoid_narrow(u + u)
    slope = f32(operators.SQRT_2_OVER_PI) * (ONE + f32(3 * 0.044715) * x * x)
    return grad * (s + TWO * x * s * (ONE - s) * slope)


@helper
def tanh_backward_narrow(grad: float, out: float) -> float:
    """grad * (1 - out * out)"""
    return grad * (ONE - out * out)


@helper
def sigmoid_backward_narrow(grad: float, out: float) -> float:
    """grad * out * (1 - out)"""
    return grad * out * (ONE - out)


@helper
def sqrt_backward_narrow(grad: float, out: float) -> float:
    """grad / (2 out)"""
    return grad / (out + out)


@helper
def sign_narrow(x: float) -> float:
    """-1, 0 or 1 (NaN stays NaN)"""
    y = ONE if x > ZERO else x
    return -ONE if x < ZERO else y


@helper
def abs_backward_narrow(grad: float, x: float) -> float:
    """grad * sign(x), with sign(NaN) = 0"""
    y = ONE if x > ZERO else ZERO
    return grad * (-ONE if x < ZERO else y)


@helper
def floor_divide_narrow(x: float, y: float) -> float:
    """floor(x / y), in float64: it tells a quotient below 2^27 from whole numbers."""
    q = np.floor(np.float64(x) / np.float64(y))
    q = -1.0 if abs(y) == INF and x * y < ZERO else q
    return NAN if abs(x) == INF and y != ZERO else f32(q)


@helper
def remainder_narrow(x: float, y: float) -> float:
    """x - floor(x / y) * y, exact in float64 for quotients below 2^24.

    From a larger one multiples of y are taken, the largest first, until it is.
    """
    a, b = np.float64(x), np.float64(y)
    q = np.floor(a / b)
    while 16777216.0 <= abs(q) < np.inf:
        step = b
        while abs(a / step) >= 16777216.0:
            step *= 16777216.0
        a -= np.trunc(a / step) * step
        q = np.floor(a / b)
    rest = f32(a - q * b)
    if abs(y) == INF and abs(x) < INF:
        rest = y if x * y < ZERO else x
    return rest if rest != ZERO else f32(math.copysign(ZERO, y))


def _extreme(name: str) -> Any:
    """LLVM's own maximum or minimum, which it can reorder in a fold; NaN wins."""

    @intrinsic
    def extreme(typing: Any, x: Any, y: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = context.get_value_type(x)
            full = f"llvm.{name}.f{x.bitwidth}"
            fn_type = ir.FunctionType(kind, [kind, kind])
            fn = cgutils.get_or_insert_function(builder.module, fn_type, full)
            return builder.call(fn, args)

        return (x(x, x), code) if isinstance(x, types.Float) and x == y else None

    return extreme


maximum_float = _extreme("maximum")
minimum_float = _extreme("minimum")

# ------------------------------------------------------- choose a form by type


def by_type_1(fn: Callable, narrow: Any) -> Callable:
    """A function of one number for use in kernels: `narrow` for float32, else `fn`."""
    wide = device_function(fn)
    if isinstance(wide, Unwritten):
        return wide

    def either(x: float) -> float:
        raise NotImplementedError("only kernels can call this function")

    @overload(either, jit_options=EXACT_ORDER)
    def choose(x: Any) -> Any:
        pick = narrow if x == types.float32 else wide

        def run(x: Any) -> Any:
            return pick(x)

        return run

    return either


def by_type_2(
    fn: Callable, narrow: Any, narrow_types: tuple[Any, ...] = (types.float32,)
) -> Callable:
    """A function of two numbers for use in kernels, as `by_type_1`."""
    wide = device_function(fn)
    if isinstance(wide, Unwritten):
        return wide

    def either(x: float, y: float) -> float:
        raise NotImplementedError("only kernels can call this function")

    @overload(either, jit_options=EXACT_ORDER)
    def choose(x: Any, y: Any) -> Any:
        pick = narrow if x == y and x in narrow_types else wide

        def run(x: Any, y: Any) -> Any:
            return pick(x, y)

        return run

    return either


FLOATS = (types.float32, types.float64)

exp = by_type_1(operators.exp, exp_narrow)
log = by_type_1(operators.log, log_narrow)
tanh = by_type_1(operators.tanh, tanh_narrow)
erf = by_type_1(operators.erf, erf_narrow)
sigmoid = by_type_1(operators.sigmoid, sigmoid_narrow)
silu = by_type_1(operators.silu, silu_narrow)
gelu = by_type_1(operators.gelu, gelu_narrow)
gelu_tanh = by_type_1(operators.gelu_tanh, gelu_tanh_narrow)

FAST: dict[Callable, Callable] = {
    operators.exp: exp,
    operators.log: log,
    operators.log1p: by_type_1(operators.log1p, log1p_narrow),
    operators.expm1: by_type_1(operators.expm1, expm1_narrow),
    operators.softplus: by_type_1(operators.softplus, softplus_narrow),
    operators.logsigmoid: by_type_1(operators.logsigmoid, logsigmoid_narrow),
    operators.binary_cross_entropy: by_type_2(
        operators.binary_cross_entropy, binary_cross_entropy_narrow
    ),
    operators.binary_cross_entropy_with_logits: by_type_2(
        operators.binary_cross_entropy_with_logits, cross_entropy_of_logits_narrow
    ),
    operators.kl_div: by_type_2(operators.kl_div, kl_div_narrow),
    operators.tanh: tanh,
    operators.erf: erf,
    operators.sigmoid: sigmoid,
    operators.silu: silu,
    operators.gelu: gelu,
    operators.gelu_tanh: gelu_tanh,
    operators.floor_divide: by_type_2(operators.floor_divide, floor_divide_narrow),
    operators.remainder: by_type_2(operators.remainder, remainder_narrow),
    operators.maximum: by_type_2(operators.maximum, maximum_float, FLOATS),
    operators.minimum: by_type_2(operators.minimum, minimum_float, FLOATS),
    operators.sign: by_type_1(operators.sign, sign_narrow),
    operators.tanh_backward: by_type_2(operators.tanh_backward, tanh_backward_narrow),
    operators.sigmoid_backward: by_type_2(
        operators.sigmoid_backward, sigmoid_backward_narrow
    ),
    operators.silu_backward: by_type_2(operators.silu_backward, silu_backward_narrow),
    operators.gelu_backward: by_type_2(operators.gelu_backward, gelu_backward_narrow),
    operators.gelu_tanh_backward: by_type_2(
        operators.gelu_tanh_backward, gelu_tanh_backward_narrow
    ),
    operators.sqrt_backward: by_type_2(operators.sqrt_backward, sqrt_backward_narrow),
    operators.abs_backward: by_type_2(operators.abs_backward, abs_backward_narrow),
}


def fast_form(fn: Callable) -> Callable:
    """What kernels call for `fn`: its fast form, or `fn` itself, compiled."""
    return FAST.get(fn) or device_function(fn)
