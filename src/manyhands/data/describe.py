"""What is in a dataset, in figures: balance of labels, lengths, words, and where the input went."""

from dataclasses import dataclass

import numpy as np

from manyhands.data.dataset import Dataset
from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.records import SPLITS, Ledger


@dataclass(frozen=True)
class Description:
    """Plain numbers, ready for JSON."""

    folder: str
    rows: int
    tokens: int
    bytes: int
    splits: dict[str, int]
    labels: dict[str, dict[str, int]]
    lengths: list[tuple[int, int, int]]  # from, to (inclusive), rows
    mean_length: float
    longest: int
    length: int
    coverage: float  # share of the rows that have no more than ``length`` tokens
    vocabulary: int
    known_tokens: float  # share of the tokens that are in the vocabulary
    most_frequent: list[tuple[str, int]]
    ledger: Ledger
    rejections: dict[str, int]


def describe_dataset(dataset: Dataset, length: int = 100) -> Description:
    """Count through all parts of a dataset, one after the other."""
    manifest, vocabulary = dataset.manifest, dataset.vocabulary
    labels: dict[str, dict[str, int]] = {name: dict.fromkeys(SPLITS, 0) for name in dataset.label_names}
    lengths, longest, covered = np.zeros(64, np.int64), 0, 0
    for split in SPLITS:
        for part in dataset[split].parts:
            of_rows = np.diff(part.offsets)
            lengths += np.bincount(_steps(of_rows), minlength=64)
            longest = max(longest, int(of_rows.max(initial=0)))
            covered += int((of_rows <= length).sum())
            if part.labels.max(initial=-1) >= len(labels):
                raise InputError(f"{dataset.folder} has labels without a name; prepare the dataset again")
            counts = np.bincount(part.labels[part.labels >= 0], minlength=len(labels))
            for name, count in zip(labels, counts.tolist(), strict=False):
                labels[name][split] += count
    train_tokens = dataset["train"].tokens
    return Description(
        folder=str(dataset.folder),
        rows=manifest.rows,
        tokens=manifest.tokens,
        bytes=sum(part.bytes for part in manifest.parts),
        splits=dict(manifest.splits),
        labels=labels,
        lengths=histogram(lengths),
        mean_length=manifest.tokens / max(manifest.rows, 1),
        longest=longest,
        length=length,
        coverage=covered / max(manifest.rows, 1),
        vocabulary=len(vocabulary),
        known_tokens=float(vocabulary.counts.sum() / train_tokens) if train_tokens else 0.0,
        most_frequent=list(
            zip(vocabulary.words[:10].to_pylist(), vocabulary.counts[:10].tolist(), strict=True)
        ),
        ledger=manifest.ledger,
        rejections=manifest.rejections,
    )


def _steps(lengths: Ints) -> Ints:
    """In which of the steps 1, 2-3, 4-7, … a length falls."""
    return np.log2(np.maximum(lengths, 1)).astype(np.int64)


def histogram(counts: Ints) -> list[tuple[int, int, int]]:
    """Rows by length, in steps that double, from the first to the last that has any.

    >>> histogram(np.bincount(_steps(np.array([1, 2, 3, 9])), minlength=64))
    [(1, 1, 1), (2, 3, 2), (4, 7, 0), (8, 15, 1)]
    """
    filled = np.flatnonzero(counts).tolist() or [0]
    return [(1 << k, (2 << k) - 1, int(counts[k])) for k in range(filled[0], filled[-1] + 1)]
