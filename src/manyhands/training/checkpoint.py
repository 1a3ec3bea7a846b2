"""Checkpoints: where a run stands, in files that are there whole or not at all; the last few are kept."""

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.errors import InputError, ManyhandsError, UsageError
from manyhands.models.learner import Learner, arrays_of
from manyhands.models.model import Arrays
from manyhands.storage.files import cache_folder, flush, reading
from manyhands.storage.tensors import checksum, read_tensors, write_tensors
from manyhands.storage.versions import Versions
from manyhands.training.state import State

FILE = re.compile(r"checkpoint-(\d{12})\.safetensors")
KEPT = 2
ANY = "*"
BEST, OWED = "best.", "owed."


def checkpoint_folder(out: str, kept_in: str | None = None) -> Path:
    """Beside a local run, or where it is ``kept_in``; in the user's cache if a store has the last one.

    It is always a folder of the run's own, which can be removed with all that it holds.
    """
    store = checkpoint_store(out, kept_in)
    if store is not None:
        return cache_folder("checkpoints") / _digest(store)
    final = _local(out)
    if kept_in is None and final is not None:
        return final.parent / f".{final.name}.checkpoint"
    kept = _local(kept_in or out)
    assert kept is not None  # noqa: S101 - else a store has it
    return kept / (final.name if final else _digest(out))


def checkpoint_store(out: str, kept_in: str | None = None) -> str | None:
    """Where the newest checkpoint is copied to: the URL it is ``kept_in``, or beside a run in a store."""
    if _local(kept_in or out) is not None:
        return None
    if kept_in is not None:
        final = _local(out)
        return f"{kept_in.rstrip('/')}/{final.name if final else _digest(out)}"
    folder, _, name = out.rstrip("/").rpartition("/")
    if folder.endswith("/"):
        raise UsageError(f"{out} is a whole bucket; name a folder in it as --out")
    return f"{folder}/.{name}.checkpoint"


def _local(name: str) -> Path | None:
    """The path of a local file or folder; None of one in a store."""
    with reading(name):
        filesystem, path = url_to_fs(name)
    return Path(path).resolve() if isinstance(filesystem, LocalFileSystem) else None


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:32]


def checkpoints(folder: Path) -> list[Path]:
    """Those of a folder, the newest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if FILE.fullmatch(path.name)), reverse=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a run's checkpoint folder: two runs to one place would spoil each other's checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        _take(lock)
        yield
    finally:
        os.close(lock)
        with suppress(OSError):
            folder.rmdir()  # if nothing was kept


def _take(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError("another run is training to the same --out; wait, or choose another") from None


class StoredCheckpoint:
    """The newest checkpoint of a run, in a store: another machine can take up the run from there."""

    def __init__(self, url: str, folder: Path) -> None:
        self._folder, self._versions = folder, Versions(url, folder)

    def exists(self) -> bool:
        return self._versions.newest() is not None

    def fetch(self) -> None:
        """Have what the store has in the folder, unless it is there, or what came after it is."""
        version = self._versions.newest()
        if self._versions.is_here(version):
            return
        for old in checkpoints(self._folder):
            old.unlink()
        if version is not None:
            self._versions.fetch(version, self._folder)
        self._versions.note(version)

    def following(self, say: Callable[[str], None]) -> AbstractContextManager[None]:
        """While the run goes on: upload checkpoints in the background, as far as there is time."""

        def newest() -> tuple[str, list[Path]] | None:
            found = checkpoints(self._folder)
            return (found[0].stem, found[:1]) if found else None

        return self._versions.following(newest, say, last=False)

    def remove(self, say: Callable[[str], None]) -> None:
        try:
            self._versions.remove()
        except ManyhandsError as error:  # no reason to call a run failed that is finished
            say(f"the run is finished, but its checkpoints could not be removed: {error}")


def can_resume(out: str, kept_in: str | None = None) -> bool:
    """Whether a run has left a checkpoint, here or in its store."""
    folder, store = checkpoint_folder(out, kept_in), checkpoint_store(out, kept_in)
    return bool(checkpoints(folder)) or (store is not None and StoredCheckpoint(store, folder).exists())


class Keeper:
    """Keeps checkpoints of one run, every so many seconds.

    ``job`` is all that decides what comes out: a run can only be taken up by the same job.
    """

    def __init__(self, folder: Path, job: dict[str, Any], learner: Learner, seconds: float) -> None:
        self.folder = folder
        self._job = job
        self._learner = learner
        self._seconds = seconds
        self._kept_at = time.monotonic()
        self.took: float | None = None  # seconds, to save the last one

    def __call__(self, state: State) -> None:
        if time.monotonic() - self._kept_at >= self._seconds:
            self.save(state)

    def save(self, state: State) -> None:
        began = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays = arrays_of(self._learner)
        for head, more in ((BEST, state.best), (OWED, state.owed)):
            arrays |= {head + name: array for name, array in more.items()}
        facts = {
            "state": json.dumps(state.facts()),
            "job": json.dumps(self._job, sort_keys=True),
            "sum": str(checksum(arrays)),
        }
        old = checkpoints(self.folder)
        number = int(FILE.fullmatch(old[0].name)[1]) + 1 if old else 0  # type: ignore[index]
        new = self.folder / "checkpoint.new"
        write_tensors(new, arrays, facts)
        new.replace(self.folder / f"checkpoint-{number:012d}.safetensors")
        flush(self.folder)
        for path in old[KEPT - 1 :]:
            path.unlink(missing_ok=True)
        self._kept_at = time.monotonic()
        self.took = self._kept_at - began

    def restore(self, run: str | None = None) -> State:
        """Take up the run at its newest checkpoint that is whole; a new one where there is none.

        With ``run``, only what that run has left counts; ``ANY`` stands for whichever did the same job.
        """
        damaged: InputError | None = None
        for path in checkpoints(self.folder):
            try:
                state = self._restored(path, run)
            except InputError as error:
                damaged = damaged or error
                continue
            except UsageError:  # of another job
                if run is None:
                    raise
                continue
            if state is not None:
                return state
        if damaged and run is None:
            raise damaged
        return State()

    def _restored(self, path: Path, run: str | None) -> State | None:
        arrays, facts = read_tensors(path)
        try:
            _refuse_another_job(json.loads(facts["job"]), self._job, self.folder)
            known = json.loads(facts["state"])
            if run not in (None, ANY, known["run"]):
                return None
            if str(checksum(arrays)) != facts["sum"]:
                raise ValueError("checksum mismatch")
            state = State()
            state.take(known, _under(BEST, arrays), _under(OWED, arrays))
            for name, array in arrays_of(self._learner).items():
                if arrays[name].shape != array.shape:
                    raise ValueError(f"{name} has another shape")
            for name, array in arrays_of(self._learner).items():
                array[...] = arrays[name]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged ({error}); remove it and train again") from None
        return state


def _under(head: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(head): np.array(a) for name, a in arrays.items() if name.startswith(head)}


def _refuse_another_job(then: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            raise UsageError(
                f"the checkpoint is of another run: {name} was {then.get(name)}, now it is {now.get(name)}; "
                f"train with the same data and settings, without --resume, or without {folder}"
            )
