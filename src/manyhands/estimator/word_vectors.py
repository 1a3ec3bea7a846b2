"""``WordVectors``: word vectors from wherever they are kept, with the names that gensim gives things."""

import os
import tempfile
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from manyhands.bundle.word_vectors import open_embedding
from manyhands.formats.vector_writing import write_embedding
from manyhands.kernels.simd import Floats
from manyhands.models.words.nearest import Found, analogy, look_up, with_words
from manyhands.run.train import train
from manyhands.storage.files import StrPath
from manyhands.text.embedding import UNKNOWN, Embedding

Key = str | Floats
Keys = Key | Sequence[Key]


class WordVectors:
    """Words, their vectors, and which of them are alike.

    Words are found as they are written, or else in small letters; models that make vectors from
    letters know any word. A word without a vector is an ``UnknownWordError``, which is a KeyError.
    """

    def __init__(self, embedding: Embedding, name: str = "these vectors") -> None:
        self.embedding, self.name = embedding, name

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Those of a bundle, or of a file by word2vec or GloVe; a bundle's stay mapped in its file."""
        return cls(open_embedding(path), os.fspath(path))

    @classmethod
    def train(
        cls,
        data: StrPath | Sequence[StrPath],
        out: StrPath | None = None,
        *,
        model: str = "skipgram",
        **settings: Any,
    ) -> Self:
        """Learn vectors as ``manyhands train`` does; without ``out``, the bundle is not kept."""
        if out is not None:
            train(data, out, model=model, **settings)
            return cls.load(out)
        with tempfile.TemporaryDirectory(prefix="manyhands-") as folder:
            train(data, f"{folder}/run", model=model, **settings)
            return cls(open_embedding(f"{folder}/run"))  # what is mapped stays, also when its name is gone

    @property
    def vectors(self) -> Floats:
        return self.embedding.vectors

    @property
    def vector_size(self) -> int:
        return self.embedding.dim

    @cached_property
    def index_to_key(self) -> list[str]:
        words: list[str] = self.embedding.vocabulary.words.to_pylist()
        return words

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.index_to_key)}

    def __len__(self) -> int:
        return len(self.embedding)

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} words, {self.vector_size} numbers each)"

    def __contains__(self, key: object) -> bool:
        """Whether the word has a vector, be it from its letters."""
        return isinstance(key, str) and bool(self.embedding.vectors_of([key])[1][0])

    def __getitem__(self, key: str | Sequence[str]) -> Floats:
        """The vector of a word, or a row for each of several."""
        vectors = look_up(self.embedding, [key] if isinstance(key, str) else list(key), self.name).vectors
        return vectors[0] if isinstance(key, str) else vectors

    def has_index_for(self, key: str) -> bool:
        """Whether the word is one of the rows."""
        return bool(self.embedding.places([key])[0] != UNKNOWN)

    def get_vector(self, key: str, norm: bool = False) -> Floats:
        return _unit(self[key]) if norm else self[key]

    def similarity(self, a: str, b: str) -> float:
        """The cosine of two words."""
        return float(self.get_vector(a, norm=True) @ self.get_vector(b, norm=True))

    def distance(self, a: str, b: str) -> float:
        return 1 - self.similarity(a, b)

    def n_similarity(self, some: Sequence[str], others: Sequence[str]) -> float:
        """The cosine of the means of two lists of words."""
        return float(_unit(self[some].mean(axis=0)) @ _unit(self[others].mean(axis=0)))

    def most_similar(self, positive: Keys = (), negative: Keys = (), topn: int = 10) -> Found:
        """The words whose cosine with the mean of all is greatest: negative ones count the other way.

        The words that are given are left out, and count by their direction only; vectors count as
        they are.
        """
        likes, unlikes = _listed(positive), _listed(negative)
        if topn < 1 or not likes + unlikes:
            return []
        words = [key for key in likes + unlikes if isinstance(key, str)]
        rows = look_up(self.embedding, words, self.name).rows.tolist()
        towards, away = (self._rows_of(keys) for keys in (likes, unlikes))
        return with_words(self.embedding, *analogy(self.embedding, towards, away, topn, rows))

    def similar_by_word(self, word: str, topn: int = 10) -> Found:
        return self.most_similar(word, topn=topn)

    def similar_by_vector(self, vector: Floats, topn: int = 10) -> Found:
        return self.most_similar([vector], topn=topn)

    def save_word2vec_format(self, path: StrPath, binary: bool = False) -> None:
        """Write a file that word2vec's other readers know; one that is there is replaced."""
        to = "word2vec-binary" if binary else "word2vec"
        write_embedding(self.embedding, to, os.fspath(path), overwrite=True)

    def _rows_of(self, keys: list[Key]) -> Floats:
        vectors = [self.get_vector(key, norm=True) if isinstance(key, str) else key for key in keys]
        return np.array(vectors, np.float32).reshape(len(keys), self.vector_size)


def _unit(vector: Floats) -> Floats:
    return np.asarray(vector / (np.linalg.norm(vector) or 1), np.float32)


def _listed(keys: Keys | None) -> list[Key]:
    """One word or vector is a list of one; a matrix is a list of its rows."""
    if keys is None:
        return []
    if isinstance(keys, str) or (isinstance(keys, np.ndarray) and keys.ndim == 1):
        return [keys]
    return list(keys)
