"""What a shard has taken over, in files: a snapshot, then every push since, and when they were merged.

A process that is killed leaves them whole up to its last push, or a little of one that was never answered
and will come again. They do not outlive the machine, and are not meant to: that is what checkpoints are for.
"""

import json
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from manyhands.spread.server.messages import Moves, Push
from manyhands.storage.tensors import Arrays, read_tensors, write_tensors

LENGTH = struct.Struct("<Q")
SNAPSHOT, LOG = "snapshot.safetensors", "log"


class Journal:
    """The files of one shard."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._log: BinaryIO = (folder / LOG).open("ab")

    @property
    def log_bytes(self) -> int:
        return self._log.tell()

    def begin_anew(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        """Keep a snapshot; pushes up to here are part of it."""
        new = self._folder / f"{SNAPSHOT}.new"
        write_tensors(new, arrays, {"facts": json.dumps(facts)})
        new.replace(self._folder / SNAPSHOT)
        self._log.truncate(0)  # whoever is killed before this finds pushes again that it has, and knows them

    def append(self, push: Push) -> None:
        head = {
            "replica": push.replica,
            "life": push.life,
            "sequence": push.sequence,
            "clock": push.clock,
            "share": push.share,
            "pull": push.pull,
            "moves": [[part.reach, *part.values.shape] for part in push.moves],
        }
        self._write(head)
        for part in push.moves:
            self._log.write(np.ascontiguousarray(part.rows).data)
            self._log.write(np.ascontiguousarray(part.values).data)
        self._log.flush()

    def append_close(self) -> None:
        """The pushes up to here were merged."""
        self._write({})
        self._log.flush()

    def _write(self, head: dict[str, Any]) -> None:
        words = json.dumps(head).encode()
        self._log.write(LENGTH.pack(len(words)) + words)

    def snapshot(self) -> tuple[Arrays, dict[str, Any]] | None:
        path = self._folder / SNAPSHOT
        if not path.is_file():
            return None
        arrays, facts = read_tensors(path)
        return arrays, json.loads(facts["facts"])

    def pushes(self) -> list[Push | None]:
        """All since the snapshot, and None where they were merged; what was being written last is cut off."""
        found: list[Push | None] = []
        whole = 0
        with (self._folder / LOG).open("rb") as file:
            while (head := _read_head(file)) is not None:
                push = _read_moves(file, head) if head else None
                if head and push is None:
                    break
                found.append(push)
                whole = file.tell()
        self._log.truncate(whole)
        return found

    def remove(self) -> None:
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # others of the run may still be there
            self._folder.parent.rmdir()


def _read_head(file: BinaryIO) -> dict[str, Any] | None:
    """What comes next; None where there is nothing whole."""
    length = file.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    words = file.read(LENGTH.unpack(length)[0])
    if len(words) < LENGTH.unpack(length)[0]:
        return None
    head: dict[str, Any] = json.loads(words)
    return head


def _read_moves(file: BinaryIO, head: dict[str, Any]) -> Push | None:
    moves = []
    for reach, count, width in head.pop("moves"):
        rows, values = file.read(4 * count), file.read(2 * count * width)
        if len(values) < 2 * count * width or len(rows) < 4 * count:
            return None
        numbers = np.frombuffer(values, np.uint16).reshape(count, width)
        moves.append(Moves(reach, np.frombuffer(rows, np.int32), numbers))
    return Push(**head, moves=tuple(moves))
