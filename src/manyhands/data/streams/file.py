"""A file that is written to, followed as ``tail -F`` does: over rotations, and only in whole lines."""

import re
import time
from collections.abc import Iterator
from os import stat_result
from pathlib import Path
from typing import ClassVar

from manyhands.data.streams.address import SCHEME
from manyhands.data.streams.lines import HEAD_BYTES, LineFile
from manyhands.data.streams.stream import Messages, Position, StreamSettings
from manyhands.errors import InputError
from manyhands.storage.files import reading

LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.001, 0.05  # between two looks whether there is more
ROTATED = re.compile(r"[.-](\d[\d.:_T-]*)")  # what is put behind the name of a file: .1, -20261117


class FollowedFile:
    replays: ClassVar[bool] = True

    def __init__(self, url: str, position: Position | None, settings: StreamSettings) -> None:
        self._path = Path(SCHEME.sub("", url))
        self._longest = settings.max_message_bytes
        if position is None:
            with reading(str(self._path)):
                regular = self._path.stat() and self._path.is_file()
            if not regular:
                raise InputError(f"{self._path} is no file that can be followed; name a file, a folder or -")
            self._file = LineFile(self._path, self._longest)
            self._head = 0, self._file.head(0)
        else:
            self._file = self._find(position)
            self._head = position["head_bytes"], position["head"]
            self._refuse_if_rewritten(self._file, *self._head)

    def _find(self, position: Position) -> LineFile:
        """The file of the position, be it rotated by now or not."""
        for path, stat in self._family():
            if stat.st_ino == position["inode"]:
                return LineFile(path, self._longest, position["offset"], position["line"])
        raise InputError(
            f"{self._path} is another file than the one that was read up to line {position['line']}, and "
            f"that one is not beside it under a name like {self._path.name}.1; put it back or start a new run"
        )

    def read(self, most: int, seconds: float) -> Messages | None:
        deadline, pause = time.monotonic() + seconds, LEAST_PAUSE_SECONDS
        while True:
            self._refuse_if_rewritten(self._file, *self._head)
            if self._file.fill() or self._next_file():
                texts, places, rejected = self._file.take(most)
                return Messages(texts, places, self._position(), rejected)
            left = deadline - time.monotonic()
            if left <= 0:
                return Messages([], [], self._position())
            time.sleep(min(pause, left))
            pause = min(2 * pause, MOST_PAUSE_SECONDS)

    def _next_file(self) -> bool:
        """Whether there is more, since the file was rotated: its last line, or the next file.

        Whoever writes has left a file once there is something in the next one. Only then is the file's end
        its end, and an unfinished line its last.
        """
        following = self._following()
        if following is None:
            return False
        if self._file.fill() or self._file.finish():
            return True
        self._file.close()
        self._file = LineFile(following, self._longest)
        self._head = 0, self._file.head(0)
        return self._file.fill()

    def _following(self) -> Path | None:
        """The file that was begun after this one and has something in it."""
        mine = self._file.stat()
        try:
            if self._path.stat().st_ino == mine.st_ino:
                return None
        except FileNotFoundError:  # just renamed, and the next one is still to come
            return None
        family = list(self._family())
        name = next((path for path, stat in family if stat.st_ino == mine.st_ino), self._path)
        later = [
            (path == self._path, self._age(path, stat), path)
            for path, stat in family
            if stat.st_ino != mine.st_ino
            and stat.st_size
            and (path == self._path or self._age(path, stat) > self._age(name, mine))
        ]
        return min(later)[-1] if later else None

    def _age(self, path: Path, stat: stat_result) -> tuple[int, float]:
        """What rotated files are ordered by: their last change. Of two that were changed in the same tick of
        the clock, the one with the higher number is the older.
        """
        suffix = path.name.removeprefix(self._path.name)[1:]
        return stat.st_mtime_ns, -float(suffix) if suffix.isdigit() else 0.0

    def _family(self) -> Iterator[tuple[Path, stat_result]]:
        """The file, and what became of it before."""
        with reading(str(self._path.parent)):
            names = [path for path in self._path.parent.iterdir() if path.name.startswith(self._path.name)]
        for path in names:
            if path == self._path or ROTATED.fullmatch(path.name.removeprefix(self._path.name)):
                try:
                    yield path, path.stat()
                except FileNotFoundError:  # renamed since
                    continue

    def _refuse_if_rewritten(self, file: LineFile, head_bytes: int, head: str) -> None:
        if file.shrunk() or file.head(head_bytes) != head:
            raise InputError(
                f"{self._path} was truncated or written anew after it was read up to line {file.line}; "
                "rotate it by renaming, or start a new run"
            )

    def _position(self) -> Position:
        size = min(self._file.offset, HEAD_BYTES)
        if size != self._head[0]:
            self._head = size, self._file.head(size)
        return {
            "kind": "file",
            "inode": self._file.stat().st_ino,
            "offset": self._file.offset,
            "line": self._file.line,
            "head_bytes": self._head[0],
            "head": self._head[1],
        }

    def close(self) -> None:
        self._file.close()
