"""``fasttext``: the mean of the vectors of a text's n-grams, then a linear layer.

It learns vectors of words and sentences on the way, and copes with many labels, because a label
costs one vector and not a weight for every n-gram.
"""

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from manyhands.errors import InputError
from manyhands.kernel import Ints, frozen
from manyhands.lines import LINE, aligned
from manyhands.models import fasttext_kernels as kernels
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

NEGATIVE_POWER = 0.5  # labels are drawn as negatives by the root of their counts, as fastText does


class FastTextSettings(NgramSettings):
    ngrams: Annotated[int, Field(ge=1, le=5)] = 2
    buckets: Annotated[int, Field(ge=1, le=2**28)] = 1 << 21
    min_count: Annotated[int, Field(ge=1, le=255)] = 2
    dim: Annotated[int, Field(ge=1, le=4096)] = 10
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    rate: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 0.5
    loss: Literal["auto", "softmax", "one-vs-all", "negative"] = "auto"
    negatives: Annotated[int, Field(ge=1, le=1000)] = 5


class FastTextModel:
    """``vectors`` has a row for each feature, ``outputs`` one for each label; columns past ``dim`` are 0."""

    distinct: ClassVar[bool] = False  # an n-gram counts as often as a text repeats it

    def __init__(
        self,
        labels: list[str],
        loss: str,
        space: FeatureSpace,
        vectors: npt.NDArray[Any],
        outputs: npt.NDArray[Any],
        dim: int,
    ) -> None:
        self.labels, self.loss, self.space, self.dim = labels, loss, space, dim
        self.vectors, self.outputs = frozen(vectors), frozen(outputs)

    @property
    def several(self) -> bool:
        return self.loss == "one-vs-all"

    reads_numbers: ClassVar[bool] = False

    def read(self, normal: Ragged) -> Corpus:
        return self.space.read(normal)

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        return score_rows(self.space, corpus, len(self.labels), self._score, threads, distinct=self.distinct)

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

    def sentence_vectors(self, corpus: Corpus) -> npt.NDArray[np.float32]:
        """The mean of the vectors of each row's n-grams."""
        return score_rows(self.space, corpus, self.dim, self._mean, 1, distinct=self.distinct)

    def _mean(self, features: Features, out: npt.NDArray[np.float32]) -> None:
        kernels.means(features.ids, features.offsets, self.vectors, self.dim, out)

    def parts(self, features: Features) -> npt.NDArray[np.float32]:
        """What each feature of one row adds to the score of each label, before it becomes a probability."""
        vectors = self.vectors[features.ids, : self.dim] / np.float32(max(len(features.ids), 1))
        return np.asarray(vectors @ self.outputs[:, : self.dim].T, np.float32)

    def bias_of(self, label: int) -> float:
        """There is none."""
        return 0.0

    def facts(self) -> dict[str, Any]:
        return {"labels": self.labels, "loss": self.loss, "features": self.space.facts()}

    def arrays(self) -> Arrays:
        vectors, outputs = (array[:, : self.dim] for array in (self.vectors, self.outputs))
        return {"vectors": vectors, "outputs": outputs, **self.space.arrays()}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        space = open_space(facts["features"], arrays)
        labels, loss, vectors, outputs = facts["labels"], facts["loss"], arrays["vectors"], arrays["outputs"]
        dim = vectors.shape[1] if vectors.ndim == 2 else 0
        right = dim > 0 and len(vectors) == len(space) and outputs.shape == (len(labels), dim)
        if not right or vectors.dtype != np.float32 or outputs.dtype != np.float32 or loss not in LOSSES:
            raise InputError("the vectors do not fit the labels and features of the model")
        return cls(labels, loss, space, np.ascontiguousarray(vectors), np.ascontiguousarray(outputs), dim)


class FastText:
    """The vectors while they are learnt."""

    Settings: ClassVar[type[FastTextSettings]] = FastTextSettings
    Model: ClassVar[type[FastTextModel]] = FastTextModel
    learns: ClassVar[Literal["labels", "words"]] = "labels"
    shares_batches: ClassVar[bool] = False

    def __init__(
        self, settings: FastTextSettings, labels: list[str], loss: str, space: FeatureSpace, dim: int
    ) -> None:
        self._settings, self._labels, self._loss, self._space, self._dim = settings, labels, loss, space, dim
        width = -(-dim // LINE) * LINE
        self._vectors, self._outputs = aligned(len(space), width), aligned(len(labels), width)
        self._draw = np.zeros(1, np.float64)

    def _begin_at_random(self, threads: int) -> None:
        """Touching fresh memory is most of the work, so the threads share it."""
        bounds = np.linspace(0, len(self._vectors), threads + 1).astype(np.int64).tolist()
        seed = np.uint64(self._settings.seed)
        work = [(self._vectors, first, last, self._dim, seed) for first, last in pairwise(bounds)]
        for _ in side_by_side(lambda part: kernels.first_vectors(*part), work, threads):
            pass

    @classmethod
    def begin(
        cls,
        settings: FastTextSettings,
        lesson: Lesson,
        previous: FastTextModel | None,
        resources: Resources,
        progress: Progress,
        share: Ints | None = None,
    ) -> tuple[Self, FeatureFeed]:
        names = lesson.labels.names
        loss = previous.loss if previous else choose(settings.loss, len(names), lesson.labels.several)
        slotting = previous.space.slotting if previous else slotting_for(settings, lesson.corpus, resources)
        progress.stage("counting", None, "rows")
        space = find_features(lesson.corpus, slotting, settings.min_count, resources.threads)
        dim = previous.dim if previous else settings.dim
        if previous:
            space = extended(previous.space, space)
        refuse_if_too_large((len(space) + len(names)) * (dim + LINE) * 4, resources)
        learner = cls(settings, names, loss, space, dim)
        learner._begin_at_random(resources.threads)
        counts = np.bincount(lesson.labels.ids, minlength=len(names)).astype(np.float64)
        learner._draw = np.cumsum(counts**NEGATIVE_POWER) / (counts**NEGATIVE_POWER).sum()
        if previous:
            learner._vectors[: len(previous.space), :dim] = previous.vectors[:, :dim]
            learner._outputs[: len(previous.labels), :dim] = previous.outputs[:, :dim]
        mine = lesson if share is None else lesson.take(share)
        return learner, learner.feed(mine, settings.seed, resources, progress)

    def feed(self, lesson: Lesson, seed: int, resources: Resources, progress: Progress) -> FeatureFeed:
        return FeatureFeed(self._space, lesson, seed, resources, progress, distinct=FastTextModel.distinct)

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

    def touched(self, pieces: list[Block]) -> dict[str, Ints]:
        return {"vectors": distinct_features(pieces, len(self._vectors))}

    def weights(self) -> Arrays:
        return {"vectors": self._vectors, "outputs": self._outputs}

    def model(self) -> FastTextModel:
        return FastTextModel(self._labels, self._loss, self._space, self._vectors, self._outputs, self._dim)
