"""Checkpoints: where a run stands, in files that are there whole or not at all; the last few are kept."""

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.errors import InputError, UsageError
from manyhands.models.learner import Learner, arrays_of
from manyhands.models.model import Arrays
from manyhands.storage.files import cache_folder, flush, reading
from manyhands.storage.tensors import checksum, read_tensors, write_tensors
from manyhands.training.state import State

FILE = re.compile(r"checkpoint-(\d{12})\.safetensors")
KEPT = 2
ANY = "*"
BEST, OWED = "best.", "owed."


def checkpoint_folder(out: str, kept_in: str | None = None) -> Path:
    """Beside a local run; in the user's cache for one that will stand elsewhere; or where it is ``kept_in``.

    It is always a folder of the run's own, which can be removed with all that it holds.
    """
    if kept_in is not None and "://" in kept_in:
        raise UsageError(f"--checkpoints {kept_in} is no local folder; give one that outlives this machine")
    with reading(out):
        filesystem, path = url_to_fs(out)
    if isinstance(filesystem, LocalFileSystem):
        final = Path(path).resolve()
        return final.parent / f".{final.name}.checkpoint" if kept_in is None else Path(kept_in) / final.name
    folder = cache_folder("checkpoints") if kept_in is None else Path(kept_in)
    return folder / hashlib.sha256(out.encode()).hexdigest()[:32]


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

    def __call__(self, state: State) -> None:
        if time.monotonic() - self._kept_at >= self._seconds:
            self.save(state)

    def save(self, state: State) -> None:
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
