"""``charlstm``: a vector for any word, read letter by letter; learnt as those of ``skipgram`` are.

A recurrent layer reads the bytes of a word, in whatever script it is written, and a linear one makes
the vector of its last state. Each distinct word of a batch is read once, however often it stands there.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from manyhands.catalog import OPTIMIZERS, load
from manyhands.errors import InputError
from manyhands.kernels.compile import Flags, Ints
from manyhands.kernels.simd import Floats
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Crew, Loss, StateArray
from manyhands.models.losses import LOSSES
from manyhands.models.model import EMBED, Arrays
from manyhands.models.recurrent.backprop import Passed, Work, backwards, forwards
from manyhands.models.recurrent.gradient import Gradient
from manyhands.models.recurrent.network import Network, Shape
from manyhands.models.recurrent.optimizers import Optimizer, state_of
from manyhands.models.recurrent.sequences import Packed, pack
from manyhands.models.recurrent.settings import RecurrentSettings, part_of
from manyhands.models.words import skipgram_kernels as kernels
from manyhands.models.words.sampling import ContextSampling, WordSettings, losses_of, whole_lines
from manyhands.models.words.windows import WindowFeed, Windows
from manyhands.parallel import map_ordered, one_thread_each
from manyhands.records import Progress, Resources
from manyhands.settings import BatchSize, Common, Epochs, LearningRate, Search, Shapes
from manyhands.text.embedding import Embedding
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.ragged import Ragged, from_arrow, from_strings
from manyhands.text.vocabulary import Vocabulary

BYTES = np.arange(256)
LONGEST_WORD_BYTES = 64
WORDS_AT_ONCE = 128
STEPS_AN_EPOCH, LEAST_BATCH = 100, 64  # a short text takes smaller batches, or there are too few steps


class CharLstmSettings(WordSettings, RecurrentSettings):
    epochs: Annotated[Epochs, Search(2, 15, log=True)] = 5
    learning_rate: Annotated[LearningRate, Search(0.001, 0.02, log=True)] = 0.005
    hidden_size: Annotated[
        int,
        Field(ge=1, le=4096, description="Size of the hidden state."),
        Shapes(),
        Common(),
        Search(64, 512, log=True),
    ] = 256
    char_dim: Annotated[int, Field(ge=1, le=4096, description="Size of the vectors of bytes."), Shapes()] = 64
    batch_size: Annotated[BatchSize, Field(description="Words per batch.")] = 2048

    def batch_for(self, words: int) -> int:
        return max(LEAST_BATCH, min(self.batch_size, words // STEPS_AN_EPOCH))


class _Reader:
    """Words through the network: forwards in slices of like length, and back again."""

    def __init__(self, network: Network, threads: int) -> None:
        self._work = Work(network, network.embedding, LOSSES["softmax"], "last")
        self._dim, self._threads = network.shape.labels, threads
        self._slices: list[tuple[Ints, Packed]] = []
        self._passed: list[Passed] = []

    def vectors(self, words: Ragged, *, keep: bool = False) -> Floats:
        """A vector for each word; ``keep`` what the way back needs."""
        order = np.argsort(words.lengths(), kind="stable")
        slices = [
            _packed(words, order[at : at + WORDS_AT_ONCE]) for at in range(0, len(order), WORDS_AT_ONCE)
        ]
        out = np.empty((len(words), self._dim), np.float32)
        with one_thread_each:
            way = map_ordered(lambda part: forwards(self._work, part[1]), slices, self._threads)
            for (rows, _), passed in zip(slices, way, strict=True):
                out[rows] = passed.outputs
                if keep:
                    self._passed.append(passed)
        self._slices = slices if keep else []
        return out

    def back(self, by_vectors: Floats, gradient: Gradient) -> None:
        """Add the gradient of all arrays, given that of the vectors which were kept."""
        parts = list(zip(self._slices, self._passed, strict=True))
        with one_thread_each:
            for found in map_ordered(
                lambda part: backwards(self._work, part[0][1], part[1], by_vectors[part[0][0]]),
                parts,
                self._threads,
            ):
                gradient.add_arrays(*found)


def _packed(words: Ragged, rows: Ints) -> tuple[Ints, Packed]:
    """Some words by their bytes, and which they are in the packed order."""
    some = words.take(rows)
    packed = pack(some.data, some.offsets, BYTES, LONGEST_WORD_BYTES)
    return rows[packed.rows], packed


class CharLstmModel:
    """``network`` reads the bytes of a word; ``contexts`` has a row for each word as a neighbour."""

    can: ClassVar[frozenset[str]] = frozenset({EMBED})

    def __init__(
        self, sampling: ContextSampling, network: Network, contexts: Floats, vectors: Floats | None = None
    ) -> None:
        self.sampling, self.network, self.contexts = sampling, network, contexts
        self._made = vectors

    @cached_property
    def vectors(self) -> Floats:
        """The vector of each word that was learnt."""
        if self._made is not None:
            return self._made
        return _Reader(self.network, 1).vectors(self._letters)

    @cached_property
    def _letters(self) -> Ragged:
        return from_arrow(self.sampling.vocabulary.words)

    def embedding(self, vocabulary: Vocabulary | None) -> Embedding:
        return Embedding(self.sampling.vocabulary, self.vectors, self._spell)

    def _spell(self, words: Sequence[str]) -> tuple[Floats, Flags]:
        letters = from_strings(words)
        return _Reader(self.network, 1).vectors(letters), letters.lengths() > 0

    def losses(self, feed: WindowFeed, first: int, last: int, threads: int) -> Floats:
        contexts = whole_lines(self.contexts)

        def lose(windows: Windows) -> tuple[float, float]:
            distinct, parts = _distinct(windows, len(contexts))
            inputs = whole_lines(_Reader(self.network, 1).vectors(self._letters.take(distinct)))
            return self.sampling.learn(windows, parts, (inputs, contexts))

        return losses_of(feed, first, last, lose, threads)

    def facts(self) -> dict[str, Any]:
        shape = self.network.shape
        return {
            **self.sampling.facts(),
            "cell": shape.cell,
            "widths": list(shape.widths),
            "dim": shape.labels,
        }

    def arrays(self) -> Arrays:
        mine = {"vectors": self.vectors, "contexts": self.contexts}
        return {**mine, **self.network.arrays(), **self.sampling.arrays()}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        sampling = ContextSampling.from_parts(facts, arrays)
        widths, dim = facts["widths"], facts["dim"]
        if len(widths) != 2 or not all(type(number) is int and number >= 1 for number in [*widths, dim]):
            raise InputError("the bundle is damaged (config.json); train or fetch it again")
        vectors, contexts = arrays["vectors"], arrays["contexts"]
        right = vectors.shape == contexts.shape == (len(sampling.vocabulary), dim)
        if not right or not vectors.dtype == contexts.dtype == np.float32:
            raise InputError("the vectors do not fit the words of the model")
        own = {
            name: arrays[name] for name in arrays.keys() - sampling.arrays().keys() - {"vectors", "contexts"}
        }
        shape = Shape(facts["cell"], tuple(widths), False, dim)
        return cls(sampling, Network.from_arrays(shape, len(BYTES), own), contexts, vectors)


class CharLstm:
    """The network and the contexts while they are learnt. Threads share a batch, so every run is the same."""

    Settings: ClassVar[type[CharLstmSettings]] = CharLstmSettings
    Model: ClassVar[type[CharLstmModel]] = CharLstmModel
    summary: ClassVar[str] = "word vectors read from bytes: one for any word, also out of vocabulary"
    learns: ClassVar[Literal["labels", "words"]] = "words"
    shares_batches: ClassVar[bool] = True

    def __init__(
        self,
        settings: CharLstmSettings,
        sampling: ContextSampling,
        network: Network,
        contexts: Floats,
        threads: int,
        tokens: int,
        remembered: Arrays | None = None,
    ) -> None:
        self._settings, self._sampling, self._threads, self._tokens = settings, sampling, threads, tokens
        self._network, self._contexts = network, contexts
        self._letters = from_arrow(sampling.vocabulary.words).take
        arrays = {**network.arrays(), "contexts": contexts}
        self._optimizer: Optimizer = load(OPTIMIZERS, "optimizer", settings.optimizer)(
            arrays, settings.momentum, settings.weight_decay, remembered
        )

    @classmethod
    def begin(
        cls,
        settings: CharLstmSettings,
        examples: LabelledRows,
        previous: CharLstmModel | None,
        resources: Resources,
        progress: Progress,
        crew: Crew,
    ) -> Self:
        progress.stage("counting", None, "words")
        sampling = ContextSampling.of(
            examples.corpus, settings, resources.threads, previous.sampling if previous else None
        )
        words = len(sampling.vocabulary)
        refuse_if_too_large(words * settings.dim * 4 * 3, resources, "--vocabulary-size or --dim")
        shape = Shape(settings.cell, (settings.char_dim, settings.hidden_size), False, settings.dim)
        network = Network.at_random(shape, len(BYTES), settings.seed)
        contexts = np.zeros((words, settings.dim), np.float32)
        if previous:
            network.take_over(previous.network)
            contexts[: len(previous.contexts)] = previous.contexts
        return cls(settings, sampling, network, contexts, resources.threads, examples.corpus.tokens)

    def feed(
        self, examples: LabelledRows, seed: int, resources: Resources, progress: Progress, crew: Crew
    ) -> WindowFeed:
        batch = self._settings.batch_for(self._tokens)
        tokens = examples.corpus.tokens
        return self._sampling.feed(examples.corpus, part_of(batch, tokens, self._tokens), seed)

    def learn(self, windows: Windows, rate: float, seed: int, crew: Crew) -> Loss:
        gradient = self.gradient(windows, self._letters, crew)
        crew.sum(gradient.buffer)
        with crew.clock.on("update"):
            self.step(gradient, rate)
        return gradient.loss

    def gradient(self, windows: Windows, letters: Callable[[Ints], Ragged], crew: Crew) -> Gradient:
        """That of this worker's words; ``letters`` spells some words."""
        touched = np.unique(np.concatenate([windows.words, windows.drawn]))
        gradient = Gradient(self._network, BYTES, {"contexts": (touched, self._settings.dim)})
        if windows.end > windows.begin:
            self._add_up(_renumbered(windows, touched), touched, letters, gradient, crew)
        return gradient

    def step(self, gradient: Gradient, rate: float) -> None:
        gradient.step(self._optimizer, rate, self._settings.clip_norm)

    def _add_up(
        self,
        windows: Windows,
        touched: Ints,
        letters: Callable[[Ints], Ragged],
        gradient: Gradient,
        crew: Crew,
    ) -> None:
        reader = _Reader(self._network, self._threads)
        distinct, parts = _distinct(windows, len(touched))
        with crew.clock.on("forward"):
            inputs = whole_lines(reader.vectors(letters(touched[distinct]), keep=True))
            tables = inputs, whole_lines(self._contexts[touched])
        with crew.clock.on("backward"):
            moves = np.zeros_like(tables[0]), np.zeros_like(tables[1])
            gradient.add_loss(*self._sampling.learn(windows, parts, tables, 1.0, moves))
            by_vectors, by_contexts = (moved[:, : self._settings.dim] for moved in moves)
            gradient.arrays["contexts"] += by_contexts
            reader.back(np.ascontiguousarray(by_vectors), gradient)

    def state(self) -> dict[str, StateArray]:
        return state_of({**self._network.arrays(), "contexts": self._contexts}, self._optimizer)

    def model(self) -> CharLstmModel:
        return CharLstmModel(self._sampling, self._network, self._contexts)


def _renumbered(windows: Windows, touched: Ints) -> Windows:
    """The same windows, the words known by their places among those that are touched."""
    words, drawn = (
        np.searchsorted(touched, array).astype(np.int32) for array in (windows.words, windows.drawn)
    )
    return windows._replace(words=words, drawn=drawn)


def _distinct(windows: Windows, words: int) -> tuple[Ints, tuple[kernels.Words, Ints]]:
    """The words to be learnt, each once; and for each of all words its place among these."""
    distinct = np.unique(windows.words[windows.begin : windows.end]).astype(np.int64)
    places = np.zeros(words, np.int32)
    places[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, (places, np.arange(words + 1))
