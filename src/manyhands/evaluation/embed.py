"""``embed``: a vector for every text, from any model that has vectors.

Recurrent classifiers have a state for each text. All others have vectors of words, and a text gets the mean
of its words' vectors. Frequent words tell least of what a text is about, so a word of frequency p weighs
a / (a + p) (smooth inverse frequency, Arora et al. 2017), and what all texts have in common is taken away:
the mean of the vocabulary under the same weights. All of that comes from the model, so a text has the same
vector in any company.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.word_vectors import embedding_of, open_either
from manyhands.data.reader import read_texts
from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.machine import cores
from manyhands.models.model import DOCUMENTS
from manyhands.parallel import map_ordered
from manyhands.records import Progress, Silent
from manyhands.settings import FileSettings, PrepareSettings, TextSettings
from manyhands.storage.files import StrPath
from manyhands.text.corpus import corpus_of
from manyhands.text.embedding import Embedding
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import Ragged

SMOOTH = 1e-3  # a: words that are more frequent than this count for less than half
WORDS_AT_ONCE = 1 << 16
LEAST = np.float32(1e-12)


class TextVectors:
    """Makes vectors of texts; each has the length 1, or 0 where no word is known.

    >>> import pyarrow as pa
    >>> from manyhands.text.ragged import from_strings
    >>> from manyhands.text.vocabulary import Vocabulary
    >>> words = Vocabulary(pa.array(["cat", "dog", "law"], pa.large_string()), np.array([5, 5, 5]))
    >>> vectors = TextVectors(Embedding(words, np.eye(3, dtype=np.float32)))
    >>> found = vectors.of(from_strings(["a cat", "the dog", "Cat!", ""]))
    >>> (found @ found.T).round(1).tolist()
    [[1.0, -0.5, 1.0, 0.0], [-0.5, 1.0, -0.5, 0.0], [1.0, -0.5, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(self, source: Bundle | Embedding) -> None:
        self._bundle = source if isinstance(source, Bundle) else None
        self._of_states = self._bundle is not None and DOCUMENTS in self._bundle.model.can
        if self._of_states:
            return
        self._embedding = source if isinstance(source, Embedding) else embedding_of(source)
        self._frequencies = _frequencies(self._embedding.vocabulary.counts)
        self._common = self._mean_of_all()

    def of(self, texts: Ragged) -> Floats:
        normaliser = self._bundle.normaliser if self._bundle else Normaliser(TextSettings())
        corpus = corpus_of(normaliser.ragged(texts))
        if self._of_states:
            model: Any = self._bundle and self._bundle.model
            return _to_length_1(model.document_vectors(corpus))
        vectors, known = self._embedding.vectors_of(corpus.words.strings())
        weights = self._weights(self._embedding.places(corpus.words.strings())) * known
        vectors -= self._common
        tokens, offsets = corpus.take(np.arange(len(corpus)))
        out = np.zeros((len(corpus), self._embedding.dim), np.float32)
        _add_up(tokens.astype(np.int64), offsets, vectors, weights.astype(np.float32), out)
        return _to_length_1(out)

    def _weights(self, places: Ints) -> Floats:
        """Words that the vocabulary does not have are rarer than any that it has."""
        weights: Floats = (SMOOTH / (SMOOTH + np.append(self._frequencies, 0)[places])).astype(np.float32)
        return weights

    def _mean_of_all(self) -> Floats:
        embedding, total = self._embedding, 0.0
        sums = np.zeros(embedding.dim)
        for start in range(0, len(embedding), WORDS_AT_ONCE):
            places = np.arange(start, min(start + WORDS_AT_ONCE, len(embedding)))
            weights = self._weights(places) * self._frequencies[places]
            sums += weights @ embedding.vectors[places]
            total += float(weights.sum())
        return (sums / max(total, 1e-12)).astype(np.float32)


def embed(
    model: StrPath,
    sources: StrPath | Sequence[StrPath],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Iterator[Floats]:
    """A vector for each text of raw files, in their order, some thousand at a time.

    ``model`` is a bundle, or a file of word vectors.
    """
    names = [os.fspath(n) for n in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    settings = PrepareSettings(**FileSettings.create(**reading).model_dump(), labels="none")
    vectors = TextVectors(open_either(model))
    return map_ordered(vectors.of, read_texts(names, settings, progress or Silent()), threads or cores())


def _frequencies(counts: Ints) -> npt.NDArray[np.float64]:
    """The share of each word; by its rank, as Zipf's law has it, where a file of vectors counts none."""
    weights = counts.astype(np.float64) if counts.any() else 1 / np.arange(1, len(counts) + 1)
    return weights / max(float(weights.sum()), 1e-12)


def _to_length_1(vectors: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    found: Floats = vectors / np.maximum(lengths, LEAST)[:, None]
    return found


@kernel
def _add_up(tokens: Ints, offsets: Ints, vectors: Floats, weights: Floats, out: Floats) -> None:
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            weight = weights[tokens[i]]
            if weight > 0:
                for k in range(out.shape[1]):
                    out[row, k] += weight * vectors[tokens[i], k]
