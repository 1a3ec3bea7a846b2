"""``ngrams``, the default classifier: linear over the n-grams of a text, scaled by naive Bayes.

Every distinct n-gram counts once, scaled by how much it tells: by the logarithm of how much
likelier it is in one class than in all others, and by how rare it is. A text is a vector of length 1,
and AdaGrad learns a weight for each n-gram and class. Two classes share one weight, of either sign.
"""

from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from manyhands.errors import InputError
from manyhands.formats.onnx import OnnxGraph
from manyhands.kernels.compile import read_only
from manyhands.kernels.simd import LINE, aligned_zeros
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Crew, Loss, StateArray
from manyhands.models.losses import LOSSES
from manyhands.models.model import CLASSIFY, EXPLAIN, FEATURES, ONNX, QUANTIZE, Arrays, Scores
from manyhands.models.ngram import ngrams_kernels as kernels
from manyhands.models.ngram.features import (
    Features,
    FeatureSpace,
    NgramMinCount,
    NgramSettings,
    WordNgrams,
    extend,
    find_features,
    hashing_for,
    open_space,
    text_arguments,
)
from manyhands.models.ngram.feed import Block, FeatureFeed
from manyhands.models.ngram.model import NgramModel
from manyhands.models.ngram.quantize import Packed, unpack
from manyhands.parallel import map_unordered
from manyhands.records import Progress, Resources
from manyhands.settings import Alternative, Axis, Buckets, Epochs, LearningRate, LossField, Search, Shapes
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.ragged import Ragged

Table = npt.NDArray[np.float32]

LEAST_SCALE = 0.05  # what tells nothing by itself may still matter beside others
SMOOTHING = 1.0
BLOCKS_AT_ONCE = 64
COUNTED_ROWS = 1 << 22  # then counts are put aside: a short float of 2^24 stays what it is when 1 is added


class NgramsSettings(NgramSettings):
    """The learning rate is that of a text of one n-gram; it is divided by the root of how many a text has."""

    choices = (
        Axis(
            (
                Alternative({"ngrams": 2}),
                Alternative({"ngrams": 1}, effort=2),
                Alternative({"ngrams": 4}, effort=3),
            )
        ),
        Axis((Alternative({"char_ngrams": "3-5"}), Alternative({"char_ngrams": "2-6"}, effort=3))),
        Axis((Alternative({"weighting": "naive-bayes-idf"}), Alternative({"weighting": "idf"}))),
        Axis(
            (
                Alternative({"learning_rate": 2.0}),
                Alternative({"learning_rate": 8.0}),
                Alternative({"loss": "softmax", "learning_rate": 3.0}, for_one_label=True),
                Alternative({"loss": "softmax", "learning_rate": 8.0}, for_one_label=True),
            ),
            again=True,
        ),
        Axis(
            (
                Alternative({"epochs": 10}),
                Alternative({"min_count": 1}),
                Alternative({"epochs": 2}, effort=2),
            )
        ),
    )

    ngrams: Annotated[WordNgrams, Search(1, 4)] = 3
    learning_rate: Annotated[LearningRate, Search(1.0, 30.0, log=True)] = 4.0
    min_count: Annotated[NgramMinCount, Search(1, 5)] = 2
    epochs: Annotated[Epochs, Search(2, 16)] = 4
    buckets: Buckets = 1 << 24
    loss: Annotated[Literal["auto", "squared-hinge", "softmax", "one-vs-all"], LossField, Shapes()] = "auto"
    weighting: Annotated[
        Literal["naive-bayes", "naive-bayes-idf", "idf", "none"],
        Field(
            description="Scale n-grams by how much likelier they are in one class (naive Bayes), by how rare "
            "they are (idf), or by both."
        ),
    ] = "naive-bayes"


class NgramsModel(NgramModel):
    """``table`` has a row for each feature: its scale, then its weights; training adds columns behind."""

    can: ClassVar[frozenset[str]] = frozenset({CLASSIFY, EXPLAIN, FEATURES, QUANTIZE, ONNX})
    distinct, table_name, scaled = True, "table", 1

    def __init__(
        self,
        labels: list[str],
        loss: str,
        space: FeatureSpace,
        table: npt.NDArray[Any],
        bias: npt.NDArray[Any],
        packed: Packed | None = None,
    ) -> None:
        super().__init__(labels, loss, space, packed)
        self.table, self.bias = read_only(table), read_only(bias)

    def _score(self, features: Features, out: Scores) -> None:
        kernels.score(features.ids, features.offsets, self.table, self.bias, LOSSES[self.loss], out)

    @cached_property
    def _ranked_table(self) -> Table:
        return read_only(np.ascontiguousarray(self.table[self.space.numbers, : 1 + len(self.bias)]))

    def _score_texts(self, normal: Ragged, many: bool, out: Scores) -> None:
        ranked = many and len(self.bias) == 1  # a copy of a larger table costs more memory than it saves time
        table = self._ranked_table if ranked else self.table
        texts = text_arguments(self.space, normal, distinct=self.distinct, ranked=ranked)
        kernels.score_texts(*texts, table, self.bias, LOSSES[self.loss], out)

    def parts(self, features: Features) -> npt.NDArray[np.float32]:
        scale = self.table[features.ids, 0].astype(np.float64)
        length = np.sqrt((scale**2).sum() + kernels.LEAST_LENGTH)
        parts = self.table[features.ids, 1 : 1 + len(self.bias)] * (scale / length)[:, None]
        return (np.hstack([-parts / 2, parts / 2]) if len(self.bias) < len(self.labels) else parts).astype(
            np.float32
        )

    def bias_of(self, label: int) -> float:
        if len(self.bias) == len(self.labels):
            return float(self.bias[label])
        return float(self.bias[0]) / 2 * (1 if label else -1)

    def feature_weights(self, label: int) -> npt.NDArray[np.float32]:
        both = len(self.bias) == len(self.labels)
        share = np.float32(1 if both else 0.5 if label else -0.5)
        return np.asarray(self.table[:, 0] * self.table[:, 1 + label if both else 1] * share, np.float32)

    def linear(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        return self.table[:, 1 : 1 + len(self.bias)].T, self.bias

    def _values(self, features: Features) -> npt.NDArray[np.float32]:
        scales, rows = self.table[features.ids, 0], len(features.offsets) - 1
        row = np.repeat(np.arange(rows), np.diff(features.offsets))
        squares = np.bincount(row, scales.astype(np.float64) ** 2, minlength=rows) + kernels.LEAST_LENGTH
        return np.asarray(scales / np.sqrt(squares)[row], np.float32)

    def add_to(self, graph: OnnxGraph) -> None:
        """Gather the rows, scale them, bring the text to length 1, add the bias."""
        columns = len(self.bias)
        ids = graph.feature_ids(len(self.table), numbers=self.table.shape[0] * (1 + columns))
        graph.feature_table("scales", self.table[:, 0])
        graph.feature_table("weights", self.table[:, 1 : 1 + columns])
        graph.constant("bias", self.bias)
        scale = graph.node("Gather", "scales", ids, to="scale")
        rows = graph.node("Gather", "weights", ids, to="rows")
        squares = graph.node("ReduceSumSquare", scale, to="squares", keepdims=0)
        least = graph.constant("least", np.array(kernels.LEAST_LENGTH))
        length = graph.node("Sqrt", graph.node("Add", squares, least, to="at_least"), to="length")
        total = graph.node("MatMul", scale, rows, to="total")
        scores = graph.node("Add", graph.node("Div", total, length, to="direction"), "bias", to="scores")
        if columns == len(self.labels):
            graph.probabilities(scores, self.loss)
            return
        second = graph.node("Sigmoid", graph.calibrated(scores, columns), to="second")  # one column for two
        first = graph.node("Sub", graph.constant("one", np.ones(1, np.float32)), second, to="first")
        graph.node("Concat", first, second, to=graph.outcome, axis=0)

    def _arrays(self) -> Arrays:
        return {"table": self.table[:, : 1 + len(self.bias)], "bias": self.bias}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        arrays, packed = unpack(facts, arrays)
        space = open_space(facts["features"], arrays)
        labels, loss, table, bias = facts["labels"], facts["loss"], arrays["table"], arrays["bias"]
        columns = _columns(len(labels), loss)
        right = table.shape == (len(space), 1 + columns) and bias.shape == (columns,)
        right = right and (len(labels) > 1 or loss == "one-vs-all")  # the kernel writes two for one column
        if not right or table.dtype != np.float32 or bias.dtype != np.float32 or loss not in LOSSES:
            raise InputError("the weights do not fit the labels and features of the model")
        return cls(labels, loss, space, np.ascontiguousarray(table), bias, packed)


def _loss_for(loss: str, multi_label: bool) -> str:
    """The loss that fits, where none was asked for."""
    return ("one-vs-all" if multi_label else "squared-hinge") if loss == "auto" else loss


def _columns(labels: int, loss: str) -> int:
    return 1 if labels == 2 and loss != "one-vs-all" else labels


def rows_of_classes(examples: LabelledRows) -> npt.NDArray[np.float64]:
    """How many rows each class has, by their weights; labels of a row share it if it has only one of them."""
    labels = examples.labels
    count = np.diff(labels.offsets)
    each = examples.weights if labels.multi_label else examples.weights / np.maximum(count, 1)
    return np.bincount(labels.ids, np.repeat(each, count), minlength=len(labels.names)).astype(np.float64)


def table_width(columns: int) -> int:
    """Rows of a few numbers share a line of the cache, larger ones take whole lines."""
    step = 4 if columns <= LINE // 2 else LINE
    return -(-columns // step) * step


class Ngrams:
    """The weights while they are learnt: the last column of the table holds AdaGrad's squares."""

    Settings: ClassVar[type[NgramsSettings]] = NgramsSettings
    Model: ClassVar[type[NgramsModel]] = NgramsModel
    summary: ClassVar[str] = (
        "a linear classifier over hashed word n-grams, in the manner of NB-SVM; fast and accurate"
    )
    learns: ClassVar[Literal["labels", "words"]] = "labels"
    shares_batches: ClassVar[bool] = False

    def __init__(self, labels: list[str], loss: str, space: FeatureSpace, crew: Crew) -> None:
        columns = _columns(len(labels), loss)
        self._labels, self._loss, self._space = labels, loss, space
        self._table = crew.zeros(len(space), table_width(columns + 2))
        self._bias = crew.zeros(1, columns)[0]
        self._rate_share = 1.0
        self._counted: FeatureFeed | None = None

    @classmethod
    def begin(
        cls,
        settings: NgramsSettings,
        examples: LabelledRows,
        previous: NgramsModel | None,
        resources: Resources,
        progress: Progress,
        crew: Crew,
    ) -> Self:
        names = examples.labels.names
        loss = previous.loss if previous else _loss_for(settings.loss, examples.labels.multi_label)
        hashing = previous.space.hashing if previous else hashing_for(settings, examples.corpus, resources)
        progress.stage("counting", None, "rows")
        space = find_features(examples.corpus, hashing, settings.min_count, resources.threads, crew)
        if previous:
            space = extend(previous.space, space)
        width = table_width(_columns(len(names), loss) + 2)
        refuse_if_too_large(len(space) * 4 * 2 * width, resources)
        learner = cls(names, loss, space, crew)
        feed = learner._counted = learner.feed(examples, settings.seed, resources, progress, crew)
        learner._scale(feed, examples, settings.weighting, resources.threads, crew)
        if previous:
            learner._take_over(previous)
        return learner

    def feed(
        self, examples: LabelledRows, seed: int, resources: Resources, progress: Progress, crew: Crew
    ) -> FeatureFeed:
        counted, self._counted = self._counted, None
        if counted is not None and counted.is_of(examples, seed):
            return counted  # its features were made already, to be counted
        return FeatureFeed(
            self._space, examples, seed, resources, progress, crew, distinct=NgramsModel.distinct
        )

    def _scale(
        self, feed: FeatureFeed, examples: LabelledRows, weighting: str, threads: int, crew: Crew
    ) -> None:
        """Scale every feature by what it tells of the classes, or by how rare it is."""
        table, several = self._table, examples.labels.multi_label
        first, last = crew.to_fill(len(table))
        # Alone, the counts stand where the weights will be: fresh memory takes longer to get than to fill.
        counts = table if crew.workers == 1 else aligned_zeros(*table.shape)
        features = np.array([_count_classes(feed, several, counts, threads, crew)], np.float64)
        if crew.workers > 1:
            crew.sum(counts)
            crew.sum(features)
            table[first:last, 1:] = counts[first:last, 1:]
        rows = rows_of_classes(examples)
        total = float(examples.weights.sum(dtype=np.float64))
        by = weighting.startswith("naive-bayes"), weighting.endswith("idf")
        bounds = np.linspace(first, last, threads + 1).astype(np.int64).tolist()
        parts = [
            (table, rows, total, several, SMOOTHING, LEAST_SCALE, *by, begin, end)
            for begin, end in pairwise(bounds)
        ]
        for _ in map_unordered(lambda part: kernels.scale(*part), parts, threads):
            pass
        mean = max(float(features[0]) / len(examples), 1.0)
        self._rate_share = 1 / np.sqrt(mean)
        table[first:last, -1] = 1 / mean  # AdaGrad begins as if one row had been seen

    def _take_over(self, previous: NgramsModel) -> None:
        """Go on from what ``previous`` knew: its features come first, its labels too."""
        known, old, new = len(previous.space), len(previous.bias), len(self._bias)
        weights, bias = previous.table[:, 1 : 1 + old], previous.bias
        if old < min(len(previous.labels), new):  # one weight for two classes becomes two
            weights, bias = np.hstack([-weights / 2, weights / 2]), np.hstack([-bias / 2, bias / 2])
        self._table[:known, 0] = previous.table[:, 0]
        self._table[:known, 1 : 1 + weights.shape[1]] = weights
        self._bias[: len(bias)] = bias

    def learn(self, block: Block, rate: float, seed: int, crew: Crew) -> Loss:
        total = kernels.learn(
            block.features.ids,
            block.features.offsets,
            block.labels,
            block.label_offsets,
            block.weights,
            seed,
            LOSSES[self._loss],
            np.float32(rate * self._rate_share),
            self._table,
            self._bias,
        )
        return Loss(total, float(block.weights.sum()))

    def state(self) -> dict[str, StateArray]:
        squares = self._table.shape[1] - 1
        table = StateArray(self._table, 1, 1 + len(self._bias), squares, by_frequency=True)
        return {"table": table, "bias": StateArray(self._bias)}

    def model(self) -> NgramsModel:
        return NgramsModel(self._labels, self._loss, self._space, self._table, self._bias)


def _count_classes(feed: FeatureFeed, several: bool, table: Table, threads: int, crew: Crew) -> int:
    """Count the rows of each class that have a feature, in this worker's blocks; gives how many features."""
    features, counted, shares = 0, 0, 1 << (threads - 1).bit_length()
    if len(table) < shares << int(kernels.LINE_BITS):
        shares = 1
    (first, last), counts = crew.share(len(feed)), table[:, 1:]
    before = np.zeros((0, 0), np.float32)
    for start in range(first, last, BLOCKS_AT_ONCE):
        blocks = feed.blocks(range(start, min(start + BLOCKS_AT_ONCE, last)), threads)
        features += sum(len(block.features.ids) for block in blocks)
        work = [(blocks, share, shares, several, table) for share in range(shares)]
        for _ in map_unordered(lambda part: _count_share(*part), work, threads):
            pass
        counted += sum(len(block.weights) for block in blocks)
        if counted >= COUNTED_ROWS and start + BLOCKS_AT_ONCE < last:
            before = before + counts if before.size else counts.copy()
            counts[...], counted = 0, 0
    if before.size:
        counts += before
    return features


def _count_share(blocks: list[Block], share: int, shares: int, several: bool, table: Table) -> None:
    for block in blocks:
        kernels.count_classes(
            block.features.ids,
            block.features.offsets,
            block.labels,
            block.label_offsets,
            block.weights,
            share,
            shares,
            several,
            table,
        )
