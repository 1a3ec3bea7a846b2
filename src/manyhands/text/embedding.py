"""Words and their vectors: what every model of word vectors comes to, and what files of vectors hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.kernels.compile import Flags, Ints
from manyhands.kernels.simd import Floats
from manyhands.text.vocabulary import Vocabulary

UNKNOWN = -1


@dataclass(frozen=True)
class Embedding:
    """Row ``i`` of ``vectors``, which may be mapped from a file, is that of the word ``i``.

    Models that make vectors from letters ``spell`` any word, seen before or not; the answer says
    which of the words it could make a vector for.
    """

    vocabulary: Vocabulary  # the most frequent words first, if anything is known of that
    vectors: Floats
    spell: Callable[[Sequence[str]], tuple[Floats, Flags]] | None = None
    as_written: bool = False  # capital letters make another word, and none is looked up in small ones

    def __len__(self) -> int:
        return len(self.vocabulary)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def places(self, words: Sequence[str]) -> Ints:
        """The row of each word as it is written, or else in small letters; ``UNKNOWN`` if there is none."""
        as_written = self._find(words)
        if self.as_written or (as_written != UNKNOWN).all():
            return as_written
        return np.where(as_written != UNKNOWN, as_written, self._find([word.lower() for word in words]))

    def _find(self, words: Sequence[str]) -> Ints:
        found = pc.index_in(pa.array(words, pa.large_string()), value_set=self.vocabulary.words)
        return np.asarray(pc.fill_null(found, UNKNOWN), np.int64)

    def vectors_of(self, words: Sequence[str]) -> tuple[Floats, Flags]:
        """A vector for each word, and whether there was one: else it is 0."""
        places = self.places(words)
        known: npt.NDArray[Any] = places != UNKNOWN
        out = np.zeros((len(words), self.dim), np.float32)
        out[known] = self.vectors[places[known]]
        if self.spell is not None and not known.all():
            missing = np.flatnonzero(~known)
            out[missing], known[missing] = self.spell([words[place] for place in missing.tolist()])
        return out, known
