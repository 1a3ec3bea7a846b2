"""Naming and opening files: paths, globs, folders, standard input and any fsspec URL."""

import errno
import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.errors import InputError, ManyhandsError, MissingPartError, UsageError, missing_extra
from manyhands.kernels.compile import Bytes

StrPath = str | os.PathLike[str]

STDIN = "-"
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
SUFFIX_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
COMPRESSED_SUFFIXES = tuple(SUFFIX_CODECS)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REMOTE_BUFFER_BYTES = 8 << 20
HEAD_BYTES = 8 << 20  # the longest record a file may begin with


@dataclass(frozen=True)
class InputFile:
    """One file to read; ``size`` is None where it cannot be known."""

    name: str
    path: str
    filesystem: Any
    size: int | None

    @property
    def suffix(self) -> str:
        """The ending that tells the format, in lower case: ``.json`` of ``a.JSON.gz``."""
        path = PurePosixPath(self.name.lower())
        return path.with_suffix("").suffix if path.suffix in COMPRESSED_SUFFIXES else path.suffix

    @property
    def identity(self) -> str:
        """The same for one file, however it is named."""
        if isinstance(self.filesystem, LocalFileSystem):
            return os.path.realpath(self.path)
        return self.path if self.filesystem is None else str(self.filesystem.unstrip_protocol(self.path))

    def open_raw(self) -> Any:
        """The bytes as they are stored, for pyarrow; seekable unless it is standard input."""
        if self.filesystem is None:
            if sys.stdin is None:
                raise UsageError("standard input is closed; name a file instead of -")
            return io.BufferedReader(_RawStdin(), REMOTE_BUFFER_BYTES)
        if isinstance(self.filesystem, LocalFileSystem):
            return pa.OSFile(self.path)
        return self.filesystem.open(self.path, "rb", block_size=REMOTE_BUFFER_BYTES)


class InputStream:
    """The decompressed bytes of a file, and how far into the file they come from."""

    begins = True  # with the first byte of the file

    def __init__(self, file: InputFile) -> None:
        self.file = file
        self._head: bytes | None = None
        with reading(file.name):
            opened = file.open_raw()
            if file.filesystem is None:
                head = opened.peek(4)[:4]
            else:
                head = opened.read(4)
                opened.seek(0)
            self._raw = opened if isinstance(opened, pa.NativeFile) else pa.PythonFile(opened, "r")
            codec = next((codec for magic, codec in MAGIC.items() if head.startswith(magic)), None)
            self.compressed = codec is not None
            self._stream = pa.CompressedInputStream(self._raw, codec) if codec else self._raw

    def head(self) -> bytes:
        """The first bytes, which the next ``read_behind`` gives once more."""
        if self._head is None:
            self._head = self.read_behind(np.empty(0, np.uint8), HEAD_BYTES).tobytes()
        return self._head

    def read_behind(self, rest: Bytes, size: int) -> Bytes:
        """``rest`` followed by the next bytes, up to ``size`` of them; only ``rest`` at the end."""
        head, self._head = self._head, None
        if head is not None:
            return np.concatenate([rest, np.frombuffer(head, np.uint8)])
        data = np.empty(len(rest) + size, np.uint8)
        data[: len(rest)] = rest
        with reading(self.file.name):
            count = self._stream.readinto(data[len(rest) :].data)
        return data[: len(rest) + count]

    def position(self) -> int:
        """Bytes of the file read so far, as stored."""
        return int(self._raw.tell()) if self.file.filesystem is not None else 0

    def close(self) -> None:
        self._stream.close()


class _RawStdin(io.RawIOBase):
    """Standard input as a raw stream, so that its head can be looked at without losing it."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = sys.stdin.buffer.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Tell whatever goes wrong below as one sentence about the file ``name``."""
    try:
        yield
    except ManyhandsError:
        raise
    except FileNotFoundError:
        raise InputError(f"{name} does not exist; check the path") from None
    except ImportError as error:
        if name.startswith("s3:"):
            raise missing_extra("s3fs", "s3") from None
        raise MissingPartError(f"{name} needs another library: {str(error).splitlines()[0]}") from None
    except (OSError, pa.ArrowException, ValueError) as error:
        if "runcated" in str(error):
            raise InputError(
                f"{name} is cut short, its compressed data ends too early; fetch it again"
            ) from None
        raise InputError(f"{name} cannot be read: {str(error).splitlines()[0]}") from None


def codec_of(name: str) -> str | None:
    """How a file of this name is compressed; None if it is not."""
    return next((codec for suffix, codec in SUFFIX_CODECS.items() if name.lower().endswith(suffix)), None)


@contextmanager
def writing(out: str) -> Iterator[Any]:
    """A file to write, compressed as its ending says, that appears under its name when it is whole."""
    if out == STDIN:
        yield sys.stdout.buffer
        return
    codec = codec_of(out)
    try:
        with _new_file(*url_to_fs(out)) as file:
            if codec is None:
                yield file
            else:
                with pa.CompressedOutputStream(pa.PythonFile(file, "w"), codec) as stream:
                    yield stream
    except (OSError, ValueError, pa.ArrowException) as error:
        raise cannot_write(out, error) from None


def refuse_to_replace(out: str, overwrite: bool) -> None:
    """An error if something stands at ``out`` already, unless it may be overwritten."""
    with reading(out):
        filesystem, path = url_to_fs(out)
        if out != STDIN and not overwrite and filesystem.exists(path):
            raise UsageError(f"{out} exists already; choose another --out, or pass --overwrite")


@contextmanager
def _new_file(filesystem: Any, path: str) -> Iterator[Any]:
    """Object stores show none but whole files."""
    if isinstance(filesystem, LocalFileSystem):
        with new_path(Path(path)) as place, place.open("wb") as file:
            yield file
    else:
        file = filesystem.open(path, "wb")
        with discarded_on_error(file):
            yield file


@contextmanager
def discarded_on_error(file: Any) -> Iterator[None]:
    """Close a file of a store, which makes it appear; or have it never appear if anything fails.

    The transactions of fsspec would do, but one belongs to all threads that use the store.
    """
    try:
        yield
    except BaseException:
        with suppress(Exception):  # what went wrong first is what is told
            file.discard()
        file.closed = True  # or it would be completed when it is forgotten
        raise
    file.close()


@contextmanager
def new_path(target: Path) -> Iterator[Path]:
    """Where to write a local file, beside its place: it is renamed to ``target`` when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(descriptor)
    place = Path(name)
    try:
        yield place
        flush(place)
        place.chmod(0o644)
        place.rename(target)
    finally:
        place.unlink(missing_ok=True)


def cannot_write(out: str, error: Exception) -> UsageError:
    """What to tell a user whose destination fails."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return UsageError(f"no space left for {out}; make room or choose another place")
    return UsageError(f"{out} cannot be written: {getattr(error, 'strerror', None) or error}")


def expand(patterns: Iterable[str]) -> list[InputFile]:
    """All files that the patterns name, each once, sorted by name so that order never matters."""
    found: dict[str, InputFile] = {}
    for pattern in patterns:
        files = [InputFile(STDIN, STDIN, None, None)] if pattern == STDIN else _matching(pattern)
        for file in files:
            found.setdefault(file.identity, file)
    if not found:
        raise UsageError("no input given; name files, folders, globs or - for standard input")
    return sorted(found.values(), key=lambda file: file.name)


def _matching(pattern: str) -> list[InputFile]:
    with reading(pattern):
        filesystem, path = url_to_fs(pattern)
        if any(character in path for character in "*?[") and not filesystem.isfile(path):
            found = [p for p in sorted(filesystem.glob(path)) if filesystem.isfile(p)]
            if not found:
                raise InputError(f"no file matches {pattern}; check the path")
        elif filesystem.isdir(path):
            found = [p for p in sorted(_files_below(filesystem, path)) if _visible(p, path)]
            if not found:
                raise InputError(f"the folder {pattern} holds no files")
        else:
            return [InputFile(pattern, path, filesystem, filesystem.size(path))]
        local = isinstance(filesystem, LocalFileSystem)  # shown as seen from the current folder
        shown = os.path.relpath if local else filesystem.unstrip_protocol
        return [InputFile(shown(p), p, filesystem, filesystem.size(p)) for p in found]


def _files_below(filesystem: Any, path: str) -> list[str]:
    """All files in a folder; one that cannot be listed or read is an error, and never skipped."""
    if not isinstance(filesystem, LocalFileSystem):
        found: list[str] = filesystem.find(path)
        return found

    def fail(error: OSError) -> None:
        raise error

    files = [Path(folder) / name for folder, _, names in os.walk(path, onerror=fail) for name in names]
    for file in files:
        if not file.is_file():
            raise InputError(
                f"{os.path.relpath(file)} cannot be read as a file; remove it, or name the others"
            )
    return [str(file) for file in files]


def _visible(path: str, folder: str) -> bool:
    """False for what is hidden or a marker: ``.part``, ``_SUCCESS``."""
    return not any(part[0] in "._" for part in path.removeprefix(folder).strip("/").split("/"))


def cache_folder(of: str) -> Path:
    """Where this user's copies and unfinished work are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "manyhands" / of


def flush(path: Path) -> None:
    """Have the file, or the folder's list of files, on the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
