"""Lines out of bytes as they come, and a file of them that is read on from any offset."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from manyhands.data.streams.stream import too_long
from manyhands.errors import InputError
from manyhands.storage.files import MAGIC, reading

READ_BYTES = 1 << 20
HEAD_BYTES = 256  # by which a file is known again: an inode is soon given to another
BOM = b"\xef\xbb\xbf"


class Taken(NamedTuple):
    """Some lines without their ends, the bytes they had in all, and which were too long."""

    texts: list[bytes]
    size: int
    rejected: dict[int, str]


class Lines:
    """Cuts bytes into lines. It holds the lines of what it was fed last and the start of one more; a line
    that is too long is counted and not kept.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._lines: list[bytes] = []
        self._at = 0  # the lines in front of this one are taken
        self._beyond: dict[int, int] = {}  # bytes of a line that its text and a line end do not account for
        self._rest = b""
        self._skipped = 0  # bytes left out of the line that the rest belongs to

    @property
    def waiting(self) -> bool:
        """Whether there are lines to take."""
        return self._at < len(self._lines)

    def feed(self, data: bytes) -> None:
        """Only when no lines are waiting."""
        self._lines, self._at, self._beyond = (self._rest + data).split(b"\n"), 0, {}
        self._rest = self._lines.pop()
        if self._skipped and self._lines:
            self._leave_out(0, self._skipped)
            self._skipped = 0
        if max(map(len, self._lines), default=0) > self._longest:
            for k, line in enumerate(self._lines):
                if len(line) > self._longest:
                    self._leave_out(k, 0)
        if self._skipped or len(self._rest) > self._longest:
            self._skipped += len(self._rest)
            self._rest = b""

    def finish(self) -> None:
        """No more bytes follow: what is left is a line without an end."""
        if self._rest or self._skipped:
            self._lines, self._at, self._beyond = [self._rest], 0, {0: -1}
            if self._skipped:
                self._leave_out(0, self._skipped - 1)
            self._rest, self._skipped = b"", 0

    def _leave_out(self, line: int, more: int) -> None:
        self._beyond[line] = len(self._lines[line]) + more
        self._lines[line] = b""

    def take(self, most: int) -> Taken:
        first, self._at = self._at, min(self._at + most, len(self._lines))
        texts = self._lines[first : self._at]
        size, rejected = sum(map(len, texts)) + len(texts), {}
        for line, more in self._beyond.items():
            if first <= line < self._at:
                size += more
                if more > 0:
                    rejected[line - first] = too_long(self._longest)
        return Taken(texts, size, rejected)


class LineFile:
    """An open file. ``offset`` and ``line`` stand behind the last line that was taken."""

    def __init__(self, path: Path, longest: int, offset: int = 0, line: int = 0) -> None:
        self.path, self.offset, self.line = path, offset, line
        self._lines = Lines(longest)
        self._ahead = offset  # behind the last byte read
        with reading(str(path)):
            self._descriptor = os.open(path, os.O_RDONLY)
        if any(os.pread(self._descriptor, 4, 0).startswith(magic) for magic in MAGIC):
            self.close()
            raise InputError(f"{path} is compressed, and streams are read as plain lines; unpack it first")

    def stat(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def fill(self) -> bool:
        """Whether there are lines to take, once what the file holds by now is read as far as is needed."""
        while not self._lines.waiting:
            data = os.pread(self._descriptor, READ_BYTES, self._ahead)
            if not data:
                return False
            self._ahead += len(data)
            self._lines.feed(data)
        return True

    def finish(self) -> bool:
        """Whether a line without an end was left; it can be taken then."""
        self._lines.finish()
        return self._lines.waiting

    def take(self, most: int) -> tuple[list[bytes], list[str], dict[int, str]]:
        """Texts, places, and what is rejected."""
        texts, size, rejected = self._lines.take(most)
        if not self.offset and texts:
            texts[0] = texts[0].removeprefix(BOM)
        first = self.line + 1
        self.offset, self.line = self.offset + size, self.line + len(texts)
        name = self.path.name
        return texts, [f"{name} line {line}" for line in range(first, self.line + 1)], rejected

    def shrunk(self) -> bool:
        return self.stat().st_size < self._ahead

    def head(self, size: int) -> str:
        """What tells the first ``size`` bytes from others."""
        return hashlib.sha256(os.pread(self._descriptor, size, 0)).hexdigest()[:16]

    def close(self) -> None:
        os.close(self._descriptor)
