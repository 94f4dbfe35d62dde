"""exp, log, digamma, log-gamma for the inner loops of kernels, float64 and float32.

numba calls libm once per element; these are short polynomials without branches or
table look-ups, so LLVM turns a loop over them into vector instructions.

    exp(x) = 2^n e^t,      n = round(x / log 2),  t = x - n log 2 in two parts
    e^t    = 1 + t + t^2 P(t),                                   |t| <= log(2) / 2
    log(x) = e log 2 + log(1 + f),   x = 2^e (1 + f),  1/sqrt(2) <= 1 + f < sqrt(2)
    log(1 + f) = f - (h - s (h + s^2 Q(s^2))),   h = f^2 / 2,   s = f / (2 + f)

P and Q minimise the largest relative error of the result (Remez exchange). Digamma and
log-gamma move their argument up by the recurrence, 8 (float64) or 6 (float32) steps in
one fraction, and end with the asymptotic series (Abramowitz and Stegun 6.3.18, 6.1.41).
The dtype of the argument chooses the polynomial; results have that dtype.
"""

import math

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload
from scipy import special

from skvrem.utils._jit import CONTRACT, kernel

# contract alone: reassoc breaks the rounding, ninf would make exp(-inf) undefined.
# Inlined by force: LLVM leaves several calls in a loop, which then is not vectorised.
_OPTIONS = {"fastmath": CONTRACT, "error_model": "numpy", "forceinline": True}


def exp(x):
    """e^x, to a relative error below 3e-16 (float64) or 1.2e-7 (float32).

    Valid up to the largest x with a finite result, 709.78 (float64) or 88.72
    (float32), not checked above. 0 where the result would be subnormal, from -708.39
    or -87.33 down to -inf.
    """
    return np.exp(x)


def log(x):
    """Natural logarithm of a positive normal number, not checked for other input.

    Relative error below 3e-16 (float64) or 1.8e-7 (float32).
    """
    return np.log(x)


def digamma(x):
    """ψ(x), the derivative of log Γ, for x > 0; -inf at 0.

    Absolute error below 2e-15 max(1, |ψ|) (float64) or 8e-7 max(1, |ψ|) (float32), up
    to x = 1e30 (float64) or 1e9 (float32).
    """
    return special.digamma(x)


def log_gamma(x):
    """Log Γ(x) for x > 0, float64 only.

    Absolute error below 2e-14 max(1, |log Γ|), up to x = 1e30.
    """
    return special.gammaln(x)


@overload(exp, jit_options=_OPTIONS, strict=False)
def _exp(x):
    return {types.float64: _exp64, types.float32: _exp32}.get(x)


@overload(log, jit_options=_OPTIONS, strict=False)
def _log(x):
    return {types.float64: _log64, types.float32: _log32}.get(x)


@intrinsic
def _bits(typing_context, x):
    """The bits of a float as a signed integer of the same size."""
    pairs = {types.float64: types.int64, types.float32: types.int32}
    return _reinterpret(x, pairs)


@intrinsic
def _float(typing_context, x):
    """The float whose bits are the signed integer x."""
    pairs = {types.int64: types.float64, types.int32: types.float32}
    return _reinterpret(x, pairs)


def _reinterpret(source, pairs):
    if source not in pairs:
        raise TypingError(f"no bit pattern for {source}")
    target = pairs[source]

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(target))

    return target(source), generate


def _exp64(x):
    # Adding 1.5 * 2^52 leaves round(x / log 2) in the low bits of the sum.
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    n = shifted - 6755399441055744.0
    t = x - n * 0.6931471803691238
    t = t - n * 1.9082149292705877e-10
    # Pairs, and pairs of pairs (Estrin): a chain of products would be waited for.
    z = t * t
    p = 2.50000592560548416e-8 * t + 2.7630248379742435e-7
    p = p * z + (2.75575863808824263e-6 * t + 2.48014930989291797e-5)
    q = 1.98412695065713293e-4 * t + 1.38888889436300482e-3
    q = q * z + (8.33333333349446469e-3 * t + 4.16666666665301592e-2)
    p = p * (z * z) + q
    p = p * z + (1.66666666666664125e-1 * t + 0.500000000000001063)
    p = p * z + t
    p = p + 1.0
    result = _float(_bits(p) + (_bits(shifted) << 52))
    return 0.0 if x < -708.39 else result


def _exp32(x):
    c = np.float32
    shifted = x * c(1.4426950408889634) + c(12582912.0)
    n = shifted - c(12582912.0)
    t = x - n * c(0.693145751953125)
    t = t - n * c(1.4286068203094173e-06)
    p = c(0.00138145985276001185)
    p = p * t + c(0.00836871687769809977)
    p = p * t + c(0.0416683880462061975)
    p = p * t + c(0.166665206317482975)
    p = p * t + c(0.499999934478046179)
    p = p * t + c(1.0)
    p = p * t + c(1.0)
    # numba widens 32-bit integer arithmetic; the casts bring it back.
    result = _float(np.int32(_bits(p) + np.int32(_bits(shifted) << np.int32(23))))
    return c(0.0) if x < c(-87.33) else result


def _log64(x):
    # Bits of 1/sqrt(2): subtracting them puts the mantissa between there and sqrt(2).
    bits = _bits(x)
    e = (bits - 0x3FE6A09E667F3BCD) >> 52
    f = _float(bits - (e << 52)) - 1.0
    s = f / (2.0 + f)
    z = s * s
    q = 0.147962611524280111
    q = q * z + 0.15314021120223451
    q = q * z + 0.181835654071942248
    q = q * z + 0.222221985537864753
    q = q * z + 0.285714287425621338
    q = q * z + 0.399999999994139639
    q = q * z + 0.666666666666673451
    h = 0.5 * f * f
    # 32 bits: AVX2 has no conversion of 64-bit integers.
    n = np.float64(np.int32(e))
    low = s * (h + z * q) + n * 1.9082149292705877e-10
    return n * 0.6931471803691238 - ((h - low) - f)


_ROOT32 = np.int32(0x3F3504F3)


def _log32(x):
    c = np.float32
    bits = _bits(x)
    e = np.int32(np.int32(bits - _ROOT32) >> np.int32(23))
    f = _float(np.int32(bits - np.int32(e << np.int32(23)))) - c(1.0)
    s = f / (c(2.0) + f)
    z = s * s
    q = (c(0.29871996817392188) * z + c(0.399775323854308747)) * z + c(
        0.666667764485459247
    )
    h = c(0.5) * f * f
    n = np.float32(e)
    low = s * (h + z * q) + n * c(1.4286068203094173e-06)
    return n * c(0.693145751953125) - ((h - low) - f)


@overload(digamma, jit_options=_OPTIONS, strict=False)
def _digamma(x):
    return {types.float64: _digamma64, types.float32: _digamma32}.get(x)


@overload(log_gamma, jit_options=_OPTIONS, strict=False)
def _log_gamma(x):
    return {types.float64: _log_gamma64}.get(x)


def _digamma64(x):
    # sum of 1 / (x + i), i < 8, in pairs (x + i) (x + 7 - i) = u + i (7 - i)
    u = x * (x + 7.0)
    low = u * (u + 6.0)
    high = (u + 10.0) * (u + 12.0)
    shift = (x + x + 7.0) * (
        ((u + u + 6.0) * high + (u + u + 22.0) * low) / (low * high)
    )
    y = x + 8.0
    r = 1.0 / y
    z = r * r
    p = 0.08333333333333333 * z - 0.021092796092796094
    p = p * z + 0.007575757575757576
    p = p * z - 0.004166666666666667
    p = p * z + 0.003968253968253968
    p = p * z - 0.008333333333333333
    p = p * z + 0.08333333333333333
    return log(y) - 0.5 * r - z * p - shift


def _digamma32(x):
    c = np.float32
    # Two fractions: one would overflow from x = 2e6 on.
    u = x * (x + c(5.0))
    shift = (x + x + c(5.0)) * (
        (u + u + c(4.0)) / (u * (u + c(4.0))) + c(1.0) / (u + c(6.0))
    )
    y = x + c(6.0)
    r = c(1.0) / y
    z = r * r
    p = (c(1.0 / 252.0) * z + c(-1.0 / 120.0)) * z + c(1.0 / 12.0)
    return log(y) - c(0.5) * r - z * p - shift


def _log_gamma64(x):
    u = x * (x + 7.0)
    product = (u * (u + 6.0)) * ((u + 10.0) * (u + 12.0))
    y = x + 8.0
    r = 1.0 / y
    z = r * r
    p = -0.001917526917526918 * z + 0.0008417508417508417
    p = p * z - 0.0005952380952380953
    p = p * z + 0.0007936507936507937
    p = p * z - 0.002777777777777778
    p = p * z + 0.08333333333333333
    stirling = (y - 0.5) * log(y) - y + 0.9189385332046728 + r * p
    return stirling - log(product)


@kernel(fastmath=CONTRACT)
def bessel(x):
    """e^-x I0(x), and I1(x) / I0(x), for x >= 0, to a relative error below 2e-15.

    By the power series up to 20, then by the asymptotic series (Abramowitz and Stegun
    9.6.10, 9.7.1), whose least term is far below rounding there.
    """
    zero, one, a, b, k = 1.0, 1.0, 1.0, 1.0, 0.0
    if x < 20.0:
        q = 0.25 * x * x
        while a > 1e-17 * zero:
            k += 1.0
            a *= q / (k * k)
            b *= q / (k * (k + 1.0))
            zero += a
            one += b
        return zero * exp(-x), 0.5 * x * one / zero
    while a > 1e-17:
        k += 1.0
        a *= (2.0 * k - 1.0) ** 2 / (8.0 * k * x)
        b *= ((2.0 * k - 1.0) ** 2 - 4.0) / (8.0 * k * x)
        zero += a
        one += b
    return zero / math.sqrt(2.0 * math.pi * x), one / zero


# Largest whole number that counts of a standard logistic variable.
LATTICE = 34


@kernel
def wide_logistic(a, spread):
    """Expectations of log(1 + e^z), and of its two derivatives, for z ~ N(a, spread^2).

    The function is the expected positive part of z - u, for u of the standard logistic
    distribution; over z those are Gaussian integrals, and their sum over the lattice of
    all whole u errs by 4e-7 at most, where z varies more than from one u to the next.
    As of any expectation over z, the second derivative by a is twice that by variance:
    a bound made of these can be climbed to its top.
    """
    value, first, second, total = 0.0, 0.0, 0.0, 0.0
    for u in range(-LATTICE, LATTICE + 1):
        e = math.exp(-abs(u))
        w = e / (1.0 + e) ** 2
        t = (a - u) / spread
        above = 0.5 * math.erfc(-t * math.sqrt(0.5))
        density = math.exp(-0.5 * t * t) / (spread * math.sqrt(2.0 * math.pi))
        value += w * ((a - u) * above + spread * spread * density)
        first += w * above
        second += w * density
        total += w
    return value / total, first / total, second / total
