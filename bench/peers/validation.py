"""How every peer chooses its settings: by rows held out from the training rows, never by test rows.

Few rows are used five times over (five folds, each held out once); of many a fifth is held out, of very many
a tenth. Folds keep the shares of the labels.
"""

import csv
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

FEW_ROWS, MANY_ROWS = 2_500, 20_000
csv.field_size_limit(1 << 27)


def read(path: str) -> tuple[list[str], list[str]]:
    """Labels and texts of a CSV file with a header."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        labels, texts = zip(*list(csv.reader(file))[1:], strict=True)
    return list(labels), list(texts)


def folds(labels: list[str], seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Row numbers to learn from and to choose by."""
    shuffled = list(range(len(labels)))
    random.Random(seed).shuffle(shuffled)
    by_label = sorted(shuffled, key=labels.__getitem__)  # a stable sort: each label's rows stay shuffled
    parts = 10 if len(labels) >= MANY_ROWS else 5
    for first in range(parts if len(labels) <= FEW_ROWS else 1):
        yield [row for k, row in enumerate(by_label) if k % parts != first], by_label[first::parts]


def tokens(text: str) -> str:
    """As fastText's own recipes prepare texts: small letters, punctuation set apart."""
    return " ".join(re.sub(r"([.!?,'/():;\"-])", r" \1 ", text.lower()).split())


def scores(given: Sequence[object], right: Sequence[object]) -> dict[str, float]:
    """Accuracy and macro F1 in per cent, without scikit-learn, which not every peer's environment has."""
    f1 = []
    for label in {*right}:
        hits = sum(g == r == label for g, r in zip(given, right, strict=True))
        f1.append(2 * hits / (given.count(label) + right.count(label)))
    same = sum(g == r for g, r in zip(given, right, strict=True))
    return {
        "accuracy": round(100 * same / len(right), 3),
        "macro_f1": round(100 * sum(f1) / len(f1), 3),
    }
