"""Local copies of datasets and bundles that stand in a store: only local files can be mapped.

A copy is named by the checksum of what lists its files, so a place whose content changes gets another one,
and each file is checked when it is fetched. Past a limit, the copies that were not used for longest are
removed, except those that a living process has in use.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from manyhands.machine import parse_size
from manyhands.storage.destination import Kind, destination
from manyhands.storage.files import cache_folder

LIMIT = "MANYHANDS_CACHE_SIZE"
KINDS = ("datasets", "bundles")

_in_use: dict[Path, int] = {}  # the lock of each copy that this process has opened


def local_copy(of: str, name: str, kind: Kind, fetch: Callable[[Path], None]) -> Path:
    """The copy of this name; where there is none, ``fetch`` fills a folder, which becomes it."""
    copy = cache_folder(of) / name
    if not (copy / kind.marker).is_file():
        with destination(str(copy), True, kind) as folder:  # another process may do the same
            fetch(folder)
        _make_room(copy)
    if copy not in _in_use:
        _in_use[copy] = os.open(copy, os.O_RDONLY)
        fcntl.flock(_in_use[copy], fcntl.LOCK_SH)
    os.utime(copy)
    return copy


def limit_bytes() -> int:
    """What all copies may take: half of the disk, unless the user says otherwise."""
    asked = os.environ.get(LIMIT)
    return parse_size(asked) if asked else shutil.disk_usage(cache_folder("").parent).total // 2


def _make_room(new: Path) -> None:
    """Remove copies, the longest unused first, until all fit."""
    folders = [path for of in KINDS for path in cache_folder(of).glob("[!.]*") if path.is_dir()]
    sizes = {folder: _size(folder) for folder in folders}
    total, most = sum(sizes.values()), limit_bytes()
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime):
        if total > most and folder != new and _removed(folder):
            total -= sizes[folder]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _removed(folder: Path) -> bool:
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except BlockingIOError:
        return False  # someone reads it
    finally:
        os.close(lock)
    return True
