"""What a recurrent model reads: words, each with a vector that is learnt, or rows of numbers as they are."""

from dataclasses import dataclass

import numpy as np

from manyhands.errors import InputError
from manyhands.kernels.compile import read_only
from manyhands.kernels.simd import Floats
from manyhands.models.model import Arrays
from manyhands.models.recurrent.network import Network
from manyhands.models.recurrent.sequences import Lexicon, Sequences
from manyhands.text.corpus import Corpus


@dataclass(frozen=True)
class Words:
    lexicon: Lexicon

    @property
    def words(self) -> int:
        """How many words have a vector."""
        return len(self.lexicon)

    def sequences(self, corpus: Corpus, length: int) -> Sequences:
        if corpus.values is not None:
            raise InputError("the model reads words, and these rows are numbers")
        return Sequences(corpus, self.lexicon, length)

    def vectors(self, corpus: Corpus, network: Network) -> Floats:
        """A vector for everything that ``sequences`` numbers."""
        return network.embedding

    def arrays(self) -> Arrays:
        return {"words": self.lexicon.hashes}


@dataclass(frozen=True)
class Numbers:
    """Every column less its mean, by how much it varies."""

    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, values: Floats) -> "Numbers":
        mean, spread = np.mean(values, axis=0, dtype=np.float64), np.std(values, axis=0, dtype=np.float64)
        return cls(np.asarray(mean, np.float32), np.asarray(np.where(spread > 0, spread, 1), np.float32))

    @property
    def words(self) -> int:
        return 0

    def sequences(self, corpus: Corpus, length: int) -> Sequences:
        if corpus.values is None or corpus.values.shape[1] != len(self.mean):
            raise InputError(f"the model reads rows of {len(self.mean)} numbers, and these are others")
        return Sequences(corpus, None, length)

    def vectors(self, corpus: Corpus, network: Network) -> Floats:
        return np.asarray((np.asarray(corpus.values) - self.mean) / self.spread, np.float32)

    def arrays(self) -> Arrays:
        return {"mean": self.mean, "spread": self.spread}


Inputs = Words | Numbers


def open_inputs(arrays: Arrays, width: int) -> Inputs:
    """The opposite of ``arrays``; they may come from anywhere, so all is checked."""
    if "words" in arrays:
        words = arrays["words"]
        if words.dtype != np.uint64 or words.ndim != 1:
            raise InputError("the words of the model are of another kind than they should be")
        return Words(Lexicon(read_only(words)))
    mean, spread = arrays["mean"], arrays["spread"]
    right = mean.shape == spread.shape == (width,) and mean.dtype == spread.dtype == np.float32
    if not right or not (spread > 0).all():
        raise InputError("the bundle is damaged: the means or deviations of its columns are malformed")
    return Numbers(read_only(mean), read_only(spread))
