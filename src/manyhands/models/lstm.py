"""``lstm``: the words of a text one after the other through recurrent layers, then a linear one."""

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from manyhands.errors import InputError
from manyhands.kernel import Ints, frozen
from manyhands.lines import LINE
from manyhands.models.adam import update
from manyhands.models.learner import Arrays, Loss, Scores
from manyhands.models.losses import LOSSES, choose
from manyhands.models.lstm_layers import Network, Work, gradients, scores_of
from manyhands.models.sequences import Batch, Lexicon, SequenceFeed, Sequences, find_words
from manyhands.models.slotting import refuse_if_too_large
from manyhands.parallel import in_order, one_thread_each
from manyhands.records import Progress, Resources
from manyhands.settings import ModelSettings
from manyhands.text.corpus import Corpus, corpus_of
from manyhands.text.lesson import Lesson
from manyhands.text.ragged import Ragged

ROWS_AT_ONCE = 256
STEPS_AN_EPOCH = 100  # a small lesson is cut into so many batches, or there would be too few steps
LEAST_BATCH = 16
MOST_NORM = 5.0  # longer gradients are cut to this length

Pool = Literal["max", "mean", "last"]


class LstmSettings(ModelSettings):
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    rate: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 0.004
    words: Annotated[int, Field(ge=1, le=2**24)] = 30_000
    min_count: Annotated[int, Field(ge=1, le=2**31)] = 2
    dim: Annotated[int, Field(ge=1, le=4096)] = 100
    hidden: Annotated[int, Field(ge=16, le=4096, multiple_of=LINE)] = 64
    layers: Annotated[int, Field(ge=1, le=16)] = 1
    length: Annotated[int, Field(ge=1, le=100_000)] = 300
    batch: Annotated[int, Field(ge=1, le=2**20)] = 128
    pool: Pool = "max"
    loss: Literal["auto", "softmax", "one-vs-all"] = "auto"


class LstmModel:
    """``network`` holds the numbers, ``lexicon`` the words that have a vector."""

    def __init__(
        self, labels: list[str], loss: str, pool: Pool, length: int, lexicon: Lexicon, network: Network
    ) -> None:
        self.labels, self.loss, self.pool, self.length = labels, loss, pool, length
        self.lexicon, self.network = lexicon, network

    @property
    def several(self) -> bool:
        return self.loss == "one-vs-all"

    def read(self, normal: Ragged) -> Corpus:
        return corpus_of(normal)

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        out = np.empty((len(corpus), len(self.labels)), np.float32)
        sequences = Sequences(corpus, self.lexicon, self.length)
        work = Work(self.network, LOSSES[self.loss], self.pool)
        order = np.argsort(sequences.lengths(np.arange(len(corpus))), kind="stable")
        parts = [order[start : start + ROWS_AT_ONCE] for start in range(0, len(order), ROWS_AT_ONCE)]

        def fill(rows: Ints) -> None:
            packed = sequences.pack(rows)
            out[rows[packed.rows]] = scores_of(work, packed)

        with one_thread_each:
            for _ in in_order(fill, parts, threads):
                pass
        return out

    def facts(self) -> dict[str, Any]:
        return {"labels": self.labels, "loss": self.loss, "pool": self.pool, "length": self.length}

    def arrays(self) -> Arrays:
        return {"words": self.lexicon.hashes, **self.network.arrays()}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        labels, loss, pool, length = (facts[name] for name in ("labels", "loss", "pool", "length"))
        words = arrays["words"]
        if loss not in LOSSES or pool not in ("max", "mean", "last") or type(length) is not int or length < 1:
            raise InputError("the model is not described as it should be")
        if words.dtype != np.uint64 or words.ndim != 1:
            raise InputError("the words of the model are of another kind than they should be")
        network = Network.from_arrays({name: array for name, array in arrays.items() if name != "words"})
        network.check(len(words), len(labels))
        return cls(labels, loss, pool, length, Lexicon(frozen(words)), network)


class Lstm:
    """The network while it is learnt. Threads share a batch and not the lesson, so every run is the same."""

    Settings: ClassVar[type[LstmSettings]] = LstmSettings
    Model: ClassVar[type[LstmModel]] = LstmModel
    shares_batches: ClassVar[bool] = True

    def __init__(
        self, settings: LstmSettings, labels: list[str], loss: str, lexicon: Lexicon, threads: int
    ) -> None:
        self._settings, self._labels, self._loss = settings, labels, loss
        self._lexicon, self._hands = lexicon, ThreadPoolExecutor(threads)
        widths = [settings.dim] + [settings.hidden] * settings.layers
        self._network = Network.at_random(len(lexicon), widths, len(labels), settings.seed)
        self._means, self._squares = self._network.zeros(), self._network.zeros()
        self._steps = np.zeros(1, np.int64)

    @classmethod
    def begin(
        cls,
        settings: LstmSettings,
        lesson: Lesson,
        previous: LstmModel | None,
        resources: Resources,
        progress: Progress,
    ) -> tuple[Self, SequenceFeed]:
        names = lesson.labels.names
        loss = previous.loss if previous else choose(settings.loss, 0, lesson.labels.several)
        progress.stage("counting", None, "rows")
        known = previous.lexicon if previous else None
        lexicon = find_words(lesson.corpus, settings.words, settings.min_count, resources.threads, known)
        refuse_if_too_large(len(lexicon) * settings.dim * 4 * 3, resources)
        learner = cls(settings, names, loss, lexicon, resources.threads)
        if previous:
            learner._network.take_over(previous.network)
        batch = min(settings.batch, max(LEAST_BATCH, len(lesson) // STEPS_AN_EPOCH))
        return learner, SequenceFeed(lesson, lexicon, settings.length, batch, settings.seed)

    def learn(self, block: list[Batch], rate: float, seed: int) -> Loss:
        work = Work(self._network, LOSSES[self._loss], self._settings.pool)
        weight = float(sum(batch.weights.sum() for batch in block))
        with one_thread_each:
            parts = list(self._hands.map(lambda batch: gradients(work, batch), block))
        total = parts[0]
        for part in parts[1:]:
            total = total.plus(part)
        if weight > 0:
            self._update(total.scaled(1 / weight, MOST_NORM), rate)
        return Loss(total.cost, weight)

    def _update(self, gradient: Any, rate: float) -> None:
        self._steps += 1
        arrays = self._network.arrays()
        for name, (rows, values) in gradient.named().items():
            array = arrays[name].reshape(-1, arrays[name].shape[-1])
            mean, square = (kept[name].reshape(array.shape) for kept in (self._means, self._squares))
            update(rate, int(self._steps[0]), rows, values, array, mean, square)

    def weights(self) -> Arrays:
        kept = {"means": self._means, "squares": self._squares}
        moments = {f"{kind}.{name}": array for kind, of in kept.items() for name, array in of.items()}
        return {**self._network.arrays(), **moments, "steps": self._steps}

    def model(self) -> LstmModel:
        settings = self._settings
        return LstmModel(
            self._labels, self._loss, settings.pool, settings.length, self._lexicon, self._network
        )
