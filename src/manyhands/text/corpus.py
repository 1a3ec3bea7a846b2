"""Texts as numbered words: what every featuriser reads, wherever the texts come from.

Words are known by the hash of their letters, so two corpora that number words differently still
mean the same by them, and a word that was never seen needs no entry anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Bytes, Hashes, Ints, frozen, kernel
from manyhands.parallel import side_by_side
from manyhands.text.ragged import Ragged
from manyhands.text.words import WordTable, hash_word, next_number

Numbers = npt.NDArray[np.uint32]

NO_WORD = np.uint64(0)  # the hash of tokens that stand for no word: no n-gram goes across them
ONE = np.uint64(1)
ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Corpus:
    """``take(rows)`` gives the word numbers of any rows, and where each row begins among them."""

    take: Callable[[Ints], tuple[npt.NDArray[np.integer], Ints]]
    rows: int
    tokens: int
    words: Ragged  # the letters of each number, empty where it stands for no word

    def __len__(self) -> int:
        return self.rows

    def texts(self, rows: Ints) -> Ragged:
        """Some rows as text again, a blank between words."""
        tokens, offsets = self.take(rows)
        lengths = self.words.lengths()[tokens] + 1
        ends = np.zeros(len(tokens) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        out = np.empty(ends[-1], np.uint8)
        _join(tokens, self.words.data, self.words.offsets, ends, out)
        return Ragged(out, ends[offsets])

    @cached_property
    def hashes(self) -> Hashes:
        """The hash of each word."""
        out = np.empty(len(self.words), np.uint64)
        _hash_words(self.words.data, self.words.offsets, out)
        return frozen(out)


@kernel
def _join(tokens: npt.NDArray[np.integer], letters: Bytes, words: Ints, ends: Ints, out: Bytes) -> None:
    for k in range(len(tokens)):
        start, at = words[tokens[k]], ends[k]
        length = words[tokens[k] + 1] - start
        for i in range(length):
            out[at + i] = letters[start + i]
        out[at + length] = 0x20


@kernel
def _hash_words(letters: Bytes, offsets: Ints, out: Hashes) -> None:
    for word in range(len(offsets) - 1):
        value, _ = hash_word(letters, offsets[word], offsets[word + 1])
        value += value == NO_WORD
        out[word] = value if offsets[word + 1] > offsets[word] else NO_WORD


def corpus_of(normal: Ragged) -> Corpus:
    """A corpus of normalised texts, numbered here and now.

    >>> from manyhands.text.ragged import from_strings
    >>> corpus = corpus_of(from_strings(["good food", "", "good"]))
    >>> corpus.take(np.array([2, 0]))
    (array([0, 0, 1], dtype=uint32), array([0, 1, 3]))
    """
    table = WordTable.for_bytes(normal.size)
    numbered = table.number(normal)
    numbers, offsets = np.empty(int(numbered.lengths.sum()), np.uint32), np.zeros(len(normal) + 1, np.int64)
    np.cumsum(numbered.lengths, out=offsets[1:])
    plain_numbers(numbered.units, np.uint32(0), numbers)
    return held(frozen(numbers), frozen(offsets), table.words())


def held(numbers: Numbers, offsets: Ints, words: Ragged) -> Corpus:
    """A corpus whose word numbers are all in memory."""

    def take(rows: Ints) -> tuple[npt.NDArray[np.integer], Ints]:
        places = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(offsets[rows + 1] - offsets[rows], out=places[1:])
        out = np.empty(places[-1], np.uint32)
        _gather(numbers, offsets, rows, out)
        return out, places

    return Corpus(take, len(offsets) - 1, len(numbers), words)


@kernel
def plain_numbers(units: npt.NDArray[np.uint16], base: np.uint32, out: Numbers) -> None:
    """The numbers in ``units``, each with ``base`` added."""
    i = 0
    for k in range(len(out)):
        number, i = next_number(units, i)
        out[np.uint64(k)] = np.uint32(number) + base


@kernel
def _gather(numbers: Numbers, offsets: Ints, rows: Ints, out: Numbers) -> None:
    at = np.uint64(0)
    for row in rows:
        for i in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
            out[at] = numbers[i]
            at += ONE


def word_counts(corpus: Corpus, threads: int) -> Ints:
    """How often each word stands in the corpus."""

    def count(first: int) -> Ints:
        counts = np.zeros(len(corpus.words), np.int64)
        for start in range(first * ROWS_AT_ONCE, len(corpus), threads * ROWS_AT_ONCE):
            tokens, _ = corpus.take(np.arange(start, min(start + ROWS_AT_ONCE, len(corpus))))
            _count_words(tokens, counts)
        return counts

    return np.asarray(np.sum(list(side_by_side(count, range(threads), threads)), axis=0))


@kernel
def _count_words(tokens: npt.NDArray[np.integer], counts: Ints) -> None:
    for token in tokens:
        counts[token] += 1
