"""Texts as sequences of known words, in batches of like length: what recurrent models are fed with."""

import math
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Flags, Hashes, Ints, kernel, read_only
from manyhands.models.learner import Piece
from manyhands.text.corpus import NO_WORD, Corpus, word_counts
from manyhands.text.labelled_rows import LabelledRows

SLICE_ROWS = 64
POOL_BATCHES = 50  # rows of so many batches are sorted by length together: like lengths, random company
STRATA = 64  # ranges of the corpus of which every batch has as many rows
UNKNOWN = np.int64(-1)


@dataclass(frozen=True)
class Lexicon:
    """The words that a model knows, by the hashes of their letters; a word's number is its place."""

    hashes: Hashes

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.hashes)

    def numbers(self, corpus: Corpus) -> Ints:
        """The number of every word of the corpus; ``UNKNOWN`` where the model has none."""
        return self.places(corpus.hashes)

    def places(self, hashes: Hashes) -> Ints:
        """The same for words that are known by their hashes."""
        if not len(self):
            return np.full(len(hashes), UNKNOWN)
        places = np.searchsorted(self.hashes, hashes, sorter=self._order)
        found = self._order[np.minimum(places, len(self) - 1)]
        return np.where(self.hashes[found] == hashes, found, UNKNOWN)


def find_words(corpus: Corpus, most: int, min_count: int, threads: int, known: Lexicon | None) -> Lexicon:
    """The most frequent words of a corpus, behind those that are ``known`` already."""
    hashes, where = np.unique(corpus.hashes, return_inverse=True)  # threads may have numbered a word twice
    counts = np.bincount(where, word_counts(corpus, threads), minlength=len(hashes))
    usable = (counts >= min_count) & (hashes != NO_WORD)
    order = np.argsort(-counts, kind="stable")
    best = hashes[order[usable[order]]][:most]
    if known is None:
        return Lexicon(read_only(best))
    return Lexicon(read_only(np.concatenate([known.hashes, best[~np.isin(best, known.hashes)]])))


@dataclass(frozen=True)
class Packed:
    """The words of some texts by time, step after step, the longest text first; ``rows`` says which is which.

    Texts without a known word come last and have no step.
    """

    words: Ints
    counts: Ints
    starts: Ints
    lengths: Ints
    rows: Ints

    @cached_property
    def mirror(self) -> Ints:
        """Where each step stands when every text is read from its end; applied twice, it changes nothing."""
        out = np.empty(len(self.words), np.int64)
        _mirror(self.counts, self.starts, self.lengths, out)
        return out

    @property
    def last(self) -> Ints:
        """The last step of every text that has one."""
        lengths = self.lengths[: int(np.count_nonzero(self.lengths))]
        return np.asarray(self.starts[lengths - 1] + np.arange(len(lengths)))


@dataclass(frozen=True)
class Batch:
    """A few rows of a lesson, ready to be learnt; ``rows`` are their numbers in the lesson."""

    packed: Packed
    labels: npt.NDArray[np.int32]
    label_offsets: Ints
    weights: npt.NDArray[np.float32]
    rows: Ints


class Slices(NamedTuple):
    """This worker's part of a batch, in slices that threads share, and which of the words known are in it."""

    words: Flags
    slices: list[Batch]


class Sequences:
    """The rows of a corpus as known words, of which only the first ``length`` count.

    Of a corpus of numbers, every step is known.
    """

    def __init__(self, corpus: Corpus, lexicon: Lexicon | None, length: int) -> None:
        self._corpus, self._length = corpus, length
        steps = len(corpus.hashes)
        self._numbers = np.arange(steps) if lexicon is None else lexicon.numbers(corpus)
        self._known = steps if lexicon is None else len(lexicon)

    def lengths(self, rows: Ints) -> Ints:
        """How many steps each row has at most, by which like ones are put together: no word is looked at."""
        return np.minimum(self._corpus.lengths(rows), self._length)

    def pack(self, rows: Ints) -> Packed:
        return pack(*self._corpus.take(rows), self._numbers, self._length)

    def places(self, row: int) -> tuple[Ints, Ints]:
        """Where in a row those tokens stand that count, and the number of each."""
        tokens, _ = self._corpus.take(np.array([row]))
        numbers = self._numbers[tokens]
        places = np.flatnonzero(numbers != UNKNOWN)[: self._length]
        return places, numbers[places]

    def words(self, rows: Ints) -> Flags:
        """Which of the known words some rows have."""
        tokens, offsets = self._corpus.take(rows)
        found = np.zeros(self._known, np.bool_)
        _mark(tokens, offsets, self._numbers, self._length, found)
        return found


def pack(tokens: npt.NDArray[np.integer], offsets: Ints, numbers: Ints, most: int) -> Packed:
    """The first known tokens of every row, by time; ``numbers`` says which is which of those known."""
    lengths = np.empty(len(offsets) - 1, np.int64)
    _lengths(tokens, offsets, numbers, most, lengths)
    order = np.argsort(-lengths, kind="stable")
    longest = int(lengths.max(initial=0))
    counts = len(lengths) - np.cumsum(np.bincount(lengths, minlength=longest + 1))[:longest]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)[:longest]
    words = np.empty(int(counts.sum()), np.int64)
    _pack(tokens, offsets, numbers, order, lengths, starts, words)
    return Packed(words, counts, starts, lengths[order], order)


@kernel
def _lengths(tokens: npt.NDArray[np.integer], offsets: Ints, numbers: Ints, most: int, out: Ints) -> None:
    for row in range(len(out)):
        known = 0
        for i in range(offsets[row], offsets[row + 1]):
            known += numbers[tokens[i]] != UNKNOWN
        out[row] = min(known, most)


@kernel
def _mark(
    tokens: npt.NDArray[np.integer], offsets: Ints, numbers: Ints, most: int, found: npt.NDArray[np.bool_]
) -> None:
    for row in range(len(offsets) - 1):
        known = 0
        for i in range(offsets[row], offsets[row + 1]):
            number = numbers[tokens[i]]
            if number != UNKNOWN and known < most:
                found[number] = True
                known += 1


@kernel
def _pack(
    tokens: npt.NDArray[np.integer],
    offsets: Ints,
    numbers: Ints,
    order: Ints,
    lengths: Ints,
    starts: Ints,
    words: Ints,
) -> None:
    for place in range(len(order)):
        row, t = order[place], 0
        for i in range(offsets[row], offsets[row + 1]):
            number = numbers[tokens[i]]
            if number != UNKNOWN and t < lengths[row]:
                words[starts[t] + place] = number
                t += 1


@kernel
def _mirror(counts: Ints, starts: Ints, lengths: Ints, out: Ints) -> None:
    for t in range(len(counts)):
        for row in range(counts[t]):
            out[starts[t] + row] = starts[lengths[row] - 1 - t] + row


class SequenceFeed:
    """Batches of rows of like length from all parts of the corpus; the seed and the epoch decide which."""

    unit = "rows"

    def __init__(self, examples: LabelledRows, sequences: Sequences, batch: int, seed: int) -> None:
        self._lesson, self._sequences, self._batch, self._seed = examples, sequences, batch, seed
        self._lengths = sequences.lengths(np.arange(len(examples)))
        self._strata = math.gcd(batch, STRATA)
        self._epoch, self._order, self._ordering = -1, self._lengths[:0], threading.Lock()

    def __len__(self) -> int:
        return (len(self._lesson) + self._batch - 1) // self._batch

    def rows(self, block: int) -> int:
        return min(self._batch, len(self._lesson) - block * self._batch)

    def piece(self, piece: Piece, epoch: int) -> Slices:
        """Cut into slices without asking how many threads there are."""
        with self._ordering:
            if self._epoch != epoch:
                self._epoch, self._order = epoch, self._ordered(epoch)
            order = self._order
        batch = order[piece.block * self._batch : (piece.block + 1) * self._batch]
        rows = batch[piece.first : piece.last]
        slices = [self._slice(rows[start : start + SLICE_ROWS]) for start in range(0, len(rows), SLICE_ROWS)]
        return Slices(self._sequences.words(rows), slices)

    def _ordered(self, epoch: int) -> Ints:
        """All rows in an order of the epoch's own, batch after batch.

        Every batch has as many rows of each stratum, in the order of the strata: whoever learns a part of
        each batch reads a part of the corpus. Of the rows of a few batches, each stratum's are sorted by
        their lengths before the batches take theirs.
        """
        random, each = np.random.default_rng([self._seed, epoch]), self._batch // self._strata
        size = len(self._lesson) // self._strata
        rows = random.permuted(np.arange(size * self._strata).reshape(self._strata, size), axis=1)
        step = each * POOL_BATCHES
        for start in range(0, size, step):
            pool = rows[:, start : start + step]
            pool[...] = np.take_along_axis(
                pool, np.argsort(self._lengths[pool], axis=1, kind="stable"), axis=1
            )
        full = size // each * each
        batches = rows[:, :full].reshape(self._strata, size // each, each).swapaxes(0, 1)
        rest = np.arange(size * self._strata, len(self._lesson))  # what does not make a stratum longer
        return np.concatenate([batches.reshape(-1), rows[:, full:].reshape(-1), rest])

    def _slice(self, rows: Ints) -> Batch:
        packed = self._sequences.pack(rows)
        rows = rows[packed.rows]
        labels = self._lesson.labels.take(rows)
        return Batch(packed, labels.ids, labels.offsets, self._lesson.weights[rows], rows)
