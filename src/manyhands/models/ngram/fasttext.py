"""``fasttext``: the mean of the vectors of a text's n-grams, then a linear layer.

It learns vectors of words and sentences on the way, and copes with many labels, because a label
costs one vector and not a weight for every n-gram.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.errors import InputError
from manyhands.formats.onnx import OnnxGraph
from manyhands.kernels.compile import Flags, Ints, read_only
from manyhands.kernels.simd import LINE, Floats
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Crew, Loss, StateArray
from manyhands.models.losses import LOSSES, choose
from manyhands.models.model import CLASSIFY, EMBED, EXPLAIN, FEATURES, ONNX, QUANTIZE, Arrays, Scores
from manyhands.models.ngram import fasttext_kernels as kernels
from manyhands.models.ngram.features import (
    ROWS_AT_ONCE,
    Features,
    FeatureSpace,
    Featuriser,
    NgramMinCount,
    NgramSettings,
    WordNgrams,
    extend,
    find_features,
    hashing_for,
    open_space,
    score_rows,
    text_arguments,
    with_words,
)
from manyhands.models.ngram.feed import Block, FeatureFeed
from manyhands.models.ngram.model import NgramModel
from manyhands.models.ngram.quantize import Packed, unpack
from manyhands.models.pretrained import Pretrained, check_filled, fill_from, read_pretrained
from manyhands.parallel import map_unordered
from manyhands.records import Progress, Resources
from manyhands.settings import (
    Buckets,
    Dim,
    Epochs,
    LearningRate,
    LossField,
    Negatives,
    PretrainedVectors,
    ReadByAll,
    Search,
    Shapes,
)
from manyhands.text.corpus import Corpus
from manyhands.text.embedding import Embedding
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.ngrams import word_slots
from manyhands.text.ragged import Ragged, from_arrow, from_strings
from manyhands.text.vocabulary import Vocabulary

NEGATIVE_POWER = 0.5  # labels are drawn as negatives by the root of their counts, as fastText does


class FastTextSettings(NgramSettings):
    ngrams: Annotated[WordNgrams, Search(1, 3)] = 2
    learning_rate: Annotated[LearningRate, Search(0.05, 2.0, log=True)] = 0.5
    dim: Annotated[Dim, Search(8, 64, log=True)] = 10
    epochs: Annotated[Epochs, Search(3, 25, log=True)] = 5
    min_count: Annotated[NgramMinCount, Search(1, 3)] = 2
    buckets: Buckets = 1 << 21
    loss: Annotated[Literal["auto", "softmax", "one-vs-all", "negative"], LossField, Shapes()] = "auto"
    negatives: Negatives = 5
    pretrained_vectors: Annotated[PretrainedVectors, ReadByAll()] = None


class FastTextModel(NgramModel):
    """``vectors`` has a row for each feature, ``outputs`` one for each label; columns past ``dim`` are 0."""

    can: ClassVar[frozenset[str]] = frozenset({CLASSIFY, EMBED, EXPLAIN, FEATURES, QUANTIZE, ONNX})
    distinct, table_name, scaled = False, "vectors", 0

    def __init__(
        self,
        labels: list[str],
        loss: str,
        space: FeatureSpace,
        vectors: npt.NDArray[Any],
        outputs: npt.NDArray[Any],
        dim: int,
        packed: Packed | None = None,
    ) -> None:
        super().__init__(labels, loss, space, packed)
        self.vectors, self.outputs, self.dim = read_only(vectors), read_only(outputs), dim

    def _score(self, features: Features, out: Scores) -> None:
        kernels.score(
            features.ids,
            features.offsets,
            self.vectors,
            self.outputs,
            self.dim,
            LOSSES[self.loss],
            out,
        )

    @cached_property
    def _label_parts(self) -> Floats:
        """What the feature of each rank adds to the score of each label: the product is taken only once."""
        parts = self.vectors[:, : self.dim] @ self.outputs[:, : self.dim].T
        return read_only(np.ascontiguousarray(parts[self.space.numbers], np.float32))

    def _score_texts(self, normal: Ragged, many: bool, out: Scores) -> None:
        ranked, loss = many and len(self.labels) < self.dim, LOSSES[self.loss]
        texts = text_arguments(self.space, normal, distinct=self.distinct, ranked=ranked)
        if ranked:
            kernels.score_parts(*texts, self._label_parts, loss, out)
        else:
            kernels.score_texts(*texts, self.vectors, self.outputs, self.dim, loss, out)

    def sentence_vectors(self, corpus: Corpus) -> npt.NDArray[np.float32]:
        """The mean of the vectors of each row's n-grams."""
        return score_rows(self.space, corpus, self.dim, self._mean, 1, distinct=self.distinct)

    def _mean(self, features: Features, out: npt.NDArray[np.float32]) -> None:
        kernels.means(features.ids, features.offsets, self.vectors, self.dim, out)

    def embedding(self, vocabulary: Vocabulary | None) -> Embedding:
        """The words that have a vector; with character n-grams, others get theirs when they are asked for."""
        if vocabulary is None:
            raise InputError("this bundle keeps no vocabulary; take the model it was made from")

        def spell(words: Sequence[str]) -> tuple[Floats, Flags]:
            given = from_strings(words)
            return self.sentence_vectors(_one_a_row(given)), self._knows(given)

        words = from_arrow(vocabulary.words)
        rows = np.flatnonzero(self._knows(words))
        vectors = self.sentence_vectors(_one_a_row(words.take(rows)))
        chosen = Vocabulary(vocabulary.words.take(pa.array(rows)), vocabulary.counts[rows])
        return Embedding(chosen, vectors, spell if self.space.hashing.chars[1] else None)

    def _knows(self, words: Ragged) -> Flags:
        """Which words have a vector: their own feature is known, or some of their character n-grams."""
        featuriser = Featuriser(self.space, _one_a_row(words), distinct=True)
        found = np.zeros(len(words), np.bool_)
        for start in range(0, len(words), ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, len(words)))
            found[rows] = np.diff(featuriser.of(rows).offsets) > 0
        return found

    def parts(self, features: Features) -> npt.NDArray[np.float32]:
        vectors = self.vectors[features.ids, : self.dim] / np.float32(max(len(features.ids), 1))
        return np.asarray(vectors @ self.outputs[:, : self.dim].T, np.float32)

    def bias_of(self, label: int) -> float:
        return 0.0

    def feature_weights(self, label: int) -> npt.NDArray[np.float32]:
        return np.asarray(self.vectors[:, : self.dim] @ self.outputs[label, : self.dim], np.float32)

    def linear(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        coefficients = self.outputs[:, : self.dim] @ self.vectors[:, : self.dim].T
        return coefficients, np.zeros(len(self.labels), np.float32)

    def _values(self, features: Features) -> npt.NDArray[np.float32]:
        counts = np.diff(features.offsets)
        return np.repeat(1 / np.maximum(counts, 1), counts).astype(np.float32)

    def add_to(self, graph: OnnxGraph) -> None:
        """The mean of the vectors of the features, and its product with the vector of each label."""
        ids = graph.feature_ids(len(self.vectors), numbers=(len(self.vectors) + len(self.labels)) * self.dim)
        graph.feature_table("vectors", self.vectors[:, : self.dim])
        graph.constant("outputs", self.outputs[:, : self.dim])
        rows = graph.node("Gather", "vectors", ids, to="rows")
        axis = graph.constant("axis", np.zeros(1, np.int64))
        total = graph.node("ReduceSum", rows, axis, to="total", keepdims=0)
        one = graph.constant("one", np.array(1, np.float32))
        size = graph.node("CastLike", graph.node("Size", "ids", to="size"), one, to="given")
        mean = graph.node("Div", total, graph.node("Max", size, one, to="count"), to="mean")
        graph.probabilities(graph.node("MatMul", "outputs", mean, to="scores"), self.loss)

    def _arrays(self) -> Arrays:
        vectors, outputs = (array[:, : self.dim] for array in (self.vectors, self.outputs))
        return {"vectors": vectors, "outputs": outputs}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        arrays, packed = unpack(facts, arrays)
        space = open_space(facts["features"], arrays)
        labels, loss, vectors, outputs = facts["labels"], facts["loss"], arrays["vectors"], arrays["outputs"]
        dim = vectors.shape[1] if vectors.ndim == 2 else 0
        right = dim > 0 and len(vectors) == len(space) and outputs.shape == (len(labels), dim)
        if not right or vectors.dtype != np.float32 or outputs.dtype != np.float32 or loss not in LOSSES:
            raise InputError("the vectors do not fit the labels and features of the model")
        return cls(
            labels, loss, space, np.ascontiguousarray(vectors), np.ascontiguousarray(outputs), dim, packed
        )


def _pretrained(settings: FastTextSettings, dim: int) -> list[Pretrained]:
    """The words and vectors to begin with. Words that no row has may stand in texts to be told apart."""
    path = settings.pretrained_vectors
    return list(read_pretrained(path, dim)) if path else []


def _one_a_row(words: Ragged) -> Corpus:
    """A corpus of which each row is a word."""
    rows = len(words)
    return Corpus(lambda some: (some.astype(np.uint32), np.arange(len(some) + 1)), rows, rows, words)


class FastText:
    """The vectors while they are learnt."""

    Settings: ClassVar[type[FastTextSettings]] = FastTextSettings
    Model: ClassVar[type[FastTextModel]] = FastTextModel
    summary: ClassVar[str] = (
        "a classifier: the mean of hashed n-gram embeddings, then a linear layer; for many labels"
    )
    learns: ClassVar[Literal["labels", "words"]] = "labels"
    shares_batches: ClassVar[bool] = False

    def __init__(
        self,
        settings: FastTextSettings,
        labels: list[str],
        loss: str,
        space: FeatureSpace,
        dim: int,
        crew: Crew,
    ) -> None:
        self._settings, self._labels, self._loss, self._space, self._dim = settings, labels, loss, space, dim
        width = -(-dim // LINE) * LINE
        self._vectors, self._outputs = crew.zeros(len(space), width), crew.zeros(len(labels), width)
        self._draw = np.zeros(1, np.float64)

    def _begin_at_random(self, threads: int, crew: Crew) -> None:
        """Touching fresh memory is most of the work, so the threads share it."""
        bounds = np.linspace(*crew.to_fill(len(self._vectors)), threads + 1).astype(np.int64).tolist()
        seed = np.uint64(self._settings.seed)
        work = [(self._vectors, first, last, self._dim, seed) for first, last in pairwise(bounds)]
        for _ in map_unordered(lambda part: kernels.first_vectors(*part), work, threads):
            pass

    def _begin_with(self, given: list[Pretrained], corpus: Corpus) -> None:
        """Words of the file begin there, and n-grams stay small."""
        if not given:
            return

        def placed(own: bool) -> Iterator[tuple[Ints, Floats]]:
            for some in given:
                rows = self._space.numbers_of(word_slots(some.hashes, self._space.hashing))
                yield np.where(np.isin(some.hashes, corpus.hashes) == own, rows, -1), some.vectors

        fill_from(
            placed(own=False), self._vectors
        )  # a slot that several words share is left to one in the rows
        check_filled(fill_from(placed(own=True), self._vectors), self._settings.pretrained_vectors)

    @classmethod
    def begin(
        cls,
        settings: FastTextSettings,
        examples: LabelledRows,
        previous: FastTextModel | None,
        resources: Resources,
        progress: Progress,
        crew: Crew,
    ) -> Self:
        names = examples.labels.names
        loss = previous.loss if previous else choose(settings.loss, len(names), examples.labels.multi_label)
        dim = previous.dim if previous else settings.dim
        given = _pretrained(settings, dim)
        words = sum(len(some.hashes) for some in given)
        hashing = (
            previous.space.hashing
            if previous
            else hashing_for(settings, examples.corpus, resources, more_words=words)
        )
        progress.stage("counting", None, "rows")
        space = find_features(examples.corpus, hashing, settings.min_count, resources.threads, crew)
        if given:
            space = with_words(space, np.concatenate([some.hashes for some in given]))
        if previous:
            space = extend(previous.space, space)
        refuse_if_too_large((len(space) + len(names)) * (dim + LINE) * 4, resources)
        learner = cls(settings, names, loss, space, dim, crew)
        learner._begin_at_random(resources.threads, crew)
        learner._begin_with(given, examples.corpus)
        counts = np.bincount(examples.labels.ids, minlength=len(names)).astype(np.float64)
        learner._draw = np.cumsum(counts**NEGATIVE_POWER) / (counts**NEGATIVE_POWER).sum()
        if previous:
            learner._vectors[: len(previous.space), :dim] = previous.vectors[:, :dim]
            learner._outputs[: len(previous.labels), :dim] = previous.outputs[:, :dim]
        return learner

    def feed(
        self, examples: LabelledRows, seed: int, resources: Resources, progress: Progress, crew: Crew
    ) -> FeatureFeed:
        return FeatureFeed(
            self._space, examples, seed, resources, progress, crew, distinct=FastTextModel.distinct
        )

    def learn(self, block: Block, rate: float, seed: int, crew: Crew) -> Loss:
        total = kernels.learn(
            block.features.ids,
            block.features.offsets,
            block.labels,
            block.label_offsets,
            block.weights,
            LOSSES[self._loss],
            np.float32(rate),
            self._settings.negatives,
            self._draw,
            seed,
            self._vectors,
            self._outputs,
        )
        return Loss(total, float(block.weights.sum()))

    def state(self) -> dict[str, StateArray]:
        vectors = StateArray(self._vectors, last=self._dim, by_frequency=True)
        return {"vectors": vectors, "outputs": StateArray(self._outputs, last=self._dim)}

    def model(self) -> FastTextModel:
        return FastTextModel(self._labels, self._loss, self._space, self._vectors, self._outputs, self._dim)
