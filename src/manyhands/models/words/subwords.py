"""What the vector of a word is made of: its own, and those of the runs of its letters if it has any."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.simd import Floats, aligned_zeros
from manyhands.models.words.skipgram_kernels import Words, gather_means
from manyhands.text.ngrams import Slots, letter_runs
from manyhands.text.ragged import Ragged, from_arrow


@dataclass(frozen=True)
class Subwords:
    """Runs of ``chars`` letters, from and to, fall into 2 to the ``bits`` rows behind those of the words.

    (0, 0): there are none, and a word is its own vector.
    """

    chars: tuple[int, int] = (0, 0)
    bits: int = 0

    @property
    def rows(self) -> int:
        return 1 << self.bits if self.chars[1] else 0

    def parts(self, words: pa.Array) -> tuple[Words, Ints]:
        """The rows that make each word: its own, then those of its letters; and where each word begins."""
        if not self.chars[1]:
            return np.arange(len(words), dtype=np.int32), np.arange(len(words) + 1)
        letters = letter_runs(from_arrow(words), self.chars, self.bits)
        offsets = letters.offsets + np.arange(len(words) + 1)
        parts = np.empty(offsets[-1], np.int32)
        _join(letters.slots, letters.offsets, parts)
        return parts, offsets

    def unseen(self, words: Ragged, known: int) -> tuple[Words, Ints]:
        """The rows that make words which have no row of their own among the ``known`` ones."""
        if not self.chars[1]:
            return np.empty(0, np.int32), np.zeros(len(words) + 1, np.int64)
        letters = letter_runs(words, self.chars, self.bits)
        return letters.slots.astype(np.int32) + np.int32(known), letters.offsets


@kernel
def _join(slots: Slots, offsets: Ints, parts: Words) -> None:
    words, at = len(offsets) - 1, 0
    for word in range(words):
        parts[at] = word
        at += 1
        for k in range(offsets[word], offsets[word + 1]):
            parts[at] = words + np.int64(slots[k])
            at += 1


def means(table: Floats, parts: Words, offsets: Ints) -> Floats:
    """The mean of the parts of each word."""
    count = len(offsets) - 1
    out = aligned_zeros(count, table.shape[1])
    gather_means(np.arange(count, dtype=np.int32), 0, count, parts, offsets, table, out)
    return out
