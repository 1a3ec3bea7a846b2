"""``explain``: why a text gets its label."""

from collections import defaultdict
from dataclasses import dataclass

from manyhands.bundle.bundle import Bundle
from manyhands.errors import UsageError
from manyhands.models.model import EXPLAIN, Contribution, Contributions
from manyhands.text.corpus import corpus_of
from manyhands.text.ragged import from_strings


@dataclass(frozen=True)
class Explanation:
    """``score`` is the sum of all parts and ``bias``, as the model has it; ``probability`` is calibrated."""

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
    scores = bundle.classifier.scores(corpus)[0]
    chosen = int(scores.argmax()) if label is None else bundle.labels.index(label)
    found: Contributions = model.explain(corpus, chosen)
    return Explanation(bundle.labels[chosen], float(scores[chosen]), **vars(found))


def word_parts(bundle: Bundle, text: str, explanation: Explanation) -> list[Contribution]:
    """The part of each word of the normalised text, in its order; with the bias, they add up to the score.

    An n-gram belongs to its words in equal shares, and to all places where it stands, unless its part
    is that of one place.
    """
    words = bundle.normaliser(text).split()
    places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    longest = max((part.ngram.count(" ") + 1 for part in explanation.parts), default=1)
    for start in range(len(words)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            places[" ".join(words[start:end])].append((start, end))
        places[f"letters of {words[start]}"].append((start, start + 1))
    sums = [0.0] * len(words)
    for part in explanation.parts:
        if part.place is not None:
            sums[part.place] += part.part
            continue
        # N-grams that share a feature share its part; but a text may hold the sign between them itself.
        found = places.get(part.ngram) or [at for name in part.ngram.split(" / ") for at in places[name]]
        for start, end in found:
            for place in range(start, end):
                sums[place] += part.part / len(found) / (end - start)
    return [Contribution(word, part) for word, part in zip(words, sums, strict=True)]
