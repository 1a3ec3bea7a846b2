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
from manyhands.data.labels import NEUTRAL, LabelBook
from manyhands.data.rejections import Rejections
from manyhands.data.sources.source import Piece, Records, Source, open_source
from manyhands.data.spool import Spool
from manyhands.data.wordtables import WordTables
from manyhands.errors import InputError
from manyhands.parallel import side_by_side
from manyhands.records import Progress, Resources
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.files import InputFile, InputStream
from manyhands.text.hashing import digests
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import Ragged, from_arrow
from manyhands.text.utf8 import valid_utf8
from manyhands.text.words import UNIT_BYTES

PREFIX_BITS = 10  # of a row's digest; partitions and parts are runs of these 1,024 prefixes
HOPELESS_ROWS = 10_000
NUMBER = r"^[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True)
class Given:
    """An input file and the split it was given for: 0 where the text decides, 1 valid, 2 test."""

    file: InputFile
    origin: int


@dataclass
class Read:
    """What the first pass found."""

    book: LabelBook
    rejections: Rejections
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
class _Tally:
    file: str
    rows: int
    empty: int
    rejected: list[tuple[int, str]]  # line and reason


class Reader:
    """Reads all files into a spool of ``partitions`` partitions (a power of two, at least 2)."""

    def __init__(self, settings: PrepareSettings, spool: Spool, tables: WordTables, partitions: int) -> None:
        self._settings = settings
        self._normaliser = Normaliser(settings.text)
        self._spool = spool
        self._tables = tables
        self._shift = np.uint64(65 - partitions.bit_length())
        self._read: Read | None = None

    def read(self, given: list[Given], resources: Resources, progress: Progress) -> Read:
        sizes = [item.file.size for item in given]
        progress.stage("reading", None if None in sizes else sum(size or 0 for size in sizes), "B")
        for tally in side_by_side(self._take, self._pieces(given, progress), resources.threads):
            read = self._found()
            read.rows += tally.rows
            read.empty += tally.empty
            read.rejections.add(tally.file, tally.rejected)
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
            scheme = self._settings.labels
            if scheme == "auto":
                scheme = "none" if not source.labelled else "polarity" if source.rates_stars else "as-is"
            self._read = Read(LabelBook(scheme), Rejections(), scheme)
        self._read.rates_stars |= source.rates_stars

    def _take(self, work: tuple[Piece, int]) -> _Tally:
        piece, origin = work
        records = piece()
        texts, bad = texts_of(records)
        normal = self._normaliser.ragged(texts)
        empty = normal.lengths() == 0
        labels, unlabelled = self._found().book.ids(records.labels, len(empty))
        weights, unweighted = weights_of(records.weights, len(empty))
        for reasons in (unlabelled, unweighted):
            bad |= {row: reason for row, reason in reasons.items() if row not in bad and not empty[row]}
        good = ~empty
        good[list(bad)] = False
        high, low = digests(normal)
        rows, bounds = self._by_partition(np.flatnonzero(good), high)
        table, words = self._tables.mine()
        numbered = words.number(normal)
        columns = [
            high[rows],
            low[rows],
            np.full(len(rows), origin, np.uint8),
            labels[rows],
            weights[rows],
            np.full(len(rows), table, np.uint16),
            numbered.lengths[rows].astype(np.uint32),
            Ragged(numbered.units.view(np.uint8), numbered.offsets * UNIT_BYTES).take(rows).arrow(),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=ROW)
        self._spool.add({partition: batch.slice(start, count) for partition, start, count in bounds})
        rejected = [(int(records.lines[row]), reason) for row, reason in bad.items()]
        rejected += [(lost.line, lost.reason) for lost in records.lost]
        count_empty = int(empty.sum()) - sum(bool(empty[row]) for row in bad)
        return _Tally(records.file, len(empty) + len(records.lost), count_empty, rejected)

    def _by_partition(
        self, rows: npt.NDArray[np.int64], high: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], list[tuple[int, int, int]]]:
        """The rows sorted by partition, and for each partition where it begins and how many it has."""
        partition = (high[rows] >> self._shift).astype(np.int64)
        order = np.argsort(partition, kind="stable")
        present, starts, counts = np.unique(partition[order], return_index=True, return_counts=True)
        bounds = zip(present.tolist(), starts.tolist(), counts.tolist(), strict=True)
        return rows[order], list(bounds)


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
