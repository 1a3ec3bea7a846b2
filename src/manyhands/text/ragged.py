"""Rows of different length in two arrays: all bytes one after the other, and where each row begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from manyhands.kernels.compile import Bytes, Flags, Ints, kernel, read_only


@dataclass(frozen=True)
class Ragged:
    """Row ``i`` is ``data[offsets[i]:offsets[i + 1]]``.

    >>> rows = from_strings(["one", "", "three"])
    >>> len(rows), rows.size, rows.strings()
    (3, 8, ['one', '', 'three'])
    """

    data: Bytes
    offsets: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", read_only(self.data))
        object.__setattr__(self, "offsets", read_only(self.offsets))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        """Bytes in all rows."""
        return int(self.offsets[-1] - self.offsets[0])

    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def arrow(self) -> pa.Array:
        """The same memory as an Arrow array of bytes."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)

    def arrow_text(self, usable: Flags) -> pa.Array:
        """The same memory as an Arrow array of strings, null where the row is not ``usable``."""
        bitmap = pa.py_buffer(np.packbits(usable, bitorder="little"))
        offsets, data = pa.py_buffer(self.offsets), pa.py_buffer(self.data)
        return pa.LargeStringArray.from_buffers(len(self), offsets, data, bitmap)

    def take(self, rows: Ints) -> "Ragged":
        """Some of the rows, copied one after the other."""
        offsets = np.append(0, np.cumsum(self.lengths()[rows]))
        # numpy asks for huge pages where Arrow does not, and fresh small ones are slow to fill.
        out = np.empty(offsets[-1], np.uint8)
        _gather(self.data, self.offsets, rows, out)
        return Ragged(out, offsets)

    def strings(self) -> list[str]:
        text = self.data[: self.offsets[-1]].tobytes()
        return [text[start:end].decode() for start, end in pairwise(self.offsets.tolist())]


def places_of(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Where the items of some rows stand, one row after the other, and where each row then begins.

    >>> places_of(np.array([0, 2, 2, 5]), np.array([2, 0]))
    (array([2, 3, 4, 0, 1]), array([0, 3, 5]))
    """
    lengths = offsets[rows + 1] - offsets[rows]
    starts = np.append(0, np.cumsum(lengths))
    return np.repeat(offsets[rows] - starts[:-1], lengths) + np.arange(starts[-1]), starts


@kernel
def _gather(data: Bytes, offsets: Ints, rows: Ints, out: Bytes) -> None:
    at = np.uint64(0)
    for row in rows:
        start = np.uint64(offsets[row])
        length = np.uint64(offsets[row + 1]) - start
        for i in range(length):
            out[at + i] = data[start + i]
        at += length


def from_arrow(array: pa.Array | pa.ChunkedArray) -> Ragged:
    """The bytes of an Arrow array of strings or binaries; a null is an empty row."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if not (wide or pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        array, wide = array.cast(pa.large_string()), True
    if array.null_count:
        array, wide = array.cast(pa.large_binary()).fill_null(b""), True
    if not len(array):
        return Ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int64 if wide else np.int32)
    starts = starts[array.offset : array.offset + len(array) + 1]
    letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Ragged(letters, starts.astype(np.int64, copy=False))


def from_strings(texts: Sequence[str | bytes]) -> Ragged:
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    offsets = np.array([0, *accumulate(map(len, encoded))], np.int64)
    return Ragged(np.frombuffer(b"".join(encoded), np.uint8), offsets)


def concatenate(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, one after the other.

    >>> concatenate([from_strings(["a", "bc"]), from_strings(["", "d"])]).strings()
    ['a', 'bc', '', 'd']
    """
    if len(parts) == 1:
        return parts[0]
    data = np.concatenate([part.data[part.offsets[0] : part.offsets[-1]] for part in parts])
    return Ragged(data, np.append(0, np.cumsum(np.concatenate([part.lengths() for part in parts]))))
