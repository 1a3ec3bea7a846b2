"""Sixteen floats at a time, for kernels: what a line of the cache holds.

In a loop over the columns of a row, the compiler knows neither how many there are nor that the
arrays lie apart. Rows that are padded to whole lines need no such loop. Products and sums are
rounded one by one and always added in the same order, so every machine gets the same numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from manyhands.kernels.compile import Later, intrinsic

cgutils: Any = Later("numba.core.cgutils")
types: Any = Later("numba.core.types")

LINE = 16

VECTOR = ir.VectorType(ir.FloatType(), LINE)
NUMBER = ir.IntType(32)
FLOAT_BYTES = 4
MOST_EXPONENT = 60.0  # beyond it, sigmoid and tangent are 0 or 1 to the last digit
EXPONENT_BIAS, FRACTION_BITS = 127, 23
LOG_2 = (0.693359375, -2.12194440e-4)
EXP_SERIES = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)

Floats = npt.NDArray[np.float32]


def aligned_zeros(rows: int, width: int) -> Floats:
    """Zeros that begin where a line of the cache begins, as then every row of whole lines does."""
    room = np.zeros(rows * width + LINE, np.float32)
    first = -(room.ctypes.data // room.itemsize) % LINE
    return room[first : first + rows * width].reshape(rows, width)


def _place(context: Any, builder: Any, signature: Any, arguments: Any, argument: int) -> Any:
    """Where the line begins that an array and the index after it name."""
    struct = context.make_array(signature.args[argument])(context, builder, arguments[argument])
    return builder.bitcast(builder.gep(struct.data, [arguments[argument + 1]]), VECTOR.as_pointer())


def _load(builder: Any, place: Any) -> Any:
    line = builder.load(place)
    line.align = FLOAT_BYTES
    return line


def whole(*arrays: Any) -> bool:
    """Rows behind rows of floats: a view that leaves columns out would be read past them."""
    return all(array.layout == "C" and array.dtype == types.float32 for array in arrays)


def _add_line(typing: Any, target: Any, at: Any, source: Any, start: Any, scale: Any) -> Any:
    if not whole(target, source):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scales = everywhere(builder, arguments[4])
        place = _place(context, builder, signature, arguments, 0)
        source = _load(builder, _place(context, builder, signature, arguments, 2))
        total = builder.fadd(_load(builder, place), builder.fmul(scales, source))
        builder.store(total, place).align = FLOAT_BYTES
        return context.get_dummy_value()

    return types.void(target, at, source, start, types.float32), generate


def _copy_line(typing: Any, target: Any, at: Any, source: Any, start: Any) -> Any:
    if not whole(target, source):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = _load(builder, _place(context, builder, signature, arguments, 2))
        builder.store(line, _place(context, builder, signature, arguments, 0)).align = FLOAT_BYTES
        return context.get_dummy_value()

    return types.void(target, at, source, start), generate


def _dot_line(typing: Any, first: Any, at: Any, second: Any, start: Any) -> Any:
    if not whole(first, second):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lines = [_load(builder, _place(context, builder, signature, arguments, k)) for k in (0, 2)]
        return sum_of_line(builder, builder.fmul(*lines))

    return types.float32(first, at, second, start), generate


def sum_of_line(builder: Any, sums: Any) -> Any:
    """The sum of its numbers: the upper half onto the lower one, and so on."""
    width = LINE
    while width > 1:
        width //= 2
        kind = ir.VectorType(NUMBER, width)
        halves = [ir.Constant(kind, list(range(k, k + width))) for k in (0, width)]
        sums = builder.fadd(*(builder.shuffle_vector(sums, sums, half) for half in halves))
    return builder.extract_element(sums, NUMBER(0))


def _constant(number: float) -> Any:
    return ir.Constant(VECTOR, [float(np.float32(number))] * LINE)


def everywhere(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, number, NUMBER(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(NUMBER, LINE), [0] * LINE))


def _exp(builder: Any, x: Any) -> Any:
    """The exponential: a power of two, which is a shift, times a polynomial near 0; right to a few 1e-7."""
    for order, limit in (("<", MOST_EXPONENT), (">", -MOST_EXPONENT)):
        x = builder.select(builder.fcmp_ordered(order, x, _constant(limit)), x, _constant(limit))
    kind = ir.FunctionType(VECTOR, [VECTOR])
    floor = cgutils.get_or_insert_function(builder.module, kind, f"llvm.floor.v{LINE}f32")
    halves = builder.fadd(builder.fmul(x, _constant(1 / np.log(2))), _constant(0.5))
    whole = builder.call(floor, [halves])
    for part in LOG_2:  # in two parts, the first of few digits: nothing is lost when it is taken away
        x = builder.fsub(x, builder.fmul(whole, _constant(part)))
    value = _constant(EXP_SERIES[0])
    for coefficient in EXP_SERIES[1:]:
        value = builder.fadd(builder.fmul(value, x), _constant(coefficient))
    numbers = ir.VectorType(NUMBER, LINE)
    power = builder.add(builder.fptosi(whole, numbers), ir.Constant(numbers, [EXPONENT_BIAS] * LINE))
    power = builder.shl(power, ir.Constant(numbers, [FRACTION_BITS] * LINE))
    return builder.fmul(value, builder.bitcast(power, VECTOR))


def _logistic_line(typing: Any, array: Any, at: Any, slope: Any, height: Any, foot: Any) -> Any:
    if not whole(array):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature, arguments, 0)
        slope, height, foot = (everywhere(builder, number) for number in arguments[2:])
        value = _exp(builder, builder.fneg(builder.fmul(slope, _load(builder, place))))
        value = builder.fadd(builder.fdiv(height, builder.fadd(_constant(1), value)), foot)
        builder.store(value, place).align = FLOAT_BYTES
        return context.get_dummy_value()

    return types.void(array, at, types.float32, types.float32, types.float32), generate


# ``add_line(target, at, source, start, scale)``: add a scaled line of one array to a line of another.
# Indices count all numbers of an array, row after row, as they do for ``prefetch``.
add_line: Callable[[Floats, Any, Floats, Any, np.float32], None] = intrinsic(_add_line)
# ``copy_line(target, at, source, start)``: put a line of one array in the place of a line of another.
copy_line: Callable[[Floats, Any, Floats, Any], None] = intrinsic(_copy_line)
# ``dot_line(first, at, second, start)``: the inner product of two lines.
dot_line: Callable[[Floats, Any, Floats, Any], np.float32] = intrinsic(_dot_line)
# ``logistic_line(array, at, slope, height, foot)``: height / (1 + exp(-slope x)) + foot, in place. The
# sigmoid is (1, 1, 0) and the hyperbolic tangent (2, 2, -1).
logistic_line: Callable[[Floats, Any, np.float32, np.float32, np.float32], None] = intrinsic(_logistic_line)
