"""The one reader: input files to pieces, pieces to records, records to rows that can be used.

``prepare`` (on one machine and on Spark), training and evaluation on raw files, and ``predict`` read
by it. A piece is cut by one thread and parsed in any, so whoever calls decides how the work is shared.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.data.labels import LabelEncoder, LabelIds, resolve_scheme
from manyhands.data.sources.source import Records, SourcePiece, open_source
from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.records import Progress
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.files import STDIN, InputFile, InputStream, expand
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import Ragged, from_arrow
from manyhands.text.utf8 import valid_utf8

Weights = npt.NDArray[np.float32]

NUMBER = r"^[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"
TEXTS_AT_ONCE = 4096


@dataclass(frozen=True)
class PieceTally:
    """Where the rows of one piece went."""

    file: str
    rows: int
    empty: int
    rejected: list[tuple[int, str]]  # line and reason


@dataclass(frozen=True)
class ParsedPiece:
    """All rows of one piece, their texts normalised; ``usable`` are the numbers of those to be used."""

    texts: Ragged
    labels: LabelIds
    weights: Weights
    usable: Ints
    tally: PieceTally
    lines: Ints  # where each row begins in its file, counted from 1


class Reader:
    """Reads files of any source, all by the same settings.

    What labels mean is the ``scheme``; where none is given, the first file decides. With
    ``require_labels``, a file without any is an error. With ``every_row``, as ``predict`` needs it,
    each line of plain text is one row however long it is, and standard input is plain text unless a
    format is asked for.
    """

    def __init__(
        self,
        settings: PrepareSettings,
        *,
        scheme: LabelScheme | None = None,
        require_labels: bool = False,
        every_row: bool = False,
    ) -> None:
        self._settings = settings
        self._normaliser = Normaliser(settings.text)
        self._encoder = LabelEncoder(scheme) if scheme else None
        self._require_labels = require_labels
        self._every_row = every_row
        self.rates_stars = False

    @property
    def label_encoder(self) -> LabelEncoder:
        """The labels met so far; there is none before the first file that holds anything."""
        if self._encoder is None:
            raise InputError("the input holds no rows at all")
        return self._encoder

    def pieces(
        self, files: Sequence[InputFile], progress: Progress, stage: str = "reading"
    ) -> Iterator[tuple[int, SourcePiece]]:
        """The pieces of all files, each with the number of its file."""
        sizes = [file.size for file in files]
        progress.stage(stage, None if None in sizes else sum(size or 0 for size in sizes), "B")
        bytes_before = 0
        for number, file in enumerate(files):
            with closing(InputStream(file)) as stream:
                for piece in self.stream_pieces(stream):
                    yield number, piece
                    progress.advance(bytes_before + stream.position())
            bytes_before += file.size or 0

    def stream_pieces(self, stream: InputStream) -> Iterator[SourcePiece]:
        """The pieces of one file, or of a range of its lines."""
        if not stream.head():  # an empty file tells nothing of its format
            return
        settings = self._settings
        if self._every_row and stream.file.name == STDIN and settings.format == "auto":
            settings = settings.model_copy(update={"format": "text"})
        source = open_source(stream, settings, whole_lines=self._every_row)
        if self._encoder is None:
            self._encoder = LabelEncoder(resolve_scheme(settings.labels, source))
        if self._require_labels and (not source.labelled or self._encoder.scheme == "none"):
            raise InputError(f"{stream.file.name} has no labels; give files that have, or a prepared dataset")
        self.rates_stars |= source.rates_stars
        yield from source.pieces()

    def parse(self, piece: SourcePiece) -> ParsedPiece:
        """Parse one piece, normalise its texts, and tell which rows can be used and why others cannot."""
        records = piece()
        raw_texts, rejected = valid_texts(records)
        texts = self._normaliser.ragged(raw_texts)
        empty = texts.lengths() == 0
        labels, label_errors = self.label_encoder.encode(records.labels, len(empty))
        weights, weight_errors = parse_weights(records.weights, len(empty))
        for errors in (label_errors, weight_errors):
            rejected |= {row: why for row, why in errors.items() if row not in rejected and not empty[row]}
        usable = ~empty
        usable[list(rejected)] = False
        lines = [(int(records.lines[row]), reason) for row, reason in rejected.items()]
        lines += [(lost.line, lost.reason) for lost in records.lost]
        empty_rows = int(empty.sum()) - sum(bool(empty[row]) for row in rejected)
        tally = PieceTally(records.file, len(empty) + len(records.lost), empty_rows, lines)
        return ParsedPiece(texts, labels, weights, np.flatnonzero(usable), tally, records.lines)


def read_texts(sources: Sequence[str], settings: PrepareSettings, progress: Progress) -> Iterator[Ragged]:
    """The raw texts of all rows, in their order, a few thousand at a time: what ``predict`` reads.

    What is not valid UTF-8 is an empty text; a row that cannot be had at all is an error.
    """
    reader = Reader(settings, every_row=True)
    for _, piece in reader.pieces(expand(sources), progress, "predict"):
        records = piece()
        if records.lost:
            raise InputError(f"{records.lost[0]}; every row must have a prediction, so fix or remove it")
        texts, _ = valid_texts(records)
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            yield Ragged(texts.data, texts.offsets[start : start + TEXTS_AT_ONCE + 1])


def valid_texts(records: Records) -> tuple[Ragged, dict[int, str]]:
    """The texts, emptied where they are not valid UTF-8, and the rows that are rejected so far."""
    valid = valid_utf8(records.texts)
    if valid.all():
        return records.texts, dict(records.bad)
    invalid = dict.fromkeys(np.flatnonzero(~valid).tolist(), "not valid UTF-8")
    return from_arrow(records.texts.arrow_text(valid)), invalid | records.bad


def parse_weights(column: pa.Array | None, count: int) -> tuple[Weights, dict[int, str]]:
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
