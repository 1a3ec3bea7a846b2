"""Hashed n-grams: every run of words, and of letters where asked for, falls into a slot.

Single words, runs of words and runs of letters have regions of their own among the slots, so
that a pair of words never shares the slot of a word.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Bytes, Hashes, Ints, kernel
from manyhands.text.corpus import NO_WORD, Corpus, word_hash
from manyhands.text.hashing import mix
from manyhands.text.ragged import Ragged
from manyhands.text.words import hash_words

Slots = npt.NDArray[np.uint32]

ONE, TWO = np.uint64(1), np.uint64(2)
SPREAD = np.uint64(0x9E3779B97F4A7C15)
STEP = np.uint64(0x87C37B91114253D5)
FNV_START, FNV_STEP = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
WORD_BEGIN, WORD_END = np.uint8(0x3C), np.uint8(0x3E)  # < and >, as in fastText


@dataclass(frozen=True)
class NgramHashing:
    """How texts become slots. Sizes are powers of two."""

    ngrams: int  # runs of up to so many words
    word_bits: int
    ngram_bits: int
    chars: tuple[int, int] = (0, 0)  # runs of so many letters, from and to; (0, 0) for none
    char_bits: int = 6

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Slots of runs of words, of single words and of letters, one region after the other."""
        return (
            1 << self.ngram_bits if self.ngrams > 1 else 0,
            1 << self.word_bits,
            1 << self.char_bits if self.chars[1] else 0,
        )

    @property
    def slots(self) -> int:
        return sum(self.sizes)

    def letters(self, corpus: Corpus) -> "Letters":
        """The runs of letters of every word of the corpus."""
        if not self.chars[1]:
            return Letters(np.zeros(0, np.uint32), np.zeros(0, np.int64))
        found = letter_runs(corpus.words, self.chars, self.char_bits)
        return Letters(found.slots + np.uint32(self.sizes[0] + self.sizes[1]), found.offsets)


@dataclass(frozen=True)
class Letters:
    """The slots of the runs of letters of word ``w``: ``slots[offsets[w]:offsets[w + 1]]``, if any are."""

    slots: Slots
    offsets: Ints


def letter_runs(words: Ragged, chars: tuple[int, int], bits: int) -> Letters:
    """The runs of ``chars`` letters, from and to, of every word, in slots from 0 up to a power of two."""
    offsets = np.zeros(len(words) + 1, np.int64)
    least, most = chars
    slots = np.empty(int(words.size + 2 * len(words)) * (most - least + 1), np.uint32)
    _letter_slots(words.data, words.offsets, least, most, np.uint64((1 << bits) - 1), slots, offsets)
    return Letters(slots[: offsets[-1]].copy(), offsets)


@kernel
def _letter_slots(
    data: Bytes, words: Ints, least: int, most: int, mask: np.uint64, slots: Slots, offsets: Ints
) -> None:
    """Runs of ``least`` to ``most`` characters of ``<word>``; never through the middle of a character."""
    at = 0
    for word in range(len(words) - 1):
        start, end = words[word] - 1, words[word + 1] + 1
        for i in range(start, end if end - start > 2 else start):
            if words[word] <= i < words[word + 1] and data[i] & 0xC0 == 0x80:
                continue  # inside a character
            value, length, j = FNV_START, 0, i
            while j < end and length < most:
                while True:  # one character
                    byte = WORD_BEGIN if j < words[word] else WORD_END if j >= words[word + 1] else data[j]
                    value = (value ^ np.uint64(byte)) * FNV_STEP
                    j += 1
                    if not (j < words[word + 1] and data[j] & 0xC0 == 0x80):
                        break
                length += 1
                if length >= least and not (length == 1 and (i == start or j == end)):
                    slots[at] = mix(value) & mask
                    at += 1
        offsets[word + 1] = at


def word_slots(hashes: Hashes, hashing: NgramHashing) -> Slots:
    """The slot of each single word."""
    runs, words, _ = hashing.sizes
    out = np.empty(len(hashes), np.uint32)
    _word_slots(hashes, np.uint64(runs), np.uint64(words - 1), out)
    return out


@kernel
def _word_slots(hashes: Hashes, word_base: np.uint64, word_mask: np.uint64, out: Slots) -> None:
    for i in range(len(hashes)):
        out[i] = _word_slot(hashes[i], word_base, word_mask)


@kernel
def row_slots(
    tokens: npt.NDArray[np.integer],
    start: int,
    end: int,
    hashes: Hashes,
    letters: Slots,
    letter_offsets: Ints,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    out: Slots,
) -> int:
    """Write the slots of one row to ``out``; returns how many there are."""
    n, with_letters = np.uint64(0), len(letter_offsets) > 0
    for i in range(start, end):
        token = np.uint64(tokens[np.uint64(i)])
        value = hashes[token]
        if value == NO_WORD:
            continue
        out[n] = _word_slot(value, word_base, word_mask)
        n += ONE
        for j in range(i + 1, min(end, i + ngrams)):
            other = hashes[np.uint64(tokens[np.uint64(j)])]
            if other == NO_WORD:
                break
            value = _longer(value, other)
            out[n] = _ngram_slot(value, ngram_mask)
            n += ONE
        if with_letters:
            for j in range(letter_offsets[token], letter_offsets[token + ONE]):
                out[n] = letters[np.uint64(j)]
                n += ONE
    return int(n)


@kernel
def text_slots(
    data: Bytes,
    start: int,
    end: int,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    ends: Ints,
    hashes: Hashes,
    out: Slots,
) -> np.uint64:
    """As ``row_slots``, straight from a normalised text; ``ends`` and ``hashes`` are room for its words."""
    count, n = hash_words(data, start, end, ends, hashes), np.uint64(0)
    for first in range(count):
        hashes[np.uint64(first)] = word_hash(hashes[np.uint64(first)])
    done = 0
    if 2 <= ngrams <= 3:  # written out for the usual ones: a loop of a turn or two takes longer than its work
        done = max(count - 2, 0)
        for first in range(np.uint64(done)):
            value = hashes[first]
            out[n] = _word_slot(value, word_base, word_mask)
            value = _longer(value, hashes[first + ONE])
            out[n + ONE] = _ngram_slot(value, ngram_mask)
            n += TWO
            if ngrams == 3:
                value = _longer(value, hashes[first + TWO])
                out[n] = _ngram_slot(value, ngram_mask)
                n += ONE
    for first in range(done, count):
        value = hashes[np.uint64(first)]
        out[n] = _word_slot(value, word_base, word_mask)
        n += ONE
        for other in range(first + 1, min(count, first + ngrams)):
            value = _longer(value, hashes[np.uint64(other)])
            out[n] = _ngram_slot(value, ngram_mask)
            n += ONE
    return n


@kernel
def _word_slot(value: np.uint64, base: np.uint64, mask: np.uint64) -> np.uint64:
    return base + ((value * SPREAD) >> np.uint64(32) & mask)


@kernel
def _ngram_slot(value: np.uint64, mask: np.uint64) -> np.uint64:
    mixed = value * SPREAD
    return (mixed ^ (mixed >> np.uint64(32))) >> np.uint64(8) & mask


@kernel
def _longer(value: np.uint64, word: np.uint64) -> np.uint64:
    """What stands for an n-gram and the word behind it."""
    return (value ^ (value >> np.uint64(29))) * STEP + word
