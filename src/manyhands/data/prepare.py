"""Raw reviews to a dataset, in three passes that each touch every row once.

Reading parses, normalises, hashes and numbers words; equal texts meet in one partition of the
hash. Folding makes one row of them, draws its split and counts its words. Writing looks up the
final ids.
Rows stand in the order of their hashes, so neither the order of the input, nor memory, nor
threads, nor the engine change a byte of what comes out.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from manyhands.data.counting import Counter, Folding
from manyhands.data.dataset import Dataset, open_dataset
from manyhands.data.finishing import Made, check, file_facts, finish
from manyhands.data.layout import Layout
from manyhands.data.manifest import DATASET
from manyhands.data.prepare_spark import SparkChoice, make_on_spark
from manyhands.data.reading import PREFIXES, Given, Reader
from manyhands.data.rejections import FILE as REJECTED
from manyhands.data.rejections import Rejections
from manyhands.data.spool import Spool
from manyhands.data.wordtables import WordTables
from manyhands.data.writing import Writer
from manyhands.errors import UsageError
from manyhands.machine import resources_for
from manyhands.records import Progress, Resources, Silent
from manyhands.settings import PrepareSettings
from manyhands.storage.destination import Staged, destination
from manyhands.storage.files import STDIN, expand

StrPath = str | os.PathLike[str]

PARTITION_BYTES = 64 << 20


def prepare(
    sources: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    valid_files: Sequence[StrPath] = (),
    test_files: Sequence[StrPath] = (),
    engine: Literal["local", "spark"] = "local",
    master: str | None = None,
    partitions: int | None = None,
    spark_conf: Sequence[str] = (),
    overwrite: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Dataset:
    """Prepare the reviews in ``sources`` (files, folders, globs, URLs) and open the outcome.

    ``settings`` are those of ``PrepareSettings``; ``text`` may be given as a dict. With the engine
    ``spark``, a cluster does the work; the outcome is the same to the last byte.
    """
    checked = PrepareSettings.checked(**settings)
    choice = _engine(engine, master, partitions, spark_conf, memory, threads)
    names = [sources] if isinstance(sources, str | os.PathLike) else sources
    given = [
        Given(file, origin)
        for origin, patterns in enumerate((names, valid_files, test_files))
        if patterns or origin == 0
        for file in expand(os.fspath(pattern) for pattern in patterns)
    ]
    standard_input = sum(item.file.name == STDIN for item in given)
    if standard_input > 1:
        raise UsageError("standard input can be read once, and not for two splits")
    if standard_input and choice:
        raise UsageError("Spark cannot read standard input; give a file that all machines see")
    resources = resources_for(memory, threads)
    staged = Staged()
    with destination(os.fspath(out), overwrite, DATASET, staged) as folder:
        if choice:
            make_on_spark(folder, os.fspath(out), staged, given, checked, choice, progress or Silent())
        else:
            _make(folder, given, checked, resources, progress or Silent())
    return open_dataset(out)


def _engine(
    engine: str,
    master: str | None,
    partitions: int | None,
    conf: Sequence[str],
    memory: int | str | None,
    threads: int | None,
) -> SparkChoice | None:
    """How Spark is used; None if it is not."""
    if engine not in ("local", "spark"):
        raise UsageError(f"there is no engine '{engine}'; there are: local, spark")
    given = {"master": master, "partitions": partitions, "spark-conf": conf or None}
    if engine == "spark":
        given = {"memory": memory, "threads": threads}
    for name, value in given.items():
        if value is not None:
            of = (
                "a master says how much it has: use --spark-conf"
                if engine == "spark"
                else "add --engine spark"
            )
            raise UsageError(f"--{name} is not for the engine {engine}; {of}")
    if partitions is not None and not 1 <= partitions <= PREFIXES:
        raise UsageError(f"--partitions must be from 1 to {PREFIXES}, not {partitions}")
    return SparkChoice(master, partitions, tuple(conf)) if engine == "spark" else None


def _make(
    folder: Path, given: list[Given], settings: PrepareSettings, resources: Resources, progress: Progress
) -> None:
    scratch = folder / ".scratch"
    scratch.mkdir()
    partitions = _partitions(given, resources)
    rows = Spool(scratch / "rows", resources.memory_bytes * 2 // 5)
    kept = Spool(scratch / "kept", resources.memory_bytes // 10)
    tables = WordTables(resources.memory_bytes // 8 // resources.threads)
    rejections = Rejections()
    read = Reader(settings, rows, tables, partitions, rejections).read(given, resources, progress)
    check(read, settings)
    classes, bases = read.book.classes(read.rates_stars), tables.bases()
    folding = Folding(settings, read.book, {item.origin for item in given})
    found = Counter(folding, bases, (rows, kept)).count(partitions, resources, progress)
    vocabulary, final_ids = tables.vocabulary(
        found.words, settings.vocabulary, settings.min_count, resources.memory_bytes // 4, scratch
    )
    layout = Layout(found, classes, vocabulary.ids)
    Writer(folder, layout, final_ids, bases, (rows, kept)).write(partitions, resources, progress)
    rejections.save(folder)
    with ThreadPoolExecutor(resources.threads) as pool:  # one waits for the disk while another hashes
        parts = list(pool.map(lambda plan: file_facts(folder / plan.name), layout.plans))
    made = Made(given, settings, read, found, classes, vocabulary, layout)
    finish(folder, made, parts, file_facts(folder / REJECTED))


def _partitions(given: list[Given], resources: Resources) -> int:
    """So many that one partition a thread fits well into memory; a power of two."""
    expected = sum(item.expected_bytes for item in given)
    each = min(PARTITION_BYTES, resources.memory_bytes // 16 // resources.threads)
    return min(PREFIXES, 1 << max(expected // each, 2 * resources.threads - 1).bit_length())
