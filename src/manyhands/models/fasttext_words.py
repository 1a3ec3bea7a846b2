"""The words of a ``fasttext`` classifier and their vectors: means over a word and the runs of its letters."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from manyhands.kernel import Flags
from manyhands.lines import Floats
from manyhands.models.embedding import Embedding
from manyhands.models.fasttext import FastTextModel
from manyhands.models.space import ROWS_AT_ONCE, FeatureSpace, Featuriser
from manyhands.text.corpus import Corpus
from manyhands.text.ragged import Ragged, from_arrow, from_strings
from manyhands.text.vocabulary import Vocabulary


def word_embedding(model: FastTextModel, vocabulary: Vocabulary) -> Embedding:
    """The words that have a vector; with letters, others get theirs when they are asked for."""

    def spell(words: Sequence[str]) -> tuple[Floats, Flags]:
        given = from_strings(words)
        return model.sentence_vectors(one_a_row(given)), known(model.space, given)

    words = from_arrow(vocabulary.words)
    rows = np.flatnonzero(known(model.space, words))
    vectors = model.sentence_vectors(one_a_row(words.take(rows)))
    chosen = Vocabulary(vocabulary.words.take(pa.array(rows)), vocabulary.counts[rows])
    return Embedding(chosen, vectors, spell if model.space.slotting.chars[1] else None)


def one_a_row(words: Ragged) -> Corpus:
    """A corpus of which each row is a word."""
    rows = len(words)
    return Corpus(lambda some: (some.astype(np.uint32), np.arange(len(some) + 1)), rows, rows, words)


def known(space: FeatureSpace, words: Ragged) -> Flags:
    """Which words have a vector: their own feature is known, or runs of their letters are."""
    featuriser = Featuriser(space, one_a_row(words), distinct=True)
    found = np.zeros(len(words), np.bool_)
    for start in range(0, len(words), ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, len(words)))
        found[rows] = np.diff(featuriser.of(rows).offsets) > 0
    return found
