"""Exponentials and their kin on vectors: float32 by polynomials, float64 by the C
library.

With this file an operator can take `exp`, `log`, `tanh`, `erf` of a whole vector. The
C library takes one number at a time, 2 ns each; the float32 forms here have neither
branches nor calls, so a vector takes as long as a number. They are the formulas of
`fast_ops/vector_math.py`, which gives the sources; their error is below 4 units in the
last place, NaN stays NaN, and overflow gives infinity.
"""

from std.ffi import external_call
from std.memory import bitcast
from std.utils.numerics import inf, nan

comptime f32 = DType.float32
comptime f64 = DType.float64

# Adding and subtracting 1.5 * 2^23 rounds a float32 to a whole number, which can then
# be read in the low bits of the sum.
comptime ROUND = Float32(12582912.0)
comptime BIAS = Float32(12582912.0 + 127.0)
comptime LOG2_E = Float32(1.4426950408889634)
comptime LN_2_HIGH = Float32(0.693359375)  # few bits, so n * LN_2_HIGH is exact
comptime LN_2_LOW = Float32(-2.12194440e-4)


# ---------------------------------------------------------------------------- chunks


@always_inline
def bits_of[w: Int](x: SIMD[f32, w]) -> SIMD[DType.int32, w]:
    return bitcast[DType.int32, w](x)


@always_inline
def from_bits[w: Int](bits: SIMD[DType.int32, w]) -> SIMD[f32, w]:
    return bitcast[f32, w](bits)


@always_inline
def per_lane[name: StaticString, T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    """A function of the C library, one number at a time, computed in float64."""
    var out = SIMD[T, w]()
    comptime for lane in range(w):
        var y = external_call[name, Float64](x[lane].cast[f64]())
        out[lane] = y.cast[T]()
    return out


@always_inline
def per_lane_2[
    name: StaticString, T: DType, w: Int
](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    """A function of two numbers of the C library, one lane at a time, in float64."""
    var out = SIMD[T, w]()
    comptime for lane in range(w):
        var z = external_call[name, Float64](x[lane].cast[f64](), y[lane].cast[f64]())
        out[lane] = z.cast[T]()
    return out


@always_inline
def power_of_two[w: Int](n: SIMD[f32, w]) -> SIMD[f32, w]:
    """2 ** n for whole n from -126 to 127: n goes into the exponent bits."""
    return from_bits(bits_of(n + BIAS) << 23)


@always_inline
def exp_polynomial[w: Int](r: SIMD[f32, w]) -> SIMD[f32, w]:
    """e ** r for |r| <= ln(2) / 2, error 3e-9."""
    var p = SIMD[f32, w](0.00139504831)
    p = p.fma(r, 0.00836889015)
    p = p.fma(r, 0.0416662059)
    p = p.fma(r, 0.166665188)
    p = p.fma(r, 0.50000001)
    return (p * r).fma(r, r) + 1


@always_inline
def exp_narrow[w: Int](x: SIMD[f32, w]) -> SIMD[f32, w]:
    """e ** x = 2 ** n * e ** r with x = n ln 2 + r and |r| <= ln(2) / 2.

    2 ** n is multiplied in two halves, so that results below 2 ** -126 (and those
    above 2 ** 127, where n is 128) come out right.
    """
    var y = x.lt(-104).select(SIMD[f32, w](-104), x)  # e ** -104 is 0
    y = y.gt(89).select(SIMD[f32, w](89), y)  # e ** 89 is infinite
    var n = y.fma(LOG2_E, ROUND) - ROUND
    var r = n.fma(-LN_2_LOW, n.fma(-LN_2_HIGH, y))
    var half = n.fma(0.5, ROUND) - ROUND
    return exp_polynomial(r) * power_of_two(half) * power_of_two(n - half)


@always_inline
def exp_flush[w: Int](x: SIMD[f32, w]) -> SIMD[f32, w]:
    """e ** x as `exp_narrow`, but 0 where that is below 2 ** -126.

    Without those tiny results n can be added to the exponent bits of e ** r. For sums
    and quotients nothing is lost.
    """
    var t = x.fma(LOG2_E, ROUND)
    var n = t - ROUND
    var r = n.fma(-LN_2_LOW, n.fma(-LN_2_HIGH, x))
    var y = from_bits(bits_of(exp_polynomial(r)) + (bits_of(t) << 23))
    y = x.lt(-87.336).select(SIMD[f32, w](0), y)
    return x.lt(88.72283).select(y, x * inf[f32]())


@always_inline
def log_narrow[w: Int](x: SIMD[f32, w]) -> SIMD[f32, w]:
    """log x = n ln 2 + log m with x = 2 ** n * m and m from sqrt(1/2) to sqrt(2)."""
    var tiny = x.lt(1.17549435e-38)
    var bits = bits_of(tiny.select(x * 8388608, x))
    var n_bits = (bits - 0x3F3504F3) >> 23  # 0x3F3504F3 is sqrt(1/2)
    var m = from_bits(bits - (n_bits << 23))
    var n = n_bits.cast[f32]() - tiny.select(SIMD[f32, w](23), SIMD[f32, w](0))
    var f = m - 1
    # (log(1 + f) - f + f ** 2 / 2) / f ** 3, error 6e-9
    var p = SIMD[f32, w](-0.0763422574)
    p = p.fma(f, 0.127614683)
    p = p.fma(f, -0.131602337)
    p = p.fma(f, 0.142017762)
    p = p.fma(f, -0.166233538)
    p = p.fma(f, 0.20001226)
    p = p.fma(f, -0.250008211)
    p = p.fma(f, 0.333333317)
    var low = n.fma(LN_2_LOW, (p * f - 0.5) * (f * f))
    var y = n.fma(LN_2_HIGH, f + low)
    y = x.eq(inf[f32]()).select(x, y)
    y = x.eq(0).select(SIMD[f32, w](-inf[f32]()), y)
    return x.ge(0).select(y, SIMD[f32, w](nan[f32]()))


@always_inline
def tanh_narrow[w: Int](x: SIMD[f32, w]) -> SIMD[f32, w]:
    """A polynomial for |x| < 0.625, else 1 - 2 / (exp(2 |x|) + 1) with x's sign."""
    var z = x * x
    # (tanh(x) / x - 1) / x ** 2 in z = x ** 2, error 4e-9
    var p = SIMD[f32, w](-0.00571701101)
    p = p.fma(z, 0.020650554)
    p = p.fma(z, -0.0537434867)
    p = p.fma(z, 0.133314911)
    p = p.fma(z, -0.333332839)
    var size = abs(x)
    var far = 1 - 2 / (exp_flush(size + size) + 1)
    far = x.lt(0).select(-far, far)
    return size.lt(0.625).select((p * z).fma(x, x), far)


@always_inline
def normal_density[w: Int](x: SIMD[f32, w]) -> SIMD[f32, w]:
    """exp(-x ** 2 / 2)"""
    return exp_flush(x * x * -0.5)


@always_inline
def normal_tail[w: Int](x: SIMD[f32, w]) -> SIMD[f32, w]:
    """P(X > |x|) = exp(-x ** 2 / 2) / 2 * t * p(t) with t = 1 / (1 + |x| / sqrt(8)).

    The exponential is a factor, so that far out the result is small but still exact.
    """
    var t = 1 / abs(x).fma(0.35355339059327373, 1)
    # erfcx(z) / t for z from 0 to 10.2, error 4e-8
    var p = SIMD[f32, w](-0.0591253919)
    p = p.fma(t, 0.284850752)
    p = p.fma(t, -0.487771978)
    p = p.fma(t, 0.278722921)
    p = p.fma(t, -0.0270783658)
    p = p.fma(t, 0.202878853)
    p = p.fma(t, 0.243055119)
    p = p.fma(t, 0.282382013)
    p = p.fma(t, 0.282086034)
    return t * 0.5 * p * normal_density(x)


@always_inline
def erf_narrow[w: Int](x: SIMD[f32, w]) -> SIMD[f32, w]:
    """1 - 2 P(X > sqrt(2) |x|), with x's sign; a polynomial for |x| < 1."""
    var z = x * x
    # erf(x) / x in z = x ** 2 on [0, 1], error 4e-8
    var p = SIMD[f32, w](-0.000563140934)
    p = p.fma(z, 0.00491754817)
    p = p.fma(z, -0.0267113084)
    p = p.fma(z, 0.1128018)
    p = p.fma(z, -0.376123262)
    var near = (p * z).fma(x, x * 1.12837912)
    var far = 1 - 2 * normal_tail(x * 1.4142135623730951)
    far = x.lt(0).select(-far, far)
    return abs(x).lt(1).select(near, far)


# ------------------------------------------------------------- for both kinds of float


@always_inline
def exp[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    """e ** x"""
    comptime if T == f32:
        return exp_narrow(x.cast[f32]()).cast[T]()
    return per_lane["exp"](x)


@always_inline
def exp_to_add[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    """e ** x, 0 below 2 ** -126 in float32: it is added to a sum of 1 or more."""
    comptime if T == f32:
        return exp_flush(x.cast[f32]()).cast[T]()
    return per_lane["exp"](x)


@always_inline
def log[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    """The natural logarithm of x."""
    comptime if T == f32:
        return log_narrow(x.cast[f32]()).cast[T]()
    return per_lane["log"](x)


@always_inline
def tanh[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    """The hyperbolic tangent of x."""
    comptime if T == f32:
        return tanh_narrow(x.cast[f32]()).cast[T]()
    return per_lane["tanh"](x)


@always_inline
def erf[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    """The error function."""
    comptime if T == f32:
        return erf_narrow(x.cast[f32]()).cast[T]()
    return per_lane["erf"](x)


@always_inline
def sigmoid[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    """1 / (1 + exp(-x))"""
    comptime if T == f32:
        return 1 / (1 + exp_flush(-x.cast[f32]()).cast[T]())
    return 1 / (1 + per_lane["exp"](-x))


@always_inline
def normal_cdf[T: DType, w: Int](x: SIMD[T, w]) -> SIMD[T, w]:
    """P(X <= x) for a standard normal X."""
    comptime if T == f32:
        var tail = normal_tail(x.cast[f32]()).cast[T]()
        return x.gt(0).select(1 - tail, tail)
    return 0.5 * (1 + per_lane["erf"](x * 0.7071067811865476))
