"""Eight float64 side by side, as one value of a kernel.

A loop over a few elements of arrays that may overlap is checked for that anew each time
it is entered, and its sums go through memory. A :class:`Lanes` value lives in vector
registers: one of AVX-512, two of AVX2, four of SSE2 or Neon.

    load(array, at), store(array, at, v)    8 elements of a flat float64 array
    splat(x)                                x in every lane
    fma(a, b, c) = a b + c,  mul(a, b),  ratio(a, b) = a / b, and 0 where b <= 0

Positions are not checked.
"""

from llvmlite import ir
from numba import types
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

__all__ = ["WIDTH", "fma", "load", "mul", "ratio", "splat", "store"]

WIDTH = 8
_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)


class Lanes(types.Type):
    """The numba type of eight float64."""

    def __init__(self):
        super().__init__(name="Lanes")


LANES_TYPE = Lanes()


@register_default(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, frontend):
        super().__init__(manager, frontend, _VECTOR)


def _pointer(context, builder, array_type, array, at):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), _VECTOR.as_pointer())


@intrinsic
def load(typing_context, array, at):
    """Elements at..at+8 of a flat array."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        return builder.load(pointer, align=8)

    return LANES_TYPE(array, types.intp), generate


@intrinsic
def store(typing_context, array, at, value):
    """Set elements at..at+8 of a flat array."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return types.none(array, types.intp, LANES_TYPE), generate


def _splat(builder, x):
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, x, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, undefined, zeros)


@intrinsic
def splat(typing_context, x):
    """The same number in every lane."""

    def generate(context, builder, signature, arguments):
        return _splat(builder, arguments[0])

    return LANES_TYPE(types.float64), generate


@intrinsic
def fma(typing_context, a, b, c):
    """Product of the first two plus the third; the first may be a number."""

    def generate(context, builder, signature, arguments):
        a, b, c = arguments
        if signature.args[0] is types.float64:
            a = _splat(builder, a)
        product = builder.fmul(a, b, flags=("contract",))
        return builder.fadd(product, c, flags=("contract",))

    first = LANES_TYPE if a is LANES_TYPE or isinstance(a, Lanes) else types.float64
    return LANES_TYPE(first, LANES_TYPE, LANES_TYPE), generate


@intrinsic
def mul(typing_context, a, b):
    """Product."""

    def generate(context, builder, signature, arguments):
        return builder.fmul(*arguments, flags=("contract",))

    return LANES_TYPE(LANES_TYPE, LANES_TYPE), generate


@intrinsic
def ratio(typing_context, a, b):
    """Quotient, and 0 where the divisor is not positive."""

    def generate(context, builder, signature, arguments):
        a, b = arguments
        zero = ir.Constant(_VECTOR, [0.0] * WIDTH)
        positive = builder.fcmp_ordered(">", b, zero)
        return builder.select(positive, builder.fdiv(a, b), zero)

    return LANES_TYPE(LANES_TYPE, LANES_TYPE), generate
