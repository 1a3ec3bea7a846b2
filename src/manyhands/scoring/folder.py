"""A folder of scored files that is resumed after a crash and committed by a manifest, written last.

While the work goes on, ``_unfinished/`` holds what the job is and a record of every part that is done; a part
without a record does not count, and is written again. When all are done, ``_manifest.json`` takes over their
records and ``_unfinished/`` goes.
"""

import json
from collections.abc import Iterable
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from manyhands.bundle.bundle import SUMS, Bundle
from manyhands.errors import InputError, UsageError
from manyhands.records import ScoringLedger
from manyhands.settings import FileSettings
from manyhands.storage.files import sha256
from manyhands.storage.place import Place, open_place
from manyhands.storage.tensors import checksum

VERSION = 1
MANIFEST, UNFINISHED = "_manifest.json", "_unfinished"
JOB = f"{UNFINISHED}/job.json"
RECORDS = f"{UNFINISHED}/parts/"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, data: bytes, where: str) -> Self:
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            raise InputError(f"{where} is damaged; remove the folder and score again") from None

    def written(self) -> bytes:
        return self.model_dump_json(indent=1).encode() + b"\n"


class ScoringJob(_Frozen):
    """All that decides what is written, but for the input."""

    version: int
    model: str
    bundle: str  # a checksum
    settings: FileSettings
    unsure: float | None = None

    @classmethod
    def of(cls, bundle: Bundle, settings: FileSettings, unsure: float | None) -> Self:
        if bundle.folder is not None:
            identity = sha256(bundle.folder / SUMS)
        else:
            identity = f"{checksum(bundle.model.arrays()):08x} {bundle.config.model_dump_json()}"
        return cls(
            version=VERSION, model=bundle.config.model, bundle=identity, settings=settings, unsure=unsure
        )


class PartRecord(_Frozen):
    """One scored file: what it was made from, its rows, and its checksum as it is stored."""

    name: str
    input: str
    input_bytes: int | None
    input_version: str | None  # the entity tag, or size and time of change
    columns: tuple[str, str]
    ledger: ScoringLedger
    rejections: list[str]  # the first of them
    bytes: int
    sha256: str | None


class ScoredManifest(_Frozen):
    """``_manifest.json``: without it, the folder is not complete."""

    job: ScoringJob
    ledger: ScoringLedger
    parts: list[PartRecord]


def is_unfinished(out: str) -> bool:
    """Whether the same command can go on where it was."""
    return JOB in open_place(out).names()


class ScoredFolder:
    """The folder, its parts given by name with the input of each."""

    def __init__(self, place: Place, job: ScoringJob, names: Iterable[str]) -> None:
        self._place, self._job, self._names = place, job, set(names)

    def begin(self, overwrite: bool) -> "ScoredManifest | dict[str, PartRecord]":
        """Make ready to write: the manifest if all is done already, else the parts that are, by name."""
        there = self._place.names()
        if MANIFEST in there and not overwrite:
            manifest = ScoredManifest.read(self._place.get(MANIFEST), f"{self._place.url}/{MANIFEST}")
            self._refuse_another_job(manifest.job)
            self._remove_unfinished(there)  # the last run may have been killed before it did
            return manifest
        kept = self._records(there)
        done = {record.name for record in kept.values()}
        if MANIFEST in there:
            manifest = ScoredManifest.read(self._place.get(MANIFEST), f"{self._place.url}/{MANIFEST}")
            done |= {part.name for part in manifest.parts}
        elif JOB not in there:
            done = set()
        ours = {MANIFEST} | done | (self._names if JOB in there else set())
        others = [name for name in there if name not in ours and not name.startswith(f"{UNFINISHED}/")]
        if others:
            raise UsageError(f"{self._place.url} holds other files, {others[0]} among them; {ANOTHER}")
        self._place.clear()
        if overwrite:
            self._place.remove([MANIFEST] if MANIFEST in there else [])
            self._remove_unfinished(there)
            self._place.remove(name for name in there if name in done | self._names)
            kept = {}
        elif JOB in there:
            self._refuse_another_job(ScoringJob.read(self._place.get(JOB), f"{self._place.url}/{JOB}"))
            strange = sorted(done - self._names)
            if strange:
                raise UsageError(
                    f"{self._place.url} holds parts of other input, {strange[0]} among them; "
                    f"name the same input again, or {ANOTHER}"
                )
        self._place.put(JOB, self._job.written())
        return {name: record for name, record in kept.items() if name in there}

    def keep(self, record: PartRecord) -> None:
        """Write down that a part is done."""
        self._place.put(f"{RECORDS}{record.name}.json", record.written())

    def commit(self, parts: list[PartRecord]) -> None:
        """All parts are done: write the manifest, then remove what only an unfinished job needs."""
        ledger = sum((part.ledger for part in parts), ScoringLedger())
        ordered = sorted(parts, key=lambda part: part.name)
        self._place.put(MANIFEST, ScoredManifest(job=self._job, ledger=ledger, parts=ordered).written())
        self._remove_unfinished(self._place.names())

    def _records(self, there: list[str]) -> dict[str, PartRecord]:
        files = [name for name in there if name.startswith(RECORDS)]
        records = [PartRecord.read(self._place.get(name), f"{self._place.url}/{name}") for name in files]
        return {record.name: record for record in records}

    def _remove_unfinished(self, there: list[str]) -> None:
        """The job last: as long as it is there, the folder is known to be ours."""
        names = [name for name in there if name.startswith(f"{UNFINISHED}/")]
        self._place.remove(sorted(names, key=lambda name: name == JOB))

    def _refuse_another_job(self, then: ScoringJob) -> None:
        for name, now in self._job.model_dump().items():
            was: Any = then.model_dump()[name]
            if was != now:
                shown = f"another {name}" if name == "bundle" else f"{name} {_short(was)}, not {_short(now)}"
                raise UsageError(f"{self._place.url} was scored with {shown}; {ANOTHER}")


ANOTHER = "choose another --out, or pass --overwrite"


def _short(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)
