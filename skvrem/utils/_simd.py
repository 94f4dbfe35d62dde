"""Eight floats as one value of a kernel.

A loop over a few elements of arrays that may overlap is checked for that anew each time
it is entered, and its sums go through memory. A :class:`Lanes` value lives in vector
registers: of float64 in one of AVX-512, two of AVX2, four of SSE2 or Neon, of float32
in half as many.

    WIDTH                                   how many there are
    load(array, at), store(array, at, v)    that many elements of a flat array
    splat(x)                                x in every lane
    add(a, b), mul(a, b), fma(a, b, c) = a b + c
    ratio(a, b) = a / b, and 0 where b <= 0
    largest(a, b)                           the larger of each
    total(v)                                the sum of the lanes
    spread(a, b, c, d, array, at, stride)   lane l of the four to at + l stride

Positions are not checked.

And ``prefetch(address)`` asks for a cache line before it is needed.
"""

from functools import partial, reduce

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

CACHE_LINE = 64
# Of a polynomial of e^t, |t| <= log(2) / 2, the highest first: of those of this degree
# that are exact at 0 to first order the one with the least relative error, 3e-16.
EXP_COEFFICIENTS = (
    2.747679838694254e-07,
    2.7635005799426396e-06,
    2.480193180473595e-05,
    1.9841185203611048e-04,
    1.3888888516053743e-03,
    8.33333337089173e-03,
    4.166666666813747e-02,
    0.16666666666611513,
    0.49999999999998324,
    1.0,
    1.0,
)
# Elements of a value. Sixteen of float32 would take longer: more of them are padding.
WIDTH = 8
SMALLEST = 2.2250738585072014e-308


def empty_lines(size):
    """Return so many float64, not filled, the first of which begins a cache line.

    Those of numpy begin anywhere, and what lies across two lines takes twice as long to
    read and to write.
    """
    room = np.empty(size + WIDTH - 1)
    first = -(room.ctypes.data // 8) % WIDTH
    return room[first : first + size]


class Lanes(types.Type):
    """The numba type of eight floats of one dtype."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


_LANES = {dtype: Lanes(dtype) for dtype in (types.float64, types.float32)}


def _vector(dtype):
    element = ir.DoubleType() if dtype is types.float64 else ir.FloatType()
    return ir.VectorType(element, WIDTH)


@register_default(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, frontend):
        super().__init__(manager, frontend, _vector(frontend.dtype))


def _pointer(context, builder, array_type, array, at):
    data = context.make_array(array_type)(context, builder, array).data
    vector = _vector(array_type.dtype)
    return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())


@intrinsic
def load(typing_context, array, at):
    """Elements from `at` on of a flat array."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        return builder.load(pointer, align=signature.args[0].dtype.bitwidth // 8)

    return _LANES[array.dtype](array, types.intp), generate


@intrinsic
def store(typing_context, array, at, value):
    """Set elements from `at` on of a flat array."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        align = signature.args[0].dtype.bitwidth // 8
        builder.store(arguments[2], pointer, align=align)
        return context.get_dummy_value()

    return types.none(array, types.intp, _LANES[array.dtype]), generate


def _splat(builder, x):
    undefined = ir.Constant(ir.VectorType(x.type, WIDTH), ir.Undefined)
    first = builder.insert_element(undefined, x, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, undefined, zeros)


@intrinsic
def splat(typing_context, x):
    """The same number in every lane."""

    def generate(context, builder, signature, arguments):
        return _splat(builder, arguments[0])

    return _LANES[x](x), generate


@intrinsic
def fma(typing_context, a, b, c):
    """Product of the first two plus the third; the first may be a number."""

    def generate(context, builder, signature, arguments):
        a, b, c = arguments
        if not isinstance(signature.args[0], Lanes):
            a = _splat(builder, a)
        product = builder.fmul(a, b, flags=("contract",))
        return builder.fadd(product, c, flags=("contract",))

    return b(a if isinstance(a, Lanes) else b.dtype, b, b), generate


def _of_two(build):
    """Return the operation on two values that `build` generates."""

    @intrinsic
    def operation(typing_context, a, b):
        def generate(context, builder, signature, arguments):
            return build(builder, *arguments)

        return a(a, a), generate

    return operation


def _ratio(builder, a, b):
    zero = ir.Constant(a.type, [0.0] * a.type.count)
    positive = builder.fcmp_ordered(">", b, zero)
    return builder.select(positive, builder.fdiv(a, b), zero)


def _largest(builder, a, b):  # of a NaN the second
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


add = _of_two(lambda builder, a, b: builder.fadd(a, b, flags=("contract",)))
mul = _of_two(lambda builder, a, b: builder.fmul(a, b, flags=("contract",)))
ratio, largest = _of_two(_ratio), _of_two(_largest)


@intrinsic
def total(typing_context, a):
    """Sum of the lanes: halves upon halves."""

    def generate(context, builder, signature, arguments):
        (v,) = arguments
        width = v.type.count
        while width > 1:
            width //= 2
            low, high = (
                ir.Constant(
                    ir.VectorType(ir.IntType(32), width), list(range(at, at + width))
                )
                for at in (0, width)
            )
            v = builder.fadd(
                builder.shuffle_vector(v, v, low), builder.shuffle_vector(v, v, high)
            )
        return builder.extract_element(v, ir.IntType(32)(0))

    return a.dtype(a), generate


@intrinsic
def spread(typing_context, a, b, c, d, array, at, stride):
    """Set four elements a lane of a flat array, those of lane l at `at + l stride`."""

    def generate(context, builder, signature, arguments):
        vectors, (array, at, stride) = arguments[:4], arguments[4:]
        width = vectors[0].type.count

        def shuffle(x, y, lanes):
            kind = ir.VectorType(ir.IntType(32), len(lanes))
            return builder.shuffle_vector(x, y, ir.Constant(kind, lanes))

        def interleave(x, y):
            order = [i + other for i in range(width) for other in (0, width)]
            return shuffle(x, y, order[:width]), shuffle(x, y, order[width:])

        a, b, c, d = vectors
        quads = []
        for x, y in zip(interleave(a, c), interleave(b, d), strict=True):
            quads += interleave(x, y)  # a b c d of lane after lane
        data = context.make_array(signature.args[4])(context, builder, array).data
        size = signature.args[4].dtype.bitwidth // 8
        for lane in range(width):
            quad, first = quads[4 * lane // width], 4 * lane % width
            four = shuffle(quad, quad, list(range(first, first + 4)))
            place = builder.gep(data, [at])
            builder.store(
                four, builder.bitcast(place, four.type.as_pointer()), align=size
            )
            at = builder.add(at, stride)
        return context.get_dummy_value()

    lanes_type = _LANES[array.dtype]
    arguments = [lanes_type] * 4 + [array, types.intp, types.intp]
    return types.none(*arguments), generate


# Several values at once stay in registers as a tuple, whose length is known to the
# compiler: `like` is a tuple of so many zeros. A tuple of r n values is a matrix of r
# rows where one of n is given beside it.


def _tuple(context, builder, values):
    kind = types.UniTuple(_LANES[types.float64], len(values))
    return context.make_tuple(builder, kind, values)


def _of(count):
    return types.UniTuple(_LANES[types.float64], count)


def _values(builder, packed):
    return [builder.extract_value(packed, i) for i in range(packed.type.count)]


def _product(builder, a, b):
    return builder.fmul(a, b, flags=("contract",))


def _sum(builder, values):
    total = values[0]
    for value in values[1:]:
        total = builder.fadd(total, value, flags=("contract",))
    return total


def _number(context, builder, array_type, array, at):
    data = context.make_array(array_type)(context, builder, array).data
    return _splat(builder, builder.load(builder.gep(data, [at])))


def _places(builder, at, stride, count):
    for i in range(count):
        yield builder.add(at, builder.mul(stride, stride.type(i)))


@intrinsic
def load_all(typing_context, array, at, stride, like):
    """Values at `at`, `at + stride`, ... of a flat array."""

    def generate(context, builder, signature, arguments):
        array, at, stride, _ = arguments
        kind, found = signature.args[0], []
        for place in _places(builder, at, stride, like.count):
            pointer = _pointer(context, builder, kind, array, place)
            found.append(builder.load(pointer, align=8))
        return _tuple(context, builder, found)

    return _of(like.count)(array, types.intp, types.intp, like), generate


@intrinsic
def gather_all(typing_context, array, at, offsets, number, like):
    """Values of a flat array at `at` plus offsets, from a number of these on."""

    def generate(context, builder, signature, arguments):
        array, at, offsets, number, _ = arguments
        kind, other = signature.args[0], signature.args[2]
        where, found = context.make_array(other)(context, builder, offsets).data, []
        for place in _places(builder, number, number.type(1), like.count):
            by = builder.add(at, builder.load(builder.gep(where, [place])))
            pointer = _pointer(context, builder, kind, array, by)
            found.append(builder.load(pointer, align=8))
        return _tuple(context, builder, found)

    arguments = array, types.intp, offsets, types.intp, like
    return _of(like.count)(*arguments), generate


@intrinsic
def store_all(typing_context, array, at, stride, values):
    """Set them."""

    def generate(context, builder, signature, arguments):
        array, at, stride, packed = arguments
        places = _places(builder, at, stride, values.count)
        for place, value in zip(places, _values(builder, packed), strict=True):
            pointer = _pointer(context, builder, signature.args[0], array, place)
            builder.store(value, pointer, align=8)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.intp, values), generate


@intrinsic
def splat_all(typing_context, array, at, like):
    """Numbers from `at` on of a flat array, each in every lane."""

    def generate(context, builder, signature, arguments):
        array, at, _ = arguments
        numbers = [
            _number(context, builder, signature.args[0], array, place)
            for place in _places(builder, at, at.type(1), like.count)
        ]
        return _tuple(context, builder, numbers)

    return _of(like.count)(array, types.intp, like), generate


@intrinsic
def add_multiples(typing_context, total, array, at, value):
    """Total plus the value times each of the numbers from `at` on of an array."""

    def generate(context, builder, signature, arguments):
        total, array, at, value = arguments
        places = _places(builder, at, at.type(1), total.type.count)
        found = []
        for before, place in zip(_values(builder, total), places, strict=True):
            number = _number(context, builder, signature.args[1], array, place)
            found.append(_sum(builder, [_product(builder, number, value), before]))
        return _tuple(context, builder, found)

    return total(total, array, types.intp, value), generate


@intrinsic
def times_matrix(typing_context, row, matrix):
    """A row of n values times a flat matrix (n, n) of numbers."""

    def generate(context, builder, signature, arguments):
        values, found = _values(builder, arguments[0]), []
        n, index = len(values), ir.IntType(64)
        for j in range(n):
            terms = []
            for i, value in enumerate(values):
                at = arguments[1], index(i * n + j)
                number = _number(context, builder, signature.args[1], *at)
                terms.append(_product(builder, number, value))
            found.append(_sum(builder, terms))
        return _tuple(context, builder, found)

    return row(row, matrix), generate


@intrinsic
def times_all(typing_context, a, b):
    """Products of values of a and of b, in order."""

    def generate(context, builder, signature, arguments):
        pairs = zip(*(_values(builder, packed) for packed in arguments), strict=True)
        return _tuple(context, builder, [_product(builder, *pair) for pair in pairs])

    return a(a, b), generate


@intrinsic
def scale_all(typing_context, values, by):
    """Each value times another."""

    def generate(context, builder, signature, arguments):
        values, by = arguments
        found = [_product(builder, value, by) for value in _values(builder, values)]
        return _tuple(context, builder, found)

    return values(values, by), generate


@intrinsic
def widen(typing_context, values, value, like):
    """Values, and behind them another where they are fewer than `like`."""

    def generate(context, builder, signature, arguments):
        found = [*_values(builder, arguments[0]), arguments[1]]
        return _tuple(context, builder, found[: like.count])

    return _of(like.count)(values, value, like), generate


@intrinsic
def sum_all(typing_context, values):
    """The sum of values, lane by lane."""

    def generate(context, builder, signature, arguments):
        return _sum(builder, _values(builder, arguments[0]))

    return values.dtype(values), generate


@intrinsic
def add_outer(typing_context, total, a, b):
    """Total (n, m) plus the products of each of a (n) with each of b (m)."""

    def generate(context, builder, signature, arguments):
        total, a, b = (_values(builder, packed) for packed in arguments)
        pairs = [(x, y) for x in a for y in b]
        found = [
            _sum(builder, [_product(builder, x, y), before])
            for before, (x, y) in zip(total, pairs, strict=True)
        ]
        return _tuple(context, builder, found)

    return total(total, a, b), generate


@intrinsic
def largest_of(typing_context, values):
    """The largest, lane by lane."""

    def generate(context, builder, signature, arguments):
        return reduce(partial(_largest, builder), _values(builder, arguments[0]))

    return values.dtype(values), generate


_BITS = ir.VectorType(ir.IntType(64), WIDTH)


def _constant(x):
    kind = _BITS if isinstance(x, int) else ir.VectorType(ir.DoubleType(), WIDTH)
    return ir.Constant(kind, [x] * WIDTH)


def _exp(builder, x):
    """e^x to a relative error of 5e-16 + 4e-17 |x|; 0 below -708.39, of NaN too."""

    def polynomial(coefficients, t):
        value = _constant(coefficients[0])
        for c in coefficients[1:]:
            value = _sum(builder, [_product(builder, value, t), _constant(c)])
        return value

    def plus(x, by, c):
        return _sum(builder, [_product(builder, x, _constant(by)), c])

    shift = _constant(6755399441055744.0)
    shifted = plus(x, 1.4426950408889634, shift)
    n = builder.fsub(shifted, shift)
    t = plus(n, -0.6931471805599453, x)
    power = polynomial(EXP_COEFFICIENTS, t)
    bits = builder.shl(builder.bitcast(shifted, _BITS), _constant(52))
    result = builder.add(builder.bitcast(power, _BITS), bits)
    result = builder.bitcast(result, x.type)
    large = builder.fcmp_ordered(">", x, _constant(-708.39))
    return builder.select(large, result, _constant(0.0))


@intrinsic
def exp_all(typing_context, values):
    """Exponentials, 0 below -708.39; not checked above 709.78."""

    def generate(context, builder, signature, arguments):
        found = [_exp(builder, value) for value in _values(builder, arguments[0])]
        return _tuple(context, builder, found)

    return values(values), generate


@intrinsic
def without(typing_context, values, by):
    """Each value minus another."""

    def generate(context, builder, signature, arguments):
        values, by = arguments
        found = [
            builder.fsub(value, by, flags=("contract",))
            for value in _values(builder, values)
        ]
        return _tuple(context, builder, found)

    return values(values, by), generate


@intrinsic
def unscale(typing_context, value):
    """The powers of two that bring positive numbers into [1, 2)."""

    def generate(context, builder, signature, arguments):
        (value,) = arguments
        bits = builder.and_(builder.bitcast(value, _BITS), _constant(0x7FF << 52))
        return builder.bitcast(builder.sub(_constant(2046 << 52), bits), value.type)

    return value(value), generate


@intrinsic
def count_power(typing_context, count, power):
    """A count, integers in the bits of floats, plus 1023 plus the power's exponent."""

    def generate(context, builder, signature, arguments):
        count, power = (builder.bitcast(value, _BITS) for value in arguments)
        total = builder.add(count, builder.lshr(power, _constant(52)))
        return builder.bitcast(total, arguments[1].type)

    return count(count, power), generate


@intrinsic
def as_integer(typing_context, x):
    """The bits of a float64."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def zero_without(typing_context, values, others):
    """Values, but 0 where others are 0, or below all normal numbers."""

    def generate(context, builder, signature, arguments):
        found = []
        for value, other in zip(*(_values(builder, p) for p in arguments), strict=True):
            there = builder.fcmp_ordered(">=", other, _constant(SMALLEST))
            found.append(builder.select(there, value, _constant(0.0)))
        return _tuple(context, builder, found)

    return values(values, others), generate


@intrinsic
def prefetch(typing_context, address):
    """Ask for the cache line of an address (uint64), which need not be anyone's."""

    def generate(context, builder, signature, arguments):
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        # To read, for the second-level cache, data.
        how = (number(0), number(2), number(1))
        builder.call(ask, (builder.inttoptr(arguments[0], pointer), *how))
        return context.get_dummy_value()

    return types.void(types.uint64), generate
