"""A run of the lines of a file: what one of several readers of a large file reads."""

import numpy as np

from manyhands.kernels.compile import Bytes
from manyhands.storage.files import HEAD_BYTES, InputFile, InputStream, reading

LINE_END = b"\n"
LOOK_BYTES = 1 << 16


class InputRange(InputStream):
    """The lines that begin from byte ``start`` up to byte ``end`` of a file that is not compressed.

    Ranges that follow one another give every line once, wherever they are cut. ``head`` is that of
    the file, which tells its format and fields; ``lines`` counts the line ends that were read.
    """

    def __init__(self, file: InputFile, start: int, end: int) -> None:
        super().__init__(file)
        self._end = end
        self.begins = start == 0
        self.lines = 0
        self._start = start
        self._at: int | None = None  # the next byte to give
        self._over = False

    def head(self) -> bytes:
        if self._head is None:
            with reading(self.file.name):
                self._raw.seek(0)
                self._head = self._raw.read(HEAD_BYTES)
                self._raw.seek(self._at or 0)
        return self._head

    def read_behind(self, rest: Bytes, size: int) -> Bytes:
        data = np.empty(len(rest) + size, np.uint8)
        data[: len(rest)] = rest
        new = data[len(rest) :]
        with reading(self.file.name):
            if self._at is None:
                self._at = self._first_line()
                self._over = self._at >= self._end
                self._raw.seek(self._at)
            count = 0 if self._over else int(self._raw.readinto(new.data))
        # The line of the last byte belongs here, and may go on behind it.
        last = max(self._end - 1 - self._at, 0)
        ends = np.flatnonzero(new[last:count] == ord(LINE_END))
        count = last + int(ends[0]) + 1 if len(ends) else count
        self._over = bool(len(ends)) or not count
        self._at += count
        self.lines += int(np.count_nonzero(new[:count] == ord(LINE_END)))
        return data[: len(rest) + count]

    def _first_line(self) -> int:
        """Where the first line begins that begins at the start or behind it."""
        if not self._start:
            return 0
        at = self._start - 1
        self._raw.seek(at)
        while chunk := self._raw.read(LOOK_BYTES):
            found = int(chunk.find(LINE_END))
            if found >= 0:
                return at + found + 1
            at += len(chunk)
        return self._end  # no line begins there
