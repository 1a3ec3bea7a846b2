"""The words that a model of word vectors learns, and how it finds their neighbours."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import LINE, Floats, aligned_zeros
from manyhands.models.learner import Piece
from manyhands.models.model import Arrays
from manyhands.models.words import skipgram_kernels as kernels
from manyhands.models.words.skipgram_kernels import Words
from manyhands.models.words.windows import WindowFeed, Windows
from manyhands.parallel import map_ordered
from manyhands.settings import (
    ChangesTask,
    Common,
    Dim,
    MinCount,
    ModelSettings,
    Negatives,
    Search,
    VocabularySize,
)
from manyhands.text.corpus import Corpus, word_counts
from manyhands.text.ragged import Ragged, from_arrow
from manyhands.text.vocabulary import Vocabulary, vocabulary_from_counts

Parts = tuple[Words, Ints]  # the rows whose mean each word is, and where those of each word begin
Tables = tuple[Floats, Floats]  # of words as they are learnt, and as neighbours

HELD_OUT_WORDS = 1 << 14  # of a block of text that is only judged by
HELD_OUT_SEED = 0  # the same windows for every model that is judged by the same text


class WordSettings(ModelSettings):
    """What the models of word vectors share."""

    dim: Annotated[Dim, Search(50, 300, log=True)] = 100
    window: Annotated[
        int,
        Field(ge=1, le=100, description="Words to either side that count as context."),
        Common(),
        Search(2, 15),
        ChangesTask(),
    ] = 5
    negatives: Annotated[Negatives, Search(3, 15), ChangesTask()] = 5
    sample: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            allow_inf_nan=False,
            description="Subsampling: randomly skip words that make up more than this share of the text.",
        ),
        Search(1e-5, 1e-3, log=True),
        ChangesTask(),
    ] = 1e-4
    vocabulary_size: Annotated[VocabularySize, Field(ge=2)] = 1_000_000
    min_count: Annotated[MinCount, Search(1, 10, log=True), ChangesTask()] = 5


@dataclass(frozen=True)
class ContextSampling:
    """The words, the most frequent first unless a model was continued, and the sizes of their windows."""

    vocabulary: Vocabulary
    window: int
    negatives: int
    sample: float

    @classmethod
    def of(cls, corpus: Corpus, settings: WordSettings, threads: int, previous: Self | None) -> Self:
        """The words of a corpus, behind those that an earlier model knew."""
        if corpus.values is not None:
            raise UsageError("the model reads texts, and these rows are numbers; use --model lstm")
        found = vocabulary_from_counts(corpus.words, word_counts(corpus, threads))
        real = np.asarray(pc.not_equal(found.words, ""))  # tokens that stand for no word are empty
        chosen = np.flatnonzero(real & (found.counts >= settings.min_count))[: settings.vocabulary_size]
        known = Vocabulary(found.words.take(pa.array(chosen)), found.counts[chosen])
        if previous is not None:
            known = _behind(previous.vocabulary, known)
        if len(known) < 2:
            only = f"only '{known.words[0]}'" if len(known) else "no word"
            raise InputError(
                f"the text has {only} that stands {settings.min_count} times or more, and two are needed; "
                "give more text or lower --min-count"
            )
        return cls(known, settings.window, settings.negatives, settings.sample)

    def numbers(self, corpus: Corpus) -> Words:
        """Which word of ours each of the corpus is; -1 if none."""
        words = corpus.words.arrow().cast(pa.large_string())
        return np.asarray(pc.fill_null(pc.index_in(words, value_set=self.vocabulary.words), -1), np.int32)

    def feed(self, corpus: Corpus, block_words: int, seed: int) -> WindowFeed:
        return WindowFeed(
            corpus,
            self.numbers(corpus),
            self.vocabulary.counts,
            window=self.window,
            negatives=self.negatives,
            sample=self.sample,
            block_words=block_words,
            seed=seed,
        )

    def held_out(self, corpus: Corpus) -> WindowFeed:
        """Text to be judged by."""
        return self.feed(corpus, HELD_OUT_WORDS, HELD_OUT_SEED)

    def learn(
        self, windows: Windows, parts: Parts, tables: Tables, rate: float = 0.0, moves: Tables | None = None
    ) -> tuple[float, float]:
        """Learn some windows, and add to ``moves``; without any, only tell the loss and how many pairs."""
        nowhere = np.empty((0, tables[0].shape[1]), np.float32)
        into, negatives = moves or (nowhere, nowhere), np.float32(self.negatives)
        return kernels.learn(*windows, negatives, *parts, *tables, np.float32(rate), *into)

    def facts(self) -> dict[str, Any]:
        return {"window": self.window, "negatives": self.negatives, "sample": self.sample}

    def arrays(self) -> Arrays:
        letters = from_arrow(self.vocabulary.words)
        first, last = letters.offsets[0], letters.offsets[-1]
        return {
            "letters": letters.data[first:last],
            "word_offsets": letters.offsets - first,
            "counts": self.vocabulary.counts,
        }

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        """The opposite of ``facts`` and ``arrays``, which may come from anywhere: all is checked."""
        letters, offsets, counts = (arrays[name] for name in ("letters", "word_offsets", "counts"))
        window, negatives, sample = (facts[name] for name in ("window", "negatives", "sample"))
        right = letters.dtype == np.uint8 and offsets.dtype == counts.dtype == np.int64
        right &= letters.ndim == offsets.ndim == counts.ndim == 1 and len(offsets) == len(counts) + 1 >= 3
        if not right or offsets[0] or offsets[-1] != len(letters) or (np.diff(offsets) < 0).any():
            raise InputError("the words of the model are damaged")
        if (counts < 1).any() or type(window) is not int or not 1 <= window <= 100:
            raise InputError("the words of the model are damaged")
        if type(negatives) is not int or not 1 <= negatives <= 1000 or not 0 < sample <= 1:
            raise InputError("the bundle is damaged (config.json); train or fetch it again")
        words = Ragged(letters, offsets).arrow().cast(pa.large_string())  # refuses what is no UTF-8
        return cls(Vocabulary(words, counts), window, negatives, float(sample))


def _behind(old: Vocabulary, new: Vocabulary) -> Vocabulary:
    """New words behind the old ones, which keep their places; counts are added up."""
    places = pc.index_in(new.words, value_set=old.words)
    is_new = np.asarray(pc.is_null(places))
    counts = old.counts.copy()
    counts[np.asarray(pc.fill_null(places, 0))[~is_new]] += new.counts[~is_new]
    words = pa.concat_arrays([old.words, new.words.filter(pa.array(is_new))])
    return Vocabulary(words, np.concatenate([counts, new.counts[is_new]]))


def whole_lines(table: Floats) -> Floats:
    """The table as it is, or a copy of it whose rows are padded to whole lines."""
    if table.shape[1] % LINE == 0 and table.flags.c_contiguous:
        return table
    out = aligned_zeros(len(table), -(-table.shape[1] // LINE) * LINE)
    out[:, : table.shape[1]] = table
    return out


def losses_of(
    feed: WindowFeed, first: int, last: int, lose: Callable[[Windows], tuple[float, float]], threads: int
) -> Floats:
    """The loss and the number of pairs of each block from ``first`` up to ``last``."""

    def of(block: int) -> tuple[float, float]:
        return lose(feed.piece(Piece(block, 0, feed.rows(block)), 0))

    return np.array(list(map_ordered(of, range(first, last), threads)), np.float32).reshape(-1, 2)
