"""Folding beside a brute-force rule in plain Python."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from manyhands.data.prepare.fold import fold_duplicates
from manyhands.data.prepare.partitions import ROW_SCHEMA

rows = st.lists(
    st.tuples(
        st.integers(0, 3),  # high
        st.integers(0, 2),  # low
        st.sampled_from([0, 0, 0, 1, 2]),  # origin
        st.integers(0, 4),  # label
        st.sampled_from([1.0, 0.5, 2.0]),  # weight
    ),
    min_size=1,
    max_size=60,
)
VALUES = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
RANK = np.arange(5, dtype=np.int32)


def batch_of(items: list[tuple[int, int, int, int, float]]) -> pa.RecordBatch:
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*items, strict=True), ROW_SCHEMA, strict=False)
    ]
    rest = [pa.nulls(len(items), field.type) for field in list(ROW_SCHEMA)[len(columns) :]]
    return pa.RecordBatch.from_arrays(columns + rest, schema=ROW_SCHEMA)


def by_hand(items: list[tuple[int, int, int, int, float]]) -> list[tuple[tuple[int, int], int, float]]:
    groups: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
    for high, low, origin, label, weight in items:
        groups.setdefault((high, low), []).append((origin, label, weight))
    outcome = []
    for key in sorted(groups):
        top = max(origin for origin, _, _ in groups[key])
        voters = [(label, weight) for origin, label, weight in groups[key] if origin == top]
        votes = Counter(label for label, _ in voters)
        mean = sum(VALUES[label] for label, _ in voters) / len(voters)
        best = max(votes.values())
        winner = min((abs(VALUES[label] - mean), label) for label in votes if votes[label] == best)[1]
        outcome.append((key, winner, sum(weight for _, weight in voters) / len(voters)))
    return outcome


@given(rows, st.randoms(use_true_random=False))
def test_mode_and_order(items: list[tuple[int, int, int, int, float]], random) -> None:
    shuffled = items.copy()
    random.shuffle(shuffled)
    for given_rows in (items, shuffled):
        batch = batch_of(given_rows)
        folded = fold_duplicates(batch, RANK, VALUES, deduplicate=True)
        keys = [(batch["high"][i].as_py(), batch["low"][i].as_py()) for i in folded.rows.tolist()]
        found = list(zip(keys, folded.labels.tolist(), folded.weights.tolist(), strict=True))
        assert [(key, label) for key, label, _ in found] == [(key, label) for key, label, _ in by_hand(items)]
        assert np.allclose([w for _, _, w in found], [w for _, _, w in by_hand(items)])


def test_the_ties_of_the_rule() -> None:
    def winner(*labels: int) -> int:
        items = [(0, 0, 0, label - 1, 1.0) for label in labels]
        return int(fold_duplicates(batch_of(items), RANK, VALUES, True).labels[0]) + 1

    assert winner(5, 5, 1) == 5, "the mode, not the lowest"
    assert winner(1, 1, 5, 5, 4) == 5, "a tie goes to the nearest the mean, 3.2"
    assert winner(1, 5) == 1, "still tied: the lower"
    assert winner(2, 2, 4, 4, 1) == 2


def test_duplicates_can_be_kept() -> None:
    items = [(1, 0, 0, 4, 1.0), (0, 0, 0, 2, 1.0), (1, 0, 0, 0, 1.0)]
    assert fold_duplicates(batch_of(items), RANK, VALUES, deduplicate=False).labels.tolist() == [2, 0, 4]
