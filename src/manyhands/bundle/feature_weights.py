"""The weights of a model's features by name: which n-grams speak for a label, whatever the text."""

from dataclasses import dataclass

import numpy as np

from manyhands.models.model import Featured
from manyhands.text.ngram_names import NgramNames


@dataclass(frozen=True)
class WeightedNgram:
    """``weight`` times the share of the n-gram in a text is what ``explain`` shows as its part."""

    ngram: str
    weight: float


def named_weights(
    model: Featured, names: NgramNames, label: int, top: int | None = None
) -> list[WeightedNgram]:
    """The n-grams that have a name, from what speaks most for the label to what speaks most against it."""
    known = names.known()
    weights = model.feature_weights(label)[known]
    order = np.argsort(-weights, kind="stable")[:top]
    found = zip(names.of(known[order]), weights[order].tolist(), strict=True)
    return [WeightedNgram(name, weight) for name, weight in found]
