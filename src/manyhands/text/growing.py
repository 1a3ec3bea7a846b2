"""A vocabulary that grows while text is read, in memory of a fixed size.

Words are known by their hashes. A word is at first only counted, as one of the candidates: when these fill
their room, the median of their counts is taken from all of them, and those that come to nothing are dropped
(Misra and Gries's sketch, many at a time). A word that has been counted often enough enters: it gets a row
and its letters are kept, and from then on its count is exact. When all rows are taken, it gets that of the
least frequent word, if it is clearly more frequent; that one is a candidate again.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.kernels.compile import AHEAD, Bytes, Hashes, Ints, kernel, prefetch
from manyhands.text.corpus import NO_WORD, Corpus
from manyhands.text.normalise import LONGEST_WORD
from manyhands.text.ragged import Ragged
from manyhands.text.vocabulary import Vocabulary

Numbers = npt.NDArray[np.int32]
Counts = npt.NDArray[np.float64]
Letters = npt.NDArray[np.uint8]
Arrays = dict[str, npt.NDArray[Any]]

NO_ROW = -1
CANDIDATES_A_ROW, LEAST_CANDIDATES = 4, 1 << 14
# Of two words of about the same frequency, neither may drive out the other again and again: each time, what
# was learnt of one is lost.
CLEARLY_MORE = 1.25
ONE = np.uint64(1)


@dataclass
class _Table:
    """Words by their hashes: how often each candidate was counted, and the row of each that has one."""

    hashes: Hashes
    counts: Counts
    rows: Numbers

    @classmethod
    def for_entries(cls, entries: int) -> "_Table":
        size = 1 << (2 * entries - 1).bit_length()
        rows = np.full(size, NO_ROW, np.int32)
        return cls(np.full(size, NO_WORD, np.uint64), _touched(size), rows)


def _touched(*shape: int) -> Counts:
    """Zeros that take their memory now: it must not grow later."""
    return np.full(shape, 0.0, np.float64)


class GrowingVocabulary:
    """``rows`` words at most; one enters when it has been counted ``min_count`` times.

    >>> from manyhands.text.corpus import corpus_once
    >>> from manyhands.text.ragged import from_strings
    >>> growing = GrowingVocabulary(rows=2, min_count=2)
    >>> numbers, entered = growing.count(corpus_once(from_strings(["a b a", "b c"])))
    >>> numbers.tolist(), entered.tolist(), growing.vocabulary()[0].words.to_pylist()
    ([0, 1, 0, 1, -1], [0, 1], ['a', 'b'])
    """

    def __init__(self, rows: int, min_count: int) -> None:
        self._min_count = min_count
        self._most = rows + max(CANDIDATES_A_ROW * rows, LEAST_CANDIDATES)  # words that are known in any way
        self._table, self._entries, self.used = _Table.for_entries(self._most), 0, 0
        self.counts = _touched(rows)  # of the word in each row
        self._row_hashes = np.full(rows, NO_WORD, np.uint64)
        self._letters = np.full((rows, LONGEST_WORD), 0, np.uint8)
        self._lengths = np.zeros(rows, np.uint8)
        # Rows from the least frequent on, as of the last look, and how many of these were given away since.
        self._leaving, self._leaving_counts = np.full(rows, 0, np.int32), _touched(rows)
        self._listed, self._left = 0, 0

    def __len__(self) -> int:
        return len(self.counts)

    def count(self, corpus: Corpus) -> tuple[Numbers, Numbers]:
        """Count the words of a text; gives the row of each (-1: none), and the rows that have a new word."""
        hashes, words = corpus.hashes, corpus.words
        entered = np.empty(len(self), np.int32)
        new, step = 0, max(self._most // 4, 1)
        for start in range(0, len(hashes), step):
            part = hashes[start : start + step]
            if self._entries + len(part) > self._most:
                self._purge(len(part))
            table = self._table
            self._entries, self.used, self._left, new = _count(
                part,
                words.data,
                words.offsets[start:],
                table.hashes,
                table.counts,
                table.rows,
                self._entries,
                self._min_count,
                self.counts,
                self._row_hashes,
                self._letters,
                self._lengths,
                self.used,
                self._leaving,
                self._leaving_counts,
                self._listed,
                self._left,
                entered,
                new,
            )
        numbers = np.empty(len(hashes), np.int32)
        _look_up(hashes, self._table.hashes, self._table.rows, numbers)
        return numbers, entered[:new].copy()

    def look(self, decay: float) -> None:
        """Let all counts decay by a factor, and list anew which words would leave first."""
        self._table.counts *= decay
        self.counts *= decay
        if self.used == len(self):
            order = np.argsort(self.counts, kind="stable")
            self._leaving[:], self._leaving_counts[:] = order, self.counts[order]
            self._listed, self._left = len(order), 0

    def _purge(self, room: int) -> None:
        """Make room for so many words: take the median of the candidates' counts from all of them."""
        while self._entries + room > self._most:
            table = self._table
            known = table.hashes != NO_WORD
            candidates = known & (table.rows == NO_ROW)
            less = float(np.median(table.counts[candidates]))
            kept = known & ((table.rows != NO_ROW) | (table.counts > less))
            hashes, counts, rows = table.hashes[kept], table.counts[kept] - less, table.rows[kept]
            self._fill(hashes, counts, rows)

    def _fill(self, hashes: Hashes, counts: Counts, rows: Numbers) -> None:
        """Have these words in the table, and no others."""
        table = self._table
        table.hashes[:], table.counts[:], table.rows[:] = NO_WORD, 0, NO_ROW
        _insert(hashes, counts, rows, table.hashes, table.counts, table.rows)
        self._entries = len(hashes)

    def vocabulary(self) -> tuple[Vocabulary, Ints]:
        """The words that have a row, the most frequent first; and the row of each."""
        order = np.argsort(-self.counts[: self.used], kind="stable")
        offsets = np.append(0, np.cumsum(self._lengths[order], dtype=np.int64))
        out = np.empty(offsets[-1], np.uint8)
        _spell(self._letters, order, offsets, out)
        words = Ragged(out, offsets).arrow().cast(pa.large_string())
        return Vocabulary(words, np.maximum(np.rint(self.counts[order]), 1).astype(np.int64)), order

    def letters(self, rows: Ints) -> Ragged:
        """The letters of the words in some rows."""
        offsets = np.append(0, np.cumsum(self._lengths[rows], dtype=np.int64))
        out = np.empty(offsets[-1], np.uint8)
        _spell(self._letters, rows, offsets, out)
        return Ragged(out, offsets)

    def row_hashes(self, rows: Numbers) -> Hashes:
        return self._row_hashes[rows]

    def state(self) -> Arrays:
        """All that is known, in arrays that are no longer than they must be."""
        known, table, used = self._table.hashes != NO_WORD, self._table, self.used
        return {
            "hashes": table.hashes[known],
            "hash_counts": table.counts[known],
            "hash_rows": table.rows[known],
            "row_counts": self.counts[:used],
            "row_hashes": self._row_hashes[:used],
            "row_letters": self._letters[:used],
            "row_lengths": self._lengths[:used],
            "leaving": self._leaving[: self._listed],
            "leaving_counts": self._leaving_counts[: self._listed],
            "left": np.array([self._left]),
        }

    def restore(self, arrays: Arrays) -> None:
        """The opposite of ``state``."""
        self._fill(arrays["hashes"], arrays["hash_counts"], arrays["hash_rows"])
        used = self.used = len(arrays["row_counts"])
        self.counts[:used], self._row_hashes[:used] = arrays["row_counts"], arrays["row_hashes"]
        self._letters[:used], self._lengths[:used] = arrays["row_letters"], arrays["row_lengths"]
        listed = self._listed = len(arrays["leaving"])
        self._leaving[:listed], self._leaving_counts[:listed] = arrays["leaving"], arrays["leaving_counts"]
        self._left = int(arrays["left"][0])


@kernel
def _find(hashes: Hashes, value: np.uint64) -> np.uint64:
    """Where a hash stands, or the empty place where it would."""
    last = np.uint64(len(hashes) - 1)
    slot = value & last
    while hashes[slot] != value and hashes[slot] != NO_WORD:
        slot = (slot + ONE) & last
    return slot


@kernel
def _insert(
    hashes: Hashes,
    counts: Counts,
    rows: Numbers,
    to_hashes: Hashes,
    to_counts: Counts,
    to_rows: Numbers,
) -> None:
    for k in range(len(hashes)):
        slot = _find(to_hashes, hashes[k])
        to_hashes[slot], to_counts[slot], to_rows[slot] = hashes[k], counts[k], rows[k]


@kernel
def _look_up(words: Hashes, hashes: Hashes, rows: Numbers, out: Numbers) -> None:
    last, end = np.uint64(len(hashes) - 1), np.uint64(len(words) - 1)
    for k in range(np.uint64(len(words))):
        prefetch(hashes, words[min(k + AHEAD, end)] & last)
        out[k] = rows[_find(hashes, words[k])]


@kernel
def _count(
    words: Hashes,
    letters: Bytes,
    offsets: Ints,
    hashes: Hashes,
    counts: Counts,
    rows: Numbers,
    entries: int,
    min_count: int,
    row_counts: Counts,
    row_hashes: Hashes,
    row_letters: Letters,
    row_lengths: Bytes,
    used: int,
    leaving: Numbers,
    leaving_counts: Counts,
    listed: int,
    left: int,
    entered: Numbers,
    new: int,
) -> tuple[int, int, int, int]:
    """Count words, and let those enter that have been met often enough.

    Gives how many words are known, how many rows are taken, how many of the listed ones were given away,
    and how many words entered.
    """
    last, end = np.uint64(len(hashes) - 1), np.uint64(len(words) - 1)
    for k in range(np.uint64(len(words))):
        prefetch(hashes, words[min(k + AHEAD, end)] & last)
        value = words[k]
        slot = _find(hashes, value)
        if hashes[slot] == NO_WORD:
            hashes[slot], counts[slot], rows[slot] = value, 0.0, NO_ROW
            entries += 1
        row = np.int64(rows[slot])
        if row != NO_ROW:
            row_counts[row] += 1
            continue
        counts[slot] += 1
        count, length = counts[slot], offsets[k + ONE] - offsets[k]
        if count < min_count or length > row_letters.shape[1]:
            continue
        if used < len(row_counts):
            row = np.int64(used)
            used += 1
        else:
            while left < listed:
                if leaving_counts[left] * CLEARLY_MORE >= count:
                    break  # and so are all that follow
                if row_counts[leaving[left]] * CLEARLY_MORE < count:
                    row = np.int64(leaving[left])
                    left += 1
                    break
                left += 1  # it has become more frequent since it was listed
            if row == NO_ROW:
                continue
            old = _find(hashes, row_hashes[row])
            rows[old], counts[old] = NO_ROW, row_counts[row]
        rows[slot], row_counts[row], row_hashes[row] = row, count, value
        row_lengths[row] = length
        for i in range(length):
            row_letters[row, i] = letters[offsets[k] + i]
        entered[new] = row
        new += 1
    return entries, used, left, new


@kernel
def _spell(letters: Letters, rows: Ints, offsets: Ints, out: Bytes) -> None:
    for k in range(len(rows)):
        for i in range(offsets[k + 1] - offsets[k]):
            out[offsets[k] + i] = letters[rows[k], i]
