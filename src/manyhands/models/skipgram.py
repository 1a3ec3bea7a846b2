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
from pydantic import Field

from manyhands.errors import InputError
from manyhands.kernel import Flags, Ints
from manyhands.lines import LINE, Floats, aligned
from manyhands.models import skipgram_kernels as kernels
from manyhands.models.embedding import Embedding
from manyhands.models.fasttext_kernels import first_vectors
from manyhands.models.learner import Arrays, Crew, Loss
from manyhands.models.neighbourhood import Neighbourhood, WordSettings, learn_windows, losses_of, whole_lines
from manyhands.models.slotting import refuse_if_too_large
from manyhands.models.subwords import Subwords, means
from manyhands.models.windows import WindowFeed, Windows
from manyhands.parallel import side_by_side
from manyhands.records import Progress, Resources
from manyhands.settings import LetterRuns
from manyhands.text.lesson import Lesson
from manyhands.text.ragged import from_strings

BLOCK_WORDS = 1 << 15
FEWEST_BLOCKS = 64  # of a short text: threads finish a round together, the rate falls smoothly
LEAST_BLOCK_WORDS = 1 << 10
LARGEST_BITS = 28
RUN_AWAY = 2.0  # times the loss of who knows nothing
FIRST_SCALE = np.float32(0.5)  # half of fastText's first numbers, as word2vec has it: better at rare words


class SkipgramSettings(WordSettings, LetterRuns):
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    rate: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 0.042
    buckets: Annotated[int, Field(ge=1, le=1 << LARGEST_BITS)] = 1 << 20


class SkipgramModel:
    """``inputs`` has a row for each word and run of letters, ``contexts`` one for each word as a neighbour.

    Rows may be padded: only the first ``dim`` numbers count.
    """

    def __init__(
        self, hood: Neighbourhood, subwords: Subwords, inputs: Floats, contexts: Floats, dim: int
    ) -> None:
        self.hood, self.subwords, self.dim = hood, subwords, dim
        self.inputs, self.contexts = inputs, contexts

    @cached_property
    def _parts(self) -> tuple[kernels.Words, Ints]:
        return self.subwords.parts(self.hood.vocabulary.words)

    @property
    def vectors(self) -> Floats:
        """The vector of each word."""
        if not self.subwords.rows:
            return self.inputs[:, : self.dim]
        return means(whole_lines(self.inputs), *self._parts)[:, : self.dim]

    def embedding(self) -> Embedding:
        spell = self._spell if self.subwords.rows else None
        return Embedding(self.hood.vocabulary, self.vectors, spell)

    def _spell(self, words: Sequence[str]) -> tuple[Floats, Flags]:
        rows, offsets = self.subwords.unseen(from_strings(words), len(self.hood.vocabulary))
        used, places = np.unique(rows, return_inverse=True)
        made = means(whole_lines(self.inputs[used]), places.astype(np.int32), offsets)
        return made[:, : self.dim], np.diff(offsets) > 0

    def losses(self, feed: WindowFeed, first: int, last: int, threads: int) -> Floats:
        tables = whole_lines(self.inputs), whole_lines(self.contexts)

        def lose(windows: Windows) -> tuple[float, float]:
            return learn_windows(windows, self.hood.negatives, self._parts, tables)

        return losses_of(feed, first, last, lose, threads)

    def facts(self) -> dict[str, Any]:
        return {
            **self.hood.facts(),
            "dim": self.dim,
            "chars": list(self.subwords.chars),
            "bits": self.subwords.bits,
        }

    def arrays(self) -> Arrays:
        tables = {"inputs": self.inputs[:, : self.dim], "contexts": self.contexts[:, : self.dim]}
        return {**tables, **self.hood.arrays()}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        hood = Neighbourhood.from_parts(facts, arrays)
        inputs, contexts = arrays["inputs"], arrays["contexts"]
        dim, chars, bits = facts["dim"], facts["chars"], facts["bits"]
        if not all(type(number) is int for number in (dim, bits, *chars)) or len(chars) != 2 or dim < 1:
            raise InputError("the model is not described as it should be")
        if not (0 <= bits <= LARGEST_BITS and 0 <= chars[0] <= chars[1] <= 10):
            raise InputError("the model is not described as it should be")
        subwords, words = Subwords((chars[0], chars[1]), bits), len(hood.vocabulary)
        right = inputs.shape == (words + subwords.rows, dim) and contexts.shape == (words, dim)
        if not right or not inputs.dtype == contexts.dtype == np.float32:
            raise InputError("the vectors do not fit the words of the model")
        return cls(hood, subwords, inputs, contexts, dim)


class Skipgram:
    """The vectors while they are learnt, by many threads in the same memory."""

    Settings: ClassVar[type[SkipgramSettings]] = SkipgramSettings
    Model: ClassVar[type[SkipgramModel]] = SkipgramModel
    learns: ClassVar[Literal["labels", "words"]] = "words"
    shares_batches: ClassVar[bool] = False

    def __init__(
        self, hood: Neighbourhood, subwords: Subwords, inputs: Floats, contexts: Floats, dim: int
    ) -> None:
        self._hood, self._subwords, self._dim = hood, subwords, dim
        self._inputs, self._contexts = inputs, contexts
        self._parts = subwords.parts(hood.vocabulary.words)

    @classmethod
    def begin(
        cls,
        settings: SkipgramSettings,
        lesson: Lesson,
        previous: SkipgramModel | None,
        resources: Resources,
        progress: Progress,
        share: Ints | None = None,
    ) -> tuple[Self, WindowFeed]:
        progress.stage("counting", None, "words")
        hood = Neighbourhood.of(
            lesson.corpus, settings, resources.threads, previous.hood if previous else None
        )
        words, dim = len(hood.vocabulary), settings.dim
        subwords = Subwords(settings.letters, (settings.buckets - 1).bit_length())
        rows = words + subwords.rows
        refuse_if_too_large((rows + words) * dim * 4, resources, "--words, --dim or --buckets")
        width = -(-dim // LINE) * LINE
        inputs, contexts = aligned(rows, width), aligned(words, width)
        bounds = np.linspace(0, rows, resources.threads + 1).astype(np.int64).tolist()
        fill = [(inputs, first, last, dim, np.uint64(settings.seed)) for first, last in pairwise(bounds)]
        for _ in side_by_side(lambda part: first_vectors(*part), fill, resources.threads):
            pass
        inputs *= FIRST_SCALE
        if previous:
            old = len(previous.hood.vocabulary)
            inputs[:old, :dim] = previous.inputs[:old, :dim]
            inputs[words:, :dim] = previous.inputs[old:, :dim]
            contexts[:old, :dim] = previous.contexts[:, :dim]
        learner = cls(hood, subwords, inputs, contexts, dim)
        mine = lesson if share is None else lesson.take(share)
        return learner, learner.feed(mine, settings.seed, resources, progress)

    def feed(self, lesson: Lesson, seed: int, resources: Resources, progress: Progress) -> WindowFeed:
        block = min(BLOCK_WORDS, max(LEAST_BLOCK_WORDS, lesson.corpus.tokens // FEWEST_BLOCKS))
        return self._hood.feed(lesson.corpus, block, seed)

    def learn(self, windows: Windows, rate: float, seed: int, crew: Crew) -> Loss:
        tables, negatives = (self._inputs, self._contexts), self._hood.negatives
        loss = Loss(*learn_windows(windows, negatives, self._parts, tables, rate, tables))
        if loss.mean > RUN_AWAY * math.log(2) * (1 + negatives):
            raise InputError(f"the vectors ran away, to a loss of {loss.mean:.1f}; lower --rate or --window")
        return loss

    def touched(self, pieces: list[Windows]) -> dict[str, Ints]:
        """The words and their runs of letters; as neighbours also the words that were drawn."""
        parts, offsets = self._parts
        words = np.zeros(len(self._contexts), np.bool_)
        for piece in pieces:
            words[piece.words] = True
        inputs = np.zeros(len(self._inputs), np.bool_)
        inputs[parts[np.repeat(words, np.diff(offsets))]] = True
        for piece in pieces:
            words[piece.drawn] = True
        return {"inputs": np.flatnonzero(inputs), "contexts": np.flatnonzero(words)}

    def weights(self) -> Arrays:
        return {"inputs": self._inputs, "contexts": self._contexts}

    def model(self) -> SkipgramModel:
        return SkipgramModel(self._hood, self._subwords, self._inputs, self._contexts, self._dim)
