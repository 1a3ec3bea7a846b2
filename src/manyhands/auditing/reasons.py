"""Why a row looks as if it had another label: the n-grams that say so."""

from typing import Any

import numpy as np

from manyhands.models.model import Contribution
from manyhands.text.corpus import Corpus

MOST_REASONS = 5
DECIMALS = 4


def reasons(model: Any, corpus: Corpus, row: int, label: int, suggested: int) -> list[Contribution]:
    """The n-grams of a row that speak most for ``suggested`` and against ``label``, the weightiest first."""
    alone = corpus.some(np.array([row])).compact()  # a model that explains goes through all words of a corpus
    against = {part.ngram: part.part for part in model.explain(alone, label).parts}
    parts = [
        Contribution(part.ngram, round(part.part - against[part.ngram], DECIMALS))
        for part in model.explain(alone, suggested).parts
    ]
    speaking = sorted((part for part in parts if part.part > 0), key=lambda part: -part.part)
    return speaking[:MOST_REASONS]
