"""Equal texts folded into one row, with the true mode of their labels."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.kernel import Flags, Hashes, Ints, kernel

# A row on its way from reading to writing. ``origin`` is the split that the row's file was
# given for (1 valid, 2 test), or 0 where the text decides; ``table`` is the word table that
# numbered its words, ``length`` of them, whose numbers are the bytes of ``units``.
ROW = pa.schema(
    {
        "high": pa.uint64(),
        "low": pa.uint64(),
        "origin": pa.uint8(),
        "label": pa.int32(),
        "weight": pa.float32(),
        "table": pa.uint16(),
        "length": pa.uint32(),
        "units": pa.large_binary(),
    }
)

Labels = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Folded:
    """The rows that are kept, in the order of their digests: which they were, and what became of them."""

    rows: Ints
    labels: Labels
    weights: Weights


def fold(batch: pa.RecordBatch, rank: Labels, values: Values, deduplicate: bool) -> Folded:
    """Sort the rows of a partition by digest and, if asked, make one row of equal texts.

    ``rank`` and ``values`` give each label's place among all labels and its number. The
    outcome does not depend on the order of the rows.
    """
    high, low, origin, labels, weights = (batch[name].to_numpy() for name in ROW.names[:5])
    order = _sorted(high, low, origin, rank[labels], weights)
    if not deduplicate:
        return Folded(order, labels[order], weights[order])
    kept = np.empty(len(order), np.int64)
    votes = np.empty(len(order), np.int32)
    means = np.empty(len(order), np.float32)
    count = _fold(high, low, origin, labels, weights, order, values, kept, votes, means)
    return Folded(kept[:count], votes[:count], means[:count])


def _sorted(high: Hashes, low: Hashes, origin: npt.NDArray[np.uint8], rank: Labels, weights: Weights) -> Ints:
    """Rows by digest; equal texts by origin (given for a test first), label and weight."""
    order = np.argsort(high)
    tied = _tied(high[order])
    some = order[tied]
    # Few rows tie: only they need the slower sort by all keys.
    order[tied] = some[np.lexsort((weights[some], rank[some], 255 - origin[some], low[some], high[some]))]
    return order


def _tied(keys: Hashes) -> Flags:
    same = keys[1:] == keys[:-1]
    tied: Flags = np.r_[same, False] | np.r_[False, same]
    return tied


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
