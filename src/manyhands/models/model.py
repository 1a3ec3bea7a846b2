"""What a trained model is: what a bundle holds, and what predicts.

A model says itself what can be done with it; verbs ask that, and never for its class.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from manyhands.formats.onnx import OnnxGraph
from manyhands.kernels.compile import Ints
from manyhands.text.corpus import Corpus
from manyhands.text.embedding import Embedding
from manyhands.text.ngram_names import NgramNames
from manyhands.text.ragged import Ragged
from manyhands.text.vocabulary import Vocabulary

Arrays = dict[str, npt.NDArray[Any]]
Scores = npt.NDArray[np.float32]

# What a model may offer: each is the protocol of that name below.
CLASSIFY, EMBED, EXPLAIN, QUANTIZE, ONNX = "classify", "embed", "explain", "quantize", "onnx"
FEATURES, DOCUMENTS = "features", "documents"

QUANTISED_ALREADY = "this bundle is quantised already; quantise the one that it was made from"


@dataclass(frozen=True)
class Contribution:
    """What one n-gram adds to a score. N-grams that share a feature stand together.

    ``place`` is that of a word in the text, where a model reads words in their order: the same word adds
    something else elsewhere. Otherwise a part is that of all places of its n-gram.
    """

    ngram: str
    part: float
    place: int | None = None


@dataclass(frozen=True)
class Contributions:
    """``bias`` and all ``parts`` add up to the score; ``unknown`` are words never seen."""

    bias: float
    score: float
    parts: list[Contribution]
    unknown: list[str]


class Model(Protocol):
    can: ClassVar[frozenset[str]]  # what it offers

    def facts(self) -> dict[str, Any]:
        """What has to be known to open the model again, beside its arrays."""
        ...

    def arrays(self) -> Arrays:
        """Its arrays, under the names by which a bundle keeps them."""
        ...

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        """The opposite of ``facts`` and ``arrays``; they may come from anywhere, so all is checked."""
        ...


class Scorer(Protocol):
    """What gives rows the probabilities of labels."""

    @property
    def labels(self) -> list[str]: ...

    @property
    def multi_label(self) -> bool:
        """A text may have several labels, or none."""
        ...

    @property
    def reads_numbers(self) -> bool:
        """Its rows are numbers and not texts."""
        ...

    def read(self, normal: Ragged) -> Corpus:
        """Normalised texts as a corpus, made in the way that scores them soonest."""
        ...

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        """The probability of each label for each row."""
        ...

    def score_texts(self, normal: Ragged) -> Scores:
        """The same for normalised texts, by the shortest way: in one thread, and nothing is kept of them."""
        ...


class Classifier(Model, Scorer, Protocol):
    """``CLASSIFY``."""


class Embedder(Model, Protocol):
    """``EMBED``: it has word vectors."""

    def embedding(self, vocabulary: Vocabulary | None) -> Embedding:
        """Its words and their vectors. ``vocabulary`` is that of the bundle, for models without words."""
        ...


class DocumentEmbedder(Model, Protocol):
    """``DOCUMENTS``: it has a vector for each text, beside any vectors of words."""

    def document_vectors(self, corpus: Corpus) -> Scores:
        """A vector for each row."""
        ...


class Explainable(Model, Protocol):
    """``EXPLAIN``."""

    def explain(self, corpus: Corpus, label: int) -> Contributions:
        """What each n-gram, or each word, of the only row adds to the score of a label."""
        ...


@dataclass(frozen=True)
class FeatureRows:
    """Row ``i`` has the features ``ids[offsets[i]:offsets[i + 1]]`` of ``count``, each with its value."""

    ids: npt.NDArray[np.uint32]
    offsets: Ints
    values: npt.NDArray[np.float32]
    count: int


class Featured(Model, Protocol):
    """``FEATURES``: a score is linear in features that are n-grams."""

    def features(self, corpus: Corpus) -> FeatureRows:
        """The features of each row, valued so that ``linear`` gives its scores."""
        ...

    def linear(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Coefficients of the features, and intercepts: a row for each label, or one, that of the second."""
        ...

    def feature_weights(self, label: int) -> npt.NDArray[np.float32]:
        """What each feature adds to the score of a label, before it is divided by the length of a text."""
        ...

    def names(self, corpus: Corpus) -> NgramNames:
        """Names for features, from the n-grams of a corpus."""
        ...


class Quantizable(Model, Protocol):
    """``QUANTIZE``."""

    def quantize(self, size: int, rest: int) -> Self:
        """The same model in ``size`` bytes, of which ``rest`` are not for its arrays; or an error."""
        ...


class Exportable(Model, Protocol):
    """``ONNX``."""

    def add_to(self, graph: OnnxGraph) -> None:
        """Put the way from feature numbers to probabilities into an ONNX graph."""
        ...

    def feature_ids(self, normal: Ragged) -> list[npt.NDArray[np.int64]]:
        """The feature numbers of each normalised text, which that graph reads."""
        ...
