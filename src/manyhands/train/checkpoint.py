"""Checkpoints: where a run stands, in one file that is there whole or not at all."""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.errors import InputError, UsageError
from manyhands.models.learner import Learner, Loss
from manyhands.storage.files import cache_folder, flush, reading
from manyhands.storage.tensors import read_tensors, write_tensors
from manyhands.train.fit import State

FILE = "checkpoint.safetensors"
BEST = "best."


def checkpoint_folder(out: str) -> Path:
    """Beside a local run; in the user's cache for one that will stand elsewhere."""
    with reading(out):
        filesystem, path = url_to_fs(out)
    if isinstance(filesystem, LocalFileSystem):
        final = Path(path).resolve()
        return final.parent / f".{final.name}.checkpoint"
    return cache_folder("checkpoints") / hashlib.sha256(out.encode()).hexdigest()[:32]


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
    """Keeps a checkpoint of one run, every so many seconds.

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
        left_out = ("best", "whole")
        facts = {f.name: getattr(state, f.name) for f in fields(state) if f.name not in left_out}
        arrays = {**self._learner.weights(), **{BEST + name: array for name, array in state.best.items()}}
        new = self.folder / f"{FILE}.new"
        write_tensors(new, arrays, {"state": json.dumps(facts), "job": json.dumps(self._job, sort_keys=True)})
        new.replace(self.folder / FILE)
        flush(self.folder)
        self._kept_at = time.monotonic()

    def restore(self) -> State:
        """Take up the run where its checkpoint left it; a new one where there is none."""
        path = self.folder / FILE
        if not path.is_file():
            return State()
        arrays, facts = read_tensors(path)
        try:
            _refuse_another_job(json.loads(facts["job"]), self._job)
            known = json.loads(facts["state"])
            state = State(**{**known, "loss": Loss(*known["loss"]), "best": {}})
            for name, array in self._learner.weights().items():
                if arrays[name].shape != array.shape:
                    raise ValueError(f"{name} has another shape")
                array[...] = arrays[name]
            state.best = {
                name.removeprefix(BEST): np.array(array)
                for name, array in arrays.items()
                if name.startswith(BEST)
            }
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged ({error}); remove it and train again") from None
        return state


def _refuse_another_job(then: dict[str, Any], now: dict[str, Any]) -> None:
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            raise UsageError(
                f"the checkpoint is of another run: {name} was {then.get(name)}, now it is {now.get(name)}; "
                "train with the same data and settings, or without --resume"
            )
