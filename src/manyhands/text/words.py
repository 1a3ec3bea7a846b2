"""Numbering words: the hash table that a thread fills while it reads texts once.

Numbers are kept in units of 16 bits: one for the first 32,768 words of a table, which are nearly
all that a text has, two for the others. Rows on their way are half as large as they would be
otherwise, and fresh memory is what costs most.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Bytes, Hashes, Ints, kernel, prefetch
from manyhands.kernels.simd import MASK_BYTES, bytes_between, trailing_zeros
from manyhands.text.hashing import eight, few, mix
from manyhands.text.ragged import Ragged

Units = npt.NDArray[np.uint16]

UNIT_BYTES = 2
BLANK = 0x20
STEP = np.uint64(MASK_BYTES)
FULL_WORDS = 1 << 21  # take a new table past this: numbers have 24 bits, and one row may add 2^23
BLANKS = np.uint64(0x2020202020202020)
ONES = np.uint64(0x0101010101010101)
TOPS = np.uint64(0x8080808080808080)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE, SEVEN, EIGHT, TOP_BYTE = (np.uint64(n) for n in (1, 7, 8, 56))
NUMBER = np.uint64(0xFFFFFF)
TAG = ~NUMBER
EMPTY = ALL  # no word has the last number
TWO_UNITS, FIFTEEN = np.uint64(1 << 15), np.uint64(15)


class Numbered(NamedTuple):
    """Rows of word numbers: the units of row ``i`` are ``units[offsets[i]:offsets[i + 1]]``."""

    units: Units
    offsets: Ints
    lengths: Ints  # in words


class WordTable:
    """Gives every distinct word a number, in order of appearance.

    A slot of the table holds 40 bits of a word's hash and the 24 bits of its number; the other
    24 bits of the hash are where the slot stands. Words are told apart by these alone: among a
    million, two share theirs once in ten million corpora.

    >>> from manyhands.text.ragged import from_strings
    >>> table = WordTable()
    >>> numbered = table.number(from_strings(["a b a", "", "b c"]))
    >>> numbered.units.tolist(), numbered.offsets.tolist(), table.words().strings()
    ([0, 1, 0, 1, 2], [0, 3, 3, 5], ['a', 'b', 'c'])
    """

    def __init__(self, words: int = 1 << 16) -> None:
        self._starts = np.zeros(words + 1, np.int64)
        self._letters = np.empty(16 * words, np.uint8)
        self._slots = np.full(2 * words, EMPTY)
        self._size = 0

    @classmethod
    def for_bytes(cls, size: int) -> "WordTable":
        """A table that is as large as so much text may need at first: one sentence needs little."""
        return cls(1 << min(max((size // 2).bit_length(), 6), 16))

    def __len__(self) -> int:
        return self._size

    def seal(self) -> None:
        """Give back all memory but that of the words: no more will be numbered."""
        self._letters = self._letters[: self._starts[self._size]].copy()
        self._starts = self._starts[: self._size + 1].copy()
        self._slots = np.empty(0, np.uint64)

    @property
    def full(self) -> bool:
        return self._size > FULL_WORDS

    @property
    def nbytes(self) -> int:
        return self._starts.nbytes + self._letters.nbytes + self._slots.nbytes

    def words(self) -> Ragged:
        starts = self._starts[: self._size + 1]
        return Ragged(self._letters[: starts[-1]], starts)

    def number(self, rows: Ragged) -> Numbered:
        """The word numbers of normalised rows."""
        lengths = np.empty(len(rows), np.int64)
        count_words(rows.data, rows.offsets, lengths)
        units = np.empty(2 * int(lengths.sum()), np.uint16)
        offsets = np.zeros(len(rows) + 1, np.int64)
        longest = int(lengths.max(initial=0))
        hashes, begins = np.empty(longest, np.uint64), np.empty(longest + 1, np.int64)
        row = 0
        while row < len(rows):
            self._make_room(int(rows.offsets[row + 1] - rows.offsets[row]))
            table = self._starts, self._letters, self._slots, self._size
            row, self._size = _number(rows.data, rows.offsets, row, *table, offsets, units, hashes, begins)
        return Numbered(units[: offsets[-1]], offsets, lengths)

    def _make_room(self, row_bytes: int) -> None:
        """Grow until any row of so many bytes fits: the kernel then never stops inside a row."""
        words = self._size + row_bytes // 2 + 1
        if words >= len(self._starts):
            length = _grown(len(self._starts) - 1, words)
            self._starts = np.resize(self._starts, length + 1)
            self._slots = np.full(2 * length, EMPTY)
            _refill(self.words().data, self._starts, self._size, self._slots)
        letters = int(self._starts[self._size]) + row_bytes
        if letters > len(self._letters):
            self._letters = np.resize(self._letters, _grown(len(self._letters), letters))


def _grown(length: int, needed: int) -> int:
    while length < needed:
        length *= 2
    return length


@kernel
def count_words(data: Bytes, rows: Ints, lengths: Ints) -> None:
    """A row has one word more than it has blanks, unless it is empty."""
    for row in range(len(rows) - 1):
        words = rows[row + 1] > rows[row]
        for i in range(rows[row], rows[row + 1]):
            words += data[i] == BLANK
        lengths[row] = words


@kernel
def next_number(units: Units, i: int) -> tuple[np.uint64, int]:
    """The number at unit ``i``, and where the next one begins."""
    unit = np.uint64(units[np.uint64(i)])
    if unit < TWO_UNITS:
        return unit, i + 1
    return (unit - TWO_UNITS) | np.uint64(units[np.uint64(i + 1)]) << FIFTEEN, i + 2


@kernel
def _refill(letters: Bytes, starts: Ints, size: int, slots: Hashes) -> None:
    last = np.uint64(len(slots) - 1)
    for word in range(size):
        value, _ = hash_word(letters, starts[word], starts[word + 1])
        slot = value & last
        while slots[slot] != EMPTY:
            slot = (slot + ONE) & last
        slots[slot] = (value & TAG) | np.uint64(word)


@kernel
def hash_word(data: Bytes, i: int, end: int) -> tuple[np.uint64, int]:
    """The hash of the word at ``i``, and where it ends.

    Eight bytes at a time: looking for the blank byte by byte mispredicts the end of nearly
    every word, which took a third longer.
    """
    value = ONES
    while True:
        if i + 8 <= len(data):
            letters = eight(data, i)
        else:
            letters = few(data, i, len(data))
        if i + 8 > end:  # behind the row's end, all is blank
            outside = ALL << (EIGHT * np.uint64(end - i)) if end > i else ALL
            letters = (letters & ~outside) | (BLANKS & outside)
        differ = letters ^ BLANKS
        found = (differ - ONES) & ~differ & TOPS  # the top bit of every byte that was a blank
        if not found:
            value = mix(value ^ letters)
            i += 8
            continue
        before = ((found & (~found + ONE)) >> SEVEN) - ONE  # all bits below the first blank
        length = ((before & ONES) * ONES) >> TOP_BYTE
        return mix(value ^ (letters & before)), i + int(length)


@kernel
def hash_words(data: Bytes, start: int, end: int, ends: Ints, hashes: Hashes) -> int:
    """The hash of every word of a text, as ``hash_word`` gives it; returns how many there are.

    Where words end is found first: then no word has to wait for the one before, and that takes half as
    long.
    """
    count = _word_ends(data, np.uint64(start), np.uint64(end), ends)
    i, most = np.uint64(start), np.uint64(len(data))
    for word in range(count):
        stop, value = np.uint64(ends[word]), ONES
        while i + EIGHT <= stop:
            value = mix(value ^ eight(data, i))
            i += EIGHT
        letters = eight(data, i) if i + EIGHT <= most else few(data, int(i), int(stop))
        hashes[word] = mix(value ^ (letters & ((ONE << (EIGHT * (stop - i))) - ONE)))
        i = stop + ONE
    return int(count)


@kernel
def _word_ends(data: Bytes, start: np.uint64, end: np.uint64, ends: Ints) -> np.uint64:
    """Where the words of a text end: 64 bytes at a time are compared with a blank."""
    count, i, most = np.uint64(0), start, np.uint64(len(data))
    while i < end and i + STEP <= most:
        blanks = bytes_between(data, i, BLANK, BLANK)
        if end - i < STEP:
            blanks &= (ONE << (end - i)) - ONE
        while blanks:
            ends[count] = i + trailing_zeros(blanks)
            count += ONE
            blanks &= blanks - ONE
        i += STEP
    while i < end:
        ends[count] = i
        count += np.uint64(data[i] == BLANK)
        i += ONE
    if end > start and data[end - ONE] != BLANK:
        ends[count] = end
        count += ONE
    return count


@kernel
def _number(
    data: Bytes,
    rows: Ints,
    row: int,
    starts: Ints,
    letters: Bytes,
    slots: Hashes,
    size: int,
    offsets: Ints,
    units: Units,
    hashes: Hashes,
    begins: Ints,
) -> tuple[int, int]:
    """Number the words from ``row`` on, until the end or a row that might not fit; returns both."""
    last = np.uint64(len(slots) - 1)
    while row < len(rows) - 1:
        i, end = rows[row], rows[row + 1]
        length = end - i
        if size + length // 2 + 1 >= len(starts) or starts[size] + length > len(letters):
            break
        count = np.uint64(0)
        while i < end:  # all hashes first: by the time the slots are looked into, they are in the cache
            value, stop = hash_word(data, i, end)
            prefetch(slots, value & last)
            hashes[count], begins[count] = value, i
            count += ONE
            i = stop + 1  # the blank
        begins[count] = i
        at = offsets[row]
        for k in range(count):
            value, first, stop = hashes[k], begins[k], begins[k + ONE] - 1
            slot, tag = value & last, value & TAG
            entry = slots[slot]
            while entry & TAG != tag or entry == EMPTY:
                if entry == EMPTY:
                    entry = tag | np.uint64(size)
                    slots[slot] = entry
                    letters[starts[size] : starts[size] + stop - first] = data[first:stop]
                    starts[size + 1] = starts[size] + stop - first
                    size += 1
                    break
                slot = (slot + ONE) & last
                entry = slots[slot]
            word = entry & NUMBER
            if word < TWO_UNITS:
                units[np.uint64(at)] = word
                at += 1
            else:
                units[np.uint64(at)] = TWO_UNITS | word & (TWO_UNITS - ONE)
                units[np.uint64(at + 1)] = word >> FIFTEEN
                at += 2
        row += 1
        offsets[row] = at
    return row, size
