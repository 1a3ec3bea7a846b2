"""The second pass of ``prepare``: equal texts folded into one row, splits drawn, words counted.

Of equal texts the true mode of their labels counts. Any partition can be folded by itself.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.data.labels import LabelEncoder
from manyhands.data.prepare.partitions import KEPT_SCHEMA, PREFIXES, ROW_SCHEMA, prefixes_of
from manyhands.kernels.compile import Hashes, Ints, kernel
from manyhands.records import SPLITS
from manyhands.settings import PrepareSettings
from manyhands.text.hashing import fractions
from manyhands.text.ragged import from_arrow
from manyhands.text.words import UNIT_BYTES, Units, next_number

Labels = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

TRAIN, VALID, TEST = range(len(SPLITS))


def _no_counts() -> Ints:
    return np.zeros((len(SPLITS), PREFIXES), np.int64)


@dataclass
class DatasetCounts:
    """How many rows, tokens and labels there are, by split and leading bits of the digest; and words."""

    rows: Ints = field(default_factory=_no_counts)
    tokens: Ints = field(default_factory=_no_counts)
    labels: Ints = field(default_factory=_no_counts)
    duplicates: int = 0
    words: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, other: "DatasetCounts") -> None:
        """All but the words, which are numbered differently everywhere."""
        self.rows += other.rows
        self.tokens += other.tokens
        self.labels += other.labels
        self.duplicates += other.duplicates


class PartitionFolder:
    """Folds the duplicates of a partition, draws the splits of its rows and counts their words."""

    def __init__(
        self, settings: PrepareSettings, encoder: LabelEncoder, origins: set[int], numeric: bool = True
    ) -> None:
        self._deduplicate = settings.deduplicate
        self._seed = settings.seed
        self._test = 0.0 if TEST in origins else settings.test
        self._valid = 0.0 if VALID in origins else settings.valid
        self._rank, self._values = encoder.order(numeric)
        self._sizes = np.diff(encoder.classes(rates_stars=False).flatten()[1])

    def fold(self, batch: pa.RecordBatch, bases: Ints, words: Ints) -> tuple[pa.RecordBatch, DatasetCounts]:
        """Which rows are kept, and how many; words of training rows are counted in ``words``."""
        folded = fold_duplicates(batch, self._rank, self._values, self._deduplicate)
        high, low, origin = (batch[name].to_numpy()[folded.rows] for name in ("high", "low", "origin"))
        splits = self._splits(low, origin)
        units = from_arrow(batch["units"])
        train = folded.rows[splits == TRAIN]
        of_table = bases[batch["table"].to_numpy()]
        _count_words(units.data.view(np.uint16), units.offsets, train, of_table, words)
        lengths = batch["length"].to_numpy()[folded.rows]
        cells = splits.astype(np.int64) * PREFIXES + prefixes_of(high)
        rows, tokens, labels = (
            np.bincount(cells, each, len(SPLITS) * PREFIXES).astype(np.int64).reshape(len(SPLITS), PREFIXES)
            for each in (None, lengths, self._sizes[folded.labels])
        )
        counts = DatasetCounts(rows, tokens, labels, batch.num_rows - len(folded.rows))
        columns = [folded.rows, high, splits, folded.labels, folded.weights]
        return pa.RecordBatch.from_arrays(columns, schema=KEPT_SCHEMA), counts

    def _splits(self, low: Hashes, origin: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The split of each row: its file's, or drawn by the digest of its text."""
        drawn = fractions(low, self._seed)
        by_text = np.where(drawn < self._test, TEST, np.where(drawn < self._test + self._valid, VALID, TRAIN))
        return np.where(origin > 0, origin, by_text).astype(np.uint8)


@kernel
def _count_words(units: Units, offsets: Ints, rows: Ints, bases: Ints, counts: Ints) -> None:
    """Offsets are in bytes."""
    for row in rows:
        base = np.uint64(bases[row])
        i, end = offsets[row] // UNIT_BYTES, offsets[row + 1] // UNIT_BYTES
        while i < end:
            number, i = next_number(units, i)
            counts[base + number] += 1


class FoldedRows(NamedTuple):
    """The rows that are kept, in the order of their digests: which they were, and what became of them."""

    rows: Ints
    labels: Labels
    weights: Weights


def fold_duplicates(batch: pa.RecordBatch, rank: Labels, values: Values, deduplicate: bool) -> FoldedRows:
    """Sort the rows of a partition by digest and, if asked, make one row of equal texts.

    ``rank`` and ``values`` give each label's place among all labels and its number. The
    outcome does not depend on the order of the rows.
    """
    high, low, origin, labels, weights = (batch[name].to_numpy() for name in ROW_SCHEMA.names[:5])
    order = _sorted(high, low, origin, rank[labels], weights)
    if not deduplicate:
        return FoldedRows(order, labels[order], weights[order])
    kept, votes, means = np.empty_like(order), np.empty_like(labels), np.empty_like(weights)
    count = _fold(high, low, origin, labels, weights, order, values, kept, votes, means)
    return FoldedRows(kept[:count], votes[:count], means[:count])


def _sorted(high: Hashes, low: Hashes, origin: npt.NDArray[np.uint8], rank: Labels, weights: Weights) -> Ints:
    """Rows by digest; equal texts by origin (given for a test first), label and weight."""
    order = np.argsort(high)
    keys = high[order]
    same = keys[1:] == keys[:-1]
    tied = np.r_[same, False] | np.r_[False, same]
    some = order[tied]
    # Few rows tie: only they need the slower sort by all keys.
    order[tied] = some[np.lexsort((weights[some], rank[some], 255 - origin[some], low[some], high[some]))]
    return order


@kernel
def _fold(
    high: Hashes,
    low: Hashes,
    origin: npt.NDArray[np.uint8],
    labels: Labels,
    weights: Weights,
    order: Ints,
    values: Values,
    kept: Ints,
    votes: Labels,
    means: Weights,
) -> int:
    """One row for each digest: fills ``kept``, ``votes`` and ``means``; returns how many there are.

    Where a text stands in a test file and elsewhere, only the test file's rows count: they
    stay whole, and nothing is trained on what is tested.
    """
    count, first = 0, 0
    while first < len(order):
        row = order[first]
        end = first + 1
        voters = 1
        total, weight = values[labels[row]], np.float64(weights[row])
        while end < len(order) and high[order[end]] == high[row] and low[order[end]] == low[row]:
            if origin[order[end]] == origin[row]:
                total += values[labels[order[end]]]
                weight += np.float64(weights[order[end]])
                voters += 1
            end += 1
        kept[count] = row
        votes[count] = _mode(labels, order[first : first + voters], values, total / voters)
        means[count] = np.float32(weight / voters)
        count += 1
        first = end
    return count


@kernel
def _mode(labels: Labels, rows: Ints, values: Values, mean: float) -> int:
    """The most frequent label of rows sorted by label; a tie goes to the one nearest the mean."""
    best, best_votes, i = int(labels[rows[0]]), 0, 0
    while i < len(rows):
        label = labels[rows[i]]
        j = i
        while j < len(rows) and labels[rows[j]] == label:
            j += 1
        nearer = abs(values[label] - mean) < abs(values[best] - mean)
        if j - i > best_votes or (j - i == best_votes and nearer):
            best, best_votes = int(label), j - i
        i = j
    return best
