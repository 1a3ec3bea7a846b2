"""The first pass of ``prepare``: every record parsed, normalised, hashed and put into its partition.

Words get provisional numbers, from a table that each thread fills for itself, so that every
text is taken apart once; the later passes deal in numbers alone.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.data.fold import ROW
from manyhands.data.labels import NEUTRAL, LabelBook, LabelIds
from manyhands.data.rejections import Reasons, Rejections
from manyhands.data.sources.source import Piece, Records, Source, open_source
from manyhands.data.spool import Spool
from manyhands.data.wordtables import WordTables
from manyhands.errors import InputError
from manyhands.kernel import Hashes, Ints
from manyhands.parallel import side_by_side
from manyhands.records import Progress, Resources
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.files import COMPRESSED_SUFFIXES, InputFile, InputStream
from manyhands.text.hashing import digests
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import Ragged, from_arrow
from manyhands.text.utf8 import valid_utf8
from manyhands.text.words import UNIT_BYTES

PREFIX_BITS = 10  # of a row's digest; partitions and parts are runs of these 1,024 prefixes
PREFIXES = 1 << PREFIX_BITS
PREFIX_SHIFT = np.uint64(64 - PREFIX_BITS)
HOPELESS_ROWS = 10_000
UNKNOWN_BYTES = 16 << 30  # what standard input is taken to hold
SPREAD_OF_COMPRESSION = 4  # how much larger compressed input is taken to be
NUMBER = r"^[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True)
class Given:
    """An input file and the split it was given for: 0 where the text decides, 1 valid, 2 test."""

    file: InputFile
    origin: int

    @property
    def expected_bytes(self) -> int:
        """How much text it may hold."""
        size = self.file.size if self.file.size is not None else UNKNOWN_BYTES
        compressed = self.file.name.lower().endswith((*COMPRESSED_SUFFIXES, ".parquet"))
        return size * (SPREAD_OF_COMPRESSION if compressed else 1)


@dataclass
class Read:
    """What the first pass found."""

    book: LabelBook
    rejections: Reasons
    scheme: LabelScheme
    rates_stars: bool = False
    rows: int = 0
    empty: int = 0

    @property
    def wrong(self) -> int:
        """Rejected rows, less those that the user asked to leave out."""
        return len(self.rejections) - self.rejections.by_reason[NEUTRAL]

    @property
    def hopeless(self) -> bool:
        """Not one of many rows could be used: no need to read on."""
        return self.wrong == self.rows >= HOPELESS_ROWS


@dataclass(frozen=True)
class Tally:
    """Where the rows of one piece went."""

    file: str
    rows: int
    empty: int
    rejected: list[tuple[int, str]]  # line and reason


@dataclass(frozen=True)
class Taken:
    """The rows of one piece, normalised and hashed; ``good`` are those of use."""

    normal: Ragged
    high: Hashes
    low: Hashes
    labels: LabelIds
    weights: npt.NDArray[np.float32]
    good: Ints
    tally: Tally


def take(piece: Piece, normaliser: Normaliser, book: LabelBook) -> Taken:
    """Parse one piece of a file and look at every row."""
    records = piece()
    texts, bad = texts_of(records)
    normal = normaliser.ragged(texts)
    empty = normal.lengths() == 0
    labels, unlabelled = book.ids(records.labels, len(empty))
    weights, unweighted = weights_of(records.weights, len(empty))
    for reasons in (unlabelled, unweighted):
        bad |= {row: reason for row, reason in reasons.items() if row not in bad and not empty[row]}
    good = ~empty
    good[list(bad)] = False
    rejected = [(int(records.lines[row]), reason) for row, reason in bad.items()]
    rejected += [(lost.line, lost.reason) for lost in records.lost]
    count_empty = int(empty.sum()) - sum(bool(empty[row]) for row in bad)
    tally = Tally(records.file, len(empty) + len(records.lost), count_empty, rejected)
    return Taken(normal, *digests(normal), labels, weights, np.flatnonzero(good), tally)


def numbered(tables: WordTables, normal: Ragged, rows: Ints) -> list[pa.Array]:
    """The last columns of ``ROW``: the words of some rows by number, and whose numbers they are."""
    table, words = tables.mine()
    all_rows = words.number(normal)
    units = Ragged(all_rows.units.view(np.uint8), all_rows.offsets * UNIT_BYTES)
    return [
        pa.array(np.full(len(rows), table, np.uint16)),
        pa.array(all_rows.lengths[rows].astype(np.uint32)),
        units.take(rows).arrow(),
    ]


def label_scheme(settings: PrepareSettings, source: Source) -> LabelScheme:
    """The scheme asked for, or the one that fits the first file."""
    if settings.labels != "auto":
        return settings.labels
    return "none" if not source.labelled else "polarity" if source.rates_stars else "as-is"


class Reader:
    """Reads all files into a spool of so many partitions."""

    def __init__(
        self,
        settings: PrepareSettings,
        spool: Spool,
        tables: WordTables,
        partitions: int,
        rejections: Rejections,
    ) -> None:
        self._settings = settings
        self._normaliser = Normaliser(settings.text)
        self._spool = spool
        self._tables = tables
        self._partitions = partitions
        self._rejections = rejections
        self._read: Read | None = None

    def read(self, given: list[Given], resources: Resources, progress: Progress) -> Read:
        sizes = [item.file.size for item in given]
        progress.stage("reading", None if None in sizes else sum(size or 0 for size in sizes), "B")
        for tally in side_by_side(self._take, self._pieces(given, progress), resources.threads):
            read = self._found()
            read.rows += tally.rows
            read.empty += tally.empty
            self._rejections.add(tally.file, tally.rejected)
            if read.hopeless and self._settings.max_rejected < 1:
                break
        return self._found()

    def _found(self) -> Read:
        if self._read is None:
            raise InputError("the input holds no rows at all")
        return self._read

    def _pieces(self, given: list[Given], progress: Progress) -> Iterator[tuple[Piece, int]]:
        finished = 0
        for item in given:
            with closing(InputStream(item.file)) as stream:
                if stream.head():  # an empty file tells nothing of its format
                    source = open_source(stream, self._settings)
                    self._settle(source)
                    for piece in source.pieces():
                        yield piece, item.origin
                        progress.advance(finished + stream.position())
            finished += item.file.size or 0

    def _settle(self, source: Source) -> None:
        """Decide on the labels by the first file."""
        if self._read is None:
            scheme = label_scheme(self._settings, source)
            self._read = Read(LabelBook(scheme), self._rejections, scheme)
        self._read.rates_stars |= source.rates_stars

    def _take(self, work: tuple[Piece, int]) -> Tally:
        piece, origin = work
        taken = take(piece, self._normaliser, self._found().book)
        rows, bounds = by_partition(taken.good, taken.high, self._partitions)
        columns = [
            taken.high[rows],
            taken.low[rows],
            np.full(len(rows), origin, np.uint8),
            taken.labels[rows],
            taken.weights[rows],
            *numbered(self._tables, taken.normal, rows),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=ROW)
        self._spool.add({partition: batch.slice(start, count) for partition, start, count in bounds})
        return taken.tally


def by_partition(rows: Ints, high: Hashes, partitions: int) -> tuple[Ints, list[tuple[int, int, int]]]:
    """The rows sorted by partition, and for each partition where it begins and how many it has."""
    partition = (high[rows] >> PREFIX_SHIFT).astype(np.int64) * partitions // PREFIXES
    order = np.argsort(partition, kind="stable")
    present, starts, counts = np.unique(partition[order], return_index=True, return_counts=True)
    return rows[order], list(zip(present.tolist(), starts.tolist(), counts.tolist(), strict=True))


def texts_of(records: Records) -> tuple[Ragged, dict[int, str]]:
    """The texts, emptied where they are not valid UTF-8, and the rows that are bad so far."""
    valid = valid_utf8(records.texts)
    if valid.all():
        return records.texts, dict(records.bad)
    bad = dict.fromkeys(np.flatnonzero(~valid).tolist(), "not valid UTF-8")
    return from_arrow(records.texts.arrow_text(valid)), bad | records.bad


def weights_of(column: pa.Array | None, count: int) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
    """The weights, 1 where there is no column for them, and the reason for each that is no weight."""
    if column is None:
        return np.ones(count, np.float32), {}
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        column = column.cast(pa.string())
        column = pc.if_else(pc.match_substring_regex(column, NUMBER), column, None)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is rejected
        weights = np.asarray(column.cast(pa.float64()).fill_null(np.nan)).astype(np.float32)
    wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights))).tolist()
    return weights, dict.fromkeys(wrong, "the weight is not a number from 0 up")
