"""Texts as sequences of known words, in batches of like length: what recurrent models are fed with."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.kernel import Hashes, Ints, frozen, kernel
from manyhands.text.corpus import NO_WORD, Corpus, word_counts
from manyhands.text.lesson import Lesson

SLICE_ROWS = 64
POOL_BATCHES = 50  # rows of so many batches are sorted by length together: like lengths, random company
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
        if not len(self):
            return np.full(len(corpus.hashes), UNKNOWN)
        places = np.searchsorted(self.hashes, corpus.hashes, sorter=self._order)
        found = self._order[np.minimum(places, len(self) - 1)]
        return np.where(self.hashes[found] == corpus.hashes, found, UNKNOWN)


def find_words(corpus: Corpus, most: int, min_count: int, threads: int, known: Lexicon | None) -> Lexicon:
    """The most frequent words of a corpus, behind those that are ``known`` already."""
    hashes, where = np.unique(corpus.hashes, return_inverse=True)  # threads may have numbered a word twice
    counts = np.bincount(where, word_counts(corpus, threads), minlength=len(hashes))
    usable = (counts >= min_count) & (hashes != NO_WORD)
    order = np.argsort(-counts, kind="stable")
    best = hashes[order[usable[order]]][:most]
    if known is None:
        return Lexicon(frozen(best))
    return Lexicon(frozen(np.concatenate([known.hashes, best[~np.isin(best, known.hashes)]])))


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


@dataclass(frozen=True)
class Batch:
    """A few rows of a lesson, ready to be learnt."""

    packed: Packed
    labels: npt.NDArray[np.int32]
    label_offsets: Ints
    weights: npt.NDArray[np.float32]


class Sequences:
    """The rows of a corpus as known words, of which only the first ``length`` count."""

    def __init__(self, corpus: Corpus, lexicon: Lexicon, length: int) -> None:
        self._corpus, self._length = corpus, length
        self._numbers = lexicon.numbers(corpus)

    def lengths(self, rows: Ints) -> Ints:
        tokens, offsets = self._corpus.take(rows)
        out = np.empty(len(rows), np.int64)
        _lengths(tokens, offsets, self._numbers, self._length, out)
        return out

    def pack(self, rows: Ints) -> Packed:
        tokens, offsets = self._corpus.take(rows)
        lengths = np.empty(len(rows), np.int64)
        _lengths(tokens, offsets, self._numbers, self._length, lengths)
        order = np.argsort(-lengths, kind="stable")
        longest = int(lengths.max(initial=0))
        counts = len(rows) - np.cumsum(np.bincount(lengths, minlength=longest + 1))[:longest]
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)[:longest]
        words = np.empty(int(counts.sum()), np.int64)
        _pack(tokens, offsets, self._numbers, order, lengths, starts, words)
        return Packed(words, counts, starts, lengths[order], order)


@kernel
def _lengths(tokens: npt.NDArray[np.integer], offsets: Ints, numbers: Ints, most: int, out: Ints) -> None:
    for row in range(len(out)):
        known = 0
        for i in range(offsets[row], offsets[row + 1]):
            known += numbers[tokens[i]] != UNKNOWN
        out[row] = min(known, most)


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


class SequenceFeed:
    """Batches of rows of like length, the same in every epoch; which rows come together, the seed decides."""

    def __init__(self, lesson: Lesson, lexicon: Lexicon, length: int, batch: int, seed: int) -> None:
        if not len(lesson):
            raise InputError("there is no row to train on")
        self._lesson = lesson
        self._sequences = Sequences(lesson.corpus, lexicon, length)
        order = np.random.default_rng(seed).permutation(len(lesson))
        pools = [
            order[start : start + batch * POOL_BATCHES]
            for start in range(0, len(order), batch * POOL_BATCHES)
        ]
        sorted_pools = [pool[np.argsort(self._sequences.lengths(pool), kind="stable")] for pool in pools]
        rows = np.concatenate(sorted_pools)
        self._rows = [rows[start : start + batch] for start in range(0, len(rows), batch)]

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, block: int) -> int:
        return len(self._rows[block])

    def block(self, number: int) -> list[Batch]:
        """A batch in slices that threads can share, cut without asking how many threads there are."""
        rows = self._rows[number]
        return [self._slice(rows[start : start + SLICE_ROWS]) for start in range(0, len(rows), SLICE_ROWS)]

    def _slice(self, rows: Ints) -> Batch:
        packed = self._sequences.pack(rows)
        labels = self._lesson.labels.take(rows[packed.rows])
        return Batch(packed, labels.ids, labels.offsets, self._lesson.weights[rows[packed.rows]])
