"""Scalar mathematics: what each function is.

With this file one can do arithmetic on single numbers by name: `add(2, 3)`,
`relu(-1.0)`, `relu_backward(grad, x)`. Every backend is made from these functions:
`simple_ops` calls them, `fast_ops` and `cuda_ops` compile them into their loops, and
`mojo_ops` mirrors them. To see what an operation computes, look here first. Hot ones
have faster forms beside these (`fast_ops/vector_math.py`, `cuda_ops/runtime/scalar.py`,
`mojo_ops/scalar_math.mojo`); tests hold those to the definitions here.

Two conventions keep one definition good for all of them:

- The body of a function is a formula that a compiler can take as it stands: numbers
  in, a number out, no objects.
- Python raises where IEEE 754 arithmetic has an infinity or a NaN: `1 / 0`,
  `exp(1000)`. `@ieee(...)` gives the IEEE value for that case. Compilers that follow
  IEEE 754 by themselves compile the bare formula, `compilable(fn)`.

`functional` pieces for lists (`map`, `zip`, `reduce`) close the file: the higher-order
functions from which the tensor backends are grown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

inf = math.inf
nan = math.nan

SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654
INV_SQRT_2PI = 0.3989422804014327

# From here on all float64 numbers are whole. Compilers make integers of 64 bits in
# `floor`, which have no room for larger numbers, infinity or NaN.
ALL_WHOLE = 2.0**52


def ieee(limit: Callable[..., float]) -> Callable[[Callable], Callable]:
    """Decorate a formula so that plain Python follows IEEE 754 as compilers do.

    Args:
        limit: called with the same numbers when Python raises; returns the value
            that IEEE 754 gives (an infinity or a NaN).
    """

    def decorate(fn: Callable[..., float]) -> Callable[..., float]:
        @wraps(fn)
        def guarded(*numbers: float) -> float:
            try:
                return fn(*numbers)
            except (ZeroDivisionError, OverflowError, ValueError):
                return limit(*numbers)

        return guarded

    return decorate


def compilable(fn: Callable) -> Callable:
    """The bare formula of `fn`, for compilers that follow IEEE 754 by themselves."""
    return getattr(fn, "__wrapped__", fn)


def _divide_limit(x: float, y: float) -> float:
    if x == 0 or x != x:
        return nan
    return math.copysign(inf, x) * math.copysign(1.0, y)


def _pow_limit(x: float, y: float) -> float:
    if x == 0:  # 0 ** negative
        odd = float(y).is_integer() and y % 2 == 1
        return math.copysign(inf, x) if odd else inf
    if x < 0 and not float(y).is_integer():
        return nan
    odd = x < 0 and y % 2 == 1
    return -inf if odd else inf


# ---------------------------------------------------------------- arithmetic


# BEGIN SOLUTION a0.1
def identity(x: float) -> float:
    """x"""
    return x


def add(x: float, y: float) -> float:
    """x + y"""
    return x + y


def sub(x: float, y: float) -> float:
    """x - y"""
    return x - y


def mul(x: float, y: float) -> float:
    """x * y"""
    return x * y


@ieee(_divide_limit)
def div(x: float, y: float) -> float:
    """x / y"""
    return x / y


def neg(x: float) -> float:
    """-x"""
    return -x


def abs(x: float) -> float:
    """|x|"""
    return math.fabs(x)


def abs_int(x: int) -> int:
    """|x| for integers, which must not pass through a float."""
    return -x if x < 0 else x


def sign(x: float) -> float:
    """-1, 0 or 1 (NaN stays NaN)"""
    return (x > 0) - (x < 0) if x == x else x


def maximum(x: float, y: float) -> float:
    """The larger of two; NaN if either is NaN."""
    return x if x > y or x != x else y


def minimum(x: float, y: float) -> float:
    """The smaller of two; NaN if either is NaN."""
    return x if x < y or x != x else y


# END SOLUTION a0.1


@ieee(_divide_limit)
def floor_divide(x: float, y: float) -> float:
    """floor(x / y)"""
    return x // y


@ieee(lambda x, y: nan)
def remainder(x: float, y: float) -> float:
    """x - floor(x / y) * y, with the sign of y"""
    return x % y


@ieee(_pow_limit)
def pow(x: float, y: float) -> float:
    """x ** y for real numbers; NaN where the result would be complex"""
    return math.pow(x, y)


def pow_int(x: int, y: int) -> int:
    """x ** y for integers by repeated squaring; toward zero where y is below 0."""
    if y < 0:
        if x != 1 and x != -1:
            return 0
        y &= 1
    result = 1
    while y > 0:
        if y & 1:
            result *= x
        y >>= 1
        if y > 0:
            x *= x
    return result


def floor(x: float) -> float:
    """The largest whole number that is not above x"""
    return float(math.floor(x)) if math.fabs(x) < ALL_WHOLE else x


def ceil(x: float) -> float:
    """The smallest whole number that is not below x"""
    return float(math.ceil(x)) if math.fabs(x) < ALL_WHOLE else x


def round(x: float) -> float:
    """The nearest whole number, halves to the even one"""
    if not math.fabs(x) < ALL_WHOLE:
        return x
    whole = float(math.floor(x))
    half = x - whole
    if half > 0.5 or (half == 0.5 and whole % 2 == 1):
        return whole + 1.0
    return whole


# --------------------------------------------------- exponentials, roots, angles


@ieee(lambda x: inf)
def exp(x: float) -> float:
    """e ** x"""
    return math.exp(x)


@ieee(lambda x: -inf if x == 0 else nan)
def log(x: float) -> float:
    """The natural logarithm of x"""
    return math.log(x)


@ieee(lambda x: -inf if x == -1 else nan)
def log1p(x: float) -> float:
    """log(1 + x), exact for small x"""
    return math.log1p(x)


@ieee(lambda x: inf)
def expm1(x: float) -> float:
    """exp(x) - 1, exact for small x"""
    return math.expm1(x)


@ieee(lambda x: -inf if x == 0 else nan)
def log2(x: float) -> float:
    """The logarithm to base 2"""
    return math.log2(x)


@ieee(lambda x: -inf if x == 0 else nan)
def log10(x: float) -> float:
    """The logarithm to base 10"""
    return math.log10(x)


@ieee(lambda x: nan)
def sqrt(x: float) -> float:
    """The square root of x"""
    return math.sqrt(x)


@ieee(lambda x: math.copysign(inf, x) if x == 0 else nan)
def rsqrt(x: float) -> float:
    """1 / sqrt(x)"""
    return 1.0 / math.sqrt(x)


@ieee(lambda x: math.copysign(inf, x))
def reciprocal(x: float) -> float:
    """1 / x"""
    return 1.0 / x


@ieee(lambda x: nan)
def sin(x: float) -> float:
    """The sine of x radians"""
    return math.sin(x)


@ieee(lambda x: nan)
def cos(x: float) -> float:
    """The cosine of x radians"""
    return math.cos(x)


@ieee(lambda x: nan)
def acos(x: float) -> float:
    """The angle in radians, from 0 to pi, whose cosine is x"""
    return math.acos(x)


@ieee(lambda x: math.copysign(inf, x))
def sinh(x: float) -> float:
    """The hyperbolic sine of x"""
    return math.sinh(x)


@ieee(lambda x: inf)
def cosh(x: float) -> float:
    """The hyperbolic cosine of x"""
    return math.cosh(x)


def tanh(x: float) -> float:
    """The hyperbolic tangent of x"""
    return math.tanh(x)


def erf(x: float) -> float:
    """The error function, 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x"""
    return math.erf(x)


# ---------------------------------------------------------------- activations


# BEGIN SOLUTION a0.1
@ieee(lambda x: 0.0)
def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x))"""
    return 1.0 / (1.0 + math.exp(-x))


def relu(x: float) -> float:
    """x where x > 0, else 0 (NaN stays NaN)"""
    return 0.0 if x <= 0 else x


# END SOLUTION a0.1


def gelu(x: float) -> float:
    """x * P(X <= x) for a standard normal X (Hendrycks and Gimpel, 2016)"""
    return 0.5 * x * (1.0 + math.erf(x * SQRT_HALF))


def gelu_tanh(x: float) -> float:
    """GELU with tanh in the place of erf (Hendrycks and Gimpel, 2016)"""
    inner = SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + math.tanh(inner))


@ieee(lambda x: -0.0)
def silu(x: float) -> float:
    """x * sigmoid(x), also called swish"""
    return x / (1.0 + math.exp(-x))


def elu(x: float, alpha: float) -> float:
    """x where x > 0, else alpha * (exp(x) - 1)"""
    return x if x > 0 else alpha * math.expm1(x)


def leaky_relu(x: float, slope: float) -> float:
    """x where x > 0, else slope * x"""
    return x if x > 0 else slope * x


def softplus(x: float) -> float:
    """log(1 + exp(x)), without overflow"""
    return (x if x > 0 else 0.0) + math.log1p(math.exp(-math.fabs(x)))


def logsigmoid(x: float) -> float:
    """log(sigmoid(x)), without overflow"""
    return (x if x < 0 else 0.0) - math.log1p(math.exp(-math.fabs(x)))


# --------------------------------------------------------------------- losses


def squared_difference(x: float, y: float) -> float:
    """(x - y)^2"""
    return (x - y) * (x - y)


def huber(d: float, delta: float) -> float:
    """d^2 / 2 where |d| < delta, else delta (|d| - delta / 2)"""
    size = math.fabs(d)
    c = size if size < delta else delta
    return c * (size - c * 0.5)


def _cross_entropy_limit(x: float, y: float) -> float:
    no = 1.0 - y
    other = y if x == 0 else no
    return 100.0 * other + 0.0 * (y + no) if x in (0, 1) else nan


@ieee(_cross_entropy_limit)
def binary_cross_entropy(x: float, y: float) -> float:
    """-(y log x + (1 - y) log(1 - x)), with logarithms that stop at -100"""
    yes, no = math.log(x), math.log1p(-x)
    yes = -100.0 if yes < -100.0 else yes
    no = -100.0 if no < -100.0 else no
    return (y - 1.0) * no - y * yes


def binary_cross_entropy_with_logits(x: float, y: float) -> float:
    """The same for sigmoid(x), without overflow: (1 - y) x + log(1 + exp(-x))"""
    above = 0.0 if x > 0 else -x
    return (1.0 - y) * x + (above + math.log1p(math.exp(-math.fabs(x))))


@ieee(lambda x, y: nan if y < 0 or y != y else inf)
def kl_div(x: float, y: float) -> float:
    """y (log y - x), which has no logarithm where y is 0"""
    return y * (math.log(1.0 if y == 0 else y) - x)


# ---------------------------------- three numbers, and one that is the same for all


def lerp(x: float, y: float, weight: float, one: float = 1.0) -> float:
    """x + weight (y - x); a weight of 1 gives y as it is"""
    rest = one - weight
    return x + weight * (y - x) if weight < rest else y - rest * (y - x)


def addcmul(x: float, y: float, z: float, value: float) -> float:
    """x + value * y * z"""
    return x + value * y * z


def addcdiv(x: float, y: float, z: float, value: float) -> float:
    """x + value * y / z"""
    return x + value * y / z


# ------------------------------------- derivatives, times the gradient from above


# BEGIN SOLUTION a0.1
def relu_backward(grad: float, x: float) -> float:
    """grad * relu'(x), with relu'(0) = 0"""
    return 0.0 if x <= 0 else grad


def tanh_backward(grad: float, out: float) -> float:
    """grad * tanh'(x), from out = tanh(x): 1 - out^2"""
    return grad * (1.0 - out * out)


def sigmoid_backward(grad: float, out: float) -> float:
    """grad * sigmoid'(x), from out = sigmoid(x): out * (1 - out)"""
    return grad * out * (1.0 - out)


@ieee(_divide_limit)
def log_backward(grad: float, x: float) -> float:
    """grad / x"""
    return grad / x


# END SOLUTION a0.1


def abs_backward(grad: float, x: float) -> float:
    """grad * sign(x)"""
    return grad * ((x > 0) - (x < 0))


@ieee(_divide_limit)
def sqrt_backward(grad: float, out: float) -> float:
    """grad / (2 sqrt(x)), from out = sqrt(x)"""
    return grad / (2.0 * out)


def gelu_backward(grad: float, x: float) -> float:
    """grad * (P(X <= x) + x * density(x)) for a standard normal X"""
    cdf = 0.5 * (1.0 + math.erf(x * SQRT_HALF))
    return grad * (cdf + x * INV_SQRT_2PI * math.exp(-0.5 * x * x))


def gelu_tanh_backward(grad: float, x: float) -> float:
    """grad * gelu_tanh'(x)"""
    t = math.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x))
    slope = SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x * x)
    return grad * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


@ieee(lambda grad, x: 0.0)
def silu_backward(grad: float, x: float) -> float:
    """grad * silu'(x): s + x * s * (1 - s) with s = sigmoid(x)"""
    s = 1.0 / (1.0 + math.exp(-x))
    return grad * s * (1.0 + x * (1.0 - s))


# ------------------------------------------------------- comparisons and logic


# BEGIN SOLUTION a0.1
def lt(x: float, y: float) -> bool:
    """x < y"""
    return x < y


def le(x: float, y: float) -> bool:
    """x <= y"""
    return x <= y


def gt(x: float, y: float) -> bool:
    """x > y"""
    return x > y


def ge(x: float, y: float) -> bool:
    """x >= y"""
    return x >= y


def eq(x: float, y: float) -> bool:
    """x == y"""
    return x == y


def ne(x: float, y: float) -> bool:
    """x != y"""
    return x != y


# END SOLUTION a0.1


def logical_and(x: float, y: float) -> bool:
    """x != 0 and y != 0"""
    return (x != 0) & (y != 0)


def logical_or(x: float, y: float) -> bool:
    """x != 0 or y != 0"""
    return (x != 0) | (y != 0)


def logical_xor(x: float, y: float) -> bool:
    """exactly one of x and y is not 0"""
    return (x != 0) ^ (y != 0)


def logical_not(x: float) -> bool:
    """x == 0"""
    return x == 0


def isnan(x: float) -> bool:
    """x is not a number"""
    return x != x


def isinf(x: float) -> bool:
    """x is plus or minus infinity"""
    return math.fabs(x) == inf


def isfinite(x: float) -> bool:
    """x is neither infinite nor NaN"""
    return math.fabs(x) < inf


def where(condition: bool, x: float, y: float) -> float:
    """x if condition else y"""
    return x if condition else y


# ---------------------------------------------------------------- random bits


def philox(low: int, high: int, key0: int, key1: int) -> tuple[int, int, int, int]:
    """Four random 32-bit words for block number `high * 2**32 + low` of stream `key`.

    Philox4x32-10: ten rounds of two 32 x 32 -> 64 bit products, with the key stepped
    by two odd constants in each round. Any block is reached at once, so all threads of
    all devices draw their own part of one and the same sequence.

    All intermediate values fit into the 64-bit integers of a compiler: only the low 64
    bits of a product are used, and masks make the sign of the upper half irrelevant.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
    3", SC 2011.
    """
    c0, c1, c2, c3 = low, high, 0, 0
    for _ in range(10):
        p0 = c0 * 0xD2511F53
        p1 = c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            ((p1 >> 32) & 0xFFFFFFFF) ^ c1 ^ key0,
            p1 & 0xFFFFFFFF,
            ((p0 >> 32) & 0xFFFFFFFF) ^ c3 ^ key1,
            p0 & 0xFFFFFFFF,
        )
        key0 = (key0 + 0x9E3779B9) & 0xFFFFFFFF
        key1 = (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def box_muller(word0: int, word1: int) -> tuple[float, float]:
    """Two independent standard normal numbers from two random 32-bit words.

    Computed in float64 on every backend and rounded at the end, so that the last bit
    of one machine's `log` does not show in float32 results.

    Source: Box and Muller, "A note on the generation of random normal deviates", 1958.
    """
    radius = math.sqrt(-2.0 * math.log((word0 + 1) * 2.0**-32))
    angle = 2.0 * math.pi * (word1 * 2.0**-32)
    return radius * math.cos(angle), radius * math.sin(angle)


# ------------------------------------------------- higher-order, on plain lists


# BEGIN SOLUTION a0.3
def map(fn: Callable[[Any], Any], xs: Iterable[Any]) -> list[Any]:
    """[fn(x) for each x]"""
    return [fn(x) for x in xs]


def zip_with(
    fn: Callable[[Any, Any], Any], xs: Iterable[Any], ys: Iterable[Any]
) -> list[Any]:
    """[fn(x, y) for each pair]; ends with the shorter list"""
    return [fn(x, y) for x, y in zip(xs, ys)]


def reduce(fn: Callable[[Any, Any], Any], xs: Iterable[Any], start: Any) -> Any:
    """fn(... fn(fn(start, x0), x1) ..., xn)"""
    total = start
    for x in xs:
        total = fn(total, x)
    return total


# END SOLUTION a0.3
