"""Raw reviews to a dataset, in three passes that each touch every row once.

Reading parses, normalises, hashes and numbers words; equal texts meet in one partition of the
hash. Folding makes one row of them, draws its split and counts its words. Writing looks up the
final ids.
Rows stand in the order of their hashes, so neither the order of the input, nor memory, nor
threads change a byte of what comes out.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from manyhands.data.counting import PREFIXES, Counter
from manyhands.data.dataset import Dataset, open_dataset
from manyhands.data.manifest import DATASET, VERSION, FileFacts, LabelFacts, Manifest, PartFacts, SourceFacts
from manyhands.data.reading import Given, Read, Reader
from manyhands.data.rejections import FILE as REJECTED
from manyhands.data.spool import Spool
from manyhands.data.store import WHOLE, PartPlan, write_whole
from manyhands.data.wordtables import WordTables
from manyhands.data.writing import Writer
from manyhands.errors import InputError, UsageError
from manyhands.machine import resources_for
from manyhands.records import SPLITS, Ledger, Progress, Resources, Silent
from manyhands.settings import PrepareSettings
from manyhands.storage.destination import destination
from manyhands.storage.files import COMPRESSED_SUFFIXES, STDIN, expand, flush, sha256
from manyhands.text.vocabulary import FILE as VOCABULARY

StrPath = str | os.PathLike[str]

PARTITION_BYTES = 64 << 20
SPREAD_OF_COMPRESSION = 4  # how much larger compressed input is taken to be


def prepare(
    sources: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    valid_files: Sequence[StrPath] = (),
    test_files: Sequence[StrPath] = (),
    overwrite: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Dataset:
    """Prepare the reviews in ``sources`` (files, folders, globs, URLs) and open the outcome.

    ``settings`` are those of ``PrepareSettings``; ``text`` may be given as a dict.
    """
    checked = PrepareSettings.checked(**settings)
    names = [sources] if isinstance(sources, str | os.PathLike) else sources
    given = [
        Given(file, origin)
        for origin, patterns in enumerate((names, valid_files, test_files))
        if patterns or origin == 0
        for file in expand(os.fspath(pattern) for pattern in patterns)
    ]
    if sum(item.file.name == STDIN for item in given) > 1:
        raise UsageError("standard input can be read once, and not for two splits")
    resources = resources_for(memory, threads)
    with destination(os.fspath(out), overwrite, DATASET) as folder:
        _make(folder, given, checked, resources, progress or Silent())
    return open_dataset(out)


def _make(
    folder: Path, given: list[Given], settings: PrepareSettings, resources: Resources, progress: Progress
) -> None:
    scratch = folder / ".scratch"
    scratch.mkdir()
    partitions = _partitions(given, resources)
    rows = Spool(scratch / "rows", resources.memory_bytes * 2 // 5)
    kept = Spool(scratch / "kept", resources.memory_bytes // 10)
    tables = WordTables(resources.memory_bytes // 8 // resources.threads)
    read = Reader(settings, rows, tables, partitions).read(given, resources, progress)
    _check(read, settings)
    classes, bases = read.book.classes(read.rates_stars), tables.bases()
    origins = {item.origin for item in given}
    counter = Counter(settings, read.book, classes, origins, bases, (rows, kept))
    found = counter.count(partitions, resources, progress)
    vocabulary, final_ids = tables.vocabulary(
        found.words, settings.vocabulary, settings.min_count, resources.memory_bytes // 4, scratch
    )
    writer = Writer(folder, found, classes, vocabulary, final_ids, bases, (rows, kept))
    writer.write(partitions, resources, progress)
    vocabulary.save(folder)
    read.rejections.save(folder)
    write_whole(folder, writer.plans)
    with ThreadPoolExecutor(resources.threads) as pool:  # one waits for the disk while another hashes
        parts = list(pool.map(partial(_part_facts, folder), writer.plans))
    Manifest(
        version=VERSION,
        rows=int(found.rows.sum()),
        tokens=int(found.tokens.sum()),
        splits={split: int(found.rows[number].sum()) for number, split in enumerate(SPLITS)},
        labels=LabelFacts(scheme=read.scheme, names=classes.names, several=classes.several),
        vocabulary=len(vocabulary),
        ledger=_ledger(read, int(found.rows.sum()), found.duplicates),
        rejections=dict(sorted(read.rejections.by_reason.items())),
        settings=settings,
        sources=[_source_facts(item) for item in given],
        parts=parts,
        files={name: _file_facts(folder / name) for name in (WHOLE, VOCABULARY, REJECTED)},
    ).save(folder)


def _ledger(read: Read, kept: int, duplicates: int) -> Ledger:
    ledger = Ledger(read.rows, kept, duplicates, read.empty, len(read.rejections))
    if not ledger.adds_up:
        raise AssertionError(f"rows were lost or counted twice: {ledger}")
    return ledger


def _source_facts(item: Given) -> SourceFacts:
    split = SPLITS[item.origin] if item.origin else None
    return SourceFacts(name=item.file.name, bytes=item.file.size, split=split)


def _part_facts(folder: Path, plan: PartPlan) -> PartFacts:
    facts = _file_facts(folder / plan.name)
    rows, tokens = plan.shapes["weights"], plan.shapes["tokens"]
    return PartFacts(
        name=plan.name, split=plan.split, rows=rows, tokens=tokens, bytes=facts.bytes, sha256=facts.sha256
    )


def _file_facts(path: Path) -> FileFacts:
    facts = FileFacts(bytes=path.stat().st_size, sha256=sha256(path))
    flush(path)
    return facts


def _partitions(given: list[Given], resources: Resources) -> int:
    """So many that one partition a thread fits well into memory; a power of two."""
    expected = 0
    for item in given:
        size = item.file.size if item.file.size is not None else PARTITION_BYTES * 256
        compressed = item.file.name.lower().endswith((*COMPRESSED_SUFFIXES, ".parquet"))
        expected += size * (SPREAD_OF_COMPRESSION if compressed else 1)
    each = min(PARTITION_BYTES, resources.memory_bytes // 16 // resources.threads)
    return min(PREFIXES, 1 << max(expected // each, 2 * resources.threads - 1).bit_length())


def _check(read: Read, settings: PrepareSettings) -> None:
    """Stop here if too much of the input is of no use."""
    if not read.rows:
        raise InputError("the input holds no rows at all")
    if read.wrong > settings.max_rejected * read.rows:
        reasons = ", ".join(
            f"{count:,} x {reason}" for reason, count in read.rejections.by_reason.most_common(3)
        )
        raise InputError(
            f"{read.wrong:,} of {read.rows:,} rows cannot be used, more than --max-rejected "
            f"{settings.max_rejected:.2%}; the first is {read.rejections.first()} (in all: {reasons})"
        )
    if read.rows == read.empty + len(read.rejections):
        raise InputError(f"none of the {read.rows:,} rows holds any text that can be used")
