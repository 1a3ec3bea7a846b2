"""Versions of one thing in a store: each in a folder of its own, and ``latest.json``, which names the newest.

``latest.json`` is replaced when all files of a version are there, and lists them with their checksums. So
whoever follows it finds a whole version, and what a killed writer left is what it does not name.
"""

import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import IO

from fsspec.core import url_to_fs
from pydantic import BaseModel, ConfigDict, ValidationError

from manyhands.errors import InputError
from manyhands.storage.files import flush, new_path, reading, sha256
from manyhands.storage.place import open_place

LATEST = "latest.json"
FILE = re.compile(r"[a-z]+-\d{12}-[0-9a-f]{8}/[A-Za-z0-9][\w.-]{0,99}")
COPY_BYTES = 1 << 20
LOOK_SECONDS = 0.5

Newest = Callable[[], tuple[str, list[Path]] | None]  # the name and the files of a version, here


class Version(BaseModel):
    """``latest.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    folder: str  # in the store: nobody else writes there, whatever is called the same
    files: dict[str, str]  # with their SHA-256
    before: list[str]  # folders of earlier versions that are kept


def newest_version(url: str) -> Version | None:
    """What ``latest.json`` at a URL says; None where there is none."""
    name = f"{url.rstrip('/')}/{LATEST}"
    with reading(name):
        filesystem, path = url_to_fs(name)
        try:
            version = Version.model_validate_json(filesystem.cat_file(path))
        except FileNotFoundError:
            return None
        except ValidationError:
            raise InputError(f"{name} is damaged; remove it to begin anew") from None
    if not all(FILE.fullmatch(f"{version.folder}/{file}") for file in version.files):
        raise InputError(f"{name} names what cannot be a file of a version; remove it to begin anew")
    return version


def _text(version: Version | None) -> str:
    return version.model_dump_json(indent=1) + "\n" if version else ""


class Versions:
    """The versions at a URL, of which the last few are ``kept``. One writer at a time is the user's part.

    Whoever makes versions has a folder ``here``, with a copy of ``latest.json`` as it was last uploaded from
    there or fetched. As long as the store has the same, nobody else has gone on, and what stands here counts.
    """

    def __init__(self, url: str, here: Path, kept: int = 1) -> None:
        self.url = url.rstrip("/")
        self._place = open_place(url)
        self._note = here / LATEST
        self._kept = kept

    def newest(self) -> Version | None:
        return newest_version(self.url)

    def is_here(self, version: Version | None) -> bool:
        try:
            return self._note.read_text("utf-8") == _text(version)
        except FileNotFoundError:
            return version is None

    def note(self, version: Version | None) -> None:
        """From now on, this is what stands here."""
        if version is None:
            self._note.unlink(missing_ok=True)
            return
        with new_path(self._note) as path:
            path.write_text(_text(version), "utf-8")

    def add(self, name: str, files: Mapping[str, IO[bytes]]) -> None:
        """Upload a version, have it be the newest, and remove those that are not kept."""
        last, folder, sums = self.newest(), f"{name}-{secrets.token_hex(4)}", {}
        for file_name, file in files.items():
            with self._place.new(f"{folder}/{file_name}", summed=True) as new:
                shutil.copyfileobj(file, new, COPY_BYTES)
            sums[file_name] = new.sha256
        before = [last.folder, *last.before] if last else []
        newest = Version(name=name, folder=folder, files=sums, before=before[: self._kept - 1])
        self._place.put(LATEST, _text(newest).encode())
        self.note(newest)
        self._remove_all_but(newest)

    def fetch(self, version: Version, folder: Path) -> None:
        """Download all files of a version into a folder, and compare them with their checksums."""
        for name, expected in version.files.items():
            url = f"{self.url}/{version.folder}/{name}"
            with reading(url):
                path = f"{self._place.path}/{version.folder}/{name}"
                self._place.filesystem.get_file(path, str(folder / name))
                flush(folder / name)
            if sha256(folder / name) != expected:
                raise InputError(f"{url} is damaged (wrong checksum); remove {LATEST} there to begin anew")

    def others(self) -> list[str]:
        """Files at the URL that are not of versions."""
        return [name for name in self._place.names() if name != LATEST and not FILE.fullmatch(name)]

    def clear(self) -> None:
        """Remove what killed writers left: files of no version, and uploads that were never completed."""
        self._place.clear()
        self._remove_all_but(self.newest())

    def remove(self, others: list[str] | None = None) -> None:
        """Remove all versions; and ``others`` that stand there."""
        self._place.remove([LATEST, *(others or [])])
        self.clear()

    def _remove_all_but(self, newest: Version | None) -> None:
        stay = [newest.folder, *newest.before] if newest else []
        found = [name for name in self._place.names() if FILE.fullmatch(name)]
        self._place.remove(name for name in found if name.split("/")[0] not in stay)

    @contextmanager
    def following(self, newest: Newest, say: Callable[[str], None], *, last: bool) -> Iterator[None]:
        """Upload what is ``newest`` here, again and again in the background, and once more if it is stopped.

        Who makes versions never waits. One that is overtaken before its upload began is left out, and one
        that fails is told: the next one is tried. What is there already at the start is not uploaded. With
        ``last``, the last one is uploaded also where all ends well, and must be.
        """
        uploads = _Uploads(self, newest, say)
        thread = Thread(target=uploads.run, name="uploads", daemon=True)
        thread.start()
        try:
            yield
        except BaseException:  # which is to be told, and not what fails after it
            uploads.end(thread)
            uploads.try_newest(but=uploads.done)
            raise
        uploads.end(thread)
        if last:
            uploads.upload_newest(but=uploads.done)


class _Uploads:
    """One version after another, each at most once, but for the last."""

    def __init__(self, versions: Versions, newest: Newest, say: Callable[[str], None]) -> None:
        self._versions, self._newest, self._say = versions, newest, say
        self._ended = Event()
        found = newest()
        self.done = self._tried = found[0] if found else None

    def run(self) -> None:
        with suppress(Exception):  # the first upload will tell
            self._versions.clear()
        while not self._ended.wait(LOOK_SECONDS):
            self.try_newest(but=self._tried)

    def end(self, thread: Thread) -> None:
        self._ended.set()
        thread.join()

    def try_newest(self, but: str | None) -> None:
        try:
            self.upload_newest(but)
        except Exception as error:  # of any library that a store needs; the work itself goes on
            self._say(f"{self._tried} is kept here only, as its upload failed: {error}")

    def upload_newest(self, but: str | None) -> None:
        """Nothing to do if it is called as ``but`` says."""
        with ExitStack() as stack:
            try:  # files that are open stay, whoever removes them while they are uploaded
                found = self._newest()
                if found is None or found[0] == but:
                    return
                name, paths = found
                files = {path.name: stack.enter_context(path.open("rb")) for path in paths}
            except FileNotFoundError:
                return  # overtaken just now
            self._tried = name
            self._versions.add(name, files)
        self.done = name
