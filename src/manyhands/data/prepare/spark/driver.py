"""``prepare`` on Spark: the passes of the local engine, with a shuffle between them instead of a spool.

Texts go to the partition of their hash, where equal ones meet; words are counted where they are and
added up by Spark; the vocabulary is broadcast; numbers go to the task that writes their part. Only
counts, labels and the vocabulary come to the driver.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.data.labels import LabelEncoder
from manyhands.data.manifest import FileFacts
from manyhands.data.prepare.fold import DatasetCounts
from manyhands.data.prepare.layout import Layout
from manyhands.data.prepare.ledger import REJECTED_FILE, DatasetSummary, InputSummary, RejectionCounts
from manyhands.data.prepare.partitions import PREFIXES, SourceFile
from manyhands.data.prepare.spark.ranges import FileRange, assign_to_tasks, split_files
from manyhands.data.prepare.spark.stages import EncodeStage, FoldStage, PartStage, ReadStage, unpack_words
from manyhands.data.prepare.spark.transport import (
    BEGIN,
    COUNTS,
    ERROR,
    REJECTED,
    SPARK_SCHEMA,
    TALLY,
    WORDS,
    message,
    messages,
    pack,
)
from manyhands.data.reader import Reader
from manyhands.engines.spark import raise_error_from, running, spark
from manyhands.errors import UsageError
from manyhands.records import SPLITS, Progress, Rejection, Silent
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.destination import Staged
from manyhands.text.vocabulary import Vocabulary

PARTITION_BYTES = 64 << 20


@dataclass(frozen=True)
class SparkOptions:
    """Where Spark is, and how far the work is spread; by default it is asked."""

    master: str | None
    partitions: int | None
    conf: tuple[str, ...]


def prepare_on_spark(
    folder: Path,
    out: str,
    staged: Staged,
    files: list[SourceFile],
    settings: PrepareSettings,
    options: SparkOptions,
    progress: Progress,
) -> None:
    """Make the dataset in ``folder``; its parts too, or for a remote ``out`` in a place beside it."""
    progress.stage("starting Spark", None, "tasks")
    scheme, numeric = _guess_labels(files, settings)
    with spark(options.master, options.conf, "manyhands prepare") as session:
        partitions = options.partitions or _partition_count(files, session.sparkContext.defaultParallelism)
        ranges = split_files(files, settings, partitions)
        driver = _Driver(session, progress, files, settings, ranges, partitions)
        with ExitStack() as stack:
            folded = stack.enter_context(driver.fold(scheme, numeric))
            if folded.summary.encoder.numeric != numeric:  # the guess was wrong: labels sort otherwise
                folded = stack.enter_context(driver.fold(scheme, folded.summary.encoder.numeric))
            folded.summary.check(settings.max_rejected)
            classes = folded.summary.encoder.classes(folded.summary.rates_stars)
            vocabulary = driver.count_words(folded)
            layout = Layout(folded.counts, classes, vocabulary.ids)
            stage = PartStage(layout, folded.lines_before, _staging_folder(folder, out, staged))
            written = driver.write(folded, layout, vocabulary, stage)
    facts = _collect_files(folder, staged, written)
    dataset = DatasetSummary(files, settings, folded.summary, folded.counts, classes, vocabulary, layout)
    dataset.save(folder, [facts[plan.name] for plan in layout.plans], facts[REJECTED_FILE])


@dataclass(frozen=True)
class _FoldedInput:
    """The rows that are kept, on the executors; and what the driver knows of them."""

    frame: Any
    summary: InputSummary
    counts: DatasetCounts
    lines_before: list[tuple[str, int]]  # for each range, its file and how many lines stand before it


@dataclass(frozen=True)
class _Driver:
    """Sends the stages to the executors, one shuffle after the other."""

    session: Any
    progress: Progress
    files: list[SourceFile]
    settings: PrepareSettings
    ranges: list[FileRange]
    partitions: int

    @contextmanager
    def fold(self, scheme: LabelScheme, numeric: bool) -> Iterator[_FoldedInput]:
        """Read everything, send each text to its partition, and fold there."""
        from pyspark import StorageLevel  # noqa: PLC0415

        tasks = assign_to_tasks(self.ranges, self.files, self.partitions)
        read = ReadStage(self.files, self.ranges, tasks, self.settings, scheme, self.partitions)
        origins = {source.origin for source in self.files}
        fold = FoldStage(self.settings, scheme, numeric, origins, self.partitions)
        texts = _map(self.session.range(0, len(tasks), 1, len(tasks)), read)
        # On the executors' disks, as long as it is needed: what is lost is made again.
        frame = _map(_shuffle(texts, self.partitions + 1), fold).persist(StorageLevel.DISK_ONLY)
        try:
            reports = frame.where(frame.kind.isin(TALLY, COUNTS, ERROR))
            table = running(self.session, self.progress, "reading", reports.toArrow)
            _raise_errors(table)
            tallies, counts = _unpack_reports(table)
            before = _lines_before([tallies[k]["lines"] for k in range(len(self.ranges))], self.ranges)
            names = [self.files[one.source].file.name for one in self.ranges]
            lines_before = list(zip(names, before, strict=True))
            yield _FoldedInput(frame, _summarise(scheme, tallies, lines_before), counts, lines_before)
        finally:
            frame.unpersist()

    def count_words(self, folded: _FoldedInput) -> Vocabulary:
        """Counted in every partition, and added up in a tree: there first, then by word over all."""
        frame = folded.frame
        words = frame.where(frame.kind == WORDS).mapInArrow(unpack_words, "word string, count long")
        by_word = words.repartition(self.partitions, "word").groupBy("word")
        totals = by_word.sum("count").withColumnRenamed("sum(count)", "total")
        kept = totals.where(totals.total >= self.settings.min_count)
        kept = kept.orderBy(kept.total.desc(), kept.word).limit(self.settings.vocabulary_size)
        table = running(self.session, self.progress, "vocabulary", kept.toArrow).combine_chunks()
        chunks = table["word"].cast(pa.large_string()).chunks or [pa.array([], pa.large_string())]
        return Vocabulary(pa.concat_arrays(chunks), table["total"].to_numpy())

    def write(
        self, folded: _FoldedInput, layout: Layout, vocabulary: Vocabulary, stage: PartStage
    ) -> list[dict[str, Any]]:
        """Every row sent to the task that writes its part; returns the facts of the written files."""
        frame, broadcast = folded.frame, self.session.sparkContext.broadcast
        labels = {key: number for number, key in enumerate(folded.summary.encoder.keys())}
        words = pa.RecordBatch.from_arrays([vocabulary.words], ["word"])
        shared = broadcast(layout), broadcast(pack(words).to_pybytes()), broadcast(labels)
        places = len(layout.plans) + 1
        begin = self.session.createDataFrame(
            pa.Table.from_batches([message(k, BEGIN, b"") for k in range(places)])
        )
        encoded = _map(frame, EncodeStage(*shared, self.partitions))
        rejected = frame.where(frame.kind == REJECTED)
        rejected = rejected.selectExpr(f"{places - 1} as place", "kind", "start", "payload")
        written = _map(_shuffle(begin.union(encoded).union(rejected), places), stage)
        table = running(self.session, self.progress, "writing", written.toArrow)
        for value in shared:
            value.destroy()
        _raise_errors(table)
        return [json.loads(bytes(payload)) for _, _, _, payload in messages(table.to_batches())]


def _map(frame: Any, stage: Any) -> Any:
    return frame.mapInArrow(stage, SPARK_SCHEMA)


def _shuffle(frame: Any, places: int) -> Any:
    return frame.repartitionById(places, frame.place)


def _raise_errors(table: pa.Table) -> None:
    for _, kind, _, payload in messages(table.to_batches()):
        if kind == ERROR:
            raise_error_from(bytes(payload).decode())


def _guess_labels(files: list[SourceFile], settings: PrepareSettings) -> tuple[LabelScheme, bool]:
    """By the first piece of the input: what labels mean, and whether they are numbers."""
    reader = Reader(settings)
    for _, piece in reader.pieces([source.file for source in files], Silent()):
        if reader.label_encoder.scheme == "as-is":  # stars always are
            reader.parse(piece)
        break
    return reader.label_encoder.scheme, reader.label_encoder.numeric


def _unpack_reports(table: pa.Table) -> tuple[dict[int, Any], DatasetCounts]:
    """What readers tell, by range; and the counts of all partitions."""
    tallies, counts = {}, DatasetCounts()
    for _, kind, start, payload in messages(table.to_batches()):
        if kind == TALLY:
            tallies[start] = json.loads(bytes(payload))
        else:
            *numbers, duplicates = np.frombuffer(payload, np.int64).tolist()
            some_counts = np.reshape(numbers, (3, len(SPLITS), -1))
            for total, some in zip((counts.rows, counts.tokens, counts.labels), some_counts, strict=True):
                total[:, start : start + some.shape[1]] += some
            counts.duplicates += duplicates
    return tallies, counts


def _partition_count(files: list[SourceFile], cores: int) -> int:
    """Each of a size that fits well into memory; as many for one core as for another."""
    expected = sum(source.expected_bytes for source in files)
    rounds = max(round(expected / PARTITION_BYTES / cores), 2)
    return min(rounds * cores, PREFIXES)


def _lines_before(lines: list[int], ranges: list[FileRange]) -> list[int]:
    """How many lines of its file stand before each range."""
    before, total = [], 0
    for file_range, count in zip(ranges, lines, strict=True):
        total = 0 if not file_range.start else total
        before.append(total)
        total += count
    return before


def _summarise(
    scheme: LabelScheme, tallies: dict[int, Any], lines_before: list[tuple[str, int]]
) -> InputSummary:
    """What all readers learned together."""
    keys = sorted({key for tally in tallies.values() for key in tally["labels"]})
    summary = InputSummary(LabelEncoder(scheme, keys), RejectionCounts())
    for number, tally in tallies.items():
        summary.rows += tally["rows"]
        summary.empty += tally["empty"]
        summary.rates_stars |= tally["rates_stars"]
        file, before = lines_before[number]
        line, reason = tally["first"] or (0, "")
        first = Rejection(file, line + before, reason) if tally["first"] else None
        summary.rejections.count(tally["by_reason"], first)
    return summary


def _staging_folder(folder: Path, out: str, staged: Staged) -> str:
    """Where executors put what they have written."""
    filesystem, _ = url_to_fs(out)
    if isinstance(filesystem, LocalFileSystem):
        return str(folder / ".scratch")
    where = f"{out.rstrip('/')}.staging-{uuid.uuid4().hex}"
    staged.folder = url_to_fs(where)[1]
    return where


def _collect_files(folder: Path, staged: Staged, written: list[dict[str, Any]]) -> dict[str, FileFacts]:
    """Move what executors wrote into the dataset's folder, or note from where it is to be copied."""
    facts = {}
    for file in written:
        name, at = file.pop("name"), file.pop("at")
        if staged.folder:
            staged.files[name] = at
        else:
            if not Path(at).is_file():
                raise UsageError(
                    f"executors wrote {name} on a disk that this machine does not see; "
                    "give --out a folder that all machines share, or s3://…"
                )
            Path(at).rename(folder / name)
        facts[name] = FileFacts(**file)
    return facts
