"""A file that is followed: its lines, as others append them."""

import time
from pathlib import Path

from manyhands.data.streams.stream import Messages, Position
from manyhands.storage.files import reading

READ_BYTES = 1 << 20
LOOK_SECONDS = 0.05


class File:
    """Each line is a message, once its end is there."""

    def __init__(self, url: str, position: Position | None) -> None:
        self._name = url.removeprefix("file://")
        at = position or {"byte": 0, "line": 0}
        self._byte, self._line, self._rest = int(at["byte"]), int(at["line"]), b""
        with reading(self._name):
            self._file = Path(self._name).open("rb")  # noqa: SIM115
        self._file.seek(self._byte)

    def read(self, most: int, seconds: float) -> Messages:
        until = time.monotonic() + seconds
        while self._rest.count(b"\n") < most:
            data = self._file.read(READ_BYTES)
            self._rest += data
            if not data and (b"\n" in self._rest or time.monotonic() >= until):
                break
            if not data:
                time.sleep(LOOK_SECONDS)
        *lines, rest = self._rest.split(b"\n", most)
        self._byte += len(self._rest) - len(rest)
        self._rest = rest
        first, self._line = self._line + 1, self._line + len(lines)
        places = [f"{self._name} line {number}" for number in range(first, self._line + 1)]
        return Messages(lines, places, {"byte": self._byte, "line": self._line})

    def close(self) -> None:
        self._file.close()
