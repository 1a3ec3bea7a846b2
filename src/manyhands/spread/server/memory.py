"""Tables that the workers of one machine share: memory without a name, which ends with the last who holds it.

Every worker begins with tables of its own. When it joins a replica, the memory of that replica takes their
place, at the same addresses: whatever the learner holds, it then holds of all. Others find the memory among
the open files of any process that has it, so it does not matter which of them is killed. (The workers of a
crew under torchrun pass it through sockets, as ``node`` does, and all begin again when one is lost.)
"""

import ctypes
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.errors import ManyhandsError
from manyhands.kernels.simd import Floats

READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
AT_THIS_ADDRESS = 0x10  # the number of Linux for MAP_FIXED
FAILED = ctypes.c_void_p(-1).value


def copy_table(process: int, file: int, into: npt.NDArray[Any]) -> None:
    """Copy what another process of this machine has in memory."""
    opened = open_of(process, file)
    try:
        with mapped(opened, into.nbytes) as memory:
            into[...] = np.frombuffer(memory, into.dtype, into.size).reshape(into.shape)
    finally:
        os.close(opened)


def can_share() -> bool:
    """Whether processes of this system find each other's memory by their open files."""
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def new_memory(size: int) -> tuple[int, mmap.mmap]:
    """Memory that others can find by its open file."""
    file = os.memfd_create("manyhands")
    os.ftruncate(file, size)
    return file, mapped(file, size)


def mapped(file: int, size: int) -> mmap.mmap:
    # All pages at once: met one by one while rows are learnt, they would take longer.
    memory = mmap.mmap(file, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    with suppress(OSError):  # not every system has large pages for memory that is shared
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def open_of(process: int, file: int) -> int:
    """An open file of another process, opened anew."""
    try:
        return os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
    except OSError as error:
        raise ManyhandsError(f"the tables of process {process} cannot be found: {error}") from None


class Memory:
    """The tables of one worker."""

    def __init__(self) -> None:
        self.files: list[int] = []
        self._maps: list[tuple[mmap.mmap, int]] = []

    def zeros(self, rows: int, width: int) -> Floats:
        size = max(rows * width * 4, 1)
        if not can_share():
            return np.zeros((rows, width), np.float32)
        file, memory = new_memory(size)
        self.files.append(file)
        self._maps.append((memory, size))
        return np.frombuffer(memory, np.float32, rows * width).reshape(rows, width)

    def file_of(self, array: npt.NDArray[Any]) -> int | None:
        """The open file whose memory an array is."""
        for file, (memory, _) in zip(self.files, self._maps, strict=True):
            if np.frombuffer(memory, np.uint8).ctypes.data == array.ctypes.data:
                return file
        return None

    def take_over(self, process: int, files: tuple[int, ...]) -> None:
        """Have the memory of another process in the place of this one's."""
        for number, ((memory, size), theirs) in enumerate(zip(self._maps, files, strict=True)):
            file = open_of(process, theirs)
            _map_at(np.frombuffer(memory, np.uint8).ctypes.data, size, file)
            os.close(self.files[number])
            self.files[number] = file


def _map_at(address: int, size: int, file: int) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE | AT_THIS_ADDRESS
    found = system.mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(size), READ_WRITE, flags, file, ctypes.c_long(0)
    )
    if found == FAILED:
        raise ManyhandsError(f"the memory of a replica cannot be shared: {os.strerror(ctypes.get_errno())}")
