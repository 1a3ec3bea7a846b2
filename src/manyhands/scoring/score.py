"""``predict --out``: whole files scored into files of the same format, every column kept.

A file becomes a file; several become a folder, in parallel and within the memory that may be used. A run that
was killed goes on where it was: parts that are done stay, and every row of the input is scored once.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.unsure import check_unsure
from manyhands.catalog import SOURCES, load
from manyhands.data.dataset import is_dataset
from manyhands.errors import InputError, UsageError
from manyhands.machine import resources_for
from manyhands.records import Progress, Resources, ScoringLedger, Silent
from manyhands.scoring.folder import PartRecord, ScoredFolder, ScoredManifest, ScoringJob
from manyhands.scoring.part import PartScorer, Stopped, version_of
from manyhands.settings import FileSettings
from manyhands.storage.files import STDIN, InputFile, StrPath, expand, refuse_to_replace
from manyhands.storage.place import Place, open_place

THREAD_BYTES = 64 << 20  # what scoring a block takes, at most
FILE_BYTES = 64 << 20  # what reading and writing a file takes
MOST_FILES_AT_ONCE = 16
SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class Scored:
    """What was written."""

    out: str
    parts: list[PartRecord]
    resumed: int  # parts that an earlier run had finished
    seconds: float

    @property
    def ledger(self) -> ScoringLedger:
        return sum((part.ledger for part in self.parts), ScoringLedger())

    def facts(self) -> dict[str, Any]:
        new = sum(part.ledger.read for part in self.parts[self.resumed :])
        return {
            "out": self.out,
            "files": len(self.parts),
            "resumed_files": self.resumed,
            "ledger": asdict(self.ledger),
            "columns": sorted({name for part in self.parts for name in part.columns}),
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(new / self.seconds) if self.seconds else 0,
        }


def score_files(
    bundle: Bundle,
    sources: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    unsure: float | None = None,
    overwrite: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Scored:
    """Write each file of ``sources`` to ``out`` with the likeliest label of each row and its probability.

    With ``unsure``, the label is that word where the probability is less.

    ``reading`` are ``FileSettings``. ``out`` is a file where one file is named, and it is called like one;
    else a folder.
    """
    began = time.perf_counter()
    given = [os.fspath(name) for name in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    settings = FileSettings.create(**reading)
    _check(bundle, given, settings)
    check_unsure(unsure, bundle.labels)
    parts, place_name = os.fspath(out), ""
    files = _named(given)
    single = _is_file(given, files, parts)
    if single:
        place_name, name = _split(parts)
        files = {name: next(iter(files.values()))}
        refuse_to_replace(parts, overwrite)
    place = open_place(place_name if single else parts)
    run = _Run(bundle, settings, unsure, place, files, resources_for(memory, threads), progress or Silent())
    done, resumed = run.file() if single else run.folder(overwrite)
    return Scored(parts, done, resumed, time.perf_counter() - began)


class _Run:
    def __init__(
        self,
        bundle: Bundle,
        settings: FileSettings,
        unsure: float | None,
        place: Place,
        files: dict[str, InputFile],
        resources: Resources,
        progress: Progress,
    ) -> None:
        self._bundle, self._settings, self._unsure, self._place = bundle, settings, unsure, place
        self._files, self._resources, self._progress = files, resources, progress
        self._read: dict[str, int] = {}

    def file(self) -> tuple[list[PartRecord], int]:
        self._place.clear(self._files)
        return list(self._score(self._files, summed=False)), 0

    def folder(self, overwrite: bool) -> tuple[list[PartRecord], int]:
        job = ScoringJob.of(self._bundle, self._settings, self._unsure)
        folder = ScoredFolder(self._place, job, self._files)
        with self._place.alone():
            found = folder.begin(overwrite)
            if isinstance(found, ScoredManifest):
                self._refuse_other_input(found)
                self._progress.say(f"{self._place.url} is complete already")
                return found.parts, len(found.parts)
            kept = [record for record in found.values() if self._unchanged(record)]
            resumed = {record.name for record in kept}
            new = []
            for record in self._score({n: f for n, f in self._files.items() if n not in resumed}):
                folder.keep(record)
                new.append(record)
            parts = kept + sorted(new, key=lambda record: record.name)
            folder.commit(parts)
        return parts, len(kept)

    def _unchanged(self, record: PartRecord) -> bool:
        file = self._files[record.name]
        return (record.input, record.input_version) == (file.name, version_of(file))

    def _refuse_other_input(self, manifest: ScoredManifest) -> None:
        then, now = {part.name: part for part in manifest.parts}, self._files
        for name in sorted({*then, *now}):
            if name not in now or name not in then or not self._unchanged(then[name]):
                what = "is new" if name not in then else "is not named now" if name not in now else "changed"
                raise UsageError(
                    f"{self._place.url} is complete, and {name} {what} since; "
                    "choose another --out, or pass --overwrite"
                )

    def _score(self, files: dict[str, InputFile], *, summed: bool = True) -> Iterator[PartRecord]:
        """Score files side by side, the largest first; records come as parts are done."""
        sizes = [file.size for file in files.values()]
        self._progress.stage("predict", None if None in sizes else sum(s or 0 for s in sizes), "B")
        threads = self._resources.threads
        spare = self._resources.memory_bytes - threads * THREAD_BYTES
        at_once = max(1, min(len(files), MOST_FILES_AT_ONCE, spare // FILE_BYTES))
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(threads)) if threads > 1 else None
            ahead = 1 + -(-2 * threads // at_once)
            scorer = PartScorer(self._bundle, self._settings, pool, ahead, self._unsure)
            at_once = at_once if pool else 1  # one thread means one
            readers = stack.enter_context(ThreadPoolExecutor(at_once))
            order = sorted(files, key=lambda name: -(files[name].size or 0))
            pending = {readers.submit(self._part, scorer, name, files[name], summed) for name in order}
            with _stopping(scorer, pending):
                while pending:
                    done, pending_now = wait(pending, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
                    pending.intersection_update(pending_now)
                    self._progress.advance(sum(self._read.values()))
                    yield from (future.result() for future in done)

    def _part(self, scorer: PartScorer, name: str, file: InputFile, summed: bool) -> PartRecord:
        if scorer.stop.is_set():
            raise Stopped
        before = version_of(file)
        with self._place.new(name, summed=summed) as out:
            tally = scorer.score(file, name, out, partial(self._read.__setitem__, name))
            if version_of(file) != before:
                raise InputError(f"{file.name} changed while it was scored; run the same again")
        return PartRecord(
            name=name,
            input=file.name,
            input_bytes=file.size,
            input_version=before,
            columns=tally.columns,
            ledger=tally.ledger,
            rejections=tally.rejections,
            bytes=out.size,
            sha256=out.sha256,
        )


@contextmanager
def _stopping(scorer: PartScorer, pending: set[Future[PartRecord]]) -> Iterator[None]:
    """When one file fails, or the user stops, the others end at their next block."""
    try:
        yield
    except BaseException:
        scorer.stop.set()
        for future in pending:
            future.cancel()
        raise


def _check(bundle: Bundle, given: list[str], settings: FileSettings) -> None:
    if bundle.classifier.reads_numbers:
        raise UsageError("--out is for texts, and this model reads numbers; predict without --out")
    if is_dataset(given):
        raise UsageError(
            f"{given[0]} is a prepared dataset, which keeps no texts; give the raw files to --out"
        )
    if settings.label_field is not None:
        raise UsageError("--label-field is for tables of numbers; of texts, predict reads no labels")


def _named(given: list[str]) -> dict[str, InputFile]:
    """The files, by what each is called in a folder: as under the folder or pattern that names it."""
    found: dict[str, InputFile] = {}
    for pattern in given:
        for file in expand([pattern]):
            name = _name_under(pattern, file)
            other = found.setdefault(name, file)
            if other.identity != file.identity:
                raise UsageError(
                    f"{other.name} and {file.name} would both become {name}; score them apart, "
                    "or name the folder that holds both"
                )
    return found


def _name_under(pattern: str, file: InputFile) -> str:
    if file.filesystem is None:
        return "stdin"
    base = str(file.filesystem._strip_protocol(pattern)).rstrip("/")
    if base == file.path:
        return PurePosixPath(file.path).name
    plain = re.split(r"[*?\[]", base, maxsplit=1)[0]
    folder = base if plain == base else plain.rpartition("/")[0]
    return file.path.removeprefix(folder).strip("/")


def _is_file(given: list[str], files: dict[str, InputFile], out: str) -> bool:
    """Whether ``out`` is to be a file: it is called like one, and so is the only input."""
    called = bool(InputFile(out, out, None, None).suffix in _suffixes()) and not out.endswith("/")
    if (
        called
        and len(given) == len(files) == 1
        and next(iter(files)) in (PurePosixPath(given[0]).name, "stdin")
    ):
        return True
    if called:
        raise UsageError(f"{out} is called like a file, and several are read; name a folder with --out")
    if STDIN in given:
        raise UsageError(f"standard input becomes a file, and {out} is called like a folder; end it in .txt")
    return False


def _suffixes() -> set[str]:
    return {suffix for name in SOURCES for suffix in load(SOURCES, "format", name).suffixes}


def _split(out: str) -> tuple[str, str]:
    folder, slash, name = out.rpartition("/")
    return folder + slash if slash else ".", name
