"""What the executors do for ``prepare``: the kernels of the local engine, between Spark's shuffles.

A task may be tried twice, or by two executors at once. Each attempt at writing parts does so in a
place of its own and says where; the driver takes the files of those that Spark has counted, and
nobody sees the others.
"""

import json
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.data.labels import LabelEncoder
from manyhands.data.prepare.fold import PartitionFolder
from manyhands.data.prepare.layout import Layout, RowEncoder
from manyhands.data.prepare.ledger import REJECTED_FILE, Rejections, file_facts
from manyhands.data.prepare.partitions import (
    KEPT_SCHEMA,
    ROW_SCHEMA,
    SourceFile,
    first_prefix,
    sort_by_partition,
    word_columns,
)
from manyhands.data.prepare.spark.ranges import FileRange
from manyhands.data.prepare.spark.transport import (
    BEGIN,
    COUNTS,
    ERROR,
    FACTS,
    FOLDED_SCHEMA,
    REJECTED,
    ROWS,
    TALLY,
    TEXT_SCHEMA,
    WORD_COLUMNS,
    WORDS,
    Batches,
    message,
    messages,
    pack,
    unpack,
)
from manyhands.data.reader import ParsedPiece, Reader
from manyhands.data.store import PartWriter
from manyhands.data.wordtables import WordTables
from manyhands.engines.spark import error_as_text
from manyhands.errors import ManyhandsError
from manyhands.kernels.compile import Ints
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.files import cannot_write
from manyhands.storage.ranges import InputRange
from manyhands.text.hashing import digests
from manyhands.text.ragged import concatenate, from_arrow
from manyhands.text.vocabulary import Vocabulary

BUFFERED_BYTES = 32 << 20  # of texts that a reader keeps back, so that what it sends comes in large pieces
SENT_BYTES = 8 << 20
TABLE_BYTES = 256 << 20


@dataclass(frozen=True)
class ReadStage:
    """From ranges of the input to texts, each sent to the partition of its hash; tallies go one further."""

    files: list[SourceFile]
    ranges: list[FileRange]
    assignments: list[list[int]]
    settings: PrepareSettings
    scheme: LabelScheme
    partitions: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    for number in self.assignments[task]:
                        yield from self._read_range(number)
        except ManyhandsError as error:
            yield message(self.partitions, ERROR, error_as_text(error).encode())

    def _read_range(self, number: int) -> Iterator[pa.RecordBatch]:
        file_range = self.ranges[number]
        source = self.files[file_range.source]
        reader, tally, buffer = Reader(self.settings, scheme=self.scheme), _RangeTally(), list[ParsedPiece]()
        with closing(file_range.open(source.file)) as stream:
            for piece in reader.stream_pieces(stream):
                parsed = reader.parse(piece)
                tally.add(parsed)
                buffer.append(parsed)
                if sum(some.texts.size for some in buffer) > BUFFERED_BYTES:
                    yield from self._send(buffer, reader.label_encoder, source.origin)
                    buffer.clear()
            tally.lines = stream.lines if isinstance(stream, InputRange) else 0
        yield from self._send(buffer, reader.label_encoder, source.origin)
        if tally.rejected:
            yield message(self.partitions, REJECTED, pack(tally.rejections()), number)
        yield message(self.partitions, TALLY, json.dumps(tally.facts(reader)).encode(), number)

    def _send(
        self, pieces: list[ParsedPiece], encoder: LabelEncoder, origin: int
    ) -> Iterator[pa.RecordBatch]:
        if not pieces:
            return
        before = np.cumsum([0] + [len(some.texts) for some in pieces])
        usable = np.concatenate([some.usable + start for some, start in zip(pieces, before, strict=False)])
        high, low = (
            np.concatenate(halves) for halves in zip(*(digests(p.texts) for p in pieces), strict=True)
        )
        rows, bounds = sort_by_partition(usable, high, self.partitions)
        labels = np.concatenate([some.labels for some in pieces])[rows]
        used, indices = np.unique(labels, return_inverse=True)
        keys = pa.array(encoder.keys(), pa.string()).take(pa.array(used))
        columns = [
            high[rows],
            low[rows],
            np.full(len(rows), origin, np.uint8),
            pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), keys),
            np.concatenate([some.weights for some in pieces])[rows],
            concatenate([some.texts for some in pieces]).take(rows).arrow(),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=TEXT_SCHEMA)
        for partition, first, count in bounds:
            yield message(partition, ROWS, pack(batch.slice(first, count)))


@dataclass
class _RangeTally:
    """Where the rows of one range went."""

    rows: int = 0
    empty: int = 0
    lines: int = 0
    rejected: list[tuple[int, str]] = field(default_factory=list)

    def add(self, parsed: ParsedPiece) -> None:
        self.rows += parsed.tally.rows
        self.empty += parsed.tally.empty
        self.rejected += parsed.tally.rejected

    def rejections(self) -> pa.RecordBatch:
        lines, reasons = zip(*self.rejected, strict=True)
        columns = [pa.array(lines, pa.int64()), pa.array(reasons, pa.string())]
        return pa.RecordBatch.from_arrays(columns, ["line", "reason"])

    def facts(self, reader: Reader) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "empty": self.empty,
            "lines": self.lines,
            "by_reason": Counter(reason for _, reason in self.rejected),
            "first": min(self.rejected, default=None),
            "labels": reader.label_encoder.keys(),
            "rates_stars": reader.rates_stars,
        }


@dataclass(frozen=True)
class FoldStage:
    """From the texts of a partition to the rows that are kept, with their words and labels by number.

    These numbers mean something within the partition alone. Nobody knows all labels yet: that all
    are ``numeric`` is a guess, which the driver makes and verifies.
    """

    settings: PrepareSettings
    scheme: LabelScheme
    numeric: bool
    origins: set[int]
    partitions: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        tables, texts, places = WordTables(TABLE_BYTES), [], set()
        labels: dict[str, int] = {}
        for place, kind, start, payload in messages(batches):
            if kind == ROWS:
                places.add(place)
                texts.append(_number_words(unpack(payload), tables, labels))
            else:  # what readers tell comes through
                yield message(place, kind, payload, start)
        if texts:
            yield from self._fold(places.pop(), pa.concat_batches(texts), tables, list(labels))

    def _fold(
        self, place: int, batch: pa.RecordBatch, tables: WordTables, labels: list[str]
    ) -> Iterator[pa.RecordBatch]:
        bases = tables.bases()
        words = np.zeros(bases[-1], np.int64)
        encoder = LabelEncoder(self.scheme, labels)
        folder = PartitionFolder(self.settings, encoder, self.origins, self.numeric)
        kept, counts = folder.fold(batch, bases, words)
        yield message(place, WORDS, pack(_word_counts(tables, words, labels)))
        first, end = (first_prefix(partition, self.partitions) for partition in (place, place + 1))
        table = np.stack([counts.rows, counts.tokens, counts.labels])[:, :, first:end]
        yield message(place, COUNTS, np.append(table.ravel(), counts.duplicates).tobytes(), first)
        yield from (message(place, ROWS, pack(some)) for some in _small_batches(kept, batch))


def _number_words(batch: pa.RecordBatch, tables: WordTables, labels: dict[str, int]) -> pa.RecordBatch:
    """Texts and labels as numbers; ``labels`` grows by those that are new."""
    keys = batch["label"].dictionary.to_pylist()
    numbers = np.array([labels.setdefault(key, len(labels)) for key in keys], np.int32)
    row_labels = numbers[batch["label"].indices.to_numpy()]
    columns = [batch["high"], batch["low"], batch["origin"], row_labels, batch["weight"]]
    columns += word_columns(tables, from_arrow(batch["text"]), np.arange(len(batch)))
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def _word_counts(tables: WordTables, counts: Ints, labels: list[str]) -> pa.RecordBatch:
    """All words by number, with their counts; ``facts`` say where each table's begin, and name the labels."""
    words = concatenate(tables.words()).arrow()
    schema = pa.schema({"word": pa.large_binary(), "count": pa.int64()})
    facts = json.dumps({"bases": tables.bases().tolist(), "labels": labels})
    return pa.RecordBatch.from_arrays([words, counts], schema=schema.with_metadata({"facts": facts}))


def _small_batches(kept: pa.RecordBatch, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows that are kept, in their order, a few megabytes at a time."""
    rows, units = kept["row"].to_numpy(), from_arrow(batch["units"])
    before = np.cumsum(units.lengths()[rows])
    cuts = np.searchsorted(before, np.arange(SENT_BYTES, int(before[-1]), SENT_BYTES)).tolist()
    for first, last in pairwise(np.unique([0, *cuts, len(rows)]).tolist()):
        some = rows[first:last]
        columns = [pa.array(np.arange(len(some))), *kept.slice(first, last - first).columns[1:]]
        columns += [batch[name].to_numpy()[some] for name in ("table", "length")]
        yield pa.RecordBatch.from_arrays([*columns, units.take(some).arrow()], schema=FOLDED_SCHEMA)


def unpack_words(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Words and their counts, as Spark adds them up."""
    for _, _, _, payload in messages(batches):
        batch = unpack(payload)
        batch = batch.filter(pa.compute.greater(batch["count"], 0))
        columns = [batch["word"].cast(pa.large_string()).cast(pa.string()), batch["count"]]
        yield pa.RecordBatch.from_arrays(columns, ["word", "count"])


@dataclass(frozen=True)
class EncodeStage:
    """From kept rows to numbers with their places in the parts.

    Layout, vocabulary and labels are broadcast.
    """

    layout: Any
    vocabulary: Any
    labels: Any
    partitions: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        layout: Layout = self.layout.value
        for place, kind, _, payload in messages(batches):
            if kind == WORDS:  # it comes before the rows
                batch = unpack(payload)
                final_ids = self._open_vocabulary().ids_of(from_arrow(batch["word"]))
                facts = json.loads(batch.schema.metadata[b"facts"])
                labels = np.array([self.labels.value[key] for key in facts["labels"]], np.int32)
                encoder = RowEncoder(layout, place, self.partitions, final_ids, np.array(facts["bases"]))
            elif kind == ROWS:
                batch = unpack(payload)
                kept, words = batch.select(KEPT_SCHEMA.names), batch.select(WORD_COLUMNS)
                number = KEPT_SCHEMA.get_field_index("label")
                kept = kept.set_column(number, "label", pa.array(labels[kept["label"].to_numpy()]))
                for part, name, start, values in encoder.segments(kept, words):
                    stored = np.ascontiguousarray(values, layout.plans[part].dtypes[name])
                    yield message(part, name, pack(pa.RecordBatch.from_arrays([stored], [name])), start)

    def _open_vocabulary(self) -> Vocabulary:
        words = unpack(pa.py_buffer(self.vocabulary.value))["word"]
        return Vocabulary(words, np.zeros(len(words), np.int64))


@dataclass(frozen=True)
class PartStage:
    """Collects what belongs to a part, from whichever task; the place behind the parts lists the rejected.

    ``lines_before`` tells for each range of the input its file, and how many lines stand before it.
    """

    layout: Layout
    lines_before: list[tuple[str, int]]
    staging: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            with _attempt_folder(self.staging) as attempt:
                yield from self._write(batches, attempt)
        except ManyhandsError as error:
            yield message(0, ERROR, error_as_text(error).encode())
        except OSError as error:
            yield message(0, ERROR, error_as_text(cannot_write(self.staging, error)).encode())

    def _write(self, batches: Batches, attempt: "_AttemptFolder") -> Iterator[pa.RecordBatch]:
        writers: dict[int, PartWriter] = {}
        rejections, plans = Rejections(), self.layout.plans
        places = set()
        for place, kind, start, payload in messages(batches):
            places.add(place)
            if place == len(plans):
                if kind != BEGIN:
                    self._reject(rejections, start, payload)
                continue
            if place not in writers:
                writers[place] = PartWriter(attempt.folder, plans[place])
            if kind != BEGIN:
                writers[place].write(kind, start, unpack(payload)[kind].to_numpy())
        for part, name, start, first in self.layout.first_offsets():
            if part in writers:
                writers[part].write(name, start, first)
        for writer in writers.values():
            writer.close()
        if len(plans) in places:
            rejections.save(attempt.folder)
        for place in sorted(places):
            name = plans[place].name if place < len(plans) else REJECTED_FILE
            facts = file_facts(attempt.folder / name).model_dump()
            stored = facts | {"name": name, "at": attempt.publish(name)}
            yield message(place, FACTS, json.dumps(stored).encode())

    def _reject(self, rejections: Rejections, file_range: int, payload: pa.Buffer) -> None:
        batch, (file, before) = unpack(payload), self.lines_before[file_range]
        lines = (batch["line"].to_numpy() + before).tolist()
        rejections.add(file, list(zip(lines, batch["reason"].to_pylist(), strict=True)))


@dataclass(frozen=True)
class _AttemptFolder:
    """The folder of one attempt, and the remote one that its files are sent to, if any."""

    folder: Path
    remote: str | None

    def publish(self, name: str) -> str:
        """Put a finished file where the driver will find it, and say where that is."""
        if self.remote is None:
            return str(self.folder / name)
        filesystem, path = url_to_fs(f"{self.remote}/{name}")
        filesystem.put_file(str(self.folder / name), path)
        (self.folder / name).unlink()
        return str(path)


@contextmanager
def _attempt_folder(staging: str) -> Iterator[_AttemptFolder]:
    """A folder of this attempt alone: below ``staging`` itself, or where its files are sent from."""
    own = f"{staging}/{uuid.uuid4().hex}"
    filesystem, path = url_to_fs(own)
    if isinstance(filesystem, LocalFileSystem):
        Path(path).mkdir(parents=True)
        yield _AttemptFolder(Path(path), None)
    else:
        with tempfile.TemporaryDirectory(prefix="manyhands-") as folder:
            yield _AttemptFolder(Path(folder), own)
