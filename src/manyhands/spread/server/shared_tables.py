"""Tables of one process that others of the same machine learn in: memory without a name.

Others find it among the open files of the process that made it, as long as that lives; it goes with the last
array that is in it.
"""

import fcntl
import os
import weakref
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernels.simd import Floats
from manyhands.models.model import Arrays
from manyhands.spread.server.memory import mapped, new_memory, open_of


class TablePlace(NamedTuple):
    """An open file that is the memory of an array."""

    file: int
    shape: tuple[int, ...]
    kind: str


class TablePlaces(NamedTuple):
    """The tables of a process, and a file to lock. Other tables have another version."""

    process: int
    version: int
    lock: int
    tables: dict[str, TablePlace]


class SharedTables:
    """Makes tables, and tells others where they are."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}  # by the address of the memory
        self._lock = os.memfd_create("manyhands")
        weakref.finalize(self, os.close, self._lock)

    def zeros(self, rows: int, width: int) -> Floats:
        file, memory = new_memory(max(rows * width * 4, 1))
        array = np.frombuffer(memory, np.float32, rows * width)
        self._files[array.ctypes.data] = file
        weakref.finalize(memory, self._forget, array.ctypes.data, file)
        return array.reshape(rows, width)

    def _forget(self, address: int, file: int) -> None:
        os.close(file)
        if self._files.get(address) == file:
            del self._files[address]

    def places(self, tables: Arrays, version: int) -> TablePlaces:
        found = {
            name: TablePlace(self._files[array.ctypes.data], array.shape, array.dtype.str)
            for name, array in tables.items()
        }
        return TablePlaces(os.getpid(), version, self._lock, found)


def mapped_tables(places: TablePlaces) -> Arrays:
    """The tables of another process, in this one."""
    return {name: _table(places.process, place) for name, place in places.tables.items()}


def _table(process: int, place: TablePlace) -> npt.NDArray[Any]:
    count, kind = int(np.prod(place.shape)), np.dtype(place.kind)
    file = open_of(process, place.file)
    try:
        memory = mapped(file, max(count * kind.itemsize, 1))
    finally:
        os.close(file)
    return np.frombuffer(memory, kind, count).reshape(place.shape)


class TablesLock:
    """Held by one process at a time; when it is killed, by nobody."""

    def __init__(self, places: TablePlaces) -> None:
        self._file = open_of(places.process, places.lock)  # opened anew: a lock belongs to what was opened
        weakref.finalize(self, os.close, self._file)

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
