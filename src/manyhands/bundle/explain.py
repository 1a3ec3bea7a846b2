"""``explain``: why a text gets its label."""

from dataclasses import dataclass

from manyhands.bundle.bundle import Bundle
from manyhands.errors import UsageError
from manyhands.models.model import EXPLAIN, Contribution, Contributions
from manyhands.text.corpus import corpus_of
from manyhands.text.ragged import from_strings


@dataclass(frozen=True)
class Explanation:
    """``score`` is the sum of all parts and of ``bias``; probabilities are computed from scores."""

    label: str
    probability: float
    score: float
    bias: float
    parts: list[Contribution]  # the weightiest first
    unknown: list[str]  # words that the model has never seen


def explain(bundle: Bundle, text: str, label: str | None = None) -> Explanation:
    """Take the score of ``label`` apart; of the likeliest label if none is named."""
    model = bundle.need(EXPLAIN, "cannot be explained")
    if label is not None and label not in bundle.labels:
        raise UsageError(f"the model has no label '{label}'; it has: {', '.join(bundle.labels[:20])}")
    corpus = corpus_of(bundle.normaliser.ragged(from_strings([text])))
    scores = model.scores(corpus)[0]
    chosen = int(scores.argmax()) if label is None else bundle.labels.index(label)
    found: Contributions = model.explain(corpus, chosen)
    return Explanation(bundle.labels[chosen], float(scores[chosen]), **vars(found))
