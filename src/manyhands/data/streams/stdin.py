"""Standard input, a message a line. It cannot be read again: a restart goes on with whatever comes."""

import os
import select
import sys
import time
from typing import ClassVar

from manyhands.data.streams.lines import READ_BYTES, Lines
from manyhands.data.streams.stream import Messages, Position, StreamSettings
from manyhands.errors import UsageError


class StandardInput:
    replays: ClassVar[bool] = False

    def __init__(self, url: str, position: Position | None, settings: StreamSettings) -> None:
        if sys.stdin is None:
            raise UsageError("standard input is closed; name a stream instead of -")
        self._descriptor = sys.stdin.fileno()
        self._lines = Lines(settings.max_message_bytes)
        self._line: int = position["lines"] if position else 0
        self._ended = False

    def read(self, most: int, seconds: float) -> Messages | None:
        deadline = time.monotonic() + seconds
        while not self._lines.waiting:
            if self._ended:
                return None
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                return Messages([], [], self._position())
            data = os.read(self._descriptor, READ_BYTES)
            self._lines.feed(data)
            if not data:
                self._ended = True
                self._lines.finish()
        texts, _, rejected = self._lines.take(most)
        first, self._line = self._line + 1, self._line + len(texts)
        places = [f"standard input line {line}" for line in range(first, self._line + 1)]
        return Messages(texts, places, self._position(), rejected)

    def _position(self) -> Position:
        return {"kind": "stdin", "lines": self._line}

    def close(self) -> None:
        pass  # it is not ours
