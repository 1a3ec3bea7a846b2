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
MASK_BYTES = 64
LETTERS = ir.VectorType(ir.IntType(8), MASK_BYTES)
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


def _letters_at(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """Where ``LETTERS`` of an array of bytes begin."""
    struct = context.make_array(kind)(context, builder, array)
    return builder.bitcast(builder.gep(struct.data, [at]), LETTERS.as_pointer())


def _load_letters(builder: Any, place: Any) -> Any:
    letters = builder.load(place)
    letters.align = 1
    return letters


def _byte_everywhere(builder: Any, byte: Any) -> Any:
    nothing = ir.Constant(LETTERS, ir.Undefined)
    first = ir.Constant(ir.VectorType(NUMBER, MASK_BYTES), [0] * MASK_BYTES)
    return builder.shuffle_vector(builder.insert_element(nothing, byte, NUMBER(0)), nothing, first)


def _between(builder: Any, letters: Any, first: Any, last: Any) -> Any:
    above = builder.sub(letters, _byte_everywhere(builder, first))
    return builder.icmp_unsigned("<=", above, _byte_everywhere(builder, builder.sub(last, first)))


def _bytes(*arrays: Any) -> bool:
    return all(array.layout == "C" and array.dtype == types.uint8 for array in arrays)


def _bytes_between(typing: Any, data: Any, at: Any, first: Any, last: Any) -> Any:
    if not _bytes(data):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        letters = _load_letters(builder, _letters_at(context, builder, signature.args[0], *arguments[:2]))
        flags = _between(builder, letters, *arguments[2:])
        return builder.bitcast(flags, ir.IntType(MASK_BYTES))

    return types.uint64(data, types.uint64, types.uint8, types.uint8), generate


def _copy_letters(typing: Any, out: Any, at: Any, data: Any, start: Any, shift: Any) -> Any:
    if not _bytes(out, data):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        letters = _load_letters(builder, _letters_at(context, builder, signature.args[2], *arguments[2:4]))
        upper = _between(builder, letters, *(ir.Constant(ir.IntType(8), ord(letter)) for letter in "AZ"))
        moved = builder.add(letters, _byte_everywhere(builder, arguments[4]))
        place = _letters_at(context, builder, signature.args[0], *arguments[:2])
        builder.store(builder.select(upper, moved, letters), place).align = 1
        return context.get_dummy_value()

    return types.void(out, types.uint64, data, types.uint64, types.uint8), generate


def _zeros(count: str) -> Callable[..., Any]:
    def zeros(typing: Any, mask: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, count)(arguments[0], ir.IntType(1)(0))

        return types.uint64(types.uint64), generate

    return zeros


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


def _add_part(typing: Any, target: Any, at: Any, source: Any, start: Any, scale: Any, count: Any) -> Any:
    if not whole(target, source):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature, arguments, 0)
        flags = ir.VectorType(ir.IntType(1), LINE)
        kind = ir.FunctionType(VECTOR, [VECTOR.as_pointer(), NUMBER, flags, VECTOR])
        load = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{LINE}f32.p0")
        lanes, numbers = ir.VectorType(NUMBER, LINE), list(range(LINE))
        limit = builder.insert_element(
            ir.Constant(lanes, ir.Undefined), builder.trunc(arguments[5], NUMBER), NUMBER(0)
        )
        limit = builder.shuffle_vector(limit, limit, ir.Constant(lanes, [0] * LINE))
        wanted = builder.icmp_unsigned("<", ir.Constant(lanes, numbers), limit)
        begin = _place(context, builder, signature, arguments, 2)
        source = builder.call(load, [begin, NUMBER(FLOAT_BYTES), wanted, ir.Constant(VECTOR, [0.0] * LINE)])
        total = builder.fadd(_load(builder, place), builder.fmul(everywhere(builder, arguments[4]), source))
        builder.store(total, place).align = FLOAT_BYTES
        return context.get_dummy_value()

    return types.void(target, at, source, start, types.float32, types.uint64), generate


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


# ``bytes_between(data, at, first, last)``: which of the 64 bytes from ``at`` on are from ``first`` to
# ``last``, a bit for each.
bytes_between: Callable[[Any, np.uint64, int, int], np.uint64] = intrinsic(_bytes_between)
# ``copy_letters(out, at, data, start, shift)``: copy 64 bytes, ``shift`` added to those from A to Z.
copy_letters: Callable[[Any, np.uint64, Any, np.uint64, np.uint8], None] = intrinsic(_copy_letters)
# ``trailing_zeros(mask)`` and ``leading_zeros(mask)``: how many bits below the lowest that is set, and above
# the highest; 64 if none is.
trailing_zeros: Callable[[np.uint64], np.uint64] = intrinsic(_zeros("cttz"))
leading_zeros: Callable[[np.uint64], np.uint64] = intrinsic(_zeros("ctlz"))
# ``add_line(target, at, source, start, scale)``: add a scaled line of one array to a line of another.
# Indices count all numbers of an array, row after row, as they do for ``prefetch``.
add_line: Callable[[Floats, Any, Floats, Any, np.float32], None] = intrinsic(_add_line)
# ``add_part(target, at, source, start, scale, count)``: the same for the first ``count`` numbers of a line.
# Nothing behind them is read; the whole line of the target is written.
add_part: Callable[[Floats, Any, Floats, Any, np.float32, np.uint64], None] = intrinsic(_add_part)
# ``copy_line(target, at, source, start)``: put a line of one array in the place of a line of another.
copy_line: Callable[[Floats, Any, Floats, Any], None] = intrinsic(_copy_line)
# ``dot_line(first, at, second, start)``: the inner product of two lines.
dot_line: Callable[[Floats, Any, Floats, Any], np.float32] = intrinsic(_dot_line)
# ``logistic_line(array, at, slope, height, foot)``: height / (1 + exp(-slope x)) + foot, in place. The
# sigmoid is (1, 1, 0) and the hyperbolic tangent (2, 2, -1).
logistic_line: Callable[[Floats, Any, np.float32, np.float32, np.float32], None] = intrinsic(_logistic_line)
