"""Averages of what partitions have learnt: only rows that moved, in chunks, added up in one fixed order.

A chunk is some rows of one array. Whoever merges it needs that chunk of every partition and nothing
else, so nobody ever holds the models of all.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.models.model import Arrays

# The parts of one chunk, of all partitions, come to so many bytes together; but parts are not tiny.
MERGED_BYTES, MOST_BYTES, LEAST_BYTES = 64 << 20, 8 << 20, 64 << 10


LOOKS, LOOKED_AT = 20, 128 << 10  # places, and bytes at each, to tell how far numbers can be compressed


class Slice(NamedTuple):
    """The rows of an array from ``first`` up to ``last``: what a chunk is made of."""

    name: str
    first: int
    last: int


class Part(NamedTuple):
    """What one partition made of a chunk: ``values`` of the ``rows`` that it moved, as bytes.

    ``kind`` is the type of its numbers, and ``weight`` says how many examples they were learnt from. Once
    partitions are merged, ``movers`` says how many of them had moved each row.
    """

    chunk: int
    partition: int
    weight: float
    kind: str
    rows: bytes
    values: bytes
    movers: bytes = b""

    def moved(self) -> Ints:
        return np.frombuffer(self.rows, np.int32).astype(np.int64)

    def numbers(self) -> npt.NDArray[Any]:
        """A line for each moved row."""
        return np.frombuffer(self.values, self.kind).reshape(len(self.rows) // 4, -1)


def slices(arrays: Arrays, partitions: int) -> list[Slice]:
    """All rows of all arrays, in chunks; a chunk's number is its place here."""
    most = min(max(MERGED_BYTES // partitions, LEAST_BYTES), MOST_BYTES)
    out = []
    for name, array in arrays.items():
        step = max(most // max(array[:1].nbytes, 1), 1)
        out += [Slice(name, at, min(at + step, len(array))) for at in range(0, len(array), step)]
    return out


def rows_of(arrays: Arrays, where: Slice) -> npt.NDArray[Any]:
    """The rows of a chunk, as they lie in their array: a line each."""
    array = arrays[where.name]
    return array.reshape(len(array), -1)[where.first : where.last]


def parts_of(before: Arrays, after: Arrays, partition: int, partitions: int, weight: float) -> Iterator[Part]:
    """All rows that are not what they were before, a chunk at a time."""
    for chunk, where in enumerate(slices(after, partitions)):
        old, new = rows_of(before, where), rows_of(after, where)
        # By their bits: a zero that changed its sign has moved.
        moved = np.flatnonzero((_bits(old) != _bits(new)).any(axis=1))
        if len(moved):
            rows, values = moved.astype(np.int32).tobytes(), new[moved].tobytes()
            yield Part(chunk, partition, weight, new.dtype.str, rows, values)


def _bits(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return numbers.view(f"u{numbers.itemsize}")


def mean_of(parts: list[Part]) -> Part:
    """One chunk of all partitions: of each row the mean over those who moved it, by their examples."""
    parts = sorted(parts, key=lambda part: part.partition)  # whoever came first: sums depend on their order
    rows = np.unique(np.concatenate([part.moved() for part in parts]))
    total = np.full((len(rows), parts[0].numbers().shape[1]), -0.0)  # adding to 0.0 would turn -0.0 round
    weight, movers = np.zeros(len(rows)), np.zeros(len(rows), np.int32)
    for part in parts:
        places = np.searchsorted(rows, part.moved())
        total[places] += part.weight * part.numbers().astype(np.float64)
        weight[places] += part.weight
        movers[places] += 1
    mean, kind = total / weight[:, None], np.dtype(parts[0].kind)
    values = (np.rint(mean) if kind.kind == "i" else mean).astype(kind)
    return Part(
        parts[0].chunk,
        -1,
        float(weight.max()),
        parts[0].kind,
        rows.astype(np.int32).tobytes(),
        values.tobytes(),
        movers.tobytes(),
    )


def put(part: Part, where: Slice, arrays: Arrays) -> None:
    """Write a chunk into its array."""
    rows_of(arrays, where)[part.moved()] = part.numbers()


def pack(arrays: Arrays) -> bytes:
    """All numbers, one array after the other."""
    return b"".join(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values())


def packing(data: bytes) -> float:
    """The share of packed numbers that is left when Spark has compressed them (LZ4): columns that learning
    does not use, and memories that nothing has moved yet, cost nothing. Looks here and there.

    >>> noise = np.random.default_rng(0).bytes(5 << 20)
    >>> [round(packing(data), 2) for data in (noise, bytes(5 << 20), noise + bytes(15 << 20))]
    [1.0, 0.0, 0.25]
    """
    step = max(len(data) // LOOKS, LOOKED_AT)
    some = [data[at : at + LOOKED_AT] for at in range(0, len(data), step)]
    left = sum(len(pa.compress(part, "lz4_raw", asbytes=True)) for part in some)
    return left / max(sum(map(len, some)), 1)


def unpack(data: bytes, like: Arrays) -> Arrays:
    """The opposite of ``packed``, of arrays as large as these; nothing is copied."""
    if len(data) != sum(array.nbytes for array in like.values()):
        raise InputError("its model has another size than the driver's; run the same version on all machines")
    out, at = {}, 0
    for name, array in like.items():
        out[name] = np.frombuffer(data, array.dtype, array.size, at).reshape(array.shape)
        at += array.nbytes
    return out
