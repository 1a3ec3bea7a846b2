"""Word vectors from a stream without end: the vocabulary grows while it is read."""

import math
from contextlib import AbstractContextManager
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import LINE, Floats, aligned_zeros
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Loss, Zeros
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
from manyhands.models.words.windows import AliasTable, Windows, WindowSampler, draws_of, seed_of
from manyhands.records import Clock, Resources
from manyhands.settings import Anneal, StreamLearningRate, VocabularySize
from manyhands.text.growing import GrowingVocabulary
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.ragged import Ragged

LEAST_WORDS = 2
# Samplers are made anew after so many blocks: after each at first, when most words are new.
SHARE_BETWEEN_LOOKS, MOST_BETWEEN_LOOKS = 8, 16


class TextPiece(NamedTuple):
    """Some running text, by the rows of its words; negatives are drawn from the first so many rows."""

    numbers: Words
    offsets: Ints
    drawn_from: int
    seed: np.uint64

    def windows(self, settings: WordSettings, tables: Arrays) -> Windows:
        rows = self.drawn_from
        alias_table = AliasTable(tables["chances"][:rows], tables["others"][:rows])
        draws = draws_of(settings.window, settings.negatives)
        sampler = WindowSampler(settings.window, draws, alias_table, tables["keep"])
        return sampler.windows(self.numbers, self.offsets, self.seed)[0]


class GrowingSampling:
    """The words of a stream, and how windows are made of its texts.

    What words are kept and drawn by changes in place, while others may still learn earlier pieces: of two
    frequencies that are hardly different, it does not matter which one they meet.
    """

    def __init__(self, settings: WordSettings, half_life: float, zeros: Zeros) -> None:
        self._settings, self._half_life = settings, half_life
        self.words = GrowingVocabulary(settings.vocabulary_size, settings.min_count)
        keep, chances, others = (room_like(np.empty(len(self.words), np.float32), zeros) for _ in range(3))
        self.tables: Arrays = {"keep": keep, "chances": chances, "others": others.view(np.int32)}
        self._drawn_from = 0
        self._next_look, self._messages = 0, 0

    def read(
        self, rows: LabelledRows, block: int, messages: int, block_words: int
    ) -> tuple[list[TextPiece], Words]:
        """A block as pieces of text; and the rows of the vocabulary that have a new word."""
        numbers, entered = self.words.count(rows.corpus)
        self._messages += messages
        if block >= self._next_look or not self._drawn_from:
            self.words.look(0.5 ** (self._messages / self._half_life))
            self._messages = 0
            self._sample()
            between = min(max(block // SHARE_BETWEEN_LOOKS, 1), MOST_BETWEEN_LOOKS)
            self._next_look = block + between
        else:
            self.tables["keep"][entered] = 1
        _, offsets = rows.corpus.take(np.arange(len(rows)))
        return [
            self._piece(numbers, offsets, start, block_words, block)
            for start in range(0, len(numbers), block_words)
        ], entered

    def _sample(self) -> None:
        settings = self._settings
        sampler = WindowSampler.of(
            self.words.counts,
            window=settings.window,
            negatives=settings.negatives,
            sample=settings.sample,
        )
        self._set(sampler.keep, sampler.alias_table.chances, sampler.alias_table.others)

    def _set(self, keep: Floats, chances: Floats, others: Words) -> None:
        self._drawn_from = len(chances)
        self.tables["keep"][:] = keep
        self.tables["chances"][: len(chances)], self.tables["others"][: len(others)] = chances, others

    def _piece(self, numbers: Words, offsets: Ints, start: int, words: int, block: int) -> TextPiece:
        end = min(start + words, len(numbers))
        first, last = np.searchsorted(offsets, start, "right") - 1, np.searchsorted(offsets, end, "left")
        cut = np.clip(offsets[first : last + 1], start, end) - start
        seed = seed_of(self._settings.seed, block, start // words)
        return TextPiece(numbers[start:end], cut, self._drawn_from, seed)

    def sampling(self) -> tuple[ContextSampling, Ints]:
        """The words as a model keeps them, the most frequent first; and the row of each."""
        vocabulary, order = self.words.vocabulary()
        settings = self._settings
        return ContextSampling(vocabulary, settings.window, settings.negatives, settings.sample), order

    def state(self) -> Arrays:
        lengths = {"keep": len(self.words), "chances": self._drawn_from, "others": self._drawn_from}
        mine = {name: self.tables[name][:length] for name, length in lengths.items()}
        return {**self.words.state(), **mine}

    def facts(self) -> dict[str, Any]:
        return {"next_look": self._next_look, "messages": self._messages}

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        self.words.restore(arrays)
        self._next_look, self._messages = facts["next_look"], facts["messages"]
        self._set(arrays["keep"], arrays["chances"], arrays["others"])


def room_like(array: npt.NDArray[Any], zeros: Zeros) -> npt.NDArray[Any]:
    """Room for as many numbers as the array has, of the same kind."""
    room = zeros(1, -(-array.nbytes // np.dtype(np.float32).itemsize))
    room[...] = 0  # takes the memory now: it must not grow later
    return room.reshape(-1).view(array.dtype)[: array.size].reshape(array.shape)


class StreamSkipgramSettings(SkipgramSettings):
    learning_rate: StreamLearningRate = 0.06
    vocabulary_size: Annotated[VocabularySize, Field(ge=2)] = 100_000
    anneal: Anneal = 1_000_000


class SkipgramPieces:
    """Learns running text in the tables of ``skipgram``."""

    def __init__(
        self,
        settings: StreamSkipgramSettings,
        tables: Arrays,
        threads: int,
        alone: AbstractContextManager[Any],
    ) -> None:
        self._settings, self._tables = settings, tables
        rows = settings.vocabulary_size
        self._parts = np.arange(rows, dtype=np.int32), np.arange(rows + 1)

    def learn(self, piece: TextPiece, rate: float) -> Loss:
        windows, negatives = piece.windows(self._settings, self._tables), self._settings.negatives
        tables = self._tables["inputs"], self._tables["contexts"]
        moves = np.float32(negatives), *self._parts, *tables, np.float32(rate), *tables
        loss = Loss(*kernels.learn(*windows, *moves))
        if loss.mean > RUN_AWAY * math.log(2) * (1 + negatives):
            raise InputError(f"training diverged (loss {loss.mean:.1f}); lower --learning-rate or --window")
        return loss


class StreamSkipgram:
    """``skipgram``: a row of each table for every word of the vocabulary, whichever that is at the time."""

    Settings: ClassVar[type[StreamSkipgramSettings]] = StreamSkipgramSettings
    Model: ClassVar[type[SkipgramModel]] = SkipgramModel
    Pieces: ClassVar[type[SkipgramPieces]] = SkipgramPieces
    learns: ClassVar[Literal["labels", "words"]] = "words"
    shares_batches: ClassVar[bool] = False
    # The letters of a word would have to be found again whenever a row is given to another.
    without: ClassVar[frozenset[str]] = frozenset({"epochs", "char_ngrams", "buckets"})

    def __init__(
        self,
        settings: StreamSkipgramSettings,
        half_life: float,
        resources: Resources,
        zeros: Zeros = aligned_zeros,
    ) -> None:
        rows, width = settings.vocabulary_size, -(-settings.dim // LINE) * LINE
        refuse_if_too_large(2 * rows * width * 4, resources, "--vocabulary-size or --dim")
        self.settings, self._sampling = settings, GrowingSampling(settings, half_life, zeros)
        self._inputs, self._contexts = zeros(rows, width), zeros(rows, width)
        for table in (self._inputs, self._contexts):
            table[...] = 0  # takes the memory now: it must not grow later

    def read(self, rows: LabelledRows, block: int, messages: int) -> list[TextPiece]:
        pieces, entered = self._sampling.read(rows, block, messages, BLOCK_WORDS)
        keys = self._sampling.words.row_hashes(entered)
        first_vectors_of(self._inputs, entered, keys, self.settings.dim, np.uint64(self.settings.seed))
        self._inputs[entered] *= FIRST_SCALE
        self._contexts[entered] = 0
        return pieces

    def tables(self) -> Arrays:
        return {"inputs": self._inputs, "contexts": self._contexts, **self._sampling.tables}

    def state(self) -> Arrays:
        used, dim = self._sampling.words.used, self.settings.dim
        mine = {"inputs": self._inputs[:used, :dim], "contexts": self._contexts[:used, :dim]}
        return {**mine, **self._sampling.state()}

    def facts(self) -> dict[str, Any]:
        return self._sampling.facts()

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        self._sampling.restore(arrays, facts)
        used, dim = self._sampling.words.used, self.settings.dim
        self._inputs[:used, :dim], self._contexts[:used, :dim] = arrays["inputs"], arrays["contexts"]

    def model(self) -> SkipgramModel | None:
        sampling, order = self._sampling.sampling()
        if len(order) < LEAST_WORDS:
            return None
        return SkipgramModel(
            sampling, Subwords(), self._inputs[order], self._contexts[order], self.settings.dim
        )


class StreamCharLstmSettings(CharLstmSettings):
    learning_rate: StreamLearningRate = 0.005
    vocabulary_size: Annotated[VocabularySize, Field(ge=2)] = 30_000
    anneal: Anneal = 1_000_000


class SpelledPiece(NamedTuple):
    """The windows of some text; and the words in them, by their rows and letters as they were then."""

    windows: Windows
    rows: Words
    letters: Ragged


class CharLstmPieces:
    """Learns windows in the tables of ``charlstm``: of the network, and of what the optimizer remembers.

    Several may read and find their gradients at once, from weights that others are about to move; the steps
    themselves are made one by one.
    """

    def __init__(
        self,
        settings: StreamCharLstmSettings,
        tables: Arrays,
        threads: int,
        alone: AbstractContextManager[Any],
    ) -> None:
        self._alone, self._crew = alone, _Alone()
        shape, own = _shape(settings), ("embedding", *_shape(settings).arrays())
        self.network = Network.from_arrays(shape, len(BYTES), {name: tables[name] for name in own})
        nothing = GrowingVocabulary(1, 1).vocabulary()[0]
        sampling = ContextSampling(nothing, settings.window, settings.negatives, settings.sample)
        contexts = tables["contexts"]
        self._inner = CharLstm(settings, sampling, self.network, contexts, threads, 0, tables)

    def learn(self, piece: SpelledPiece, rate: float) -> Loss:
        gradient = self._inner.gradient(
            piece.windows, lambda rows: piece.letters.take(np.searchsorted(piece.rows, rows)), self._crew
        )
        with self._alone:
            self._inner.step(gradient, rate)
        return gradient.loss


def _shape(settings: CharLstmSettings) -> Shape:
    return Shape(settings.cell, (settings.char_dim, settings.hidden_size), False, settings.dim)


class StreamCharLstm:
    """``charlstm``. Any word has a vector; the vocabulary is that of the neighbours it is told from."""

    Settings: ClassVar[type[StreamCharLstmSettings]] = StreamCharLstmSettings
    Model: ClassVar[type[CharLstmModel]] = CharLstmModel
    Pieces: ClassVar[type[CharLstmPieces]] = CharLstmPieces
    learns: ClassVar[Literal["labels", "words"]] = "words"
    shares_batches: ClassVar[bool] = True
    without: ClassVar[frozenset[str]] = frozenset({"epochs"})

    def __init__(
        self,
        settings: StreamCharLstmSettings,
        half_life: float,
        resources: Resources,
        zeros: Zeros = aligned_zeros,
    ) -> None:
        words, dim = settings.vocabulary_size, settings.dim
        refuse_if_too_large(words * dim * 4 * 3, resources, "--vocabulary-size or --dim")
        self.settings, self._growing = settings, GrowingSampling(settings, half_life, zeros)
        network = Network.at_random(_shape(settings), len(BYTES), settings.seed)
        sampling, _ = self._growing.sampling()
        first = CharLstm(settings, sampling, network, np.zeros((words, dim), np.float32), 1, 0).state()
        self._tables = {name: room_like(part.array, zeros) for name, part in first.items()}
        for name, part in first.items():
            self._tables[name][...] = part.array
        own = {name: self._tables[name] for name in network.arrays()}
        self._network = Network.from_arrays(_shape(settings), len(BYTES), own)

    def read(self, rows: LabelledRows, block: int, messages: int) -> list[SpelledPiece]:
        pieces, entered = self._growing.read(rows, block, messages, self.settings.batch_size)
        for name, array in self._tables.items():
            if name.rpartition(".")[2] == "contexts":  # itself, and what the optimizer remembers of it
                array[entered] = 0
        return [self._spelled(piece.windows(self.settings, self._growing.tables)) for piece in pieces]

    def _spelled(self, windows: Windows) -> SpelledPiece:
        words: Any = np.unique(windows.words)
        return SpelledPiece(windows, words, self._growing.words.letters(words))

    def tables(self) -> Arrays:
        return self._tables

    def state(self) -> Arrays:
        mine = {f"network.{name}": array for name, array in self._tables.items()}
        return {**mine, **self._growing.state()}

    def facts(self) -> dict[str, Any]:
        return self._growing.facts()

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        self._growing.restore(arrays, facts)
        for name, array in self._tables.items():
            array[...] = arrays[f"network.{name}"]

    def model(self) -> CharLstmModel | None:
        sampling, order = self._growing.sampling()
        if len(order) < LEAST_WORDS:
            return None
        return CharLstmModel(sampling, self._network, self._tables["contexts"][order])


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
