"""``skipgram``: a vector for each word, learnt by telling its neighbours from words drawn at random.

With runs of letters (``--chars 3-6``), a word is the mean of its own vector and those of its runs, and
a word that was never seen has the vector of its runs.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from manyhands.errors import InputError
from manyhands.kernels.compile import Flags, Ints
from manyhands.kernels.simd import LINE, Floats
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Crew, Loss, StateArray
from manyhands.models.model import EMBED, Arrays
from manyhands.models.ngram.fasttext_kernels import first_vectors
from manyhands.models.words import skipgram_kernels as kernels
from manyhands.models.words.sampling import ContextSampling, WordSettings, losses_of, whole_lines
from manyhands.models.words.subwords import Subwords, means
from manyhands.models.words.windows import WindowFeed, Windows
from manyhands.parallel import map_unordered
from manyhands.records import Progress, Resources
from manyhands.settings import Buckets, CharNgramSettings, Epochs, LearningRate, Search
from manyhands.text.embedding import Embedding
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.ragged import from_strings
from manyhands.text.vocabulary import Vocabulary

BLOCK_WORDS = 1 << 15
FEWEST_BLOCKS = 64  # of a short text: threads finish a round together, the rate falls smoothly
LEAST_BLOCK_WORDS = 1 << 10
LARGEST_BITS = 28
RUN_AWAY = 2.0  # times the loss of who knows nothing
FIRST_SCALE = np.float32(0.5)  # half of fastText's first numbers, as word2vec has it: better at rare words


class SkipgramSettings(WordSettings, CharNgramSettings):
    epochs: Annotated[Epochs, Search(2, 20, log=True)] = 5
    learning_rate: Annotated[LearningRate, Search(0.01, 0.1, log=True)] = 0.042
    buckets: Buckets = 1 << 20


class SkipgramModel:
    """``inputs`` has a row for each word and run of letters, ``contexts`` one for each word as a neighbour.

    Rows may be padded: only the first ``dim`` numbers count.
    """

    can: ClassVar[frozenset[str]] = frozenset({EMBED})

    def __init__(
        self, sampling: ContextSampling, subwords: Subwords, inputs: Floats, contexts: Floats, dim: int
    ) -> None:
        self.sampling, self.subwords, self.dim = sampling, subwords, dim
        self.inputs, self.contexts = inputs, contexts

    @cached_property
    def _parts(self) -> tuple[kernels.Words, Ints]:
        return self.subwords.parts(self.sampling.vocabulary.words)

    @property
    def vectors(self) -> Floats:
        """The vector of each word."""
        if not self.subwords.rows:
            return self.inputs[:, : self.dim]
        return means(whole_lines(self.inputs), *self._parts)[:, : self.dim]

    def embedding(self, vocabulary: Vocabulary | None) -> Embedding:
        spell = self._spell if self.subwords.rows else None
        return Embedding(self.sampling.vocabulary, self.vectors, spell)

    def _spell(self, words: Sequence[str]) -> tuple[Floats, Flags]:
        rows, offsets = self.subwords.unseen(from_strings(words), len(self.sampling.vocabulary))
        used, places = np.unique(rows, return_inverse=True)
        made = means(whole_lines(self.inputs[used]), places.astype(np.int32), offsets)
        return made[:, : self.dim], np.diff(offsets) > 0

    def losses(self, feed: WindowFeed, first: int, last: int, threads: int) -> Floats:
        tables = whole_lines(self.inputs), whole_lines(self.contexts)

        def lose(windows: Windows) -> tuple[float, float]:
            return self.sampling.learn(windows, self._parts, tables)

        return losses_of(feed, first, last, lose, threads)

    def facts(self) -> dict[str, Any]:
        return {
            **self.sampling.facts(),
            "dim": self.dim,
            "chars": list(self.subwords.chars),
            "bits": self.subwords.bits,
        }

    def arrays(self) -> Arrays:
        tables = {"inputs": self.inputs[:, : self.dim], "contexts": self.contexts[:, : self.dim]}
        return {**tables, **self.sampling.arrays()}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        sampling = ContextSampling.from_parts(facts, arrays)
        inputs, contexts = arrays["inputs"], arrays["contexts"]
        dim, chars, bits = facts["dim"], facts["chars"], facts["bits"]
        right = all(type(number) is int for number in (dim, bits, *chars)) and len(chars) == 2 and dim >= 1
        if not right or not (0 <= bits <= LARGEST_BITS and 0 <= chars[0] <= chars[1] <= 10):
            raise InputError("the bundle is damaged (config.json); train or fetch it again")
        subwords, words = Subwords((chars[0], chars[1]), bits), len(sampling.vocabulary)
        right = inputs.shape == (words + subwords.rows, dim) and contexts.shape == (words, dim)
        if not right or not inputs.dtype == contexts.dtype == np.float32:
            raise InputError("the vectors do not fit the words of the model")
        return cls(sampling, subwords, inputs, contexts, dim)


class Skipgram:
    """The vectors while they are learnt, by many threads in the same memory."""

    Settings: ClassVar[type[SkipgramSettings]] = SkipgramSettings
    Model: ClassVar[type[SkipgramModel]] = SkipgramModel
    summary: ClassVar[str] = "word vectors by negative sampling, with character n-grams if you like"
    learns: ClassVar[Literal["labels", "words"]] = "words"
    shares_batches: ClassVar[bool] = False

    def __init__(
        self, sampling: ContextSampling, subwords: Subwords, inputs: Floats, contexts: Floats, dim: int
    ) -> None:
        self._sampling, self._subwords, self._dim = sampling, subwords, dim
        self._inputs, self._contexts = inputs, contexts
        self._parts = subwords.parts(sampling.vocabulary.words)

    @classmethod
    def begin(
        cls,
        settings: SkipgramSettings,
        examples: LabelledRows,
        previous: SkipgramModel | None,
        resources: Resources,
        progress: Progress,
        crew: Crew,
    ) -> Self:
        progress.stage("counting", None, "words")
        sampling = ContextSampling.of(
            examples.corpus, settings, resources.threads, previous.sampling if previous else None
        )
        words, dim = len(sampling.vocabulary), settings.dim
        subwords = Subwords(settings.char_lengths, (settings.buckets - 1).bit_length())
        rows = words + subwords.rows
        refuse_if_too_large((rows + words) * dim * 4, resources, "--vocabulary-size, --dim or --buckets")
        width = -(-dim // LINE) * LINE
        inputs, contexts = crew.zeros(rows, width), crew.zeros(words, width)
        first, last = crew.to_fill(rows)
        bounds = np.linspace(first, last, resources.threads + 1).astype(np.int64).tolist()
        fill = [(inputs, begin, end, dim, np.uint64(settings.seed)) for begin, end in pairwise(bounds)]
        for _ in map_unordered(lambda part: first_vectors(*part), fill, resources.threads):
            pass
        inputs[first:last] *= FIRST_SCALE
        if previous:
            old = len(previous.sampling.vocabulary)
            inputs[:old, :dim] = previous.inputs[:old, :dim]
            inputs[words:, :dim] = previous.inputs[old:, :dim]
            contexts[:old, :dim] = previous.contexts[:, :dim]
        return cls(sampling, subwords, inputs, contexts, dim)

    def feed(
        self, examples: LabelledRows, seed: int, resources: Resources, progress: Progress, crew: Crew
    ) -> WindowFeed:
        block = min(BLOCK_WORDS, max(LEAST_BLOCK_WORDS, examples.corpus.tokens // FEWEST_BLOCKS))
        return self._sampling.feed(examples.corpus, block, seed)

    def learn(self, windows: Windows, rate: float, seed: int, crew: Crew) -> Loss:
        tables = self._inputs, self._contexts
        loss = Loss(*self._sampling.learn(windows, self._parts, tables, rate, tables))
        if loss.mean > RUN_AWAY * math.log(2) * (1 + self._sampling.negatives):
            raise InputError(f"training diverged (loss {loss.mean:.1f}); lower --learning-rate or --window")
        return loss

    def state(self) -> dict[str, StateArray]:
        # The rows of character n-grams follow those of the words, in no order.
        only_words = not self._subwords.rows
        inputs = StateArray(self._inputs, last=self._dim, by_frequency=only_words, apart=only_words)
        contexts = StateArray(self._contexts, last=self._dim, by_frequency=True, apart=True)
        return {"inputs": inputs, "contexts": contexts}

    def model(self) -> SkipgramModel:
        return SkipgramModel(self._sampling, self._subwords, self._inputs, self._contexts, self._dim)
