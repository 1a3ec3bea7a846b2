"""What a shard has taken over, in files: a snapshot, then every push since, and when they were merged.

A process that is killed leaves them whole up to its last push, or a little of one that was never answered
and will come again. They do not outlive the machine, and are not meant to: that is what checkpoints are for.

Nor are they meant to outlive the run. Its driver removes them; where that was killed too, the next run that
comes to the machine does. A folder is held by its shards, and by the driver where it is on the same machine,
through a lock that ends with the process: what nobody holds is abandoned. A shard that was killed is back
in seconds, so where there was no driver, what was written to lately is left alone.
"""

import fcntl
import json
import os
import shutil
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from manyhands.spread.server.messages import Moves, Push
from manyhands.storage.tensors import Arrays, read_tensors, write_tensors

LENGTH = struct.Struct("<Q")
SNAPSHOT, LOG = "snapshot.safetensors", "log"
KIND = "shards-"  # the folder of a run is manyhands-shards-…
DRIVER = "driver"  # a file that says that the driver holds the folder as well
QUIET_SECONDS = 600.0


class Claim:
    """The journals of a run on its driver's machine, which go with it."""

    def __init__(self, name: str) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"manyhands-{name}"
        self._folder.mkdir(mode=0o700)
        self._lock = _hold(self._folder)
        (self._folder / DRIVER).touch()

    def release(self) -> None:
        os.close(self._lock)
        shutil.rmtree(self._folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove what runs have left on this machine that were killed with their drivers."""
    for folder in Path(tempfile.gettempdir()).glob(f"manyhands-{KIND}*"):
        with suppress(OSError):  # it is held, or another user's, or gone
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (folder / DRIVER).exists() or _is_quiet(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _hold(folder: Path) -> int:
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def _is_quiet(folder: Path) -> bool:
    newest = max(path.stat().st_mtime for path in [folder, *folder.rglob("*")])
    return time.time() - newest > QUIET_SECONDS


class Journal:
    """The files of one shard."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder, self._lock = folder, _hold(folder.parent)
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
        os.close(self._lock)
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
