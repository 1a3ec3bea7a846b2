"""Finding words and kept buckets of an imported fastText model: open addressing in numpy arrays.

fastText's own hash of a word is kept (32 bits of FNV-1a, each byte taken as signed): word n-grams
are made of it, so a text is hashed once for both.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Bytes, Hashes, Ints, frozen, kernel
from manyhands.text.hashing import mix

Int32s = npt.NDArray[np.int32]

FNV_START, FNV_PRIME = np.uint64(2166136261), np.uint64(16777619)
LOW, SIGN = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFF00)
TOP = np.uint8(0x80)
ONE, HALF = np.uint64(1), np.uint64(32)
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)  # no word has the last number
# Half-full tables of honest words stay below a hundred; only made-up collisions come so far.
LONGEST_PROBE = 1024


class Words(NamedTuple):
    """The words, then the labels; a slot holds an entry's hash above its number."""

    letters: Bytes
    starts: Ints
    slots: Hashes
    known: int  # words: the entries behind these are labels


class Kept(NamedTuple):
    """Slots with the buckets of n-grams that a pruned model has kept; none if it kept all."""

    buckets: Int32s
    rows: Int32s


@kernel
def fnv(value: np.uint64, letter: np.uint8) -> np.uint64:
    """One more byte for the hash; fastText widens it with its sign."""
    wide = np.uint64(letter)
    if letter >= TOP:
        wide |= SIGN
    return ((value ^ wide) * FNV_PRIME) & LOW


@kernel
def _hash(letters: Bytes, start: int, end: int) -> np.uint64:
    value = FNV_START
    for i in range(start, end):
        value = fnv(value, letters[i])
    return value


@kernel
def _same(one: Bytes, start: int, end: int, two: Bytes, other: int, other_end: int) -> bool:
    if end - start != other_end - other:
        return False
    while start < end and one[start] == two[other]:
        start, other = start + 1, other + 1
    return start == end


@kernel
def _fill_words(letters: Bytes, starts: Ints, slots: Hashes) -> bool:
    """Of equal entries the last one is found, as in fastText; false if too many collide."""
    last = np.uint64(len(slots) - 1)
    for entry in range(len(starts) - 1):
        start, end = starts[entry], starts[entry + 1]
        value = _hash(letters, start, end)
        slot, probes = mix(value) & last, 0
        while slots[slot] != EMPTY:
            other = int(slots[slot] & LOW)
            if slots[slot] >> HALF == value and _same(
                letters, start, end, letters, starts[other], starts[other + 1]
            ):
                break
            slot, probes = (slot + ONE) & last, probes + 1
            if probes > LONGEST_PROBE:
                return False
        slots[slot] = value << HALF | np.uint64(entry)
    return True


@kernel
def find_word(
    letters: Bytes, starts: Ints, slots: Hashes, value: np.uint64, text: Bytes, start: int, end: int
) -> int:
    """The number of the word ``text[start:end]`` that hashes to ``value``; -1 if there is none."""
    last = np.uint64(len(slots) - 1)
    slot = mix(value) & last
    while slots[slot] != EMPTY:
        if slots[slot] >> HALF == value:
            entry = int(slots[slot] & LOW)
            if _same(text, start, end, letters, starts[entry], starts[entry + 1]):
                return entry
        slot = (slot + ONE) & last
    return -1


@kernel
def _fill_kept(buckets: Int32s, rows: Int32s, slots: Int32s, targets: Int32s) -> bool:
    last = np.uint64(len(slots) - 1)
    for i in range(len(buckets)):
        slot, probes = mix(np.uint64(buckets[i])) & last, 0
        while slots[slot] >= 0 and slots[slot] != buckets[i]:
            slot, probes = (slot + ONE) & last, probes + 1
            if probes > LONGEST_PROBE:
                return False
        slots[slot], targets[slot] = buckets[i], rows[i]
    return True


@kernel
def row_of_bucket(slots: Int32s, targets: Int32s, bucket: int) -> int:
    """The row of a bucket among those of the n-grams; -1 if it was pruned away."""
    last = np.uint64(len(slots) - 1)
    slot = mix(np.uint64(bucket)) & last
    while slots[slot] >= 0:
        if slots[slot] == bucket:
            return int(targets[slot])
        slot = (slot + ONE) & last
    return -1


def _slots(entries: int) -> int:
    return 1 << max(2, (2 * entries).bit_length())


def word_table(letters: Bytes, starts: Ints, known: int) -> Words | None:
    """The table of all words and labels; none if too many of them collide."""
    slots = np.full(_slots(len(starts) - 1), EMPTY)
    if not _fill_words(letters, starts, slots):
        return None
    return Words(letters, starts, frozen(slots), known)


def kept_table(buckets: Int32s, rows: Int32s) -> Kept | None:
    """The table of kept buckets; none if too many of them collide."""
    if not len(buckets):
        return Kept(buckets, rows)
    size = _slots(len(buckets))
    slots, targets = np.full(size, -1, np.int32), np.zeros(size, np.int32)
    if not _fill_kept(buckets, rows, slots, targets):
        return None
    return Kept(frozen(slots), frozen(targets))
