"""One file scored into another of the same format: a block at a time, in its order, blocks side by side.

The columns of the input stay as they are. Formats of lines are not even written again: a label goes into the
bytes of each row. Blocks are compressed each by itself, in the thread that scored it; gzip, zstd and bzip2
read what was compressed in pieces as one.
"""

import bz2
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.unsure import UNSURE
from manyhands.catalog import SOURCES, load
from manyhands.data.reader import valid_texts
from manyhands.data.sources.columns import Columns, Parquet
from manyhands.data.sources.source import Records, Source, SourcePiece, open_source
from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Ints
from manyhands.parallel import map_in_pool
from manyhands.records import ScoringLedger
from manyhands.scoring.insert import NONE, Inserter
from manyhands.settings import FileSettings, PrepareSettings
from manyhands.storage.files import InputFile, InputStream, codec_of
from manyhands.storage.place import NewFile

NAMES = ("predicted_label", "predicted_probability")
REJECTIONS_LISTED = 10  # of each file
ROW_GROUP_BYTES = 32 << 20
GZIP_LEVEL = 6


class Stopped(Exception):  # noqa: N818  (it is no error: another thread failed, or the user wants to stop)
    """Work that is not needed any more."""


@dataclass
class PartTally:
    """What became of the rows of one file."""

    columns: tuple[str, str]
    ledger: ScoringLedger = field(default_factory=ScoringLedger)
    rejections: list[str] = field(default_factory=list)  # the first of them


@dataclass(frozen=True)
class ScoredPiece:
    labels: Ints
    probabilities: npt.NDArray[np.float32]
    ledger: ScoringLedger
    rejections: list[str]


class PartScorer:
    """Scores files by one bundle, in threads that all files share."""

    def __init__(
        self,
        bundle: Bundle,
        settings: FileSettings,
        pool: ThreadPoolExecutor | None,
        ahead: int,
        unsure: float | None = None,
    ) -> None:
        self._bundle, self._pool, self._ahead, self._unsure = bundle, pool, ahead, unsure
        self._answers = [*bundle.labels, *([] if unsure is None else [UNSURE])]
        self._settings = PrepareSettings(**settings.model_dump(), labels="none")
        self.stop = Event()

    def score(
        self, file: InputFile, name: str, out: NewFile, advance: Callable[[int], None] = lambda done: None
    ) -> PartTally:
        """Write ``file``, scored, to ``out``, which will be called ``name``."""
        with closing(InputStream(file)) as stream:
            if not stream.head():
                out.write(_compressor(name)(np.empty(0, np.uint8)))
                return PartTally(NAMES)
            source = open_source(stream, self._settings, whole_lines=True, all_columns=True)
            _refuse_another_format(source, file, name)
            tally = PartTally(free_names(source.columns))

            def pieces() -> Iterator[SourcePiece]:
                for piece in source.pieces():
                    if self.stop.is_set():
                        raise Stopped
                    yield piece
                    advance(stream.position())

            write = self._write_table if isinstance(source, Columns) else self._write_lines
            write(source, pieces(), name, out, tally)
        return tally

    def _write_lines(
        self, source: Source, pieces: Iterator[SourcePiece], name: str, out: NewFile, tally: PartTally
    ) -> None:
        insert = Inserter.of(source.wording(tally.columns, self._answers))
        compress = _compressor(name)

        def make(piece: SourcePiece) -> tuple[ScoredPiece, Any]:
            records = piece()
            scored = self._scored(records)
            return scored, compress(insert(records, scored.labels, scored.probabilities))

        for scored, data in self._map(make, pieces):
            out.write(data)
            _count(tally, scored)

    def _write_table(
        self, source: Any, pieces: Iterator[SourcePiece], name: str, out: NewFile, tally: PartTally
    ) -> None:
        labels = pa.array(self._answers, pa.string())
        more = [pa.field(tally.columns[0], pa.string()), pa.field(tally.columns[1], pa.float32())]
        schema = pa.schema([*source.schema, *more], source.schema.metadata)

        def make(piece: SourcePiece) -> tuple[ScoredPiece, pa.RecordBatch]:
            records = piece()
            scored = self._scored(records)
            none = scored.labels == NONE
            chosen = labels.take(pa.array(scored.labels, mask=none))
            likely = pa.array(scored.probabilities, mask=none)
            batch: Any = records.batch
            return scored, pa.RecordBatch.from_arrays([*batch.columns, chosen, likely], schema=schema)

        with _table_writer(source, out, schema) as write:
            for scored, batch in self._map(make, pieces):
                write(batch)
                _count(tally, scored)

    def _map(
        self, make: Callable[[SourcePiece], tuple[ScoredPiece, Any]], pieces: Iterator[SourcePiece]
    ) -> Iterator[tuple[ScoredPiece, Any]]:
        if self._pool is None:
            return map(make, pieces)
        return map_in_pool(self._pool, make, pieces, self._ahead)

    def _scored(self, records: Records) -> ScoredPiece:
        """The likeliest label of every row; none where there is no text, or no row to be read."""
        texts, bad = valid_texts(records)
        normal = self._bundle.normaliser.ragged(texts)
        scores = self._bundle.classifier.score_texts(normal)
        labels = scores.argmax(1)
        likely = np.take_along_axis(scores, labels[:, None], 1)[:, 0]
        if self._unsure is not None:
            labels[likely < self._unsure] = len(self._answers) - 1
        without = normal.lengths() == 0
        empty = int(without.sum()) - sum(bool(without[row]) for row in bad)
        without[list(bad)] = True
        labels[without] = NONE
        listed = [f"line {records.lines[row]}: {bad[row]}" for row in sorted(bad)[:REJECTIONS_LISTED]]
        listed += [f"line {lost.line}: {lost.reason}" for lost in records.lost]
        rejected = len(bad) + len(records.lost)
        read = len(labels) + len(records.lost)
        ledger = ScoringLedger(read, read - empty - rejected, empty, rejected)
        return ScoredPiece(labels, likely, ledger, listed)


def free_names(taken: tuple[str, ...]) -> tuple[str, str]:
    """What the new columns are called in a file that has these.

    >>> free_names(("text", "label"))
    ('predicted_label', 'predicted_probability')
    >>> free_names(("text", "predicted_label"))
    ('predicted_label_2', 'predicted_probability_2')
    """
    for number in count(1):
        label, probability = (name if number == 1 else f"{name}_{number}" for name in NAMES)
        if label not in taken and probability not in taken:
            return label, probability
    raise AssertionError("there are names without end")


def _count(tally: PartTally, scored: ScoredPiece) -> None:
    tally.ledger += scored.ledger
    tally.rejections = (tally.rejections + scored.rejections)[:REJECTIONS_LISTED]


def _refuse_another_format(source: Source, file: InputFile, name: str) -> None:
    """The output is of the input's format, whatever it is called."""
    suffix = InputFile(name, name, None, None).suffix
    called = [load(SOURCES, "format", each) for each in SOURCES]
    fitting = [kind for kind in called if suffix in kind.suffixes]
    if fitting and not any(type(source) is kind or suffix in source.suffixes for kind in fitting):
        wanted = " or ".join(source.suffixes)
        raise UsageError(
            f"{name} would hold the format of {file.name}, which is not {suffix}; call it {wanted}"
        )


def _compressor(name: str) -> Callable[[Any], Any]:
    """How a block is written to a file of this name."""
    codec = codec_of(name)
    if codec is None:
        return memoryview
    if codec == "bz2":
        return bz2.compress
    level = GZIP_LEVEL if codec == "gzip" else None
    return partial(_compress, codec, level)


def _compress(codec: str, level: int | None, data: Any) -> pa.Buffer:
    return pa.Codec(codec, compression_level=level).compress(pa.py_buffer(data))


class _table_writer:  # noqa: N801  (a context, read as a verb)
    """Gathers batches to row groups, as many small ones would make a file that is slow to read."""

    def __init__(self, source: Columns, out: NewFile, schema: pa.Schema) -> None:
        self._schema = schema
        sink = pa.PythonFile(out, "w")
        if isinstance(source, Parquet):
            self._writer = pyarrow.parquet.ParquetWriter(sink, schema, compression=source.compression)
        else:
            self._writer = pa.ipc.new_file(sink, schema)
        self._held: list[pa.RecordBatch] = []

    def __enter__(self) -> Callable[[pa.RecordBatch], None]:
        return self._write

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def _write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        if sum(held.nbytes for held in self._held) >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
        self._held = []


def version_of(file: InputFile) -> str | None:
    """What changes when the file does: its entity tag in a store, else its size and time of change."""
    if file.filesystem is None:
        return None
    try:
        file.filesystem.invalidate_cache(file.path)
        facts = file.filesystem.info(file.path)
    except FileNotFoundError:
        raise InputError(f"{file.name} is gone; check the path") from None
    tag = facts.get("ETag") or facts.get("etag")
    return str(tag).strip('"') if tag else f"{facts['size']}-{facts.get('mtime') or facts.get('created')}"
