"""Why a row looks as if it had another label: the n-grams that say so."""

from typing import Any

import numpy as np

from manyhands.models.model import Contribution
from manyhands.text.corpus import Corpus

MOST_REASONS = 5
DECIMALS = 4


def reasons(model: Any, corpus: Corpus, row: int, label: int, suggested: int) -> list[Contribution]:
    """The n-grams of a row that speak most for ``suggested`` and against ``label``, the weightiest first."""
    alone = _only(corpus, row)
    against = {part.ngram: part.part for part in model.explain(alone, label).parts}
    parts = [
        Contribution(part.ngram, round(part.part - against[part.ngram], DECIMALS))
        for part in model.explain(alone, suggested).parts
    ]
    speaking = sorted((part for part in parts if part.part > 0), key=lambda part: -part.part)
    return speaking[:MOST_REASONS]


def _only(corpus: Corpus, row: int) -> Corpus:
    """A corpus of one row, with its words only: a model that explains goes through all words of a corpus."""
    tokens, offsets = corpus.take(np.array([row]))
    words, numbers = np.unique(tokens, return_inverse=True)
    row_numbers = numbers.astype(np.uint32)
    return Corpus(
        lambda rows: (row_numbers, offsets),
        rows=1,
        tokens=len(tokens),
        words=corpus.words.take(words.astype(np.int64)),
        ready=corpus.hashes[words],
    )
