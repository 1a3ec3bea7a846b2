"""The kernels that count n-grams and turn rows into features."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import AHEAD, Bytes, Hashes, Ints, kernel, prefetch
from manyhands.text.ngrams import Slots, row_slots, text_slots

Numbers = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.uint16]

MOST_COUNTED = np.uint16(65_535)

WORD_BITS = np.uint64(6)
LOW6, ONE = np.uint64(63), np.uint64(1)


@kernel
def look_ahead(i: Any, end: int, following: int, last: np.uint64) -> np.uint64:
    """Which feature to ask for while ``i`` is handled: one of this row, or of that which comes next."""
    ahead = i + AHEAD
    ahead = ahead if ahead < np.uint64(end) else np.uint64(following) + (ahead - np.uint64(end))
    return min(ahead, last)


@kernel
def count(
    tokens: npt.NDArray[np.integer],
    offsets: Ints,
    hashes: Hashes,
    letters: Slots,
    letter_offsets: Ints,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    scratch: Slots,
    counts: Counts,
) -> None:
    """Count every slot, up to ``MOST_COUNTED``."""
    for row in range(len(offsets) - 1):
        n = row_slots(
            tokens,
            offsets[row],
            offsets[row + 1],
            hashes,
            letters,
            letter_offsets,
            ngrams,
            ngram_mask,
            word_base,
            word_mask,
            scratch,
        )
        for k in range(np.uint64(n)):
            prefetch(counts, np.uint64(scratch[min(k + AHEAD, np.uint64(n - 1))]))
            slot = np.uint64(scratch[k])
            count = counts[slot]
            counts[slot] = count + np.uint16(count < MOST_COUNTED)


@kernel
def add_up(counts: Counts, others: Counts) -> None:
    for slot in range(len(counts)):
        counts[slot] += min(others[slot], MOST_COUNTED - counts[slot])


@kernel
def rank(counts: Counts, min_count: int, bits: Hashes, numbers: Numbers) -> None:
    """Set the bits of the slots to keep, and number them from the most frequent on."""
    found = np.zeros(MOST_COUNTED + 1, np.int64)
    for count in counts:
        found[count] += 1
    following = np.zeros(MOST_COUNTED + 1, np.int64)
    at = 0
    for count in range(MOST_COUNTED, min_count - 1, -1):
        following[count] = at
        at += found[count]
    k = 0
    for slot in range(len(counts)):
        count = counts[slot]
        if count >= min_count:
            bits[slot >> 6] |= ONE << np.uint64(slot & 63)
            numbers[k] = following[count]
            following[count] += 1
            k += 1


@kernel
def ones(word: np.uint64) -> np.uint64:
    """How many bits are set; LLVM makes one instruction of it."""
    word = word - ((word >> ONE) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@kernel
def count_before(bits: Hashes, out: Numbers) -> None:
    total = np.uint64(0)
    for i in range(len(bits)):
        out[i] = total
        total += ones(bits[i])
    out[len(bits)] = total


@kernel
def features(
    tokens: npt.NDArray[np.integer],
    offsets: Ints,
    hashes: Hashes,
    letters: Slots,
    letter_offsets: Ints,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    bits: Hashes,
    before: Numbers,
    numbers: Numbers,
    distinct: bool,
    scratch: Slots,
    table: Slots,
    ids: Numbers,
    starts: Ints,
) -> None:
    """Write the known features of every row; if ``distinct``, each of them once."""
    at = np.uint64(0)
    for row in range(len(offsets) - 1):
        count = row_slots(
            tokens,
            offsets[row],
            offsets[row + 1],
            hashes,
            letters,
            letter_offsets,
            ngrams,
            ngram_mask,
            word_base,
            word_mask,
            scratch,
        )
        n = _number(scratch, np.uint64(count), bits, before, numbers, distinct, table, ids, at)
        at += n
        starts[row + 1] = at


@kernel
def text_features(
    data: Bytes,
    rows: Ints,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    bits: Hashes,
    before: Numbers,
    numbers: Numbers,
    distinct: bool,
    ends: Ints,
    hashes: Hashes,
    scratch: Slots,
    table: Slots,
    ids: Numbers,
    starts: Ints,
) -> None:
    """As ``features``, straight from normalised texts: nothing is kept of a word but its hash."""
    at = np.uint64(0)
    for row in range(len(rows) - 1):
        count = text_slots(
            data, rows[row], rows[row + 1], ngrams, ngram_mask, word_base, word_mask, ends, hashes, scratch
        )
        at += _number(scratch, count, bits, before, numbers, distinct, table, ids, at)
        starts[row + 1] = at


@kernel
def _number(
    slots: Slots,
    count: np.uint64,
    bits: Hashes,
    before: Numbers,
    numbers: Numbers,
    distinct: bool,
    table: Slots,
    ids: Numbers,
    at: np.uint64,
) -> np.uint64:
    """Write the numbers of the known ones of a row's slots to ``ids``; returns how many there are.

    Without ``numbers``, their ranks: how many known slots stand before each.
    """
    n = _known(slots, count, bits)
    if distinct:
        n = distinct_slots(slots, n, table)
    for k in range(n):
        slot = np.uint64(slots[k])
        below = bits[slot >> WORD_BITS] & ((ONE << (slot & LOW6)) - ONE)
        place = np.uint64(before[slot >> WORD_BITS]) + ones(below)
        ids[at + k] = place
        if len(numbers):
            prefetch(numbers, place)
    for k in range(at, at + n if len(numbers) else at):  # what was asked for above has come by now
        ids[k] = numbers[np.uint64(ids[k])]
    return n


@kernel
def _known(slots: Slots, n: np.uint64, bits: Hashes) -> np.uint64:
    """Move the known slots to the front, without a branch that nobody could predict."""
    found = np.uint64(0)
    for k in range(n):
        prefetch(bits, np.uint64(slots[min(k + AHEAD, n - ONE)]) >> WORD_BITS)
        slot = np.uint64(slots[k])
        slots[found] = slot
        found += (bits[slot >> WORD_BITS] >> (slot & LOW6)) & ONE
    return found


@kernel
def distinct_slots(slots: Slots, n: np.uint64, table: Slots) -> np.uint64:
    """Move the first of equal slots to the front. ``table`` is empty before and after."""
    size = np.uint64(16)
    while size < n + n:
        size += size
    last, found = size - ONE, np.uint64(0)
    for k in range(n):
        slot = np.uint64(slots[k])
        entry = slot + ONE  # 0 is an empty place
        place = (slot * np.uint64(0x9E3779B1)) >> np.uint64(7) & last
        while table[place] != entry and table[place]:
            place = (place + ONE) & last
        slots[found] = slot
        found += np.uint64(table[place] != entry)
        table[place] = entry
    for used in range(size):
        table[used] = 0
    return found


@kernel
def look_up(slots: Slots, bits: Hashes, before: Numbers, numbers: Numbers, out: Ints) -> None:
    for k in range(len(slots)):
        slot = np.uint64(slots[k])
        word, bit = bits[slot >> WORD_BITS], slot & LOW6
        out[k] = -1
        if (word >> bit) & ONE:
            out[k] = numbers[np.uint64(before[slot >> WORD_BITS]) + ones(word & ((ONE << bit) - ONE))]
