"""Sixteen floats at a time, for kernels: what a line of the cache holds.

A loop over the columns of a row costs as much again as the row itself, because the compiler
knows neither how many there are nor that the arrays lie apart. Rows that are padded to whole
lines need no such loop. Products and sums are rounded one by one and always added in the same
order, so every machine gets the same numbers.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

LINE = 16

_LINE = ir.VectorType(ir.FloatType(), LINE)
_NUMBER = ir.IntType(32)
FLOAT_BYTES = 4

Floats = npt.NDArray[np.float32]


def aligned(rows: int, columns: int) -> Floats:
    """Zeros, each row padded to whole lines and beginning where a line of the cache begins."""
    width = -(-columns // LINE) * LINE
    room = np.zeros(rows * width + LINE, np.float32)
    first = -(room.ctypes.data // room.itemsize) % LINE
    return room[first : first + rows * width].reshape(rows, width)


def _place(context: Any, builder: Any, signature: Any, arguments: Any, argument: int) -> Any:
    """Where the line begins that an array and the index after it name."""
    struct = context.make_array(signature.args[argument])(context, builder, arguments[argument])
    return builder.bitcast(builder.gep(struct.data, [arguments[argument + 1]]), _LINE.as_pointer())


def _load(builder: Any, place: Any) -> Any:
    line = builder.load(place)
    line.align = FLOAT_BYTES
    return line


def _add_line(typing: Any, target: Any, at: Any, source: Any, start: Any, scale: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nothing = ir.Constant(_LINE, ir.Undefined)
        one = builder.insert_element(nothing, arguments[4], _NUMBER(0))
        scales = builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_NUMBER, LINE), [0] * LINE))
        place = _place(context, builder, signature, arguments, 0)
        source = _load(builder, _place(context, builder, signature, arguments, 2))
        total = builder.fadd(_load(builder, place), builder.fmul(scales, source))
        builder.store(total, place).align = FLOAT_BYTES
        return context.get_dummy_value()

    return types.void(target, at, source, start, types.float32), generate


def _dot_line(typing: Any, first: Any, at: Any, second: Any, start: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lines = [_load(builder, _place(context, builder, signature, arguments, k)) for k in (0, 2)]
        sums, width = builder.fmul(*lines), LINE
        while width > 1:  # the upper half onto the lower one
            width //= 2
            kind = ir.VectorType(_NUMBER, width)
            halves = [ir.Constant(kind, list(range(k, k + width))) for k in (0, width)]
            sums = builder.fadd(*(builder.shuffle_vector(sums, sums, half) for half in halves))
        return builder.extract_element(sums, _NUMBER(0))

    return types.float32(first, at, second, start), generate


# ``add_line(target, at, source, start, scale)``: add a scaled line of one array to a line of another.
# Indices count all numbers of an array, row after row, as they do for ``prefetch``.
add_line: Callable[[Floats, Any, Floats, Any, np.float32], None] = cast(Any, intrinsic(_add_line))
# ``dot_line(first, at, second, start)``: the inner product of two lines.
dot_line: Callable[[Floats, Any, Floats, Any], np.float32] = cast(Any, intrinsic(_dot_line))
