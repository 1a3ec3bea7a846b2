"""Where a dataset or a bundle appears: whole or not at all.

It is made in a folder beside its final place, or in a temporary one if that is remote, and
moved there when everything is written. A folder that a killed run left behind is removed by
the next run to the same place, and so are its uploads; a running one holds a lock on its folder.
"""

import fcntl
import glob
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.errors import InputError, UsageError
from manyhands.storage.files import cannot_write, flush, reading
from manyhands.storage.place import abort_uploads


@dataclass(frozen=True)
class Kind:
    """What is made: only a place that holds nothing but such files may be replaced."""

    name: str
    marker: str  # the file without which nothing is there; it is written last
    ours: re.Pattern[str]
    check: Callable[[Path], object]  # raises InputError if the folder does not hold a whole one


UNFINISHED = ".partial-"  # how the name of a folder that is being made ends, or begins
MARKERS = {"dataset": "manifest.json", "bundle": "SHA256SUMS"}


def not_found(path: Path, wanted: str, by: str) -> InputError:
    """The error for a place that should hold a dataset or a bundle, which the command ``by`` makes."""
    found = [kind for kind, marker in MARKERS.items() if kind != wanted and (path / marker).is_file()]
    if found or path.is_file():
        return InputError(f"{path} is a {[*found, 'file'][0]}, not a {wanted} (a folder that {by} writes)")
    what = f"is not a complete {wanted}" if path.is_dir() else "does not exist"
    return InputError(f"{path} {what}; make one with: manyhands {by} … --out {path}")


@dataclass
class Staged:
    """Files of a remote place that stand on its own filesystem already, and are to appear with the rest."""

    folder: str = ""  # where they stand
    files: dict[str, str] = field(default_factory=dict)  # what each is to be called: where it is


@contextmanager
def destination(out: str, overwrite: bool, kind: Kind, staged: Staged | None = None) -> Iterator[Path]:
    """A folder to work in; what stands in it becomes ``out`` when the block ends well.

    Whatever has a name that begins with a dot is left behind. What others have ``staged`` for a
    remote place joins it there, without coming through here.
    """
    with reading(out):
        filesystem, path = url_to_fs(out)
    if isinstance(filesystem, LocalFileSystem):
        final = Path(path).resolve()
        place = (_within if _must_stay(final) else _local)(final, overwrite, kind)
    else:
        place = _remote(filesystem, path.rstrip("/"), out, overwrite, kind, staged or Staged())
    try:
        with place as folder:
            yield folder
            for scratch in folder.glob(".*"):
                shutil.rmtree(scratch)
    except OSError as error:
        raise cannot_write(out, error) from None


@contextmanager
def _local(final: Path, overwrite: bool, kind: Kind) -> Iterator[Path]:
    _put_back(final, kind)
    _refuse(final, overwrite, kind)
    final.parent.mkdir(parents=True, exist_ok=True)
    unfinished = f".{final.name}{UNFINISHED}"
    _remove_leftovers(final.parent, unfinished)
    work, lock = _locked_folder(final.parent, unfinished)
    try:
        yield work
        flush(work)
        _refuse(final, overwrite, kind)  # another run may have been faster
        if (final / kind.marker).is_file():
            final.rename(tempfile.mkdtemp(prefix=f".{final.name}.replaced-", dir=final.parent))
        work.rename(final)
        flush(final.parent)
        _put_back(final, kind)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


def _must_stay(final: Path) -> bool:
    """A volume of a container cannot be replaced by another folder; nor can one in a folder of others."""
    return final.is_dir() and (final.is_mount() or not os.access(final.parent, os.W_OK))


@contextmanager
def _within(final: Path, overwrite: bool, kind: Kind) -> Iterator[Path]:
    """The same for a folder that must stay itself: files move into it, the marker last."""
    _refuse(final, overwrite, kind)
    _remove_leftovers(final, UNFINISHED)
    work, lock = _locked_folder(final, UNFINISHED)
    try:
        yield work
        flush(work)
        _refuse(final, overwrite, kind)
        for old in sorted(_standing_in(final), key=lambda path: path.name != kind.marker):
            old.unlink()
        for new in sorted(work.iterdir(), key=lambda path: path.name == kind.marker):
            if not new.name.startswith("."):
                new.rename(final / new.name)
        flush(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


def _standing_in(final: Path) -> list[Path]:
    """Without what is being made there, and what a filesystem itself keeps at its top."""
    return [
        path for path in final.iterdir() if not path.name.startswith(UNFINISHED) and path.name != "lost+found"
    ]


def _refuse(final: Path, overwrite: bool, kind: Kind) -> None:
    """Refuse to write where something stands that must stay."""
    standing = _standing_in(final) if final.is_dir() else []
    if not final.exists() or (final.is_dir() and not standing):
        return
    if not final.is_dir() or not all(kind.ours.fullmatch(path.name) for path in standing):
        raise UsageError(f"{final} exists already and is not a {kind.name}; choose another --out")
    try:
        kind.check(final)
    except InputError:
        raise UsageError(
            f"{final} exists already and is not a complete {kind.name}; choose another --out"
        ) from None
    if not overwrite:
        raise UsageError(f"{final} exists already; choose another --out, or pass --overwrite")


def _put_back(final: Path, kind: Kind) -> None:
    """What was to be replaced: return it if its run died before the new one was in place."""
    for old in final.parent.glob(f".{glob.escape(final.name)}.replaced-*"):
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)
        elif (old / kind.marker).is_file():
            old.rename(final)


def _locked_folder(where: Path, prefix: str) -> tuple[Path, int]:
    """A new folder and the lock that says its run is alive."""
    while True:
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        try:
            lock = os.open(work, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            work.chmod(0o755)
        except FileNotFoundError:
            continue  # another run took it for a leftover before it was locked
        return work, lock


def _remove_leftovers(where: Path, prefix: str) -> None:
    """Remove what runs that are no longer alive left half-made."""
    for folder in where.glob(f"{glob.escape(prefix)}*"):
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # its run has just finished
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass  # its run is alive
        finally:
            os.close(lock)


@contextmanager
def _remote(
    filesystem: Any, path: str, out: str, overwrite: bool, kind: Kind, staged: Staged
) -> Iterator[Path]:
    with reading(out):
        _standing(filesystem, path, out, overwrite, kind)
    # A name of its own for each place, by which the next run finds what a killed one left.
    unfinished = f"manyhands-{hashlib.sha256(out.encode()).hexdigest()[:16]}{UNFINISHED}"
    _remove_leftovers(Path(tempfile.gettempdir()), unfinished)
    folder, lock = _locked_folder(Path(tempfile.gettempdir()), unfinished)
    try:
        yield folder
        with reading(out):
            abort_uploads(filesystem, path)
            for old in _standing(filesystem, path, out, overwrite, kind):
                filesystem.rm_file(old)
            for name, where in staged.files.items():
                filesystem.cp_file(where, f"{path}/{name}")
            names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
            for name in sorted(names, key=lambda name: name == kind.marker):  # the marker last
                filesystem.put_file(f"{folder}/{name}", f"{path}/{name}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        if staged.folder and filesystem.exists(staged.folder):
            filesystem.rm(staged.folder, recursive=True)


def _standing(filesystem: Any, path: str, out: str, overwrite: bool, kind: Kind) -> list[str]:
    """The files that an older or interrupted run left, the marker first; refuses if there are others."""
    found = filesystem.find(path) if filesystem.exists(path) else []
    files = [file for file in found if file.strip("/") != path.strip("/")]  # an empty folder may list itself
    others = [file for file in files if not kind.ours.fullmatch(file.removeprefix(path).strip("/"))]
    if others:
        raise UsageError(f"{out} holds other files, {others[0]} among them; choose another --out")
    if f"{path}/{kind.marker}" in files and not overwrite:
        raise UsageError(f"{out} exists already; choose another --out, or pass --overwrite")
    return sorted(files, key=lambda file: not file.endswith(kind.marker))
