"""The records of runs: found in run folders, in folders of runs such as a scaling study, and in stores."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fsspec.core import url_to_fs

from manyhands.errors import InputError
from manyhands.storage.files import reading

RECORD = "record.json"
LARGEST_RECORD = 64 << 20
NEEDED = ("model", "settings", "seconds", "rows_per_second", "tokens_per_second", "scores", "data")


@dataclass(frozen=True)
class RunRecord:
    """The record of one run; ``folder`` is where it stands, as it was named."""

    folder: str
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.rstrip("/").rsplit("/", 1)[-1] or self.folder

    @property
    def workers(self) -> int:
        return int(self.facts.get("workers", 1))

    @property
    def seed(self) -> Any:
        return self.facts["settings"].get("seed")

    @property
    def learns(self) -> str:
        """``labels`` or ``words``."""
        if "learns" in self.facts:
            return str(self.facts["learns"])
        # Written before records said so.
        from manyhands.catalog import LEARNERS, load  # noqa: PLC0415 - models are slow to import

        return str(load(LEARNERS, "model", self.facts["model"]).learns)


def read_record(run: str) -> dict[str, Any]:
    """The record of a run folder, as it stands there."""
    path = f"{run.rstrip('/')}/{RECORD}"
    with reading(path):
        filesystem, place = url_to_fs(path)
        if not filesystem.isfile(place):
            raise InputError(f"{run} has no record of a run; give a folder that train wrote")
        if filesystem.size(place) > LARGEST_RECORD:
            raise InputError(f"{path} is too large for a record")
        text = filesystem.cat_file(place)
    try:
        record = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); train again") from None
    if not isinstance(record, dict):
        raise InputError(f"{path} is damaged (it holds no object); train again")
    return record


def read_runs(places: Sequence[str], warn: Callable[[str], None]) -> list[RunRecord]:
    """The records of all runs that are named: by their folders, or by a folder that run folders stand in.

    A folder without any is told to ``warn``, if others have some: ``runs/*`` may name more than runs.
    """
    found: dict[str, RunRecord] = {}
    empty: list[str] = []
    for place in places:
        folders = _run_folders(place)
        for folder in folders:
            found.setdefault(folder, RunRecord(folder, _checked(folder, read_record(folder))))
        if not folders:
            empty.append(place)
    if not found:
        raise InputError(
            f"{empty[0] if empty else '.'} holds no record of a run; give folders that train wrote"
        )
    for place in empty:
        warn(f"{place} holds no record of a run, and is left out")
    return list(found.values())


def _run_folders(place: str) -> list[str]:
    """The folder itself if it is a run's; else the run folders in it."""
    place = place.removesuffix(f"/{RECORD}").rstrip("/") or place
    with reading(place):
        filesystem, path = url_to_fs(place)
        shown = filesystem.unstrip_protocol if "://" in place else str
        if any(character in path for character in "*?[") and not filesystem.exists(path):
            matching = sorted(filesystem.glob(path))
            if not matching:
                raise InputError(f"no folder matches {place}; check the path")
            return [folder for match in matching for folder in _run_folders(shown(match))]
        if filesystem.isfile(f"{path}/{RECORD}"):
            return [place]
        if not filesystem.exists(path):
            raise InputError(f"{place} does not exist; check the path")
        if not filesystem.isdir(path):
            return []
        names = sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in filesystem.ls(path, detail=False))
        visible = [name for name in names if name and not name.startswith(".")]
        return [f"{place}/{name}" for name in visible if filesystem.isfile(f"{path}/{name}/{RECORD}")]


def _checked(folder: str, record: dict[str, Any]) -> dict[str, Any]:
    missing = [name for name in NEEDED if name not in record]
    if missing:
        why = "it is of a quantised copy" if "quantized" in record else f"it has no '{missing[0]}'"
        raise InputError(
            f"{folder}/{RECORD} is no record of a training run: {why}; name the run's own folder"
        )
    numbers = [record[name] for name in ("seconds", "rows_per_second", "tokens_per_second")]
    sound = all(isinstance(record[name], dict) for name in ("settings", "scores", "data"))
    if not sound or not all(isinstance(n, int | float) and n == n and n >= 0 for n in numbers):
        raise InputError(f"{folder}/{RECORD} is damaged; train again")
    return record
