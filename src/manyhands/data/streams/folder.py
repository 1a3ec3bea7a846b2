"""A folder that fills: its files in the order of their names, each once it has its final name."""

import os
import time
from collections import deque
from pathlib import Path
from typing import ClassVar

from manyhands.data.streams.address import SCHEME
from manyhands.data.streams.lines import LineFile
from manyhands.data.streams.stream import Messages, Position, StreamSettings
from manyhands.errors import InputError
from manyhands.storage.files import reading

PAUSE_SECONDS = 0.05
UNFINISHED = (".tmp", ".part", ".partial", ".crdownload")


class FillingFolder:
    replays: ClassVar[bool] = True

    def __init__(self, url: str, position: Position | None, settings: StreamSettings) -> None:
        self._folder = Path(SCHEME.sub("", url))
        self._longest = settings.max_message_bytes
        begin = {"kind": "folder", "file": "", "offset": 0, "line": 0, "size": 0, "before": 0}
        self._position: Position = {**(position or begin)}
        self._file: LineFile | None = None
        self._coming: deque[str] = deque()
        self._list()
        if self._position["offset"] < self._position["size"]:
            self._open(self._position["file"], self._position["offset"], self._position["line"])

    def read(self, most: int, seconds: float) -> Messages | None:
        deadline = time.monotonic() + seconds
        while True:
            if self._file is not None and (self._file.fill() or self._last_line(self._file)):
                texts, places, rejected = self._file.take(most)
                self._position |= {"offset": self._file.offset, "line": self._file.line}
                return Messages(texts, places, {**self._position}, rejected)
            if self._next_file():
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return Messages([], [], {**self._position})
            time.sleep(min(PAUSE_SECONDS, left))

    def _last_line(self, file: LineFile) -> bool:
        self._refuse_if_changed(file)
        return file.finish()

    def _next_file(self) -> bool:
        if self._file is not None:
            self._file.close()
            self._file = None
        if not self._coming:
            self._list()
        if not self._coming:
            return False
        self._position["before"] += 1
        self._open(self._coming.popleft(), 0, 0)
        return True

    def _open(self, name: str, offset: int, line: int) -> None:
        file = LineFile(self._folder / name, self._longest, offset, line)
        if offset:
            self._refuse_if_changed(file)
        self._file = file
        self._position |= {"file": name, "offset": offset, "line": line, "size": file.stat().st_size}

    def _list(self) -> None:
        """Look which files are to come. One in front of what was read would never be: that is an error."""
        with reading(str(self._folder)), os.scandir(self._folder) as entries:
            names = sorted(entry.name for entry in entries if _finished(entry))
        behind = [name for name in names if name > self._position["file"]]
        before = names[: len(names) - len(behind)]
        if len(before) > self._position["before"]:
            late = max(before, key=lambda name: (self._folder / name).stat().st_ctime_ns)
            raise InputError(
                f"{self._folder / late} came late: its name stands in front of {self._position['file']}, "
                "which was read already; give new files names that sort behind those of old ones"
            )
        self._position["before"] = len(before)  # what was read may be removed
        self._coming = deque(behind)

    def _refuse_if_changed(self, file: LineFile) -> None:
        if file.stat().st_size != self._position["size"]:
            raise InputError(
                f"{file.path} changed while it was read; write files under another name, such as "
                f".{file.path.name}, and rename them when they are finished"
            )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _finished(entry: os.DirEntry[str]) -> bool:
    return entry.name[0] not in "._" and not entry.name.endswith(UNFINISHED) and entry.is_file()
