"""Word vectors from a stream without end: the vocabulary grows while it is read."""

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import LINE, Floats, aligned_zeros
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Loss
from manyhands.models.model import Arrays
from manyhands.models.ngram.fasttext_kernels import first_vectors_of
from manyhands.models.recurrent.network import Network, Shape
from manyhands.models.words import skipgram_kernels as kernels
from manyhands.models.words.charlstm import BYTES, CharLstm, CharLstmModel, CharLstmSettings
from manyhands.models.words.sampling import ContextSampling, WordSettings
from manyhands.models.words.skipgram import (
    BLOCK_WORDS,
    FIRST_SCALE,
    RUN_AWAY,
    SkipgramModel,
    SkipgramSettings,
)
from manyhands.models.words.skipgram_kernels import Words
from manyhands.models.words.subwords import Subwords
from manyhands.models.words.windows import AliasTable, WindowSampler, seed_of
from manyhands.records import Clock, Resources
from manyhands.settings import Anneal, StreamLearningRate, VocabularySize
from manyhands.text.growing import GrowingVocabulary
from manyhands.text.labelled_rows import LabelledRows

LEAST_WORDS = 2
# Samplers are made anew after so many blocks: after each at first, when most words are new.
SHARE_BETWEEN_LOOKS, MOST_BETWEEN_LOOKS = 8, 16


class TextPiece(NamedTuple):
    """Some running text, by the rows of its words, and all that decides how it is learnt."""

    numbers: Words
    offsets: Ints
    sampler: WindowSampler
    seed: np.uint64


class GrowingSampling:
    """The words of a stream, and how windows are made of its texts."""

    def __init__(self, settings: WordSettings, half_life: float) -> None:
        self._settings, self._half_life = settings, half_life
        self.words = GrowingVocabulary(settings.vocabulary_size, settings.min_count)
        self._sampler: WindowSampler | None = None
        self._next_look, self._messages = 0, 0

    def read(
        self, rows: LabelledRows, block: int, messages: int, block_words: int
    ) -> tuple[list[TextPiece], Words]:
        """A block as pieces of text; and the rows of the vocabulary that have a new word."""
        numbers, entered = self.words.count(rows.corpus)
        self._messages += messages
        if block >= self._next_look or self._sampler is None:
            self.words.look(0.5 ** (self._messages / self._half_life))
            self._messages = 0
            self._sampler = self._sample()
            between = min(max(block // SHARE_BETWEEN_LOOKS, 1), MOST_BETWEEN_LOOKS)
            self._next_look = block + between
        elif len(entered):  # threads may still use what there was
            keep = self._sampler.keep.copy()
            keep[entered] = 1
            self._sampler = replace(self._sampler, keep=keep)
        _, offsets = rows.corpus.take(np.arange(len(rows)))
        return [
            self._piece(self._sampler, numbers, offsets, start, block_words, block)
            for start in range(0, len(numbers), block_words)
        ], entered

    def _sample(self) -> WindowSampler:
        settings = self._settings
        return WindowSampler.of(
            self.words.counts,
            window=settings.window,
            negatives=settings.negatives,
            sample=settings.sample,
        )

    def _piece(
        self, sampler: WindowSampler, numbers: Words, offsets: Ints, start: int, words: int, block: int
    ) -> TextPiece:
        end = min(start + words, len(numbers))
        first, last = np.searchsorted(offsets, start, "right") - 1, np.searchsorted(offsets, end, "left")
        cut = np.clip(offsets[first : last + 1], start, end) - start
        return TextPiece(
            numbers[start:end], cut, sampler, seed_of(self._settings.seed, block, start // words)
        )

    def sampling(self) -> tuple[ContextSampling, Ints]:
        """The words as a model keeps them, the most frequent first; and the row of each."""
        vocabulary, order = self.words.vocabulary()
        settings = self._settings
        return ContextSampling(vocabulary, settings.window, settings.negatives, settings.sample), order

    def state(self) -> Arrays:
        arrays, sampler = self.words.state(), self._sampler
        if sampler is not None:
            arrays["keep"] = sampler.keep
            arrays["chances"], arrays["others"] = sampler.alias_table.chances, sampler.alias_table.others
        return arrays

    def facts(self) -> dict[str, Any]:
        return {"next_look": self._next_look, "messages": self._messages}

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        self.words.restore(arrays)
        self._next_look, self._messages = facts["next_look"], facts["messages"]
        if "keep" in arrays:
            table = AliasTable(np.array(arrays["chances"]), np.array(arrays["others"]))
            self._sampler = replace(self._sample(), alias_table=table, keep=np.array(arrays["keep"]))


class StreamSkipgramSettings(SkipgramSettings):
    learning_rate: StreamLearningRate = 0.06
    vocabulary_size: Annotated[VocabularySize, Field(ge=2)] = 100_000
    anneal: Anneal = 1_000_000


class StreamSkipgram:
    """``skipgram``: a row of each table for every word of the vocabulary, whichever that is at the time."""

    Settings: ClassVar[type[StreamSkipgramSettings]] = StreamSkipgramSettings
    Model: ClassVar[type[SkipgramModel]] = SkipgramModel
    learns: ClassVar[Literal["labels", "words"]] = "words"
    shares_batches: ClassVar[bool] = False
    # The letters of a word would have to be found again whenever a row is given to another.
    without: ClassVar[frozenset[str]] = frozenset({"epochs", "char_ngrams", "buckets"})

    def __init__(self, settings: StreamSkipgramSettings, half_life: float, resources: Resources) -> None:
        rows, width = settings.vocabulary_size, -(-settings.dim // LINE) * LINE
        refuse_if_too_large(2 * rows * width * 4, resources, "--vocabulary-size or --dim")
        self._settings, self._sampling = settings, GrowingSampling(settings, half_life)
        self._inputs, self._contexts = aligned_zeros(rows, width), aligned_zeros(rows, width)
        for table in (self._inputs, self._contexts):
            table[...] = 0  # takes the memory now: it must not grow later
        self._parts = np.arange(rows, dtype=np.int32), np.arange(rows + 1)

    def read(self, rows: LabelledRows, block: int, messages: int) -> list[TextPiece]:
        pieces, entered = self._sampling.read(rows, block, messages, BLOCK_WORDS)
        keys = self._sampling.words.row_hashes(entered)
        first_vectors_of(self._inputs, entered, keys, self._settings.dim, np.uint64(self._settings.seed))
        self._inputs[entered] *= FIRST_SCALE
        self._contexts[entered] = 0
        return pieces

    def learn(self, piece: TextPiece, rate: float) -> Loss:
        windows, _ = piece.sampler.windows(piece.numbers, piece.offsets, piece.seed)
        tables, negatives = (self._inputs, self._contexts), self._settings.negatives
        moves = np.float32(negatives), *self._parts, *tables, np.float32(rate), *tables
        loss = Loss(*kernels.learn(*windows, *moves))
        if loss.mean > RUN_AWAY * math.log(2) * (1 + negatives):
            raise InputError(f"training diverged (loss {loss.mean:.1f}); lower --learning-rate or --window")
        return loss

    def state(self) -> Arrays:
        used, dim = self._sampling.words.used, self._settings.dim
        mine = {"inputs": self._inputs[:used, :dim], "contexts": self._contexts[:used, :dim]}
        return {**mine, **self._sampling.state()}

    def facts(self) -> dict[str, Any]:
        return self._sampling.facts()

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        self._sampling.restore(arrays, facts)
        used, dim = self._sampling.words.used, self._settings.dim
        self._inputs[:used, :dim], self._contexts[:used, :dim] = arrays["inputs"], arrays["contexts"]

    def model(self) -> SkipgramModel | None:
        sampling, order = self._sampling.sampling()
        if len(order) < LEAST_WORDS:
            return None
        return SkipgramModel(
            sampling, Subwords(), self._inputs[order], self._contexts[order], self._settings.dim
        )


class StreamCharLstmSettings(CharLstmSettings):
    learning_rate: StreamLearningRate = 0.005
    vocabulary_size: Annotated[VocabularySize, Field(ge=2)] = 30_000
    anneal: Anneal = 1_000_000


class StreamCharLstm:
    """``charlstm``. Any word has a vector; the vocabulary is that of the neighbours it is told from."""

    Settings: ClassVar[type[StreamCharLstmSettings]] = StreamCharLstmSettings
    Model: ClassVar[type[CharLstmModel]] = CharLstmModel
    learns: ClassVar[Literal["labels", "words"]] = "words"
    shares_batches: ClassVar[bool] = True
    without: ClassVar[frozenset[str]] = frozenset({"epochs"})

    def __init__(self, settings: StreamCharLstmSettings, half_life: float, resources: Resources) -> None:
        words, dim = settings.vocabulary_size, settings.dim
        refuse_if_too_large(words * dim * 4 * 3, resources, "--vocabulary-size or --dim")
        self._settings, self._growing = settings, GrowingSampling(settings, half_life)
        shape = Shape(settings.cell, (settings.char_dim, settings.hidden_size), False, dim)
        self._network = Network.at_random(shape, len(BYTES), settings.seed)
        self._contexts = np.full((words, dim), 0, np.float32)
        sampling, _ = self._growing.sampling()
        self._inner = CharLstm(settings, sampling, self._network, self._contexts, resources.threads, 0)
        self._inner.letters = self._growing.words.letters
        self._crew = _Alone()

    def read(self, rows: LabelledRows, block: int, messages: int) -> list[TextPiece]:
        pieces, entered = self._growing.read(rows, block, messages, self._settings.batch_size)
        for name, part in self._inner.state().items():
            if (
                name.rpartition(".")[2] == "contexts"
            ):  # the array itself, and what the optimizer remembers of it
                part.array[entered] = 0
        return pieces

    def learn(self, piece: TextPiece, rate: float) -> Loss:
        windows, _ = piece.sampler.windows(piece.numbers, piece.offsets, piece.seed)
        return self._inner.learn(windows, rate, 0, self._crew)

    def state(self) -> Arrays:
        mine = {f"network.{name}": part.array for name, part in self._inner.state().items()}
        return {**mine, **self._growing.state()}

    def facts(self) -> dict[str, Any]:
        return self._growing.facts()

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        self._growing.restore(arrays, facts)
        for name, part in self._inner.state().items():
            part.array[...] = arrays[f"network.{name}"]

    def model(self) -> CharLstmModel | None:
        sampling, order = self._growing.sampling()
        if len(order) < LEAST_WORDS:
            return None
        return CharLstmModel(sampling, self._network, self._contexts[order])


class _Alone:
    """A crew of one."""

    workers = 1

    def __init__(self) -> None:
        self.clock = Clock()

    def share(self, count: int) -> tuple[int, int]:
        return 0, count

    def sum(self, numbers: npt.NDArray[Any]) -> None:
        pass

    def zeros(self, rows: int, width: int) -> Floats:
        return aligned_zeros(rows, width)

    def to_fill(self, rows: int) -> tuple[int, int]:
        return 0, rows
