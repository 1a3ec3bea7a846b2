"""What the executors do for ``prepare``: the kernels of the local engine, between Spark's shuffles."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from manyhands.cluster import told
from manyhands.data.counting import KEPT, Folding
from manyhands.data.fold import ROW
from manyhands.data.labels import LabelBook
from manyhands.data.layout import Encoder, Layout
from manyhands.data.reading import PREFIXES, Given, Taken, by_partition, numbered, take
from manyhands.data.sources.source import open_source
from manyhands.data.spans import Span
from manyhands.data.spark_rows import (
    COUNTS,
    ERROR,
    FOLDED,
    REJECTED,
    ROWS,
    TALLY,
    TEXT,
    WORD_COLUMNS,
    WORDS,
    Batches,
    packed,
    row,
    rows_of,
    unpacked,
)
from manyhands.data.wordtables import WordTables
from manyhands.errors import ManyhandsError
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.ranges import InputRange
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import from_arrow, joined
from manyhands.text.vocabulary import Vocabulary

HELD_BYTES = 32 << 20  # of texts that a reader holds back, so that what it sends comes in large pieces
SENT_BYTES = 8 << 20
TABLE_BYTES = 256 << 20


@dataclass(frozen=True)
class ReadStage:
    """From spans of the input to texts, each sent to the partition of its hash; the rest goes one further."""

    given: list[Given]
    spans: list[Span]
    shares: list[list[int]]
    settings: PrepareSettings
    scheme: LabelScheme
    partitions: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    for number in self.shares[task]:
                        yield from self._read(number)
        except ManyhandsError as error:
            yield row(self.partitions, ERROR, told(error).encode())

    def _read(self, number: int) -> Iterator[pa.RecordBatch]:
        span, found = self.spans[number], _Found(LabelBook(self.scheme))
        normaliser, held = Normaliser(self.settings.text), list[Taken]()
        with closing(span.open(self.given)) as stream:
            if stream.head():  # an empty file tells nothing of its format
                source = open_source(stream, self.settings)
                found.rates_stars = source.rates_stars
                for piece in source.pieces():
                    taken = take(piece, normaliser, found.book)
                    found.add(taken)
                    held.append(taken)
                    if sum(some.normal.size for some in held) > HELD_BYTES:
                        yield from self._sent(held, found.book, self.given[span.given].origin)
                        held.clear()
            lines = stream.lines if isinstance(stream, InputRange) else 0
        yield from self._sent(held, found.book, self.given[span.given].origin)
        if found.rejected:
            yield row(self.partitions, REJECTED, packed(found.rejections()), number)
        yield row(self.partitions, TALLY, json.dumps(found.facts() | {"lines": lines}).encode(), number)

    def _sent(self, held: list[Taken], book: LabelBook, origin: int) -> Iterator[pa.RecordBatch]:
        if not held:
            return
        before = np.cumsum([0] + [len(some.high) for some in held])
        good = np.concatenate([some.good + start for some, start in zip(held, before, strict=False)])
        high = np.concatenate([some.high for some in held])
        rows, bounds = by_partition(good, high, self.partitions)
        labels = np.concatenate([some.labels for some in held])[rows]
        used, indices = np.unique(labels, return_inverse=True)
        keys = pa.array(book.keys(), pa.string()).take(pa.array(used))
        columns = [
            high[rows],
            np.concatenate([some.low for some in held])[rows],
            np.full(len(rows), origin, np.uint8),
            pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), keys),
            np.concatenate([some.weights for some in held])[rows],
            joined([some.normal for some in held]).take(rows).arrow(),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=TEXT)
        for partition, first, count in bounds:
            yield row(partition, ROWS, packed(batch.slice(first, count)))


@dataclass
class _Found:
    """What a reader has met in one span."""

    book: LabelBook
    rates_stars: bool = False
    rows: int = 0
    empty: int = 0
    rejected: list[tuple[int, str]] = field(default_factory=list)

    def add(self, taken: Taken) -> None:
        self.rows += taken.tally.rows
        self.empty += taken.tally.empty
        self.rejected += taken.tally.rejected

    def rejections(self) -> pa.RecordBatch:
        lines, reasons = zip(*self.rejected, strict=True)
        columns = [pa.array(lines, pa.int64()), pa.array(reasons, pa.string())]
        return pa.RecordBatch.from_arrays(columns, ["line", "reason"])

    def facts(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "empty": self.empty,
            "by_reason": Counter(reason for _, reason in self.rejected),
            "first": min(self.rejected, default=None),
            "labels": self.book.keys(),
            "rates_stars": self.rates_stars,
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
        for place, kind, start, payload in rows_of(batches):
            if kind == ROWS:
                places.add(place)
                texts.append(_numbered(unpacked(payload), tables, labels))
            else:  # what readers tell comes through
                yield row(place, kind, payload, start)
        if texts:
            yield from self._folded(places.pop(), pa.concat_batches(texts), tables, list(labels))

    def _folded(
        self, place: int, batch: pa.RecordBatch, tables: WordTables, labels: list[str]
    ) -> Iterator[pa.RecordBatch]:
        bases, book = tables.bases(), LabelBook(self.scheme, labels)
        words = np.zeros(bases[-1], np.int64)
        folding = Folding(self.settings, book, self.origins, self.numeric)
        kept, counts = folding.take(batch, bases, words)
        yield row(place, WORDS, packed(_counted(tables, words, labels)))
        run = slice(-(-place * PREFIXES // self.partitions), -(-(place + 1) * PREFIXES // self.partitions))
        table = np.stack([counts.rows, counts.tokens, counts.labels])[:, :, run]
        yield row(place, COUNTS, np.append(table.ravel(), counts.duplicates).tobytes(), run.start)
        yield from (row(place, ROWS, packed(some)) for some in _in_pieces(kept, batch))


def _numbered(batch: pa.RecordBatch, tables: WordTables, labels: dict[str, int]) -> pa.RecordBatch:
    keys = batch["label"].dictionary.to_pylist()
    known = np.array([labels.setdefault(key, len(labels)) for key in keys], np.int32)
    of_rows = known[batch["label"].indices.to_numpy()]
    columns = [batch["high"], batch["low"], batch["origin"], of_rows, batch["weight"]]
    columns += numbered(tables, from_arrow(batch["text"]), np.arange(len(batch)))
    return pa.RecordBatch.from_arrays(columns, schema=ROW)


def _counted(tables: WordTables, counts: Any, labels: list[str]) -> pa.RecordBatch:
    """All words by number, with their counts; ``facts`` say where each table's begin, and name the labels."""
    words = joined(tables.words()).arrow()
    schema = pa.schema({"word": pa.large_binary(), "count": pa.int64()})
    facts = json.dumps({"bases": tables.bases().tolist(), "labels": labels})
    return pa.RecordBatch.from_arrays([words, counts], schema=schema.with_metadata({"facts": facts}))


def _in_pieces(kept: pa.RecordBatch, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows that are kept, in their order, a few megabytes at a time."""
    rows, units = kept["row"].to_numpy(), from_arrow(batch["units"])
    before = np.cumsum(units.lengths()[rows])
    cuts = np.searchsorted(before, np.arange(SENT_BYTES, int(before[-1]), SENT_BYTES)).tolist()
    for first, last in pairwise(np.unique([0, *cuts, len(rows)]).tolist()):
        some = rows[first:last]
        columns = [pa.array(np.arange(len(some))), *kept.slice(first, last - first).columns[1:]]
        columns += [batch[name].to_numpy()[some] for name in ("table", "length")]
        yield pa.RecordBatch.from_arrays([*columns, units.take(some).arrow()], schema=FOLDED)


def words_of(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Words and their counts, as Spark adds them up."""
    for _, _, _, payload in rows_of(batches):
        batch = unpacked(payload)
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
        for place, kind, _, payload in rows_of(batches):
            if kind == WORDS:  # it comes before the rows
                batch = unpacked(payload)
                final_ids = self._vocabulary().ids_of(from_arrow(batch["word"]))
                facts = json.loads(batch.schema.metadata[b"facts"])
                labels = np.array([self.labels.value[key] for key in facts["labels"]], np.int32)
                encoder = Encoder(layout, place, self.partitions, final_ids, np.array(facts["bases"]))
            elif kind == ROWS:
                batch = unpacked(payload)
                kept, words = batch.select(KEPT.names), batch.select(WORD_COLUMNS)
                number = KEPT.get_field_index("label")
                kept = kept.set_column(number, "label", pa.array(labels[kept["label"].to_numpy()]))
                for part, name, start, values in encoder.segments(kept, words):
                    stored = np.ascontiguousarray(values, layout.plans[part].dtypes[name])
                    yield row(part, name, packed(pa.RecordBatch.from_arrays([stored], [name])), start)

    def _vocabulary(self) -> Vocabulary:
        words = unpacked(pa.py_buffer(self.vocabulary.value))["word"]
        return Vocabulary(words, np.zeros(len(words), np.int64))
