"""Small embeddings for the tests of their judges."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.text.embedding import Embedding
from manyhands.text.vocabulary import Vocabulary


def embedding(words: Sequence[str], vectors: npt.ArrayLike, spell=None) -> Embedding:
    counts = np.arange(len(words), 0, -1)
    vocabulary = Vocabulary(pa.array(words, pa.large_string()), counts)
    return Embedding(vocabulary, np.asarray(vectors, np.float32), spell)


def random_embedding(words: int, dim: int, seed: int = 0) -> Embedding:
    vectors = np.random.default_rng(seed).standard_normal((words, dim))
    return embedding([f"w{n}" for n in range(words)], vectors)
