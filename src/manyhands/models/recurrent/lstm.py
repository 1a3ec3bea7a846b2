"""``lstm``: a text word by word, or a row of numbers, through recurrent layers; then a linear one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Literal, Self

import numpy as np

from manyhands.catalog import OPTIMIZERS, load
from manyhands.errors import InputError, UsageError
from manyhands.formats.onnx import OnnxGraph
from manyhands.kernels.compile import Ints
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Crew, Loss, StateArray
from manyhands.models.losses import LOSSES, choose
from manyhands.models.model import (
    CLASSIFY,
    DOCUMENTS,
    EXPLAIN,
    ONNX,
    QUANTISED_ALREADY,
    QUANTIZE,
    Arrays,
    Contribution,
    Contributions,
    Scores,
)
from manyhands.models.pretrained import check_filled, fill_from, read_pretrained
from manyhands.models.recurrent.attribution import add_up, integrated_gradients
from manyhands.models.recurrent.backprop import Work, forwards, gradients, scores_of
from manyhands.models.recurrent.export import add_network
from manyhands.models.recurrent.gradient import Gradient
from manyhands.models.recurrent.inputs import Inputs, Numbers, Words, open_inputs
from manyhands.models.recurrent.network import Network, Shape
from manyhands.models.recurrent.optimizers import Optimizer, state_of
from manyhands.models.recurrent.pooling import POOLS
from manyhands.models.recurrent.quantize import PACKED, Packed, quantize, unpack
from manyhands.models.recurrent.sequences import Packed as PackedTexts
from manyhands.models.recurrent.sequences import SequenceFeed, Slices, find_words
from manyhands.models.recurrent.settings import LstmSettings, part_of
from manyhands.parallel import map_ordered, one_thread_each
from manyhands.records import Progress, Resources
from manyhands.text.corpus import Corpus, corpus_of
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.ragged import Ragged

ROWS_AT_ONCE = 256


class LstmModel:
    """``network`` holds the numbers, ``inputs`` says what it reads, at most ``length`` steps of it."""

    can: ClassVar[frozenset[str]] = frozenset({CLASSIFY, DOCUMENTS, EXPLAIN, QUANTIZE, ONNX})

    def __init__(
        self,
        labels: list[str],
        loss: str,
        pool: str,
        length: int,
        inputs: Inputs,
        network: Network,
        packed: Packed | None = None,
    ) -> None:
        self.labels, self.loss, self.pool, self.length = labels, loss, pool, length
        self.inputs, self.network, self._packed = inputs, network, packed

    @property
    def multi_label(self) -> bool:
        return self.loss == "one-vs-all"

    @property
    def reads_numbers(self) -> bool:
        return isinstance(self.inputs, Numbers)

    def read(self, normal: Ragged) -> Corpus:
        return corpus_of(normal)

    def score_texts(self, normal: Ragged) -> Scores:
        return self.scores(self.read(normal))

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        return self._each(corpus, scores_of, len(self.labels), threads)

    def document_vectors(self, corpus: Corpus) -> Scores:
        """The pooled states, of which the linear layer makes the scores."""
        width = self.network.rest["output"].shape[1]
        return self._each(corpus, lambda work, packed: forwards(work, packed).pooled, width, 1)

    def _each(
        self, corpus: Corpus, make: Callable[[Work, PackedTexts], Scores], width: int, threads: int
    ) -> Scores:
        """A row of numbers for each text; texts of about the same length go together."""
        out = np.empty((len(corpus), width), np.float32)
        sequences = self.inputs.sequences(corpus, self.length)
        vectors = self.inputs.vectors(corpus, self.network)
        work = Work(self.network, vectors, LOSSES[self.loss], self.pool)
        order = np.argsort(sequences.lengths(np.arange(len(corpus))), kind="stable")
        parts = [order[start : start + ROWS_AT_ONCE] for start in range(0, len(order), ROWS_AT_ONCE)]

        def fill(rows: Ints) -> None:
            packed = sequences.pack(rows)
            out[rows[packed.rows]] = make(work, packed)

        with one_thread_each:
            for _ in map_ordered(fill, parts, threads):
                pass
        return out

    def explain(self, corpus: Corpus, label: int) -> Contributions:
        """What every word adds by integrated gradients; the bias is the score with vectors of zero."""
        places, numbers = self.inputs.sequences(corpus, self.length).places(0)
        vectors = self.inputs.vectors(corpus, self.network)
        work = Work(self.network, vectors, LOSSES[self.loss], self.pool)
        with one_thread_each:
            found = integrated_gradients(work, vectors[numbers], label)
        values = add_up(found.parts, found.score - found.before).tolist()
        words, (tokens, _) = corpus.words.strings(), corpus.take(np.zeros(1, np.int64))
        names = [words[token] for token in tokens.tolist()]
        parts = [
            Contribution(names[place], value, place)
            for place, value in zip(places.tolist(), values, strict=True)
        ]
        read = {names[place] for place in places.tolist()}
        return Contributions(
            bias=found.before,
            score=found.score,
            parts=sorted(parts, key=lambda part: -abs(part.part)),
            unknown=[name for name in dict.fromkeys(names) if name and name not in read],
        )

    def add_to(self, graph: OnnxGraph) -> None:
        if self.reads_numbers:
            raise UsageError("the model reads rows of numbers, and onnx is for texts; convert to safetensors")
        add_network(graph, self.network, self.pool, self.loss)

    def feature_ids(self, normal: Ragged) -> list[Ints]:
        sequences = self.inputs.sequences(self.read(normal), self.length)
        return [sequences.places(row)[1] for row in range(len(normal))]

    def facts(self) -> dict[str, Any]:
        shape = self.network.shape
        facts = {
            "labels": self.labels,
            "loss": self.loss,
            "pool": self.pool,
            "length": self.length,
            "cell": shape.cell,
            "widths": list(shape.widths),
            "bidirectional": shape.bidirectional,
        }
        return {**facts, PACKED: self._packed.facts} if self._packed else facts

    def arrays(self) -> Arrays:
        return self._packed.arrays if self._packed else {**self.inputs.arrays(), **self.network.arrays()}

    def quantize(self, size: int, rest: int) -> Self:
        if self._packed:
            raise UsageError(QUANTISED_ALREADY)
        packed = quantize(self.arrays(), size, rest)
        return self.from_parts({**self.facts(), PACKED: packed.facts}, packed.arrays)

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        arrays, packed = unpack(facts, arrays)
        labels, loss, pool, length = (facts[name] for name in ("labels", "loss", "pool", "length"))
        widths = facts["widths"]
        right = loss in LOSSES and pool in POOLS and isinstance(widths, list)
        if not right or not all(type(number) is int and number >= 1 for number in [length, *widths]):
            raise InputError("the bundle is damaged (config.json); train or fetch it again")
        shape = Shape(facts["cell"], tuple(widths), facts["bidirectional"], len(labels))
        inputs = open_inputs(arrays, widths[0])
        own = {name: array for name, array in arrays.items() if name not in inputs.arrays()}
        network = Network.from_arrays(shape, inputs.words, own)
        return cls(labels, loss, pool, length, inputs, network, packed)


class Lstm:
    """The network while it is learnt. Threads share a batch and not the lesson, so every run is the same."""

    Settings: ClassVar[type[LstmSettings]] = LstmSettings
    Model: ClassVar[type[LstmModel]] = LstmModel
    summary: ClassVar[str] = "a recurrent classifier of texts or of rows of numbers"
    learns: ClassVar[Literal["labels", "words"]] = "labels"
    shares_batches: ClassVar[bool] = True

    def __init__(
        self,
        settings: LstmSettings,
        examples: LabelledRows,
        loss: str,
        inputs: Inputs,
        network: Network,
        threads: int,
    ) -> None:
        self._settings, self._labels, self._loss = settings, examples.labels.names, loss
        self._inputs, self._network = inputs, network
        self._vectors = inputs.vectors(examples.corpus, network)
        self._rows, self._batch = len(examples), settings.batch_for(len(examples))
        self._executor = ThreadPoolExecutor(threads)
        self._optimizer: Optimizer = load(OPTIMIZERS, "optimizer", settings.optimizer)(
            network.arrays(), settings.momentum, settings.weight_decay
        )

    @classmethod
    def begin(
        cls,
        settings: LstmSettings,
        examples: LabelledRows,
        previous: LstmModel | None,
        resources: Resources,
        progress: Progress,
        crew: Crew,
    ) -> Self:
        labels = examples.labels
        loss = previous.loss if previous else choose(settings.loss, 0, labels.multi_label)
        if loss not in ("softmax", "one-vs-all"):
            loss = "softmax"  # many labels are no reason to draw some of them here
        progress.stage("counting", None, "rows")
        inputs = _inputs(settings, examples.corpus, previous, resources.threads)
        first = settings.dim if isinstance(inputs, Words) else len(inputs.arrays()["mean"])
        shape = Shape(settings.cell, (first, *settings.widths), settings.bidirectional, len(labels.names))
        refuse_if_too_large(inputs.words * first * 4 * 3, resources, "--vocabulary-size or --dim")
        network = Network.at_random(shape, inputs.words, settings.seed)
        if settings.pretrained_vectors and isinstance(inputs, Words):
            path, lexicon = settings.pretrained_vectors, inputs.lexicon
            given = ((lexicon.places(some.hashes), some.vectors) for some in read_pretrained(path, first))
            check_filled(fill_from(given, network.embedding), path)
        if previous:
            network.take_over(previous.network)
        return cls(settings, examples, loss, inputs, network, resources.threads)

    def feed(
        self, examples: LabelledRows, seed: int, resources: Resources, progress: Progress, crew: Crew
    ) -> SequenceFeed:
        sequences = self._inputs.sequences(examples.corpus, self._settings.max_length)
        return SequenceFeed(examples, sequences, part_of(self._batch, len(examples), self._rows), seed)

    def learn(self, rows: Slices, rate: float, seed: int, crew: Crew) -> Loss:
        settings, clock = self._settings, crew.clock
        work = Work(
            self._network, self._vectors, LOSSES[self._loss], settings.pooling, settings.dropout, seed >> 1
        )
        gradient = Gradient(self._network, _words_of_all(rows, crew))
        forward, backward = 0.0, 0.0
        with clock.on("learn"), one_thread_each:
            for part in self._executor.map(lambda batch: gradients(work, batch), rows.slices):
                gradient.add(part)
                forward += part.forward_seconds
                backward += part.backward_seconds
        clock.divide("learn", {"forward": forward, "backward": backward})
        crew.sum(gradient.buffer)
        with clock.on("update"):
            gradient.step(self._optimizer, rate, settings.clip_norm)
        return gradient.loss

    def state(self) -> dict[str, StateArray]:
        return state_of(self._network.arrays(), self._optimizer)

    def model(self) -> LstmModel:
        settings = self._settings
        return LstmModel(
            self._labels, self._loss, settings.pooling, settings.max_length, self._inputs, self._network
        )


def _words_of_all(rows: Slices, crew: Crew) -> Ints:
    """The words of the whole batch, of which each worker has read its own part."""
    found = rows.words.astype(np.uint8 if crew.workers < 1 << 8 else np.int32)
    crew.sum(found)
    return np.flatnonzero(found)


def _inputs(settings: LstmSettings, corpus: Corpus, previous: LstmModel | None, threads: int) -> Inputs:
    """What there is to read: of a model that is continued, what it read and what is new."""
    known = previous.inputs if previous else None
    if corpus.values is not None:
        if settings.pretrained_vectors:
            raise UsageError("--pretrained-vectors are for words, and these rows are numbers")
        return known or Numbers.of(corpus.values)
    if isinstance(known, Numbers):
        raise InputError("the bundle to continue from reads numbers, and these rows are words")
    words = known.lexicon if isinstance(known, Words) else None
    return Words(find_words(corpus, settings.vocabulary_size, settings.min_count, threads, words))
