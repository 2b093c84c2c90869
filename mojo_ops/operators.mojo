"""Scalar mathematics, as in `minitorch/operators.py`, on vectors.

With this file a kernel can apply an operator to `w` numbers at once: `add(x, y)`,
`relu(x)`, `relu_backward(grad, x)`. The names are those of `minitorch/operators.py`,
which says what each computes; a test compares all of them.

A condition is a mask with one bit for each lane, and both values of a choice are
computed: `x.gt(0).select(x, y)`.
"""

from std.math import ceil as _ceil, floor as _floor, sqrt as _sqrt
from std.utils.numerics import inf, nan

from scalar_math import erf, exp, log, normal_cdf, per_lane, per_lane_2, sigmoid, tanh

comptime SQRT_2_OVER_PI = 0.7978845608028654
comptime INV_SQRT_2PI = 0.3989422804014327
comptime ALL_WHOLE = 4503599627370496.0  # 2 ** 52


@always_inline
def choose[
    T: DType, w: Int
](condition: SIMD[DType.bool, w], x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    """x where the condition holds, else y."""
    return condition.select(x, y)


@always_inline
def unequal[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    """Whether x != y, as IEEE 754 has it: a NaN differs from all (`x.ne(y)` does not
    say so)."""
    return ~x.eq(y)


# ------------------------------------------------------------------------ arithmetic


@always_inline
def identity[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return x


@always_inline
def add[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return x + y


@always_inline
def sub[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return x - y


@always_inline
def mul[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return x * y


@always_inline
def div[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return x / y


@always_inline
def neg[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return -x


@always_inline
def absolute[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return abs(x)


@always_inline
def sign[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    var y = choose(x.gt(0), SIMD[T, w](1), x)
    return choose(x.lt(0), SIMD[T, w](-1), y)


@always_inline
def maximum[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return choose(x.gt(y) | unequal(x, x), x, y)


@always_inline
def minimum[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return choose(x.lt(y) | unequal(x, x), x, y)


@always_inline
def safe_divisor[T: DType, w: Int](y: SIMD[T, w]) -> SIMD[T, w]:
    """y without the two integers by which a processor refuses to divide."""
    return choose(y.eq(0) | y.eq(-1), SIMD[T, w](1), y)


@always_inline
def remainder[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    comptime if T.is_floating_point():
        var r = per_lane_2["fmod"](x, y)
        return choose(unequal(r, SIMD[T, w](0)) & (r.lt(0) ^ y.lt(0)), r + y, r)
    var z = safe_divisor(y)
    var rest = SIMD[T, w]()
    comptime for lane in range(w):
        rest[lane] = x[lane] % z[lane]
    return choose(y.eq(0) | y.eq(-1), SIMD[T, w](0), rest)


@always_inline
def floor_divide[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    comptime if T.is_floating_point():
        var quotient = (x - remainder(x, y)) / y
        var whole = _floor(quotient)
        whole = choose((quotient - whole).gt(0.5), whole + 1, whole)
        return choose(y.eq(0), x / y, whole)
    var z = safe_divisor(y)
    var quotient = SIMD[T, w]()
    comptime for lane in range(w):
        quotient[lane] = x[lane] // z[lane]
    quotient = choose(y.eq(-1), -x, quotient)
    return choose(y.eq(0), SIMD[T, w](0), quotient)


@always_inline
def pow[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return per_lane_2["pow"](x, y)


@always_inline
def pow_int[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    var unit = x.eq(1) | x.eq(-1)
    var result = choose(y.lt(0) & ~unit, SIMD[T, w](0), SIMD[T, w](1))
    var base = x
    var left = choose(y.lt(0), y & 1, y)
    while left.gt(0).reduce_or():
        result = choose((left & 1).eq(1) & left.gt(0), result * base, result)
        base = base * base
        left = left >> 1
    return result


@always_inline
def floor[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return _floor(x)


@always_inline
def ceil[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return _ceil(x)


@always_inline
def round[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    var whole = _floor(x)
    var half = x - whole
    var odd = unequal(whole * 0.5, _floor(whole * 0.5))
    var up = half.gt(0.5) | (half.eq(0.5) & odd)
    return choose(abs(x).lt(ALL_WHOLE), choose(up, whole + 1, whole), x)


# ------------------------------------------------------- exponentials, roots, angles


@always_inline
def log1p[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return per_lane["log1p"](x)


@always_inline
def expm1[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return per_lane["expm1"](x)


@always_inline
def sqrt[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    comptime assert T.is_floating_point(), "floats only"
    return _sqrt(x)


@always_inline
def rsqrt[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return 1 / sqrt(x)


@always_inline
def reciprocal[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return 1 / x


# ----------------------------------------------------------------------- activations


@always_inline
def relu[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return choose(x.le(0), SIMD[T, w](0), x)


@always_inline
def gelu[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return x * normal_cdf(x)


@always_inline
def gelu_tanh[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    # 0.5 * (1 + tanh(u)) = sigmoid(2 u)
    var u = SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)
    return x * sigmoid(u + u)


@always_inline
def silu[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    # A quotient: where exp(-x) is infinite, x / (1 + exp(-x)) is -0, not NaN.
    return x * sigmoid(x)


@always_inline
def elu[T: DType, w: Int](x: SIMD[T, w], alpha: SIMD[T, w]) -> SIMD[T, w]:
    return choose(x.gt(0), x, alpha * expm1(x))


@always_inline
def leaky_relu[T: DType, w: Int](x: SIMD[T, w], slope: SIMD[T, w]) -> SIMD[T, w]:
    return choose(x.gt(0), x, slope * x)


@always_inline
def softplus[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return choose(x.gt(0), x, SIMD[T, w](0)) + log1p(exp(-abs(x)))


@always_inline
def logsigmoid[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    return -softplus(-x)


# ------------------------------------------------------------------------- losses


@always_inline
def squared_difference[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return (x - y) * (x - y)


@always_inline
def huber[T: DType, w: Int](d: SIMD[T, w], delta: SIMD[T, w]) -> SIMD[T, w]:
    var c = choose(abs(d).lt(delta), abs(d), delta)
    return c * (abs(d) - c * 0.5)


@always_inline
def binary_cross_entropy[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    comptime LEAST = SIMD[T, w](-100)
    var yes = log(x)
    var no = log1p(-x)
    yes = choose(yes.lt(LEAST), LEAST, yes)
    no = choose(no.lt(LEAST), LEAST, no)
    return (y - 1) * no - y * yes


@always_inline
def binary_cross_entropy_with_logits[
    T: DType, w: Int
](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return (1 - y) * x + softplus(-x)


@always_inline
def kl_div[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    return y * (log(choose(y.eq(0), SIMD[T, w](1), y)) - x)


# --------------------------------------- derivatives, times the gradient from above


@always_inline
def relu_backward[T: DType, w: Int](grad: SIMD[T, w], x: SIMD[T, w]) -> SIMD[T, w]:
    return choose(x.le(0), SIMD[T, w](0), grad)


@always_inline
def tanh_backward[T: DType, w: Int](grad: SIMD[T, w], out_: SIMD[T, w]) -> SIMD[T, w]:
    return grad * (1 - out_ * out_)


@always_inline
def sigmoid_backward[
    T: DType, w: Int
](grad: SIMD[T, w], out_: SIMD[T, w]) -> SIMD[T, w]:
    return grad * out_ * (1 - out_)


@always_inline
def log_backward[T: DType, w: Int](grad: SIMD[T, w], x: SIMD[T, w]) -> SIMD[T, w]:
    return grad / x


@always_inline
def abs_backward[T: DType, w: Int](grad: SIMD[T, w], x: SIMD[T, w]) -> SIMD[T, w]:
    var y = choose(x.gt(0), SIMD[T, w](1), SIMD[T, w](0))
    return grad * choose(x.lt(0), SIMD[T, w](-1), y)


@always_inline
def sqrt_backward[T: DType, w: Int](grad: SIMD[T, w], out_: SIMD[T, w]) -> SIMD[T, w]:
    return grad / (out_ + out_)


@always_inline
def gelu_backward[T: DType, w: Int](grad: SIMD[T, w], x: SIMD[T, w]) -> SIMD[T, w]:
    return grad * (normal_cdf(x) + x * INV_SQRT_2PI * exp(-0.5 * x * x))


@always_inline
def gelu_tanh_backward[
    T: DType, w: Int
](grad: SIMD[T, w], x: SIMD[T, w]) -> SIMD[T, w]:
    var u = SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)
    var s = sigmoid(u + u)
    var slope = SQRT_2_OVER_PI * (1 + 0.134145 * x * x)
    return grad * (s + 2 * x * s * (1 - s) * slope)


@always_inline
def silu_backward[T: DType, w: Int](grad: SIMD[T, w], x: SIMD[T, w]) -> SIMD[T, w]:
    var s = sigmoid(x)
    return grad * s * (1 + x * (1 - s))


# ---------------------------------------------------------------- comparisons, logic


@always_inline
def lt[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return x.lt(y)


@always_inline
def le[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return x.le(y)


@always_inline
def gt[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return x.gt(y)


@always_inline
def ge[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return x.ge(y)


@always_inline
def eq[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return x.eq(y)


@always_inline
def ne[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return unequal(x, y)


@always_inline
def logical_and[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return unequal(x, SIMD[T, w](0)) & unequal(y, SIMD[T, w](0))


@always_inline
def logical_or[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return unequal(x, SIMD[T, w](0)) | unequal(y, SIMD[T, w](0))


@always_inline
def logical_xor[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return unequal(x, SIMD[T, w](0)) ^ unequal(y, SIMD[T, w](0))


@always_inline
def logical_not[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return x.eq(0)


@always_inline
def isnan[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[DType.bool, w]:
    return unequal(x, x)


@always_inline
def isinf[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[DType.bool, w]:
    comptime if T.is_floating_point():
        return abs(x).eq(inf[T]())
    return SIMD[DType.bool, w](fill=False)


@always_inline
def isfinite[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[DType.bool, w]:
    comptime if T.is_floating_point():
        return abs(x).lt(inf[T]())
    return SIMD[DType.bool, w](fill=True)


# --------------------------------------------------------------------- random numbers


@always_inline
def philox[
    w: Int
](number: SIMD[DType.uint64, w], seed: UInt64) -> Array[SIMD[DType.uint64, w], 4]:
    """The four words of each of w blocks."""
    comptime LOW_32 = UInt64(0xFFFFFFFF)
    comptime Lanes = SIMD[DType.uint64, w]
    var c = Array[Lanes, 4](fill=Lanes(0))
    c[0] = number & LOW_32
    c[1] = number >> 32
    var key0 = seed & LOW_32
    var key1 = seed >> 32
    comptime for _ in range(10):
        var p0 = c[0] * 0xD2511F53
        var p1 = c[2] * 0xCD9E8D57
        c[0] = (p1 >> 32) ^ c[1] ^ key0
        c[2] = (p0 >> 32) ^ c[3] ^ key1
        c[1] = p1 & LOW_32
        c[3] = p0 & LOW_32
        key0 = (key0 + 0x9E3779B9) & LOW_32
        key1 = (key1 + 0xBB67AE85) & LOW_32
    return c^
