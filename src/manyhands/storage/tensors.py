"""Named arrays in one file, in the safetensors format; read by mapping the file, with every size checked."""

import errno
import json
import mmap
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import save_file

from manyhands.errors import InputError
from manyhands.storage.files import flush

Arrays = dict[str, npt.NDArray[Any]]

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
LARGEST_HEADER_BYTES = 16 << 20
MOST_DIMENSIONS = 4


def write_tensors(path: Path, arrays: Arrays, facts: dict[str, str] | None = None) -> None:
    """Write the arrays to the disk itself. ``facts`` are kept in the file's head."""
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path, facts)
    except SafetensorError as error:  # a full disk, in all likelihood; it tells of it as text
        code = re.search(r"os error (\d+)", str(error))
        number = int(code[1]) if code else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from None
    path.chmod(0o644)
    flush(path)


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
        raise InputError(f"{path} does not exist; was it moved, or is this no bundle?") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise InputError(f"{path} is damaged: {str(error).splitlines()[0][:200]}") from None


def _view(memory: mmap.mmap, base: int, size: int, entry: Any) -> npt.NDArray[Any]:
    dtype = np.dtype(TYPES[entry["dtype"]])
    start, end = entry["data_offsets"]
    shape = entry["shape"]
    whole = all(type(number) is int and number >= 0 for number in [start, end, *shape])
    if not whole or len(shape) > MOST_DIMENSIONS or not start <= end <= size - base:
        raise ValueError("an array lies outside of the file")
    count = 1
    for length in shape:
        count *= length
    if count * dtype.itemsize != end - start:
        raise ValueError("an array is not as long as its shape says")
    if (base + start) % dtype.itemsize:
        raise ValueError("an array does not lie where its numbers can be read")
    if not count:
        return np.zeros(shape, dtype)
    return np.frombuffer(memory, dtype, count, base + start).reshape(shape)
