"""``ngrams``, the default classifier: linear over the n-grams of a text, scaled by naive Bayes.

Every distinct n-gram counts once, scaled by how much it tells: by the logarithm of how much
likelier it is in one class than in all others. A text is a vector of length 1, and AdaGrad
learns a weight for each n-gram and class. Two classes share one weight, of either sign.
"""

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from manyhands.errors import InputError
from manyhands.kernel import Ints, frozen
from manyhands.lines import LINE, aligned
from manyhands.models import ngrams_kernels as kernels
from manyhands.models.feed import Block, FeatureFeed, distinct_features
from manyhands.models.learner import Arrays, Crew, Loss, Scores
from manyhands.models.losses import LOSSES, choose
from manyhands.models.slotting import refuse_if_too_large, slotting_for
from manyhands.models.space import Features, FeatureSpace, extended, find_features, open_space, score_rows
from manyhands.parallel import side_by_side
from manyhands.records import Progress, Resources
from manyhands.settings import NgramSettings
from manyhands.text.corpus import Corpus
from manyhands.text.lesson import Lesson
from manyhands.text.ragged import Ragged

LEAST_SCALE = 0.05  # what tells nothing by itself may still matter beside others
SMOOTHING = 1.0
BLOCKS_AT_ONCE = 64


class NgramsSettings(NgramSettings):
    """``rate`` is that of a text of one n-gram; it is divided by the root of how many a text has."""

    ngrams: Annotated[int, Field(ge=1, le=5)] = 3
    buckets: Annotated[int, Field(ge=1, le=2**28)] = 1 << 24
    min_count: Annotated[int, Field(ge=1, le=255)] = 2
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 4
    rate: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 8.0
    loss: Literal["auto", "softmax", "one-vs-all"] = "auto"


class NgramsModel:
    """``table`` has a row for each feature: its scale, then its weights; training adds columns behind."""

    distinct: ClassVar[bool] = True  # an n-gram counts once, however often a text repeats it

    def __init__(
        self,
        labels: list[str],
        loss: str,
        space: FeatureSpace,
        table: npt.NDArray[Any],
        bias: npt.NDArray[Any],
    ) -> None:
        self.labels = labels
        self.loss = loss
        self.space = space
        self.table = frozen(table)
        self.bias = frozen(bias)

    @property
    def several(self) -> bool:
        return self.loss == "one-vs-all"

    reads_numbers: ClassVar[bool] = False

    def read(self, normal: Ragged) -> Corpus:
        return self.space.read(normal)

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        return score_rows(self.space, corpus, len(self.labels), self._score, threads, distinct=self.distinct)

    def _score(self, features: Features, out: Scores) -> None:
        kernels.score(features.ids, features.offsets, self.table, self.bias, LOSSES[self.loss], out)

    def parts(self, features: Features) -> npt.NDArray[np.float32]:
        """What each feature of one row adds to the score of each label, before it becomes a probability."""
        scale = self.table[features.ids, 0].astype(np.float64)
        length = np.sqrt((scale**2).sum() + kernels.LEAST_LENGTH)
        parts = self.table[features.ids, 1 : 1 + len(self.bias)] * (scale / length)[:, None]
        return (np.hstack([-parts / 2, parts / 2]) if len(self.bias) < len(self.labels) else parts).astype(
            np.float32
        )

    def bias_of(self, label: int) -> float:
        """What the score of a label is before any feature is known."""
        if len(self.bias) == len(self.labels):
            return float(self.bias[label])
        return float(self.bias[0]) / 2 * (1 if label else -1)

    def facts(self) -> dict[str, Any]:
        return {"labels": self.labels, "loss": self.loss, "features": self.space.facts()}

    def arrays(self) -> Arrays:
        return {"table": self.table[:, : 1 + len(self.bias)], "bias": self.bias, **self.space.arrays()}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        space = open_space(facts["features"], arrays)
        labels, loss, table, bias = facts["labels"], facts["loss"], arrays["table"], arrays["bias"]
        columns = _columns(len(labels), loss)
        right = table.shape == (len(space), 1 + columns) and bias.shape == (columns,)
        right = right and (len(labels) > 1 or loss != "softmax")  # the kernel writes two for one column
        if not right or table.dtype != np.float32 or bias.dtype != np.float32 or loss not in LOSSES:
            raise InputError("the weights do not fit the labels and features of the model")
        return cls(labels, loss, space, np.ascontiguousarray(table), bias)


def _columns(labels: int, loss: str) -> int:
    return 1 if labels == 2 and loss == "softmax" else labels


def _width(columns: int) -> int:
    """Rows of a few numbers share a line of the cache, larger ones take whole lines."""
    step = 4 if columns <= LINE // 2 else LINE
    return -(-columns // step) * step


class Ngrams:
    """The weights while they are learnt: the last column of the table holds AdaGrad's squares."""

    Settings: ClassVar[type[NgramsSettings]] = NgramsSettings
    Model: ClassVar[type[NgramsModel]] = NgramsModel
    learns: ClassVar[Literal["labels", "words"]] = "labels"
    shares_batches: ClassVar[bool] = False

    def __init__(self, labels: list[str], loss: str, space: FeatureSpace) -> None:
        columns = _columns(len(labels), loss)
        self._labels, self._loss, self._space = labels, loss, space
        self._table = aligned(len(space), _width(columns + 2))
        self._bias = np.zeros(columns, np.float32)
        self._rate_share = 1.0

    @classmethod
    def begin(
        cls,
        settings: NgramsSettings,
        lesson: Lesson,
        previous: NgramsModel | None,
        resources: Resources,
        progress: Progress,
        share: Ints | None = None,
    ) -> tuple[Self, FeatureFeed]:
        names = lesson.labels.names
        loss = previous.loss if previous else choose(settings.loss, 0, lesson.labels.several)
        slotting = previous.space.slotting if previous else slotting_for(settings, lesson.corpus, resources)
        progress.stage("counting", None, "rows")
        space = find_features(lesson.corpus, slotting, settings.min_count, resources.threads)
        if previous:
            space = extended(previous.space, space)
        width = _width(_columns(len(names), loss) + 2)
        refuse_if_too_large(len(space) * 4 * 2 * width, resources)
        learner = cls(names, loss, space)
        feed = learner.feed(lesson, settings.seed, resources, progress)
        learner._scale(feed, lesson, resources.threads)
        if previous:
            learner._take_over(previous)
        if share is not None:
            feed = learner.feed(lesson.take(share), settings.seed, resources, progress)
        return learner, feed

    def feed(self, lesson: Lesson, seed: int, resources: Resources, progress: Progress) -> FeatureFeed:
        return FeatureFeed(self._space, lesson, seed, resources, progress, distinct=NgramsModel.distinct)

    def _scale(self, feed: FeatureFeed, lesson: Lesson, threads: int) -> None:
        """Scale every feature by what it tells of the classes."""
        features, shares = 0, 1 << (threads - 1).bit_length()
        if len(self._table) < shares << int(kernels.LINE_BITS):
            shares = 1
        for start in range(0, len(feed), BLOCKS_AT_ONCE):
            numbers = range(start, min(start + BLOCKS_AT_ONCE, len(feed)))
            blocks = feed.blocks(numbers, threads)
            features += sum(len(block.features.ids) for block in blocks)
            work = [(blocks, share, shares, self._table) for share in range(shares)]
            for _ in side_by_side(lambda part: _count_share(*part), work, threads):
                pass
        rows = np.bincount(
            lesson.labels.ids,
            np.repeat(lesson.weights, np.diff(lesson.labels.offsets)),
            minlength=len(self._labels),
        ).astype(np.float64)
        total, bounds = (
            float(lesson.weights.sum()),
            np.linspace(0, len(self._table), threads + 1).astype(np.int64),
        )
        parts = [
            (self._table, rows, total, SMOOTHING, LEAST_SCALE, first, last)
            for first, last in pairwise(bounds.tolist())
        ]
        for _ in side_by_side(lambda part: kernels.scale(*part), parts, threads):
            pass
        mean = max(features / len(lesson), 1.0)
        self._rate_share = 1 / np.sqrt(mean)
        self._table[:, -1] = 1 / mean  # AdaGrad begins as if one row had been seen

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

    def touched(self, pieces: list[Block]) -> dict[str, Ints]:
        return {"table": distinct_features(pieces, len(self._table))}

    def weights(self) -> Arrays:
        return {"table": self._table, "bias": self._bias}

    def model(self) -> NgramsModel:
        return NgramsModel(self._labels, self._loss, self._space, self._table, self._bias)


def _count_share(blocks: list[Block], share: int, shares: int, table: npt.NDArray[np.float32]) -> None:
    for block in blocks:
        kernels.count_classes(
            block.features.ids,
            block.features.offsets,
            block.labels,
            block.label_offsets,
            block.weights,
            share,
            shares,
            table,
        )
