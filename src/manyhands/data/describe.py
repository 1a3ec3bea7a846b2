"""What is in a dataset, in figures: balance of labels, lengths, words, and where the input went."""

from dataclasses import dataclass

import numpy as np

from manyhands.data.dataset import Dataset
from manyhands.kernel import Ints
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
    """Count through all splits of a dataset."""
    manifest, vocabulary = dataset.manifest, dataset.vocabulary
    lengths = np.concatenate([dataset[split].lengths() for split in SPLITS])
    labels: dict[str, dict[str, int]] = {name: dict.fromkeys(SPLITS, 0) for name in dataset.label_names}
    for split in SPLITS:
        if labels:
            counts = np.bincount(dataset[split].labels, minlength=len(labels))
            for name, count in zip(labels, counts.tolist(), strict=True):
                labels[name][split] = count
    train_tokens = dataset["train"].tokens
    return Description(
        folder=str(dataset.folder),
        rows=manifest.rows,
        tokens=manifest.tokens,
        bytes=sum(part.bytes for part in manifest.parts),
        splits=dict(manifest.splits),
        labels=labels,
        lengths=histogram(lengths),
        mean_length=float(lengths.mean()) if len(lengths) else 0.0,
        longest=int(lengths.max(initial=0)),
        length=length,
        coverage=float((lengths <= length).mean()) if len(lengths) else 0.0,
        vocabulary=len(vocabulary),
        known_tokens=float(vocabulary.counts.sum() / train_tokens) if train_tokens else 0.0,
        most_frequent=list(
            zip(vocabulary.words[:10].to_pylist(), vocabulary.counts[:10].tolist(), strict=True)
        ),
        ledger=manifest.ledger,
        rejections=manifest.rejections,
    )


def histogram(lengths: Ints) -> list[tuple[int, int, int]]:
    """Rows by length, in steps that double.

    >>> histogram(np.array([1, 2, 3, 9]))
    [(1, 1, 1), (2, 3, 2), (4, 7, 0), (8, 15, 1)]
    """
    steps = np.log2(np.maximum(lengths, 1)).astype(np.int64)
    counts = np.bincount(steps)
    first = int(steps.min(initial=0))
    return [(1 << k, (2 << k) - 1, int(counts[k])) for k in range(first, len(counts))]
