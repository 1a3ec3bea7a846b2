"""Rows to train on or to be judged by: of a prepared dataset, or of raw files read into memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from manyhands.data.dataset import Dataset, Split, Tokens
from manyhands.data.labels import LabelIds
from manyhands.data.numbers import holds_numbers, read_numbers
from manyhands.data.reader import Reader, Weights
from manyhands.data.sources.source import SourcePiece
from manyhands.data.wordtables import WordTables
from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.parallel import map_ordered
from manyhands.records import Progress, Resources
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.files import expand
from manyhands.text.corpus import Corpus, corpus_in_memory
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import concatenate, from_arrow
from manyhands.text.vocabulary import FIRST_WORD, UNKNOWN
from manyhands.text.words import Numbered

TABLE_BYTES = 1 << 30
COUNTED_SPLIT = "train"


def rows_of_split(dataset: Dataset, split: str, *, labelled: bool = True) -> LabelledRows:
    """The rows of one split, as they lie in their files; with their labels, or only the texts."""
    rows = dataset[split]
    names = dataset.label_names
    if labelled and not names:
        raise InputError(f"{dataset.folder} has no labels; prepare it with --labels as-is, polarity or stars")
    if labelled and not 0 <= rows.labels.min(initial=0) <= rows.labels.max(initial=0) < len(names):
        raise InputError(f"the labels of {dataset.folder} are damaged; prepare the dataset again")
    specials = pa.array([""] * FIRST_WORD, pa.large_string())
    letters = from_arrow(pa.concat_arrays([specials, dataset.vocabulary.words]))
    corpus = Corpus(
        partial(_checked_rows, rows, len(letters)),
        len(rows),
        rows.tokens,
        letters,
        measure=rows.lengths,
        counts=_counts(dataset, rows) if split == COUNTED_SPLIT else None,
    )
    offsets = rows.label_offsets
    if not labelled:
        labels = Labels.none(len(rows))
    elif offsets is None:
        labels = Labels.single(rows.labels, names)
    else:
        labels = Labels(rows.labels, offsets, names, multi_label=True)
    # Rows are stored in the order of their digests, which is as good as any shuffle.
    known_as = dataset.manifest.fingerprint(split, labelled=labelled)
    return LabelledRows(corpus, labels, rows.weights, shuffled=True, known_as=known_as)


def _counts(dataset: Dataset, rows: Split) -> Ints:
    """How often each id stands in the training rows, in which the words of the vocabulary were counted."""
    counts = np.append(np.zeros(FIRST_WORD, np.int64), dataset.vocabulary.counts)
    counts[UNKNOWN] = rows.tokens - counts.sum()
    return counts


def _checked_rows(split: Split, words: int, rows: Ints) -> tuple[Tokens, Ints]:
    """Kernels look words up without asking: a damaged file must not lead them astray."""
    tokens, offsets = split.take(rows)
    if len(tokens) and int(tokens.max()) >= words:
        raise InputError("the dataset is damaged: it holds words that its vocabulary lacks; prepare it again")
    return tokens, offsets


@dataclass(frozen=True)
class Places:
    """Where rows stand in their files: a run of rows for each piece that was read, and their lines."""

    files: list[str]  # the file of each run
    ends: Ints  # the first row behind each run
    lines: Ints  # of each row

    def of(self, row: int) -> tuple[str, int]:
        return self.files[int(np.searchsorted(self.ends, row, "right"))], int(self.lines[row])


@dataclass(frozen=True)
class RawRows:
    """The rows of raw files, all of them in their order, and what their labels mean."""

    examples: LabelledRows
    scheme: LabelScheme
    places: Places | None = None  # None of tables of numbers


def read_rows(
    sources: Sequence[str],
    settings: PrepareSettings,
    resources: Resources,
    progress: Progress,
    *,
    labelled: bool = True,
) -> RawRows:
    """Read raw reviews, or rows of numbers, into memory. What cannot be used is left out, and counted.

    Where labels are not wanted, any text will do.
    """
    if holds_numbers(sources, settings):
        return RawRows(read_numbers(sources, settings, labelled=labelled), "as-is")
    if not labelled:
        settings = settings.model_copy(update={"labels": "none"})
    reader, tables = Reader(settings, require_labels=labelled), WordTables(TABLE_BYTES)
    numbered = partial(_number_words, reader, tables)
    pieces = list(map_ordered(numbered, reader.pieces(expand(sources), progress), resources.threads))
    if not any(len(piece.weights) for piece in pieces):
        raise InputError(f"{sources[0]} holds no rows that can be used")
    corpus = _corpus(pieces, tables)
    labels = Labels.none(len(corpus))
    if labelled:
        classes = reader.label_encoder.classes(reader.rates_stars)  # of a label: one, or several
        every = Labels(*classes.flatten(), classes.names, classes.multi_label)
        ids = np.concatenate([piece.labels for piece in pieces]).astype(np.int64)
        labels = every.take(ids) if every.multi_label else Labels.single(every.ids[ids], every.names)
    weights = np.concatenate([piece.weights for piece in pieces])
    left_out = sum(piece.left_out for piece in pieces)
    places = Places(
        [piece.file for piece in pieces],
        np.cumsum([len(piece.lines) for piece in pieces]),
        np.concatenate([piece.lines for piece in pieces]),
    )
    return RawRows(LabelledRows(corpus, labels, weights, left_out), reader.label_encoder.scheme, places)


@dataclass(frozen=True)
class _NumberedPiece:
    """The usable rows of one piece, their words numbered by one of the tables."""

    words: Numbered
    table: int
    labels: LabelIds
    weights: Weights
    left_out: int
    file: str
    lines: Ints


def _number_words(reader: Reader, tables: WordTables, piece: tuple[int, SourcePiece]) -> _NumberedPiece:
    parsed = reader.parse(piece[1])
    texts, labels, weights, rows = parsed.texts, parsed.labels, parsed.weights, parsed.usable
    lines = parsed.lines
    if len(rows) < len(texts):
        texts, labels, weights, lines = texts.take(rows), labels[rows], weights[rows], lines[rows]
    number, table = tables.for_this_thread()
    left_out = parsed.tally.rows - len(rows)
    return _NumberedPiece(
        table.number(texts), number, labels, weights, left_out, parsed.tally.file, np.asarray(lines)
    )


def _corpus(pieces: list[_NumberedPiece], tables: WordTables) -> Corpus:
    bases = tables.bases()
    units = np.concatenate([piece.words.units for piece in pieces])
    lengths = np.concatenate([piece.words.lengths for piece in pieces])
    row_units = np.concatenate([np.diff(piece.words.offsets) for piece in pieces])
    offsets = np.append(0, np.cumsum(row_units))
    row_bases = [np.full(len(p.words.lengths), bases[p.table], np.uint32) for p in pieces]
    return corpus_in_memory(units, offsets, lengths, np.concatenate(row_bases), concatenate(tables.words()))
