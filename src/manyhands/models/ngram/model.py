"""What the classifiers over hashed n-grams share: reading, scoring, explaining and being made small."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from manyhands.errors import UsageError
from manyhands.models.model import (
    QUANTISED_ALREADY,
    Arrays,
    Contribution,
    Contributions,
    FeatureRows,
    Scores,
)
from manyhands.models.ngram.features import Features, FeatureSpace, Featuriser, name_features, score_rows
from manyhands.models.ngram.quantize import PACKED, Packed, quantize
from manyhands.text.corpus import NO_WORD, Corpus
from manyhands.text.ngram_names import NgramNames
from manyhands.text.ragged import Ragged

MANY_TEXTS = 256


class NgramModel(ABC):
    """A row of one of its arrays, ``table``, belongs to each feature."""

    distinct: ClassVar[bool]  # an n-gram counts once, however often a text repeats it
    table_name: ClassVar[str]
    scaled: ClassVar[int]  # so many first columns of the table are apart from the rest
    reads_numbers: ClassVar[bool] = False

    def __init__(self, labels: list[str], loss: str, space: FeatureSpace, packed: Packed | None) -> None:
        self.labels, self.loss, self.space, self._packed = labels, loss, space, packed

    @abstractmethod
    def _score(self, features: Features, out: Scores) -> None: ...

    @abstractmethod
    def _score_texts(self, normal: Ragged, many: bool, out: Scores) -> None:
        """The same, straight from texts.

        For many of them, it may pay to have a table in the order of slots: it saves a look-up for each
        feature.
        """

    @abstractmethod
    def parts(self, features: Features) -> npt.NDArray[np.float32]:
        """What each feature of one row adds to the score of each label, before it becomes a probability."""

    @abstractmethod
    def bias_of(self, label: int) -> float:
        """What the score of a label is before any feature is known."""

    @abstractmethod
    def feature_weights(self, label: int) -> npt.NDArray[np.float32]: ...

    @abstractmethod
    def linear(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...

    @abstractmethod
    def _values(self, features: Features) -> npt.NDArray[np.float32]:
        """How much each feature of some rows counts in its row, before its weights."""

    @abstractmethod
    def _arrays(self) -> Arrays:
        """As they are when nothing is packed."""

    @classmethod
    @abstractmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self: ...

    @property
    def multi_label(self) -> bool:
        return self.loss == "one-vs-all"

    def read(self, normal: Ragged) -> Corpus:
        return self.space.read(normal)

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        return score_rows(self.space, corpus, len(self.labels), self._score, threads, distinct=self.distinct)

    def score_texts(self, normal: Ragged) -> Scores:
        if self.space.hashing.chars[1]:  # each word is taken apart once, so it must be known which are equal
            return self.scores(self.read(normal))
        out = np.empty((len(normal), len(self.labels)), np.float32)
        self._score_texts(normal, len(normal) >= MANY_TEXTS, out)
        return out

    def feature_ids(self, normal: Ragged) -> list[npt.NDArray[np.int64]]:
        featuriser = Featuriser(self.space, self.read(normal), distinct=self.distinct)
        features = featuriser.of(np.arange(len(normal)))
        return np.split(features.ids.astype(np.int64), features.offsets[1:-1])

    def features(self, corpus: Corpus) -> FeatureRows:
        found = Featuriser(self.space, corpus, distinct=self.distinct).of(np.arange(len(corpus)))
        return FeatureRows(found.ids, found.offsets, self._values(found), len(self.space))

    def names(self, corpus: Corpus) -> NgramNames:
        return name_features(self.space, corpus)

    def facts(self) -> dict[str, Any]:
        facts = {"labels": self.labels, "loss": self.loss, "features": self.space.facts()}
        return {**facts, PACKED: self._packed.facts} if self._packed else facts

    def arrays(self) -> Arrays:
        return self._packed.arrays if self._packed else {**self._arrays(), **self.space.arrays()}

    def quantize(self, size: int, rest: int) -> Self:
        if self._packed:
            raise UsageError(QUANTISED_ALREADY)
        packed = quantize(self.arrays(), self.space, self.table_name, self.scaled, size, rest)
        return self.from_parts({**self.facts(), PACKED: packed.facts}, packed.arrays)

    def explain(self, corpus: Corpus, label: int) -> Contributions:
        """The exact part of every n-gram in the score; nothing is estimated."""
        featuriser = Featuriser(self.space, corpus, distinct=self.distinct)
        features = featuriser.of(np.zeros(1, np.int64))
        values, bias = self.parts(features)[:, label], self.bias_of(label)
        names = _ngrams(corpus, self.space.hashing.ngrams, self.space.hashing.letters(corpus).offsets)
        shown: dict[int, list[str]] = {}
        for number, name in zip(featuriser.numbers(0).tolist(), names, strict=True):
            if number >= 0 and name not in shown.setdefault(number, []):
                shown[number].append(name)
        ids, where = np.unique(features.ids, return_inverse=True)
        sums = np.bincount(where, values, minlength=len(ids))  # of n-grams that the text repeats
        parts = [
            Contribution(" / ".join(shown[n]), v) for n, v in zip(ids.tolist(), sums.tolist(), strict=True)
        ]
        known = {name for found in shown.values() for name in found}
        return Contributions(
            bias=bias,
            score=bias + float(values.sum()),
            parts=sorted(parts, key=lambda part: -abs(part.part)),
            unknown=[name for name in dict.fromkeys(corpus.words.strings()) if name and name not in known],
        )


def _ngrams(corpus: Corpus, longest: int, letters: Any) -> list[str]:
    """The n-grams of the only row, in the order in which the featuriser makes them."""
    words = corpus.words.strings()
    tokens = corpus.take(np.zeros(1, np.int64))[0].tolist()
    gaps = [i for i, token in enumerate(tokens) if corpus.hashes[token] == NO_WORD] + [len(tokens)]
    names, gap = [], 0
    for i, token in enumerate(tokens):
        if i == gaps[gap]:
            gap += 1
            continue
        ends = range(i + 1, min(i + longest, gaps[gap]) + 1)  # no n-gram goes across a gap
        names += [" ".join(words[other] for other in tokens[i:end]) for end in ends]
        if len(letters):
            names += [f"letters of {words[token]}"] * int(letters[token + 1] - letters[token])
    return names
