"""Products of a few rows with a few rows, for kernels: small enough to stay in the nearest cache.

As in ``lines``, rows are whole lines of sixteen floats. What is summed stays in registers, and a
product is added without being rounded first, always in the same order: every machine gets the same
numbers.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from manyhands.kernels.compile import Later, intrinsic
from manyhands.kernels.simd import FLOAT_BYTES, LINE, VECTOR, Floats, everywhere, sum_of_line, whole

cgutils: Any = Later("numba.core.cgutils")
types: Any = Later("numba.core.types")

AT_ONCE = 4  # sums of a line each: with what is added to them they fill the registers
_SIZE = ir.IntType(64)


def _size(number: int) -> Any:
    return ir.Constant(_SIZE, number)


class _Rows:
    """Lines of an array of floats, by their place in it."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._builder = builder
        self._data = context.make_array(kind)(context, builder, value).data

    def _place(self, at: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self._data, [at]), VECTOR.as_pointer())

    def line(self, at: Any) -> Any:
        line = self._builder.load(self._place(at))
        line.align = FLOAT_BYTES
        return line

    def put_line(self, at: Any, line: Any) -> None:
        self._builder.store(line, self._place(at)).align = FLOAT_BYTES

    def number(self, at: Any) -> Any:
        return self._builder.load(self._builder.gep(self._data, [at]))

    def put_number(self, at: Any, number: Any) -> None:
        self._builder.store(number, self._builder.gep(self._data, [at]))


def _fma(builder: Any, first: Any, second: Any, third: Any) -> Any:
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LINE}f32")
    return builder.call(function, [first, second, third])


def _in_groups(builder: Any, count: Any, work: Callable[[Any, int], None]) -> None:
    """``work(start, size)`` for groups of ``AT_ONCE``, then for what is left, as one group as well.

    One by one, each sum would wait for itself.
    """
    left = builder.urem(count, _size(AT_ONCE))
    rest = builder.sub(count, left)
    with cgutils.for_range_slice(builder, _size(0), rest, _size(AT_ONCE), _SIZE) as (at, _):
        work(at, AT_ONCE)
    for size in range(1, AT_ONCE):
        with builder.if_then(builder.icmp_unsigned("==", left, _size(size))):
            work(rest, size)


def _dots(typing: Any, out: Any, at: Any, row: Any, i: Any, rows: Any, j: Any, count: Any, width: Any) -> Any:
    if not whole(out, row, rows):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, one, many = (_Rows(context, builder, signature.args[k], arguments[k]) for k in (0, 2, 4))
        at, i, j, count, width = (arguments[k] for k in (1, 3, 5, 6, 7))
        first, second = builder.mul(i, width), builder.mul(j, width)

        def work(start: Any, size: int) -> None:
            sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(size)]
            for k in range(size):
                builder.store(ir.Constant(VECTOR, [0.0] * LINE), sums[k])
            begin = builder.add(second, builder.mul(start, width))
            with cgutils.for_range_slice(builder, _size(0), width, _size(LINE), _SIZE) as (d, _):
                line, place = one.line(builder.add(first, d)), builder.add(begin, d)
                for k in range(size):
                    other = many.line(builder.add(place, builder.mul(_size(k), width)))
                    builder.store(_fma(builder, line, other, builder.load(sums[k])), sums[k])
            for k in range(size):
                total = sum_of_line(builder, builder.load(sums[k]))
                target.put_number(builder.add(builder.add(at, start), _size(k)), total)

        _in_groups(builder, count, work)
        return context.get_dummy_value()

    return types.void(out, at, row, i, rows, j, types.int64, types.int64), generate


def _add_rows(
    typing: Any, target: Any, i: Any, scales: Any, at: Any, rows: Any, j: Any, count: Any, width: Any
) -> Any:
    if not whole(target, scales, rows):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, factors, many = (_Rows(context, builder, signature.args[k], arguments[k]) for k in (0, 2, 4))
        i, at, j, count, width = (arguments[k] for k in (1, 3, 5, 6, 7))
        own, first = builder.mul(i, width), builder.mul(j, width)

        def work(start: Any, size: int) -> None:
            sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(size)]
            place = builder.mul(start, _size(LINE))
            places = [builder.add(place, _size(k * LINE)) for k in range(size)]
            for k in range(size):
                builder.store(out.line(builder.add(own, places[k])), sums[k])
            with cgutils.for_range_slice(builder, _size(0), count, _size(1), _SIZE) as (row, _):
                scale = everywhere(builder, factors.number(builder.add(at, row)))
                begin = builder.add(first, builder.mul(row, width))
                for k in range(size):
                    other = many.line(builder.add(begin, places[k]))
                    builder.store(_fma(builder, scale, other, builder.load(sums[k])), sums[k])
            for k in range(size):
                out.put_line(builder.add(own, places[k]), builder.load(sums[k]))

        _in_groups(builder, builder.udiv(width, _size(LINE)), work)
        return context.get_dummy_value()

    return types.void(target, i, scales, at, rows, j, types.int64, types.int64), generate


# ``dots(out, at, row, i, rows, j, count, width)``: the inner products of row ``i`` of one array with
# ``count`` rows of another from ``j`` on, into ``out`` from the number ``at`` on.
dots: Callable[[Floats, Any, Floats, Any, Floats, Any, Any, Any], None] = intrinsic(_dots)
# ``add_rows(target, i, scales, at, rows, j, count, width)``: add to row ``i`` of ``target`` the ``count``
# rows from ``j`` on, each times its number in ``scales`` from ``at`` on.
add_rows: Callable[[Floats, Any, Floats, Any, Floats, Any, Any, Any], None] = intrinsic(_add_rows)
