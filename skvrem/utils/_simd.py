"""A cache line of floats, 16 float32 or 8 float64, as one value of a kernel.

A loop over a few elements of arrays that may overlap is checked for that anew each time
it is entered, and its sums go through memory. A :class:`Lanes` value lives in vector
registers: one of AVX-512, two of AVX2, four of SSE2 or Neon.

    lanes(array)                            how many there are, for its dtype
    load(array, at), store(array, at, v)    that many elements of a flat array
    splat(x)                                x in every lane
    add(a, b), mul(a, b), fma(a, b, c) = a b + c
    ratio(a, b) = a / b, and 0 where b <= 0
    largest(a, b)                           the larger of each
    total(v)                                the sum of the lanes
    spread(a, b, c, d, array, at, stride)   lane l of the four to at + l stride

Positions are not checked.
"""

from llvmlite import ir
from numba import types
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

CACHE_LINE = 64
# Of float64.
WIDTH = 8


class Lanes(types.Type):
    """The numba type of a cache line of floats of one dtype."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


_LANES = {dtype: Lanes(dtype) for dtype in (types.float64, types.float32)}


def _vector(dtype):
    element = ir.DoubleType() if dtype is types.float64 else ir.FloatType()
    return ir.VectorType(element, _width(dtype))


def _width(dtype):
    return CACHE_LINE * 8 // dtype.bitwidth


@register_default(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, frontend):
        super().__init__(manager, frontend, _vector(frontend.dtype))


def _pointer(context, builder, array_type, array, at):
    data = context.make_array(array_type)(context, builder, array).data
    vector = _vector(array_type.dtype)
    return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())


@intrinsic
def lanes(typing_context, array):
    """Number of elements of the array's dtype in a value."""

    def generate(context, builder, signature, arguments):
        return ir.Constant(ir.IntType(64), _width(signature.args[0].dtype))

    return types.intp(array), generate


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
    width = CACHE_LINE // (8 if isinstance(x.type, ir.DoubleType) else 4)
    undefined = ir.Constant(ir.VectorType(x.type, width), ir.Undefined)
    first = builder.insert_element(undefined, x, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
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
