"""Snapshots of a model that learns from a stream: all of it at one moment, in one folder.

A snapshot holds the bundle that others use and, in ``stream.safetensors``, all that is needed to go on: the
learner's arrays, the ledger and the position in the stream. It is written beside its place and renamed, and
``--out`` is a symbolic link to the newest one, which is replaced by another rename. So whoever opens
``--out`` sees a whole model, and whoever is killed goes on from a whole snapshot; there is no other record
of positions.

For an ``--out`` in a store all of this stands in the user's cache. Each snapshot is uploaded from there, and
``latest.json`` takes the part of the link: who opens the URL follows it, and so does a run that goes on.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.bundle.bundle import BUNDLE, Bundle, save_bundle
from manyhands.bundle.bundle import RECORD as RECORD_FILE
from manyhands.bundle.card import model_card
from manyhands.errors import InputError, UsageError
from manyhands.models.model import Arrays
from manyhands.storage.files import cache_folder, cannot_write, flush, reading
from manyhands.storage.tensors import checksum, read_tensors, write_tensors
from manyhands.storage.versions import Versions

STATE = "stream.safetensors"
REJECTED = "rejected.jsonl"  # in snapshots that are uploaded
LIVE = "live"
NAME = re.compile(r"snapshot-(\d{12})")
PARTIAL = "partial"
KEPT = 2  # whoever is opening the one before the newest may finish


class Snapshots:
    """The snapshots of one run, in a hidden folder beside ``out``, and what stands there beside them."""

    def __init__(self, out: str) -> None:
        with reading(out):
            filesystem, path = url_to_fs(out)
        self.name = out  # as the user says it
        remote = not isinstance(filesystem, LocalFileSystem)
        place = cache_folder("streams") / _digest(out) / LIVE if remote else Path(path)
        self.out = place.parent.resolve() / place.name
        self.folder = self.out.parent / f".{self.out.name}.stream"
        self.rejected = self.out.parent / f"{self.out.name}.rejected.jsonl"
        self.events = self.out.parent / f"{self.out.name}.events"
        self.store = Versions(out, self.folder, KEPT) if remote else None

    def refuse_others(self, overwrite: bool) -> None:
        """Nothing but a stream's own model may stand at ``out``, or a bundle that may be overwritten."""
        if self.store is not None:
            self._refuse_others_in(self.store, overwrite)
        out = self.out
        if out.is_dir() and not out.is_symlink() and not any(out.iterdir()):
            out.rmdir()
        stands = (out.exists() or out.is_symlink()) and not self._is_ours()
        if stands and (out.is_symlink() or not out.is_dir() or not all(map(_of_bundle, out.iterdir()))):
            raise UsageError(f"{out} exists already and is not a bundle; choose another --out")
        if stands and not overwrite:
            raise UsageError(f"{out} exists already, and no stream made it; choose another --out")
        if overwrite:
            for path in self.folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.rejected.unlink(missing_ok=True)
            shutil.rmtree(self.events, ignore_errors=True)
            shutil.rmtree(out) if stands else out.unlink(missing_ok=True)

    def _refuse_others_in(self, store: Versions, overwrite: bool) -> None:
        others = store.others()
        if not all(map(BUNDLE.ours.fullmatch, others)):
            raise UsageError(f"{self.name} exists already and is not a bundle; choose another --out")
        if others and not overwrite:
            raise UsageError(f"{self.name} exists already, and no stream made it; choose another --out")
        if overwrite:
            store.remove(others)

    def fetch(self) -> None:
        """Have the snapshot that the store names here, unless it is, or what came after it is."""
        if self.store is None:
            return
        version = self.store.newest()
        if self.store.is_here(version):
            return
        for path in self._all():
            shutil.rmtree(path)
        if version is not None:
            with self._new() as work:
                self.store.fetch(version, work)
                work.rename(self.folder / version.name)
        self.store.note(version)

    def uploaded(self, say: Callable[[str], None]) -> AbstractContextManager[None]:
        """While it learns: upload snapshots to the store in the background, the last one at the end."""

        def newest() -> tuple[str, list[Path]] | None:
            path = self.newest()
            return (path.name, sorted(path.iterdir())) if path else None

        return nullcontext() if self.store is None else self.store.following(newest, say, last=True)

    def _is_ours(self) -> bool:
        return self.out.is_symlink() and self.out.readlink().parts[:1] == (self.folder.name,)

    def newest(self) -> Path | None:
        return max(self._all(), default=None)

    def _all(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if NAME.fullmatch(path.name)]

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Arrays and facts of the newest snapshot, which is made what ``out`` shows; None if there is none.

        What was rejected after it will be met again, and is cut off.
        """
        path = self.newest()
        if path is None:
            return None
        arrays, kept = read_tensors(path / STATE)
        try:
            facts: dict[str, Any] = json.loads(kept["facts"])
            if str(checksum(arrays)) != kept["sum"]:
                raise ValueError("checksum mismatch")
            length = int(facts["rejected_bytes"])
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(
                f"{path} is damaged ({error}); remove it to go on from the snapshot before it"
            ) from None
        self._show(path)
        if (path / REJECTED).exists():
            shutil.copyfile(path / REJECTED, self.rejected)
        elif self.rejected.exists():
            os.truncate(self.rejected, length)
        return arrays, facts

    def reject(self, messages: list[tuple[str, str]]) -> None:
        """Add messages that cannot be used to the list, by place and reason."""
        if messages:
            with self.rejected.open("a", encoding="utf-8") as file:
                for place, reason in messages:
                    file.write(json.dumps({"place": place, "reason": reason}, ensure_ascii=False) + "\n")

    def save(self, arrays: Arrays, facts: dict[str, Any], bundle: Bundle | None, record: Any) -> Path:
        """Keep all of it at once. ``bundle`` is None while there is no model yet."""
        with self._new() as work:
            length = self.rejected.stat().st_size if self.rejected.exists() else 0
            if length:
                flush(self.rejected)
            kept = {"facts": json.dumps({**facts, "rejected_bytes": length}), "sum": str(checksum(arrays))}
            write_tensors(work / STATE, arrays, kept)
            if bundle is None:
                (work / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
                flush(work / RECORD_FILE)
            else:
                save_bundle(work, bundle, None, model_card(bundle.config, record), record)
            if length and self.store is not None:  # who goes on elsewhere needs it as well
                shutil.copyfile(self.rejected, work / REJECTED)
                flush(work / REJECTED)
            flush(work)
            newest = self.newest()
            number = int(NAME.fullmatch(newest.name)[1]) + 1 if newest else 0  # type: ignore[index]
            path = self.folder / f"snapshot-{number:012d}"
            work.rename(path)
        flush(self.folder)
        self._show(path)
        for old in sorted(self._all(), reverse=True)[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    @contextmanager
    def _new(self) -> Iterator[Path]:
        work = self.folder / PARTIAL
        try:
            shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
            work.mkdir(parents=True)
            yield work
        except OSError as error:
            raise cannot_write(str(self.out), error) from None

    def _show(self, path: Path) -> None:
        """Have ``out`` lead to a snapshot."""
        target, link = Path(self.folder.name) / path.name, self.folder / "link"
        if self.out.is_symlink() and self.out.readlink() == target:
            return
        link.unlink(missing_ok=True)
        link.symlink_to(target)  # as seen from where it will stand
        link.rename(self.out)
        flush(self.out.parent)


def _digest(url: str) -> str:
    return hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:32]


def _of_bundle(path: Path) -> bool:
    return BUNDLE.ours.fullmatch(path.name) is not None
