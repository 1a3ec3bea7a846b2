"""``lstm``: a text word by word, or a row of numbers, through recurrent layers; then a linear one."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Literal, Self

import numpy as np

from manyhands.errors import InputError, UsageError
from manyhands.kernel import Ints
from manyhands.models.backprop import Work, gradients, scores_of
from manyhands.models.gradient import Gradient
from manyhands.models.inputs import Inputs, Numbers, Words, open_inputs
from manyhands.models.learner import Arrays, Crew, Loss, Scores
from manyhands.models.losses import LOSSES, choose
from manyhands.models.lstm_settings import LstmSettings, part_of
from manyhands.models.network import Network, Shape
from manyhands.models.optimizers import OPTIMIZERS
from manyhands.models.pooling import POOLS
from manyhands.models.sequences import SequenceFeed, Slices, find_words
from manyhands.models.slotting import refuse_if_too_large
from manyhands.models.vectors import fill_from
from manyhands.parallel import in_order, one_thread_each
from manyhands.records import Progress, Resources
from manyhands.text.corpus import Corpus, corpus_of
from manyhands.text.lesson import Lesson
from manyhands.text.ragged import Ragged

ROWS_AT_ONCE = 256


class LstmModel:
    """``network`` holds the numbers, ``inputs`` says what it reads, at most ``length`` steps of it."""

    def __init__(
        self, labels: list[str], loss: str, pool: str, length: int, inputs: Inputs, network: Network
    ) -> None:
        self.labels, self.loss, self.pool, self.length = labels, loss, pool, length
        self.inputs, self.network = inputs, network

    @property
    def several(self) -> bool:
        return self.loss == "one-vs-all"

    @property
    def reads_numbers(self) -> bool:
        return isinstance(self.inputs, Numbers)

    def read(self, normal: Ragged) -> Corpus:
        return corpus_of(normal)

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        out = np.empty((len(corpus), len(self.labels)), np.float32)
        sequences = self.inputs.sequences(corpus, self.length)
        vectors = self.inputs.vectors(corpus, self.network)
        work = Work(self.network, vectors, LOSSES[self.loss], self.pool)
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
        shape = self.network.shape
        return {
            "labels": self.labels,
            "loss": self.loss,
            "pool": self.pool,
            "length": self.length,
            "cell": shape.cell,
            "widths": list(shape.widths),
            "ways": shape.ways,
        }

    def arrays(self) -> Arrays:
        return {**self.inputs.arrays(), **self.network.arrays()}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        labels, loss, pool, length = (facts[name] for name in ("labels", "loss", "pool", "length"))
        widths = facts["widths"]
        if loss not in LOSSES or pool not in POOLS or not isinstance(widths, list):
            raise InputError("the model is not described as it should be")
        if not all(type(number) is int and number >= 1 for number in [length, *widths]):
            raise InputError("the model is not described as it should be")
        shape = Shape(facts["cell"], tuple(widths), facts["ways"], len(labels))
        inputs = open_inputs(arrays, widths[0])
        own = {name: array for name, array in arrays.items() if name not in inputs.arrays()}
        return cls(labels, loss, pool, length, inputs, Network.from_arrays(shape, inputs.words, own))


class Lstm:
    """The network while it is learnt. Threads share a batch and not the lesson, so every run is the same."""

    Settings: ClassVar[type[LstmSettings]] = LstmSettings
    Model: ClassVar[type[LstmModel]] = LstmModel
    learns: ClassVar[Literal["labels", "words"]] = "labels"
    shares_batches: ClassVar[bool] = True

    def __init__(
        self,
        settings: LstmSettings,
        lesson: Lesson,
        loss: str,
        inputs: Inputs,
        network: Network,
        threads: int,
    ) -> None:
        self._settings, self._labels, self._loss = settings, lesson.labels.names, loss
        self._inputs, self._network = inputs, network
        self._vectors = inputs.vectors(lesson.corpus, network)
        self._rows, self._batch = len(lesson), settings.batch_for(len(lesson))
        self._hands = ThreadPoolExecutor(threads)
        self._optimizer = OPTIMIZERS[settings.optimizer](network.arrays(), settings.momentum, settings.decay)

    @classmethod
    def begin(
        cls,
        settings: LstmSettings,
        lesson: Lesson,
        previous: LstmModel | None,
        resources: Resources,
        progress: Progress,
        share: Ints | None = None,
    ) -> tuple[Self, SequenceFeed]:
        loss = previous.loss if previous else choose(settings.loss, 0, lesson.labels.several)
        if loss not in ("softmax", "one-vs-all"):
            loss = "softmax"  # many labels are no reason to draw some of them here
        progress.stage("counting", None, "rows")
        inputs = _inputs(settings, lesson.corpus, previous, resources.threads)
        first = settings.dim if isinstance(inputs, Words) else len(inputs.arrays()["mean"])
        shape = Shape(settings.cell, (first, *settings.widths), settings.ways, len(lesson.labels.names))
        refuse_if_too_large(inputs.words * first * 4 * 3, resources, "--words or --dim")
        network = Network.at_random(shape, inputs.words, settings.seed)
        if settings.vectors and isinstance(inputs, Words):
            fill_from(settings.vectors, inputs.lexicon, network.embedding)
        if previous:
            network.take_over(previous.network)
        learner = cls(settings, lesson, loss, inputs, network, resources.threads)
        mine = lesson if share is None else lesson.take(share)
        return learner, learner.feed(mine, settings.seed, resources, progress)

    def feed(self, lesson: Lesson, seed: int, resources: Resources, progress: Progress) -> SequenceFeed:
        sequences = self._inputs.sequences(lesson.corpus, self._settings.length)
        return SequenceFeed(lesson, sequences, part_of(self._batch, len(lesson), self._rows), seed)

    def learn(self, rows: Slices, rate: float, seed: int, crew: Crew) -> Loss:
        settings, clock = self._settings, crew.clock
        work = Work(
            self._network, self._vectors, LOSSES[self._loss], settings.pool, settings.dropout, seed >> 1
        )
        gradient = Gradient(self._network, rows.words)
        forward, backward = 0.0, 0.0
        with clock.on("learn"), one_thread_each:
            for part in self._hands.map(lambda batch: gradients(work, batch), rows.slices):
                gradient.add(part)
                forward += part.forward_seconds
                backward += part.backward_seconds
        clock.divide("learn", {"forward": forward, "backward": backward})
        crew.sum(gradient.buffer)
        with clock.on("update"):
            if gradient.weight > 0:
                gradient.scale(1 / gradient.weight, settings.clip)
                self._optimizer.begin_step()
                for name, (touched, values) in gradient.moves().items():
                    self._optimizer.move(name, touched, values, rate)
        return Loss(gradient.cost, gradient.weight)

    def touched(self, pieces: list[Slices]) -> dict[str, Ints]:
        return {"embedding": np.unique(np.concatenate([piece.words for piece in pieces]))}

    def weights(self) -> Arrays:
        return {**self._network.arrays(), **self._optimizer.state()}

    def model(self) -> LstmModel:
        settings = self._settings
        return LstmModel(
            self._labels, self._loss, settings.pool, settings.length, self._inputs, self._network
        )


def _inputs(settings: LstmSettings, corpus: Corpus, previous: LstmModel | None, threads: int) -> Inputs:
    """What there is to read: of a model that is continued, what it read and what is new."""
    known = previous.inputs if previous else None
    if corpus.values is not None:
        if settings.vectors:
            raise UsageError("--vectors are for words, and these rows are numbers")
        return known or Numbers.of(corpus.values)
    if isinstance(known, Numbers):
        raise InputError("the bundle to continue from reads numbers, and these rows are words")
    words = known.lexicon if isinstance(known, Words) else None
    return Words(find_words(corpus, settings.words, settings.min_count, threads, words))
