"""The features of a stream: n-grams enter by count, in memory of a fixed size.

Every slot has a row of its own from the start, so there is nothing to be given to another: n-grams that
share a slot share its row, as ever. A slot is a feature when it has been counted often enough. Counts are
bytes, and are halved after every half-life: a slot that then is no longer counted often enough leaves, and
what was learnt of it is forgotten.
"""

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import AHEAD, Bytes, Hashes, Ints, kernel, prefetch, read_only
from manyhands.models.ngram.feature_kernels import Numbers, distinct_slots
from manyhands.models.ngram.features import (
    LEAST_BITS,
    Features,
    FeatureSpace,
    NgramSettings,
    kernel_arguments,
    room_for,
)
from manyhands.text.corpus import Corpus
from manyhands.text.ngrams import NgramHashing, Slots, row_slots

MOST_WORD_BITS = 20  # a million slots for single words
MOST_TIMES = 255  # a byte holds no more


class GrowingFeatures:
    """Which slots are features, by how often each was met: ``min_count`` times or more."""

    def __init__(self, settings: NgramSettings, half_life: float) -> None:
        bits = max((settings.buckets - 1).bit_length(), LEAST_BITS)
        self.hashing = NgramHashing(
            ngrams=settings.ngrams,
            word_bits=min(bits, MOST_WORD_BITS),
            ngram_bits=bits,
            chars=settings.char_lengths,
            char_bits=bits,
        )
        self.counts = np.full(self.hashing.slots, 0, np.uint8)
        self._min_count, self._half_life = settings.min_count, half_life
        self._halved = 0  # times so far
        self._messages = 0

    def known(self) -> Ints:
        """The slots that are features."""
        return np.flatnonzero(self.counts >= self._min_count)

    def age(self, messages: int) -> Ints | None:
        """So many messages have come: None, or where counts were halved, the slots that left."""
        self._messages += messages
        if self._messages < (self._halved + 1) * self._half_life:
            return None
        before = self.counts >= self._min_count
        while self._messages >= (self._halved + 1) * self._half_life:
            self.counts >>= 1
            self._halved += 1
        return np.flatnonzero(before & (self.counts < self._min_count))

    def of(self, corpus: Corpus, *, distinct: bool) -> Features:
        """Count the n-grams of all rows; then the features of each, or of equal ones the first."""
        tokens, offsets = corpus.take(np.arange(len(corpus)))
        letters = self.hashing.letters(corpus)
        room = room_for(self.hashing, tokens, offsets, letters)
        ids, starts = np.empty(room.all_rows, np.uint32), np.zeros(len(corpus) + 1, np.int64)
        scratch, table = np.empty(room.one_row, np.uint32), np.zeros(room.table, np.uint32)
        arguments = kernel_arguments(self.hashing, corpus, letters)
        _features(
            tokens, offsets, *arguments, self.counts, self._min_count, distinct, scratch, table, ids, starts
        )
        return Features(read_only(ids[: starts[-1]].copy()), starts)

    def space(self) -> FeatureSpace:
        """The features as a model knows them, numbered in the order of their slots."""
        known = self.counts >= self._min_count
        words = np.zeros((len(known) + 63) // 64 * 8, np.uint8)
        packed = np.packbits(known, bitorder="little")
        words[: len(packed)] = packed
        numbers = np.arange(np.count_nonzero(known), dtype=np.uint32)
        return FeatureSpace(self.hashing, read_only(words.view(np.uint64)), read_only(numbers))

    def facts(self) -> dict[str, int]:
        return {"messages": self._messages, "halved": self._halved}

    def restore(self, counts: Bytes, facts: dict[str, int]) -> None:
        self.counts[:] = counts
        self._messages, self._halved = facts["messages"], facts["halved"]


@kernel
def _features(
    tokens: npt.NDArray[np.integer],
    offsets: Ints,
    hashes: Hashes,
    letters: Slots,
    letter_offsets: Ints,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    counts: Bytes,
    min_count: int,
    distinct: bool,
    scratch: Slots,
    table: Slots,
    ids: Numbers,
    starts: Ints,
) -> None:
    """Count the slots of each row, and write those that are features by then."""
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
        n, found = np.uint64(count), np.uint64(0)
        for k in range(n):
            prefetch(counts, np.uint64(scratch[min(k + AHEAD, n - np.uint64(1))]))
            slot = np.uint64(scratch[k])
            times = counts[slot]
            times += np.uint8(times < MOST_TIMES)
            counts[slot] = times
            scratch[found] = slot
            found += np.uint64(times >= min_count)
        if distinct:
            found = distinct_slots(scratch, found, table)
        for k in range(found):
            ids[at + k] = scratch[k]
        at += found
        starts[row + 1] = at
