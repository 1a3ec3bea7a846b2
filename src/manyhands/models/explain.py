"""Why a text gets its label: the exact part of every n-gram in the score.

The parts of a label and its bias add up to the label's score, from which the probabilities are
computed; nothing is estimated.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.errors import UsageError
from manyhands.models.bundle import Bundle
from manyhands.models.fasttext import FastTextModel
from manyhands.models.ngrams import NgramsModel
from manyhands.models.space import Featuriser
from manyhands.text.corpus import NO_WORD, Corpus, corpus_of
from manyhands.text.ragged import from_strings


@dataclass(frozen=True)
class Part:
    """What one n-gram adds to the score. N-grams that share a feature stand together."""

    ngram: str
    part: float


@dataclass(frozen=True)
class Explanation:
    """``score`` is the sum of all parts and of ``bias``."""

    label: str
    probability: float
    score: float
    bias: float
    parts: list[Part]  # the weightiest first
    unknown: list[str]  # words that the model has never seen


def explain(bundle: Bundle, text: str, label: str | None = None) -> Explanation:
    """Take the score of ``label`` apart; of the likeliest label if none is named."""
    model = bundle.model
    if not isinstance(model, NgramsModel | FastTextModel):
        raise UsageError(
            f"a model of the kind {bundle.config.model} cannot be explained; train one with --model ngrams"
        )
    if label is not None and label not in bundle.labels:
        raise UsageError(f"the model has no label '{label}'; it has: {', '.join(bundle.labels[:20])}")
    corpus = corpus_of(bundle.normaliser.ragged(from_strings([text])))
    scores = model.scores(corpus)[0]
    chosen = int(scores.argmax()) if label is None else bundle.labels.index(label)
    featuriser = Featuriser(model.space, corpus, distinct=model.distinct)
    features = featuriser.of(np.zeros(1, np.int64))
    values = model.parts(features)[:, chosen]
    numbers = featuriser.numbers(0)
    names = _ngrams(corpus, model.space.slotting.ngrams, model.space.slotting.letters(corpus).offsets)
    shown: dict[int, list[str]] = {}
    for number, name in zip(numbers.tolist(), names, strict=True):
        if number >= 0 and name not in shown.setdefault(number, []):
            shown[number].append(name)
    ids, where = np.unique(features.ids, return_inverse=True)
    sums = np.bincount(where, values, minlength=len(ids))  # of n-grams that the text repeats
    parts = [Part(" / ".join(shown[n]), v) for n, v in zip(ids.tolist(), sums.tolist(), strict=True)]
    known = {name for found in shown.values() for name in found}
    words = [name for name in dict.fromkeys(corpus.words.strings()) if name and name not in known]
    bias = float(model.bias_of(chosen))
    return Explanation(
        label=bundle.labels[chosen],
        probability=float(scores[chosen]),
        score=bias + float(values.sum()),
        bias=bias,
        parts=sorted(parts, key=lambda part: -abs(part.part)),
        unknown=words,
    )


def _ngrams(corpus: Corpus, longest: int, letters: Any) -> list[str]:
    """The n-grams of the only row, in the order in which the featuriser makes them."""
    words = corpus.words.strings()
    tokens = corpus.take(np.zeros(1, np.int64))[0].tolist()
    names = []
    for i, token in enumerate(tokens):
        if corpus.hashes[token] == NO_WORD:
            continue
        ends = range(i + 1, min(i + longest, len(tokens)) + 1)
        names += [" ".join(words[other] for other in tokens[i:end]) for end in ends]
        if len(letters):
            names += [f"letters of {words[token]}"] * int(letters[token + 1] - letters[token])
    return names
