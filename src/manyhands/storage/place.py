"""A folder, here or in a store, whose files appear one by one and each whole or not at all.

Here a file is written under a name of its own and renamed; a store shows none but whole objects. What a
killed writer leaves are files with that other name, and uploads that were never completed: both are found
and removed by name, so no list of them has to be kept.
"""

import fcntl
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.errors import UsageError
from manyhands.storage.files import cannot_write, discarded_on_error, flush, reading

UPLOAD_BYTES = 16 << 20  # of one piece of an upload: 10,000 of them are the most that S3 takes
PARTIAL = ".partial"


class NewFile:
    """What a file is written through; it counts and, where asked to, sums up what goes by."""

    def __init__(self, file: Any, summed: bool) -> None:
        self._file = file
        self._sum = hashlib.sha256() if summed else None
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._file.write(data)
        if self._sum is not None:
            self._sum.update(data)
        count = memoryview(data).nbytes
        self.size += count
        return count

    @property
    def sha256(self) -> str | None:
        return None if self._sum is None else self._sum.hexdigest()

    # What pyarrow asks of a file.
    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Place(ABC):
    """A folder by its URL; names are relative to it, with slashes."""

    def __init__(self, url: str, filesystem: Any, path: str) -> None:
        self.url, self.filesystem, self.path = url.rstrip("/"), filesystem, path.rstrip("/")

    @abstractmethod
    def new(self, name: str, *, summed: bool = False) -> Any:
        """A context that gives a ``NewFile``; the file is there when the context ends well."""

    @abstractmethod
    def names(self) -> list[str]:
        """All files in the folder, in order, half-written ones left out."""

    @abstractmethod
    def clear(self, names: Iterable[str] | None = None) -> None:
        """Remove what killed writers left of these files; of any, if none are named."""

    @abstractmethod
    def alone(self) -> Any:
        """A context in which no other run on this machine works in the folder."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None: ...

    def put(self, name: str, data: bytes) -> None:
        with self.new(name) as file:
            file.write(data)

    def get(self, name: str) -> bytes:
        with reading(f"{self.url}/{name}"):
            found: bytes = self.filesystem.cat_file(f"{self.path}/{name}")
            return found


def open_place(url: str) -> Place:
    with reading(url):
        filesystem, path = url_to_fs(url)
    kind = LocalPlace if isinstance(filesystem, LocalFileSystem) else StorePlace
    return kind(url, filesystem, path)


class LocalPlace(Place):
    @contextmanager
    def new(self, name: str, *, summed: bool = False) -> Iterator[NewFile]:
        final = Path(self.path) / name
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial(final)
        descriptor = _locked(partial, os.O_RDWR | os.O_CREAT)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.truncate()
                yield NewFile(file, summed)
                file.flush()
                os.fsync(file.fileno())
                partial.chmod(0o644)
                partial.rename(final)
                flush(final.parent)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise cannot_write(f"{self.url}/{name}", error) from None
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def names(self) -> list[str]:
        root = Path(self.path)
        files = [path for path in root.rglob("*") if path.is_file()] if root.is_dir() else []
        return sorted(path.relative_to(root).as_posix() for path in files if not _is_partial(path))

    def clear(self, names: Iterable[str] | None = None) -> None:
        root = Path(self.path)
        found = root.rglob(f".*{PARTIAL}") if names is None else (_partial(root / name) for name in names)
        for path in list(found):
            with suppress(UsageError, FileNotFoundError):  # its writer is alive, or has just ended
                descriptor = _locked(path, os.O_RDWR)
                path.unlink()
                os.close(descriptor)

    @contextmanager
    def alone(self) -> Iterator[None]:
        Path(self.path).mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path, os.O_RDONLY)
        try:
            _take(lock, self.url)
            yield
        finally:
            os.close(lock)

    def remove(self, names: Iterable[str]) -> None:
        root = Path(self.path)
        for name in names:
            (root / name).unlink(missing_ok=True)
            for folder in list((root / name).parents):
                if folder == root or root not in folder.parents:
                    break
                with suppress(OSError):  # others are still in it
                    folder.rmdir()


class StorePlace(Place):
    """An object store. Nobody can be kept out of a folder there: one run at a time is the user's part."""

    @contextmanager
    def new(self, name: str, *, summed: bool = False) -> Iterator[NewFile]:
        try:
            file = self.filesystem.open(f"{self.path}/{name}", "wb", block_size=UPLOAD_BYTES)
            with discarded_on_error(file):
                yield NewFile(file, summed)
        except OSError as error:
            raise cannot_write(f"{self.url}/{name}", error) from None

    def names(self) -> list[str]:
        with reading(self.url):
            self.filesystem.invalidate_cache()
            found = self.filesystem.find(self.path)
        names = (path.removeprefix(self.path).strip("/") for path in found)
        return sorted(name for name in names if name)  # some stores list a folder itself, once it is empty

    def clear(self, names: Iterable[str] | None = None) -> None:
        chosen = None if names is None else {f"{self.path}/{name}" for name in names}
        with reading(self.url):
            abort_uploads(self.filesystem, self.path, chosen)

    @contextmanager
    def alone(self) -> Iterator[None]:
        yield

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError), reading(f"{self.url}/{name}"):
                self.filesystem.rm_file(f"{self.path}/{name}")


def abort_uploads(filesystem: Any, folder: str, chosen: set[str] | None = None) -> None:
    """Abort the uploads to a folder that nobody completed; of ``chosen`` files, if any are named."""
    if not hasattr(filesystem, "list_multipart_uploads"):
        return  # other stores drop them by themselves
    bucket, _, key = folder.partition("/")
    for upload in filesystem.list_multipart_uploads(bucket) or []:
        target = f"{bucket}/{upload['Key']}"
        mine = target in chosen if chosen is not None else target.startswith(f"{bucket}/{key}/")
        if mine:
            filesystem.call_s3(
                "abort_multipart_upload", Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )


def _partial(final: Path) -> Path:
    return final.with_name(f".{final.name}{PARTIAL}")


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(PARTIAL)


def _locked(path: Path, flags: int) -> int:
    """The file, open, and locked as long as it is."""
    while True:
        descriptor = os.open(path, flags, 0o644)
        try:
            _take(descriptor, str(path.with_name(path.name[1:].removesuffix(PARTIAL))))
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except FileNotFoundError:
            pass  # another run has just renamed it
        except UsageError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int, what: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"another run is writing {what}; wait, or choose another --out") from None
