"""Where a dataset appears: whole or not at all.

It is made in a folder beside its final place, or in a temporary one if that is remote, and
moved there when everything is written. A folder that a killed run left behind is removed by
the next run to the same place; a running one holds a lock on its folder.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.data.files import cannot_write, reading
from manyhands.data.manifest import FILE as MANIFEST
from manyhands.data.store import flush
from manyhands.errors import UsageError


@contextmanager
def destination(out: str, overwrite: bool) -> Iterator[Path]:
    """A folder to work in; what stands in it becomes ``out`` when the block ends well.

    Whatever has a name that begins with a dot is left behind.
    """
    with reading(out):
        filesystem, path = url_to_fs(out)
    local = isinstance(filesystem, LocalFileSystem)
    try:
        with _local(Path(path), overwrite) if local else _remote(filesystem, path, out, overwrite) as folder:
            yield folder
            for scratch in folder.glob(".*"):
                shutil.rmtree(scratch)
    except OSError as error:
        raise cannot_write(out, error) from None


@contextmanager
def _local(final: Path, overwrite: bool) -> Iterator[Path]:
    final = final.absolute()
    if final.exists() and not (final.is_dir() and not any(final.iterdir())):
        if not (final / MANIFEST).is_file():
            raise UsageError(f"{final} exists already and is no dataset; choose another --out")
        if not overwrite:
            raise UsageError(f"{final} exists already; choose another --out, or pass --overwrite")
    final.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(final)
    work = Path(tempfile.mkdtemp(prefix=f".{final.name}.partial-", dir=final.parent))
    lock = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        work.chmod(0o755)
        yield work
        flush(work)
        if (final / MANIFEST).is_file():
            old = Path(tempfile.mkdtemp(prefix=f".{final.name}.partial-", dir=final.parent))
            final.rename(old)
        work.rename(final)
        flush(final.parent)
        _remove_leftovers(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


def _remove_leftovers(final: Path) -> None:
    """Remove what runs to ``final`` that are no longer alive left half-made."""
    for folder in final.parent.glob(f".{final.name}.partial-*"):
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass  # its run is alive
        finally:
            os.close(lock)


@contextmanager
def _remote(filesystem: Any, path: str, out: str, overwrite: bool) -> Iterator[Path]:
    path = path.rstrip("/")
    with reading(out):
        if filesystem.exists(f"{path}/{MANIFEST}") and not overwrite:
            raise UsageError(f"{out} exists already; choose another --out, or pass --overwrite")
    with tempfile.TemporaryDirectory(prefix="manyhands-") as folder:
        yield Path(folder)
        with reading(out):
            if filesystem.exists(path):  # what an interrupted or older run put there
                filesystem.rm(path, recursive=True)
            names = [entry.name for entry in Path(folder).iterdir() if not entry.name.startswith(".")]
            for name in sorted(names, key=lambda name: name == MANIFEST):  # the manifest last
                filesystem.put_file(f"{folder}/{name}", f"{path}/{name}")
