"""The kernels that count n-grams and turn rows into features."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import AHEAD, Bytes, Hashes, Ints, kernel, prefetch
from manyhands.kernels.simd import LINE, Floats, add_part
from manyhands.text.corpus import NO_WORD
from manyhands.text.ngram_names import LETTERS, Lengths, Runs
from manyhands.text.ngrams import Slots, row_slots, text_slots

Numbers = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.uint16]
Votes = npt.NDArray[np.int32]

MOST_COUNTED = np.uint16(65_535)

ENTRY_BITS, LOW5 = np.uint64(5), np.uint64(31)
HALF, LOW32 = np.uint64(32), np.uint64(0xFFFFFFFF)
ONE = np.uint64(1)
LINE_STEP = np.uint64(LINE)


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
def make_index(bits: Hashes, out: Hashes) -> None:
    """The bits of 32 slots, and above them how many are set before: one look into memory tells both."""
    total = np.uint64(0)
    for i in range(len(bits)):
        low, high = bits[i] & LOW32, bits[i] >> HALF
        out[2 * i] = total << HALF | low
        total += ones(low)
        out[2 * i + 1] = total << HALF | high
        total += ones(high)
    out[2 * len(bits)] = total << HALF


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
    index: Hashes,
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
        n = _ranks(scratch, np.uint64(count), index)
        if distinct:
            n = distinct_slots(scratch, n, table)
        for k in range(n):
            prefetch(numbers, np.uint64(scratch[min(k + AHEAD, n - ONE)]))
            ids[at + k] = numbers[np.uint64(scratch[k])]
        at += n
        starts[row + 1] = at


@kernel
def text_features(
    data: Bytes,
    start: int,
    end: int,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    index: Hashes,
    numbers: Numbers,
    distinct: bool,
    ends: Ints,
    hashes: Hashes,
    ids: Slots,
    table: Slots,
    weights: Floats,
) -> np.uint64:
    """Write the known features of a normalised text to ``ids``; returns how many there are.

    Nothing is kept of a word but its hash. Without ``numbers``, a feature is given by the rank of its slot:
    how many known ones stand before it. The rows of ``weights`` are asked for on the way, and have come by
    the time they are added up.
    """
    count = text_slots(data, start, end, ngrams, ngram_mask, word_base, word_mask, ends, hashes, ids)
    n, width = _ranks(ids, count, index), np.uint64(weights.shape[1])
    if not len(numbers):
        for k in range(n):
            prefetch(weights, np.uint64(ids[k]) * width)
    if distinct:
        n = distinct_slots(ids, n, table)
    if len(numbers):
        for k in range(n):
            prefetch(numbers, np.uint64(ids[min(k + AHEAD, n - ONE)]))
            number = np.uint64(numbers[np.uint64(ids[k])])
            ids[k] = number
            for at in range(np.uint64(0), width, LINE_STEP):
                prefetch(weights, number * width + at)
            prefetch(weights, number * width + width - ONE)
    return n


@kernel
def _ranks(slots: Slots, count: np.uint64, index: Hashes) -> np.uint64:
    """Put the ranks of the known slots in their place, without a branch that nobody could predict."""
    found = np.uint64(0)
    for k in range(count):
        prefetch(index, np.uint64(slots[min(k + AHEAD, count - ONE)]) >> ENTRY_BITS)
        slot = np.uint64(slots[k])
        entry, bit = index[slot >> ENTRY_BITS], slot & LOW5
        slots[found] = (entry >> HALF) + ones(entry & ((ONE << bit) - ONE))
        found += entry >> bit & ONE
    return found


@kernel
def distinct_slots(slots: Slots, n: np.uint64, table: Slots) -> np.uint64:
    """Move the first of equal slots to the front. ``table`` is empty before and after."""
    size = np.uint64(16)
    while size < np.uint64(4) * n:  # few meet on a place then: each time, the processor guesses wrong
        size += size
    last, found = size - ONE, np.uint64(0)
    for k in range(n):
        slot = np.uint64(slots[k])
        entry = slot + ONE  # 0 is an empty place
        place = (slot * np.uint64(0x9E3779B1)) >> np.uint64(7) & last
        there = np.uint64(table[place])
        while (there ^ entry) * there:  # neither equal nor empty, in one branch
            place = (place + ONE) & last
            there = np.uint64(table[place])
        slots[found] = slot
        found += np.uint64(there != entry)
        table[place] = entry
    for used in range(size):
        table[used] = 0
    return found


@kernel
def whole_lines(width: int) -> int:
    return (width + LINE - 1) // LINE * LINE


@kernel
def add_row(sums: Floats, table: Floats, row: np.uint64, scale: np.float32) -> None:
    """Add a row of the table, times ``scale``, to ``sums``, which have room for whole lines."""
    width = np.uint64(table.shape[1])
    for at in range(np.uint64(0), width, LINE_STEP):
        add_part(sums, at, table, row * width + at, scale, width - at)


@kernel
def look_up(slots: Slots, index: Hashes, numbers: Numbers, out: Ints) -> None:
    for k in range(len(slots)):
        slot = np.uint64(slots[k])
        entry, bit = index[slot >> ENTRY_BITS], slot & LOW5
        out[k] = -1
        if (entry >> bit) & ONE:
            out[k] = numbers[(entry >> HALF) + ones(entry & ((ONE << bit) - ONE))]


@kernel
def name(
    tokens: npt.NDArray[np.integer],
    offsets: Ints,
    hashes: Hashes,
    letters: Slots,
    letter_offsets: Ints,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    index: Hashes,
    numbers: Numbers,
    scratch: Slots,
    features: Ints,
    runs: Runs,
    lengths: Lengths,
    votes: Votes,
) -> None:
    """Name every feature by the n-gram that is met most: of those that share it, all others are voted down.

    ``row_slots`` writes slots in the order in which the n-grams are walked through here.
    """
    for row in range(len(offsets) - 1):
        start, end = offsets[row], offsets[row + 1]
        n = row_slots(
            tokens,
            start,
            end,
            hashes,
            letters,
            letter_offsets,
            ngrams,
            ngram_mask,
            word_base,
            word_mask,
            scratch,
        )
        look_up(scratch[:n], index, numbers, features)
        at = 0
        for i in range(start, end):
            if hashes[tokens[i]] == NO_WORD:
                continue
            for length in range(1, min(end - i, ngrams) + 1):
                if hashes[tokens[i + length - 1]] == NO_WORD:
                    break
                if features[at] >= 0:
                    _vote(features[at], tokens[i : i + length], np.uint8(length), runs, lengths, votes)
                at += 1
            if len(letter_offsets):
                count = letter_offsets[tokens[i] + 1] - letter_offsets[tokens[i]]
                for k in range(count):
                    if features[at] >= 0 and lengths[features[at]] == 0:
                        lengths[features[at]] = LETTERS
                        runs[features[at], 0], runs[features[at], 1] = tokens[i], k
                    at += 1


@kernel
def _vote(
    feature: int,
    words: npt.NDArray[np.integer],
    length: np.uint8,
    runs: Runs,
    lengths: Lengths,
    votes: Votes,
) -> None:
    same = lengths[feature] == length
    for k in range(len(words)):
        same = same and runs[feature, k] == words[k]
    if same:
        votes[feature] += 1
    elif votes[feature] > 0:
        votes[feature] -= 1
    else:
        lengths[feature], votes[feature] = length, 1
        for k in range(len(words)):
            runs[feature, k] = words[k]
