"""Word vectors that fastText trained, by cbow or skipgram: the same vector for any word, seen before or not.

The vector of a word is the mean of its own row and those of its character n-grams. For the words of the
dictionary it is made once, when the file is imported, so that a bundle's vectors stay mapped in its file;
the rows of n-grams are kept to spell other words.
"""

from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.formats.fasttext import LONGEST_NGRAM, FastTextMatrix, FastTextVectors
from manyhands.formats.fasttext_model import KeptTable, NgramLookup, fasttext_embedding, vectors_of_words
from manyhands.kernels.compile import Ints, read_only
from manyhands.kernels.simd import Floats
from manyhands.text.embedding import Embedding
from manyhands.text.ragged import Ragged
from manyhands.text.vocabulary import Vocabulary

Arrays = dict[str, npt.NDArray[Any]]
NOT_PRUNED = KeptTable(read_only(np.empty(0, np.int32)), read_only(np.empty(0, np.int32)))


class ImportedWordVectors:
    """``vectors`` are those of the words, ``ngrams`` those of the n-grams of ``minn`` to ``maxn`` characters.

    Without n-grams, ``maxn`` is 0.
    """

    can: ClassVar[frozenset[str]] = frozenset({"embed"})

    def __init__(
        self, words: Ragged, counts: Ints, vectors: Floats, ngrams: Floats, minn: int, maxn: int
    ) -> None:
        self.words, self.counts, self.vectors, self.ngrams = words, counts, vectors, ngrams
        self.minn, self.maxn = minn, maxn

    @classmethod
    def of(cls, model: FastTextVectors) -> Self:
        args, count = model.args, len(model.words)
        maxn = args.maxn if args.bucket else 0
        lookup = NgramLookup(NOT_PRUNED, count, max(args.bucket, 1), args.minn, maxn)
        inputs = FastTextMatrix(read_only(model.inputs))
        vectors = vectors_of_words(lookup, inputs, model.words, np.arange(count), args.dim)
        ngrams = model.inputs[count : count + args.bucket] if maxn else model.inputs[:0]
        return cls(model.words, model.counts, vectors, ngrams, args.minn, maxn)

    @cached_property
    def _lookup(self) -> NgramLookup:
        return NgramLookup(NOT_PRUNED, 0, max(len(self.ngrams), 1), self.minn, self.maxn)

    def embedding(self, vocabulary: Vocabulary | None) -> Embedding:
        return fasttext_embedding(self.words, self.counts, self.vectors, self._spell if self.maxn else None)

    def _spell(self, words: Ragged) -> Floats:
        rows, dim = np.full(len(words), -1), self.vectors.shape[1]
        return vectors_of_words(self._lookup, FastTextMatrix(read_only(self.ngrams)), words, rows, dim)

    def facts(self) -> dict[str, Any]:
        return {"minn": self.minn, "maxn": self.maxn}

    def arrays(self) -> Arrays:
        return {
            "letters": self.words.data,
            "word_offsets": self.words.offsets,
            "counts": self.counts,
            "vectors": self.vectors,
            "ngrams": self.ngrams,
        }

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        """The opposite of ``facts`` and ``arrays``, which may come from anywhere: all is checked."""
        letters, offsets, counts = (arrays[name] for name in ("letters", "word_offsets", "counts"))
        vectors, ngrams = arrays["vectors"], arrays["ngrams"]
        minn, maxn = facts["minn"], facts["maxn"]
        right = letters.dtype == np.uint8 and offsets.dtype == counts.dtype == np.int64
        right &= letters.ndim == offsets.ndim == counts.ndim == 1 and len(offsets) == len(counts) + 1 >= 2
        if not right or offsets[0] or offsets[-1] != len(letters) or (np.diff(offsets) < 0).any():
            raise InputError("the words of the model are damaged")
        right = type(minn) is int and type(maxn) is int and minn >= 0 and 0 <= maxn <= LONGEST_NGRAM
        right &= vectors.ndim == ngrams.ndim == 2 and vectors.dtype == ngrams.dtype == np.float32
        right &= len(vectors) == len(counts) and vectors.shape[1:] == ngrams.shape[1:]
        if not right or not vectors.shape[1] or bool(maxn) != bool(len(ngrams)):
            raise InputError("the vectors do not fit the words of the model")
        return cls(Ragged(read_only(letters), read_only(offsets)), counts, vectors, ngrams, minn, maxn)
