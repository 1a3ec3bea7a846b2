"""Texts as numbered words: what every featuriser reads, wherever the texts come from.

Words are known by the hash of their letters, so two corpora that number words differently still
mean the same by them, and a word that was never seen needs no entry anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Bytes, Hashes, Ints, kernel, read_only
from manyhands.parallel import map_unordered
from manyhands.text.hashing import mix
from manyhands.text.ragged import Ragged, concatenate, places_of
from manyhands.text.words import Units, WordTable, count_words, hash_word, next_number

Numbers = npt.NDArray[np.uint32]

FIRST = np.uint64(1)
NO_WORD = np.uint64(0)  # the hash of tokens that stand for no word: no n-gram goes across them
ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Corpus:
    """``take(rows)`` gives the word numbers of any rows, and where each row begins among them."""

    take: Callable[[Ints], tuple[npt.NDArray[np.integer], Ints]]
    rows: int
    tokens: int
    words: Ragged  # the letters of each number, empty where it stands for no word
    ready: Hashes | None = None  # the hashes, where whoever made the corpus had them at hand
    values: npt.NDArray[np.float32] | None = None  # of rows of numbers: what each "word" stands for
    # How many words some rows have, and how often each word stands in all of them: where that is known
    # without reading them.
    measure: Callable[[Ints], Ints] | None = None
    counts: Ints | None = None

    def __len__(self) -> int:
        return self.rows

    def part(self, first: int, last: int) -> "Corpus":
        """The rows from ``first`` up to ``last``."""
        measure = self.measure
        return replace(
            self,
            take=lambda rows: self.take(rows + first),
            rows=last - first,
            measure=measure and (lambda rows: measure(rows + first)),
            counts=None,
        )

    def some(self, rows: Ints) -> "Corpus":
        """These rows only, in the order given; words keep their numbers."""
        lengths = self.lengths(rows)
        return replace(
            self,
            take=lambda some: self.take(rows[some]),
            rows=len(rows),
            tokens=int(lengths.sum()),
            ready=self.hashes,
            measure=lambda some: lengths[some],
            counts=None,
        )

    def compact(self) -> "Corpus":
        """The same rows of texts in memory, with only the words that stand in them."""
        tokens, offsets = self.take(np.arange(len(self)))
        known, numbers = np.unique(tokens, return_inverse=True)
        numbers = numbers.astype(np.uint32)

        def take(rows: Ints) -> tuple[npt.NDArray[np.integer], Ints]:
            places, starts = places_of(offsets, rows)
            return numbers[places], starts

        lengths = np.diff(offsets)
        return Corpus(
            take,
            len(self),
            len(tokens),
            self.words.take(known),
            ready=self.hashes[known],
            measure=lengths.__getitem__,
        )

    def lengths(self, rows: Ints) -> Ints:
        """How many words some rows have."""
        if self.measure is not None:
            return self.measure(rows)
        parts = (rows[first : first + ROWS_AT_ONCE] for first in range(0, len(rows), ROWS_AT_ONCE))
        return np.concatenate([np.zeros(0, np.int64), *(np.diff(self.take(part)[1]) for part in parts)])

    def texts(self, rows: Ints) -> Ragged:
        """Some rows as text again, a blank between words."""
        tokens, offsets = self.take(rows)
        lengths = self.words.lengths()[tokens] + 1
        ends = np.append(0, np.cumsum(lengths))
        out = np.empty(ends[-1], np.uint8)
        _join(tokens, self.words.data, self.words.offsets, ends, out)
        return Ragged(out, ends[offsets])

    @cached_property
    def hashes(self) -> Hashes:
        """The hash of each word."""
        if self.ready is not None:
            return read_only(self.ready)
        out = np.empty(len(self.words), np.uint64)
        _hash_words(self.words.data, self.words.offsets, out)
        return read_only(out)


@kernel
def _join(tokens: npt.NDArray[np.integer], letters: Bytes, words: Ints, ends: Ints, out: Bytes) -> None:
    for k in range(len(tokens)):
        start, at = words[tokens[k]], ends[k]
        length = words[tokens[k] + 1] - start
        for i in range(length):
            out[at + i] = letters[start + i]
        out[at + length] = 0x20


@kernel
def word_hash(value: np.uint64) -> np.uint64:
    """A word's hash: never that of no word."""
    return value if value != NO_WORD else FIRST


@kernel
def _hash_words(letters: Bytes, offsets: Ints, out: Hashes) -> None:
    for word in range(len(offsets) - 1):
        value, _ = hash_word(letters, offsets[word], offsets[word + 1])
        out[word] = word_hash(value) if offsets[word + 1] > offsets[word] else NO_WORD


def hash_rows(values: npt.NDArray[np.float32]) -> Hashes:
    """A hash of each row of numbers."""
    out = np.empty(len(values), np.uint64)
    _hash_rows(np.ascontiguousarray(values).view(np.uint32), out)
    return read_only(out)


@kernel
def _hash_rows(bits: Numbers, out: Hashes) -> None:
    for row in range(len(bits)):
        value = FIRST
        for k in range(bits.shape[1]):
            value = mix(value + np.uint64(bits[row, k]))
        out[row] = word_hash(value)


def corpus_of(normal: Ragged) -> Corpus:
    """A corpus of normalised texts, numbered here and now.

    >>> from manyhands.text.ragged import from_strings
    >>> corpus = corpus_of(from_strings(["good food", "", "good"]))
    >>> corpus.take(np.array([2, 0]))
    (array([0, 0, 1], dtype=uint32), array([0, 1, 3]))
    """
    table = WordTable.for_bytes(normal.size)
    numbered = table.number(normal)
    return corpus_in_memory(
        numbered.units, numbered.offsets, numbered.lengths, np.zeros(len(normal), np.uint32), table.words()
    )


def corpus_once(normal: Ragged) -> Corpus:
    """A corpus of normalised texts that are read once: every word is hashed, and none looked up.

    >>> from manyhands.text.ragged import from_strings
    >>> corpus = corpus_once(from_strings(["good food", "", "good"]))
    >>> corpus.take(np.array([2, 0]))
    (array([2, 0, 1], dtype=uint32), array([0, 1, 3]))
    """
    lengths = np.empty(len(normal), np.int64)
    count_words(normal.data, normal.offsets, lengths)
    offsets = np.append(0, np.cumsum(lengths))
    hashes, starts = np.empty(offsets[-1], np.uint64), np.zeros(offsets[-1] + 1, np.int64)
    letters = np.empty(normal.size, np.uint8)
    _split(normal.data, normal.offsets, hashes, letters, starts)

    def take(rows: Ints) -> tuple[npt.NDArray[np.integer], Ints]:
        places = np.append(0, np.cumsum(lengths[rows]))
        out = np.empty(places[-1], np.uint32)
        _count_on(offsets, rows, places, out)
        return out, places

    words = Ragged(letters, starts)
    return Corpus(take, len(normal), int(offsets[-1]), words, hashes, measure=lengths.__getitem__)


@kernel
def _split(data: Bytes, rows: Ints, hashes: Hashes, letters: Bytes, starts: Ints) -> None:
    word, at = 0, 0
    for row in range(len(rows) - 1):
        i, end = rows[row], rows[row + 1]
        while i < end:
            value, stop = hash_word(data, i, end)
            hashes[word] = word_hash(value)
            for k in range(stop - i):
                letters[at + k] = data[i + k]
            at += stop - i
            word += 1
            starts[word] = at
            i = stop + 1  # the blank


@kernel
def _count_on(offsets: Ints, rows: Ints, places: Ints, out: Numbers) -> None:
    for k in range(len(rows)):
        for at in range(places[k], places[k + 1]):
            out[at] = offsets[rows[k]] + at - places[k]


def joined(first: Corpus, second: Corpus) -> Corpus:
    """The rows of both, one corpus behind the other. A word of both has two numbers, and one hash.

    >>> from manyhands.text.ragged import from_strings
    >>> both = joined(corpus_of(from_strings(["good food"])), corpus_of(from_strings(["bad food", "bad"])))
    >>> both.take(np.array([2, 0, 1]))
    (array([2, 0, 1, 2, 3], dtype=uint32), array([0, 1, 3, 5]))
    """
    shift = len(first.words)

    def take(rows: Ints) -> tuple[npt.NDArray[np.integer], Ints]:
        behind = rows >= len(first)
        lengths = np.empty(len(rows), np.int64)
        parts = [first.take(rows[~behind]), second.take(rows[behind] - len(first))]
        for mine, (_, offsets) in zip((~behind, behind), parts, strict=True):
            lengths[mine] = np.diff(offsets)
        places = np.append(0, np.cumsum(lengths))
        out = np.empty(places[-1], np.uint32)
        in_second = np.repeat(behind, lengths)
        out[~in_second] = parts[0][0]
        out[in_second] = parts[1][0].astype(np.uint32) + np.uint32(shift)
        return out, places

    def measure(rows: Ints) -> Ints:
        behind = rows >= len(first)
        lengths = np.empty(len(rows), np.int64)
        lengths[~behind] = first.lengths(rows[~behind])
        lengths[behind] = second.lengths(rows[behind] - len(first))
        return lengths

    return Corpus(
        take,
        len(first) + len(second),
        first.tokens + second.tokens,
        concatenate([first.words, second.words]),
        np.concatenate([first.hashes, second.hashes]),
        measure=measure,
    )


def corpus_in_memory(units: Units, offsets: Ints, lengths: Ints, bases: Numbers, words: Ragged) -> Corpus:
    """A corpus in memory, its numbers in units as ``WordTable`` gives them; each row has a base to add."""

    def take(rows: Ints) -> tuple[npt.NDArray[np.integer], Ints]:
        places = np.append(0, np.cumsum(lengths[rows]))
        out = np.empty(places[-1], np.uint32)
        _decode(units, offsets, bases, rows, places, out)
        return out, places

    return Corpus(take, len(lengths), int(lengths.sum()), words, measure=lengths.__getitem__)


@kernel
def _decode(units: Units, offsets: Ints, bases: Numbers, rows: Ints, places: Ints, out: Numbers) -> None:
    for k in range(len(rows)):
        i, base = offsets[rows[k]], bases[rows[k]]
        for at in range(np.uint64(places[k]), np.uint64(places[k + 1])):
            number, i = next_number(units, i)
            out[at] = np.uint32(number) + base


def word_counts(corpus: Corpus, threads: int) -> Ints:
    """How often each word stands in the corpus."""
    if corpus.counts is not None:
        return corpus.counts

    def count(first: int) -> Ints:
        counts = np.zeros(len(corpus.words), np.int64)
        for start in range(first * ROWS_AT_ONCE, len(corpus), threads * ROWS_AT_ONCE):
            tokens, _ = corpus.take(np.arange(start, min(start + ROWS_AT_ONCE, len(corpus))))
            _tally(tokens, counts)
        return counts

    return np.asarray(np.sum(list(map_unordered(count, range(threads), threads)), axis=0))


@kernel
def _tally(tokens: npt.NDArray[np.integer], counts: Ints) -> None:
    for token in tokens:
        counts[token] += 1
