"""Named arrays in one file, in the safetensors format; read by mapping the file, with every size checked.

The library of that name wants every array whole and copies it once more. Here an array goes to the
file as it lies in memory, and one that lies in pieces goes a few rows at a time.
"""

import json
import math
import mmap
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.storage.files import flush

Arrays = dict[str, npt.NDArray[Any]]

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
NAMES = {kind: name for name, kind in TYPES.items()}
ALIGNED_BYTES = 8
PIECE_BYTES = 1 << 20
LARGEST_HEADER_BYTES = 16 << 20
MOST_DIMENSIONS = 4


def write_tensors(path: Path, arrays: Arrays, facts: dict[str, str] | None = None) -> None:
    """Write the arrays to the disk itself. ``facts`` are kept in the file's head."""
    with path.open("wb") as file:
        send_tensors(file, arrays, facts)
    flush(path)


def send_tensors(file: IO[bytes], arrays: Arrays, facts: dict[str, str] | None = None) -> None:
    """Write the arrays to a file that is open. The largest numbers come first, so that all lie aligned."""
    head: dict[str, Any] = {"__metadata__": facts} if facts else {}
    names, end = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)), 0
    for name in names:
        start, end = end, end + arrays[name].nbytes
        kind = NAMES[arrays[name].dtype.newbyteorder("<").str]
        head[name] = {"dtype": kind, "shape": list(arrays[name].shape), "data_offsets": [start, end]}
    written = json.dumps(head, separators=(",", ":")).encode()
    written += b" " * (-len(written) % ALIGNED_BYTES)
    file.write(len(written).to_bytes(8, "little") + written)
    for name in names:
        for piece in _pieces(arrays[name]):
            file.write(piece)


def checksum(arrays: Arrays) -> int:
    """The same for the same names and numbers."""
    total = 0
    for name in sorted(arrays):
        total = zlib.crc32(name.encode(), total)
        for piece in _pieces(arrays[name]):
            total = zlib.crc32(piece, total)
    return total


def _pieces(array: npt.NDArray[Any]) -> Iterator[memoryview]:
    """The bytes of an array, a few rows at a time: one that lies in pieces is never copied whole."""
    rows = np.atleast_1d(array.astype(array.dtype.newbyteorder("<"), copy=False))
    step = PIECE_BYTES // max(abs(rows.strides[0]), 1) + 1
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step]).reshape(-1).view(np.uint8).data


def read_tensors(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays, as they lie in the file, and the facts; nothing is copied."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise ValueError("it is too short")
            length = int.from_bytes(file.read(8), "little")
            if length > min(LARGEST_HEADER_BYTES, size - 8):
                raise ValueError("its head is longer than the file")
            head = json.loads(file.read(length))
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if not isinstance(head, dict):
            raise ValueError("its head is no table")
        facts = head.pop("__metadata__", {})
        if not isinstance(facts, dict) or not all(isinstance(fact, str) for fact in facts.values()):
            raise ValueError("its facts are no texts")
        return {name: _view(memory, 8 + length, size, entry) for name, entry in head.items()}, facts
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; was it moved, or is this not a bundle?") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise InputError(f"{path} is damaged: {str(error).splitlines()[0][:200]}") from None


def _view(memory: mmap.mmap, base: int, size: int, entry: Any) -> npt.NDArray[Any]:
    dtype = np.dtype(TYPES[entry["dtype"]])
    start, end = entry["data_offsets"]
    shape = entry["shape"]
    whole = all(type(number) is int and number >= 0 for number in [start, end, *shape])
    if not whole or len(shape) > MOST_DIMENSIONS or not start <= end <= size - base:
        raise ValueError("an array lies outside of the file")
    count = math.prod(shape)
    if count * dtype.itemsize != end - start:
        raise ValueError("an array is not as long as its shape says")
    if (base + start) % dtype.itemsize:
        raise ValueError("an array does not lie where its numbers can be read")
    if not count:
        return np.zeros(shape, dtype)
    return np.frombuffer(memory, dtype, count, base + start).reshape(shape)
