"""Classifiers of n-grams that learn from a stream without end: ``ngrams`` and ``fasttext``."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Ints, kernel, read_only
from manyhands.kernels.simd import LINE, Floats, aligned_zeros
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Loss, Zeros
from manyhands.models.losses import LOSSES, Classes, choose
from manyhands.models.model import Arrays
from manyhands.models.ngram import fasttext_kernels, ngrams_kernels
from manyhands.models.ngram.fasttext import NEGATIVE_POWER, FastTextModel, FastTextSettings
from manyhands.models.ngram.feature_kernels import Numbers
from manyhands.models.ngram.feed import Block
from manyhands.models.ngram.growing import GrowingFeatures
from manyhands.models.ngram.ngrams import (
    LEAST_SCALE,
    SMOOTHING,
    NgramsModel,
    NgramsSettings,
    table_width,
)
from manyhands.records import Resources
from manyhands.settings import Anneal, Buckets, LossField, Shapes, StreamLearningRate
from manyhands.text.hashing import mix
from manyhands.text.labelled_rows import LabelledRows

LEAST_LABELS = 2
ALL_BITS = (1 << 64) - 1


class _StreamClassifier(ABC):
    """What both share: features that enter by count, and labels that may be new."""

    shares_batches: ClassVar[bool] = False
    distinct: ClassVar[bool]
    lower: ClassVar[str] = "--buckets"  # where there is too little memory

    def __init__(
        self, settings: Any, half_life: float, resources: Resources, zeros: Zeros = aligned_zeros
    ) -> None:
        self.settings, self._resources, self._zeros = settings, resources, zeros
        self._features = GrowingFeatures(settings, half_life)
        self._labels: list[str] = []
        self._loss = ""  # settled by the first rows

    def read(self, rows: LabelledRows, block: int, messages: int) -> list[Any]:
        left = self._features.age(messages)
        if left is not None:
            self._forget(left)
        if not len(rows):
            return []
        if not self._loss:
            self._loss = choose(self.settings.loss, 0, rows.labels.multi_label)
        if len(rows.labels.names) > len(self._labels):
            self._labels = list(rows.labels.names)
            self._make_room(len(self._labels))
        features = self._features.of(rows.corpus, distinct=self.distinct)
        made = Block(features, rows.labels.ids, rows.labels.offsets, rows.weights)
        self._count(made)
        start = int(mix(np.uint64(self.settings.seed))) + block
        return [self._piece(made, int(mix(np.uint64(start & ALL_BITS))) >> 2)]

    @abstractmethod
    def _piece(self, rows: Block, seed: int) -> Any:
        """Rows that were counted, and all that decides how they are learnt."""

    @abstractmethod
    def _make_room(self, labels: int) -> None:
        """There are so many labels now: those known before keep what was learnt of them."""

    @abstractmethod
    def _count(self, rows: Block) -> None:
        """What has to be counted of rows before they are learnt."""

    @abstractmethod
    def _forget(self, slots: Ints) -> None:
        """Counts were halved, and these slots are no features any more."""

    def facts(self) -> dict[str, Any]:
        return {**self._features.facts(), "labels": self._labels, "loss": self._loss}

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        self._features.restore(arrays["counts"], facts)
        self._labels, self._loss = list(facts["labels"]), facts["loss"]
        if self._labels:
            self._make_room(len(self._labels))
            self._take(self._features.known(), arrays)

    @abstractmethod
    def _take(self, known: Ints, arrays: Arrays) -> None:
        """Put what was learnt of the known slots, and of the labels, in its place."""


class StreamNgramsSettings(NgramsSettings):
    learning_rate: StreamLearningRate = 2.0
    loss: Annotated[Literal["auto", "softmax", "one-vs-all"], LossField, Shapes()] = "auto"
    buckets: Buckets = 1 << 22
    anneal: Anneal = 0  # AdaGrad's steps become smaller by themselves


class NgramsPiece(NamedTuple):
    """A block of rows; ``features_a_row`` is what the first rows had."""

    rows: Block
    seed: int
    loss: str
    features_a_row: float


class NgramsPieces:
    """Learns rows in the table of ``ngrams``."""

    def __init__(
        self, settings: StreamNgramsSettings, tables: Arrays, threads: int, alone: AbstractContextManager[Any]
    ) -> None:
        self._table, self._bias = tables["table"], tables["bias"]

    def learn(self, piece: NgramsPiece, rate: float) -> Loss:
        rows, share = piece.rows, 1 / np.sqrt(max(piece.features_a_row, 1.0))
        total = ngrams_kernels.learn(
            read_only(rows.features.ids),
            rows.features.offsets,
            rows.labels,
            rows.label_offsets,
            rows.weights,
            piece.seed,
            LOSSES[piece.loss],
            np.float32(rate * share),
            self._table,
            self._bias,
        )
        return Loss(total, float(rows.weights.sum()))


class StreamNgrams(_StreamClassifier):
    """``ngrams``. How many rows of each class have a feature is counted on, and its scale follows."""

    Settings: ClassVar[type[StreamNgramsSettings]] = StreamNgramsSettings
    Model: ClassVar[type[NgramsModel]] = NgramsModel
    Pieces: ClassVar[type[NgramsPieces]] = NgramsPieces
    learns: ClassVar[Literal["labels", "words"]] = "labels"
    without: ClassVar[frozenset[str]] = frozenset({"epochs", "weighting"})
    distinct: ClassVar[bool] = NgramsModel.distinct

    def __init__(
        self,
        settings: StreamNgramsSettings,
        half_life: float,
        resources: Resources,
        zeros: Zeros = aligned_zeros,
    ) -> None:
        super().__init__(settings, half_life, resources, zeros)
        self._table, self._classes = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32)
        self._bias, self._of_class = np.zeros(0, np.float32), np.zeros(0, np.float64)
        self._rows = 0.0
        self._a_row = 0.0  # features that a row has: settled by the first rows

    def _make_room(self, labels: int) -> None:
        slots, width, known = self._features.hashing.slots, table_width(labels + 2), len(self._bias)
        refuse_if_too_large(slots * 4 * (width + labels), self._resources, self.lower)
        table, classes = self._zeros(slots, width), np.full((slots, labels), 0, np.float32)
        table[...] = 0  # takes the memory now: it must not grow later
        bias = self._zeros(1, labels)[0]
        if known:
            table[:, : 1 + known] = self._table[:, : 1 + known]
            table[:, -1], classes[:, :known] = self._table[:, -1], self._classes
        bias[:known] = self._bias
        self._table, self._classes, self._bias = table, classes, bias
        self._of_class = np.append(self._of_class, np.zeros(labels - known))

    def _count(self, rows: Block) -> None:
        ids, offsets = rows.features.ids, rows.features.offsets
        if not self._a_row and len(ids):
            self._a_row = len(ids) / len(rows.weights)
            self._table[:, -1] = 1 / self._a_row  # AdaGrad begins as if one row had been seen
        of_labels = np.repeat(rows.weights, np.diff(rows.label_offsets))
        self._of_class += np.bincount(rows.labels, of_labels, minlength=len(self._labels))
        self._rows += float(rows.weights.sum(dtype=np.float64))
        _scale(
            ids,
            offsets,
            rows.labels,
            rows.label_offsets,
            rows.weights,
            self._of_class,
            self._rows,
            self._loss == "one-vs-all",
            self._classes,
            self._table,
        )

    def _forget(self, slots: Ints) -> None:
        if self._labels:
            self._classes *= np.float32(0.5)
            self._of_class *= 0.5
            self._rows *= 0.5
            self._classes[slots], self._table[slots, :-1] = 0, 0
            self._table[slots, -1] = 1 / max(self._a_row, 1.0)

    def _piece(self, rows: Block, seed: int) -> NgramsPiece:
        return NgramsPiece(rows, seed, self._loss, self._a_row)

    def tables(self) -> Arrays:
        return {"table": self._table, "bias": self._bias}

    def state(self) -> Arrays:
        known = self._features.known() if self._labels else np.zeros(0, np.int64)
        return {
            "counts": self._features.counts,
            "table": self._table[known],
            "classes": self._classes[known],
            "bias": self._bias,
            "of_class": np.append(self._of_class, [self._rows, self._a_row]),
        }

    def _take(self, known: Ints, arrays: Arrays) -> None:
        *of_class, self._rows, self._a_row = arrays["of_class"].tolist()
        self._of_class, self._bias[:] = np.array(of_class), arrays["bias"]
        if self._a_row:
            self._table[:, -1] = 1 / self._a_row
        self._table[known], self._classes[known] = arrays["table"], arrays["classes"]

    def model(self) -> NgramsModel | None:
        if len(self._labels) < LEAST_LABELS:
            return None
        known, columns = self._features.known(), 1 + len(self._bias)
        table, bias = self._table[known, :columns], self._bias.copy()
        if len(bias) == LEAST_LABELS and self._loss == "softmax":  # of two classes, a model has one weight
            table = np.column_stack([table[:, 0], table[:, 2] - table[:, 1]])
            bias = bias[1:] - bias[:1]
        return NgramsModel(self._labels, self._loss, self._features.space(), table, bias)


class StreamFastTextSettings(FastTextSettings):
    learning_rate: StreamLearningRate = 1.0
    buckets: Buckets = 1 << 20
    anneal: Anneal = 100_000


class FastTextPiece(NamedTuple):
    """A block of rows; ``draw`` says how likely each label is to be drawn as a negative."""

    rows: Block
    seed: int
    loss: str
    draw: npt.NDArray[np.float64]


class FastTextPieces:
    """Learns rows in the tables of ``fasttext``."""

    def __init__(
        self,
        settings: StreamFastTextSettings,
        tables: Arrays,
        threads: int,
        alone: AbstractContextManager[Any],
    ) -> None:
        self._negatives, self._tables = settings.negatives, (tables["vectors"], tables["outputs"])

    def learn(self, piece: FastTextPiece, rate: float) -> Loss:
        rows = piece.rows
        total = fasttext_kernels.learn(
            read_only(rows.features.ids),
            rows.features.offsets,
            rows.labels,
            rows.label_offsets,
            rows.weights,
            LOSSES[piece.loss],
            np.float32(rate),
            self._negatives,
            piece.draw,
            piece.seed,
            *self._tables,
        )
        return Loss(total, float(rows.weights.sum()))


class StreamFastText(_StreamClassifier):
    """``fasttext``. All slots have a vector from the start, small and random."""

    Settings: ClassVar[type[StreamFastTextSettings]] = StreamFastTextSettings
    Model: ClassVar[type[FastTextModel]] = FastTextModel
    Pieces: ClassVar[type[FastTextPieces]] = FastTextPieces
    learns: ClassVar[Literal["labels", "words"]] = "labels"
    without: ClassVar[frozenset[str]] = frozenset({"epochs", "pretrained_vectors"})
    distinct: ClassVar[bool] = FastTextModel.distinct
    lower: ClassVar[str] = "--buckets or --dim"

    def __init__(
        self,
        settings: StreamFastTextSettings,
        half_life: float,
        resources: Resources,
        zeros: Zeros = aligned_zeros,
    ) -> None:
        super().__init__(settings, half_life, resources, zeros)
        slots, width = self._features.hashing.slots, -(-settings.dim // LINE) * LINE
        refuse_if_too_large(slots * 4 * width, resources, self.lower)
        self._vectors, self._outputs = zeros(slots, width), zeros(0, width)
        fasttext_kernels.first_vectors(self._vectors, 0, slots, settings.dim, np.uint64(settings.seed))
        self._of_label = np.zeros(0, np.float64)
        self._draw = np.zeros(1, np.float64)

    def _make_room(self, labels: int) -> None:
        outputs = self._zeros(labels, self._outputs.shape[1])
        outputs[: len(self._outputs)] = self._outputs
        self._outputs = outputs
        self._of_label = np.append(self._of_label, np.zeros(labels - len(self._of_label)))

    def _count(self, rows: Block) -> None:
        self._of_label += np.bincount(rows.labels, minlength=len(self._labels))
        self._set_draw()

    def _set_draw(self) -> None:
        """How likely each label is to be drawn as a negative."""
        weights = self._of_label**NEGATIVE_POWER
        self._draw = np.cumsum(weights) / max(weights.sum(), 1e-9)

    def _forget(self, slots: Ints) -> None:
        self._of_label *= 0.5
        keys, seed = slots.astype(np.uint64), np.uint64(self.settings.seed)
        rows = slots.astype(np.int32)
        fasttext_kernels.first_vectors_of(self._vectors, rows, keys, self.settings.dim, seed)

    def _piece(self, rows: Block, seed: int) -> FastTextPiece:
        return FastTextPiece(rows, seed, self._loss, self._draw)

    def tables(self) -> Arrays:
        return {"vectors": self._vectors, "outputs": self._outputs}

    def state(self) -> Arrays:
        known, dim = self._features.known(), self.settings.dim
        vectors, outputs = self._vectors[known, :dim], self._outputs[:, :dim]
        counts: Arrays = {"counts": self._features.counts, "of_label": self._of_label}
        return {**counts, "vectors": vectors, "outputs": outputs}

    def _take(self, known: Ints, arrays: Arrays) -> None:
        dim = self.settings.dim
        self._vectors[known, :dim], self._outputs[:, :dim] = arrays["vectors"], arrays["outputs"]
        self._of_label = np.array(arrays["of_label"])
        self._set_draw()

    def model(self) -> FastTextModel | None:
        if len(self._labels) < LEAST_LABELS:
            return None
        vectors, dim = self._vectors[self._features.known()], self.settings.dim
        return FastTextModel(
            self._labels, self._loss, self._features.space(), vectors, self._outputs.copy(), dim
        )


@kernel
def _scale(
    ids: Numbers,
    offsets: Ints,
    labels: Classes,
    label_offsets: Ints,
    weights: Floats,
    of_class: Any,
    all_rows: float,
    several: bool,
    classes: Floats,
    table: Floats,
) -> None:
    """Count the rows of each class that have a feature; then scale the features of these rows anew.

    Weights stay as they are: to keep their products with the scale instead was measured, and is worse.
    Where rows have several labels, what they add up to stands for how many rows there are.
    """
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            for k in range(label_offsets[row], label_offsets[row + 1]):
                classes[ids[i], labels[k]] += weights[row]
    for i in range(len(ids)):
        feature = np.int64(ids[i])
        total = 0.0
        for k in range(len(of_class)):
            total += classes[feature, k]
        most = 1.0
        for k in range(len(of_class)):
            if of_class[k] == 0:
                continue
            count = classes[feature, k]
            inside = (count + SMOOTHING) / (of_class[k] + 2 * SMOOTHING)
            outside = (max(total - count, 0.0) + SMOOTHING) / (
                max(all_rows - of_class[k], 0.0) + 2 * SMOOTHING
            )
            most = max(most, inside / outside)
        table[feature, 0] = np.log(most) + LEAST_SCALE
