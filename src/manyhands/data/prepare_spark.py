"""``prepare`` on Spark: the passes of the local engine, with a shuffle between them instead of a spool.

Texts go to the partition of their hash, where equal ones meet; words are counted where they are and
added up by Spark; the vocabulary is broadcast; numbers go to the task that writes their part. Only
counts, labels and the vocabulary come to the driver.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.cluster import raise_told, running, spark
from manyhands.data.counting import Counts
from manyhands.data.finishing import Made, check, finish
from manyhands.data.labels import LabelBook
from manyhands.data.layout import Layout
from manyhands.data.manifest import FileFacts
from manyhands.data.reading import PREFIXES, Given, Read, label_scheme
from manyhands.data.rejections import FILE as REJECTED_FILE
from manyhands.data.rejections import Reasons
from manyhands.data.sources.source import open_source
from manyhands.data.spans import Span, cut_input, share_out
from manyhands.data.spark_parts import PartStage
from manyhands.data.spark_rows import (
    BEGIN,
    COUNTS,
    ERROR,
    REJECTED,
    SCHEMA,
    TALLY,
    WORDS,
    packed,
    row,
    rows_of,
)
from manyhands.data.spark_stages import EncodeStage, FoldStage, ReadStage, words_of
from manyhands.errors import InputError, UsageError
from manyhands.records import SPLITS, Progress, Rejection
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.destination import Staged
from manyhands.storage.files import InputStream
from manyhands.text.vocabulary import Vocabulary

PARTITION_BYTES = 64 << 20


@dataclass(frozen=True)
class SparkChoice:
    """Where Spark is, and how far the work is spread; by default it is asked."""

    master: str | None
    partitions: int | None
    conf: tuple[str, ...]


def make_on_spark(
    folder: Path,
    out: str,
    staged: Staged,
    given: list[Given],
    settings: PrepareSettings,
    choice: SparkChoice,
    progress: Progress,
) -> None:
    """Make the dataset in ``folder``; its parts too, or for a remote ``out`` in a place beside it."""
    progress.stage("starting Spark", None, "tasks")
    scheme, numeric = _first_look(given, settings)
    with spark(choice.master, choice.conf, "manyhands prepare") as session:
        partitions = choice.partitions or _partitions(given, session.sparkContext.defaultParallelism)
        spans = cut_input(given, settings, partitions)
        work = _Work(session, progress, given, settings, spans, partitions)
        with ExitStack() as kept:
            folded = kept.enter_context(work.folded(scheme, numeric))
            if folded.read.book.numeric != numeric:  # the first look deceived us: labels sort otherwise
                folded = kept.enter_context(work.folded(scheme, folded.read.book.numeric))
            check(folded.read, settings)
            classes = folded.read.book.classes(folded.read.rates_stars)
            vocabulary = work.vocabulary(folded)
            layout = Layout(folded.counts, classes, vocabulary.ids)
            stage = PartStage(layout, folded.lines, _staging(folder, out, staged))
            written = work.write(folded, layout, vocabulary, stage)
    facts = _collected(folder, staged, written)
    made = Made(given, settings, folded.read, folded.counts, classes, vocabulary, layout)
    finish(folder, made, [facts[plan.name] for plan in layout.plans], facts[REJECTED_FILE])


@dataclass(frozen=True)
class _Folded:
    """The rows that are kept, on the executors; and what the driver knows of them."""

    frame: Any
    read: Read
    counts: Counts
    lines: list[tuple[str, int]]  # for each span, its file and how many lines stand before it


@dataclass(frozen=True)
class _Work:
    session: Any
    progress: Progress
    given: list[Given]
    settings: PrepareSettings
    spans: list[Span]
    partitions: int

    @contextmanager
    def folded(self, scheme: LabelScheme, numeric: bool) -> Iterator[_Folded]:
        """Read everything, send each text to its partition, and fold there."""
        shares = share_out(self.spans, self.given, self.partitions)
        read = ReadStage(self.given, self.spans, shares, self.settings, scheme, self.partitions)
        origins = {item.origin for item in self.given}
        fold = FoldStage(self.settings, scheme, numeric, origins, self.partitions)
        texts = _map(self.session.range(0, len(shares), 1, len(shares)), read)
        with self._kept(_map(self._to_places(texts, self.partitions + 1), fold)) as frame:
            told = frame.where(frame.kind.isin(TALLY, COUNTS, ERROR))
            found = running(self.session, self.progress, "reading", told.toArrow)
            _raise_errors(found)
            tallies, counts = _facts_in(found)
            before = _lines_before([tallies[k]["lines"] for k in range(len(self.spans))], self.spans)
            names = [self.given[span.given].file.name for span in self.spans]
            lines = list(zip(names, before, strict=True))
            yield _Folded(frame, _read(scheme, tallies, lines), counts, lines)

    def vocabulary(self, folded: _Folded) -> Vocabulary:
        """Counted in every partition, and added up in a tree: there first, then by word over all."""
        frame = folded.frame
        words = frame.where(frame.kind == WORDS).mapInArrow(words_of, "word string, count long")
        met = words.repartition(self.partitions, "word")
        totals = met.groupBy("word").sum("count").withColumnRenamed("sum(count)", "total")
        kept = totals.where(totals.total >= self.settings.min_count)
        kept = kept.orderBy(kept.total.desc(), kept.word).limit(self.settings.vocabulary)
        table = running(self.session, self.progress, "vocabulary", kept.toArrow).combine_chunks()
        return Vocabulary(
            pa.concat_arrays(
                table["word"].cast(pa.large_string()).chunks or [pa.array([], pa.large_string())]
            ),
            table["total"].to_numpy(),
        )

    def write(
        self, folded: _Folded, layout: Layout, vocabulary: Vocabulary, stage: PartStage
    ) -> list[dict[str, Any]]:
        frame, broadcast = folded.frame, self.session.sparkContext.broadcast
        labels = {key: number for number, key in enumerate(folded.read.book.keys())}
        words = pa.RecordBatch.from_arrays([vocabulary.words], ["word"])
        shared = broadcast(layout), broadcast(packed(words).to_pybytes()), broadcast(labels)
        places = len(layout.plans) + 1
        begin = self.session.createDataFrame(
            pa.Table.from_batches([row(k, BEGIN, b"") for k in range(places)])
        )
        encoded = _map(frame, EncodeStage(*shared, self.partitions))
        rejected = frame.where(frame.kind == REJECTED)
        rejected = rejected.selectExpr(f"{places - 1} as place", "kind", "start", "payload")
        everything = begin.union(encoded).union(rejected)
        done = _map(self._to_places(everything, places), stage)
        found = running(self.session, self.progress, "writing", done.toArrow)
        for value in shared:
            value.destroy()
        _raise_errors(found)
        return [json.loads(bytes(payload)) for _, _, _, payload in rows_of(found.to_batches())]

    def _to_places(self, frame: Any, places: int) -> Any:
        return frame.repartitionById(places, frame.place)

    @contextmanager
    def _kept(self, frame: Any) -> Iterator[Any]:
        """On the executors' disks, as long as it is needed: what is lost is made again."""
        from pyspark import StorageLevel  # noqa: PLC0415

        kept = frame.persist(StorageLevel.DISK_ONLY)
        try:
            yield kept
        finally:
            kept.unpersist()


def _map(frame: Any, stage: Any) -> Any:
    return frame.mapInArrow(stage, SCHEMA)


def _raise_errors(found: pa.Table) -> None:
    for _, kind, _, payload in rows_of(found.to_batches()):
        if kind == ERROR:
            raise_told(bytes(payload).decode())


def _first_look(given: list[Given], settings: PrepareSettings) -> tuple[LabelScheme, bool]:
    """By the first file that holds anything: what labels mean, and whether they are numbers."""
    for item in given:
        with closing(InputStream(item.file)) as stream:
            if stream.head():
                source = open_source(stream, settings)
                book = LabelBook(label_scheme(settings, source))
                for piece in islice(source.pieces(), 1 if book.scheme == "as-is" else 0):
                    records = piece()
                    book.ids(records.labels, len(records.texts))
                return book.scheme, book.numeric  # stars always are
    raise InputError("the input holds no rows at all")


def _facts_in(found: pa.Table) -> tuple[dict[int, Any], Counts]:
    """What readers tell, by span; and the counts of all partitions."""
    tallies, counts = {}, Counts()
    for _, kind, start, payload in rows_of(found.to_batches()):
        if kind == TALLY:
            tallies[start] = json.loads(bytes(payload))
        else:
            *numbers, duplicates = np.frombuffer(payload, np.int64).tolist()
            table = np.reshape(numbers, (3, len(SPLITS), -1))
            for into, some in zip((counts.rows, counts.tokens, counts.labels), table, strict=True):
                into[:, start : start + table.shape[2]] += some
            counts.duplicates += duplicates
    return tallies, counts


def _partitions(given: list[Given], cores: int) -> int:
    """Each of a size that fits well into memory; as many for one core as for another."""
    expected = sum(item.expected_bytes for item in given)
    rounds = max(round(expected / PARTITION_BYTES / cores), 2)
    return min(rounds * cores, PREFIXES)


def _lines_before(lines: list[int], spans: list[Span]) -> list[int]:
    """How many lines of its file stand before each span."""
    before, total = [], 0
    for span, count in zip(spans, lines, strict=True):
        total = 0 if not span.start else total
        before.append(total)
        total += count
    return before


def _read(scheme: LabelScheme, tallies: dict[int, Any], spans: list[tuple[str, int]]) -> Read:
    """What all readers found together."""
    keys = sorted({key for tally in tallies.values() for key in tally["labels"]})
    read = Read(LabelBook(scheme, keys), Reasons(), scheme)
    for number, tally in tallies.items():
        read.rows += tally["rows"]
        read.empty += tally["empty"]
        read.rates_stars |= tally["rates_stars"]
        file, before = spans[number]
        line, reason = tally["first"] or (0, "")
        read.rejections.count(
            tally["by_reason"], Rejection(file, line + before, reason) if tally["first"] else None
        )
    return read


def _staging(folder: Path, out: str, staged: Staged) -> str:
    """Where executors put what they have written."""
    filesystem, _ = url_to_fs(out)
    if isinstance(filesystem, LocalFileSystem):
        return str(folder / ".scratch")
    where = f"{out.rstrip('/')}.staging-{uuid.uuid4().hex}"
    staged.folder = url_to_fs(where)[1]
    return where


def _collected(folder: Path, staged: Staged, written: list[dict[str, Any]]) -> dict[str, FileFacts]:
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
