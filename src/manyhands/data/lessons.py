"""Rows to train on or to be judged by: of a prepared dataset, or of raw files read into memory."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.data.dataset import Dataset, Split, Tokens
from manyhands.data.labels import UNLABELLED, Classes, LabelBook
from manyhands.data.numbers import is_table, read_table
from manyhands.data.reading import texts_of, weights_of
from manyhands.data.sources.source import Piece, Records, Source, open_source
from manyhands.data.wordtables import WordTables
from manyhands.errors import InputError
from manyhands.kernel import Ints
from manyhands.parallel import in_order
from manyhands.records import Progress, Resources
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.files import InputStream, expand
from manyhands.text.corpus import Corpus, held
from manyhands.text.lesson import Labels, Lesson
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import from_arrow, joined
from manyhands.text.vocabulary import FIRST_WORD
from manyhands.text.words import Numbered

TABLE_BYTES = 1 << 30


def lesson_of(dataset: Dataset, split: str, *, labelled: bool = True) -> Lesson:
    """The rows of one split, as they lie in their files; with their labels, or only the texts."""
    rows = dataset[split]
    names = dataset.label_names
    if labelled and not names:
        raise InputError(f"{dataset.folder} has no labels; prepare it with --labels as-is, polarity or stars")
    if (
        labelled
        and len(rows.labels)
        and not 0 <= int(rows.labels.min()) <= int(rows.labels.max()) < len(names)
    ):
        raise InputError(f"the labels of {dataset.folder} are damaged; prepare the dataset again")
    specials = pa.array([""] * FIRST_WORD, pa.large_string())
    letters = from_arrow(pa.concat_arrays([specials, dataset.vocabulary.words]))
    corpus = Corpus(partial(_checked_rows, rows, len(letters)), len(rows), rows.tokens, letters)
    if not labelled:
        return Lesson(corpus, Labels.none(len(rows)), rows.weights)
    offsets = rows.label_offsets
    if offsets is None:
        return Lesson(corpus, Labels.single(rows.labels, names), rows.weights)
    return Lesson(corpus, Labels(rows.labels, offsets, names, several=True), rows.weights)


def _checked_rows(split: Split, words: int, rows: Ints) -> tuple[Tokens, Ints]:
    """Kernels look words up without asking: a damaged file must not lead them astray."""
    tokens, offsets = split.take(rows)
    if len(tokens) and int(tokens.max()) >= words:
        raise InputError("the dataset is damaged: it holds words that its vocabulary lacks; prepare it again")
    return tokens, offsets


@dataclass(frozen=True)
class RawLesson:
    """Raw files, read as they are: all rows, in their order."""

    lesson: Lesson
    scheme: LabelScheme


@dataclass(frozen=True)
class _Piece:
    numbered: Numbered
    table: int
    labels: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    left_out: int


def read_lesson(
    sources: Sequence[str],
    settings: PrepareSettings,
    resources: Resources,
    progress: Progress,
    *,
    labelled: bool = True,
) -> RawLesson:
    """Read raw reviews, or rows of numbers, into memory. What cannot be used is left out, and counted.

    Where labels are not wanted, any text will do.
    """
    if is_table(sources, settings):
        return RawLesson(read_table(sources, settings), "as-is")
    if not labelled:
        settings = settings.model_copy(update={"labels": "none"})
    reader = _LessonReader(settings, labelled)
    pieces = list(in_order(reader.take, reader.pieces(sources, progress), resources.threads))
    if not any(len(piece.weights) for piece in pieces):
        raise InputError(f"{sources[0]} holds no rows that can be used")
    corpus = _corpus(pieces, reader.tables)
    labels = Labels.none(len(corpus))
    if reader.book is not None:
        classes = reader.book.classes(reader.rates_stars)
        labels = _labels(np.concatenate([piece.labels for piece in pieces]), classes)
    weights = np.concatenate([piece.weights for piece in pieces])
    left_out = sum(piece.left_out for piece in pieces)
    return RawLesson(Lesson(corpus, labels, weights, left_out), reader.scheme)


class _LessonReader:
    def __init__(self, settings: PrepareSettings, labelled: bool) -> None:
        self._settings, self._labelled = settings, labelled
        self._normaliser = Normaliser(settings.text)
        self.tables = WordTables(TABLE_BYTES)
        self.book: LabelBook | None = None
        self.scheme: LabelScheme = settings.labels
        self.rates_stars = False

    def pieces(self, sources: Sequence[str], progress: Progress) -> Iterator[Piece]:
        files = expand(sources)
        sizes = [file.size for file in files]
        progress.stage("reading", None if None in sizes else sum(size or 0 for size in sizes), "B")
        finished = 0
        for file in files:
            with closing(InputStream(file)) as stream:
                if stream.head():
                    source = open_source(stream, self._settings)
                    self._settle(source, file.name)
                    for piece in source.pieces():
                        yield piece
                        progress.advance(finished + stream.position())
            finished += file.size or 0

    def _settle(self, source: Source, name: str) -> None:
        """Decide on the labels by the first file."""
        if not self._labelled:
            return
        if not source.labelled or self.scheme == "none":
            raise InputError(f"{name} has no labels; give files that have, or a prepared dataset")
        if self.book is None:
            if self.scheme == "auto":
                self.scheme = "polarity" if source.rates_stars else "as-is"
            self.book = LabelBook(self.scheme)
        self.rates_stars |= source.rates_stars

    def take(self, piece: Piece) -> _Piece:
        records: Records = piece()
        texts, bad = texts_of(records)
        normal = self._normaliser.ragged(texts)
        labels, unlabelled = np.zeros(len(normal), np.int32), dict[int, str]()
        if self.book is not None:
            labels, unlabelled = self.book.ids(records.labels, len(normal))
        weights, unweighted = weights_of(records.weights, len(normal))
        usable = (normal.lengths() > 0) & (labels != UNLABELLED)
        usable[[*bad, *unlabelled, *unweighted]] = False
        rows = np.flatnonzero(usable)
        if len(rows) < len(normal):
            normal, labels, weights = normal.take(rows), labels[rows], weights[rows]
        number, table = self.tables.mine()
        left_out = len(usable) - len(rows) + len(records.lost)
        return _Piece(table.number(normal), number, labels, weights, left_out)


def _corpus(pieces: list[_Piece], tables: WordTables) -> Corpus:
    bases = tables.bases()
    units = np.concatenate([piece.numbered.units for piece in pieces])
    lengths = np.concatenate([piece.numbered.lengths for piece in pieces])
    row_units = np.concatenate([np.diff(piece.numbered.offsets) for piece in pieces])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(row_units, out=offsets[1:])
    row_bases = [np.full(len(p.numbered.lengths), bases[p.table], np.uint32) for p in pieces]
    return held(units, offsets, lengths, np.concatenate(row_bases), joined(tables.words()))


def _labels(ids: npt.NDArray[np.int32], classes: Classes) -> Labels:
    """The classes of each row's label, of which some stand for several."""
    if not classes.several:
        single = np.array([of[0] for of in classes.of_label], np.int32)
        return Labels.single(single[ids], classes.names)
    lengths = np.array([len(of) for of in classes.of_label])
    flat = np.array([number for of in classes.of_label for number in of], np.int32)
    starts: Ints = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return Labels(flat, starts, classes.names, several=True).take(ids.astype(np.int64))
