"""Running text as windows: which words are each other's neighbours, and words drawn to tell them from.

All that is random in it comes from the seed, the epoch and the place in the text, and it is all
settled here: what a learner then does with a piece of text depends on nothing else.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Ints, kernel
from manyhands.models.learner import Piece
from manyhands.models.words.skipgram_kernels import TOGETHER, Reaches, Words
from manyhands.text.corpus import Corpus
from manyhands.text.hashing import mix

# Crews exchange so often in an epoch at least, and after so many words at first.
EXCHANGES, LEAST_BETWEEN = 100, 1 << 10
DRAWS = 64  # words drawn against sixteen; fewer are quicker and cost quality
# For windows of five and up to ten negatives. More of either take more draws: each would weigh so much
# that a single step overshoots.
USUAL_WINDOW, MOST_NEGATIVES = 5, 10
POWER = 0.75  # frequent words are drawn less often than they occur, as word2vec does
R32, R40, LOW = np.uint64(32), np.uint64(40), np.uint64(0xFFFFFFFF)
STEP = np.uint64(0x9E3779B97F4A7C15)
TO_FRACTION = np.float32(1 / (1 << 24))

Floats = npt.NDArray[np.float32]


class Windows(NamedTuple):
    """Words of a text, the most frequent thinned out. Those from ``begin`` up to ``end`` are to be learnt.

    The neighbours of word ``i`` lie up to ``reaches[i]`` away, which is ``reach`` at most, not before
    ``firsts[i]`` and before ``lasts[i]``. Every sixteen words have ``draws`` words ``drawn`` against them.
    """

    words: Words
    firsts: Words
    lasts: Words
    reaches: Reaches
    reach: int
    begin: int
    end: int
    drawn: Words
    draws: int


@dataclass(frozen=True)
class AliasTable:
    """Words to draw from, each as likely as its weight, in constant time: by the alias method."""

    chances: Floats
    others: Words

    @classmethod
    def of(cls, counts: npt.NDArray[np.integer | np.floating]) -> "AliasTable":
        weights = counts.astype(np.float64) ** POWER
        shares = weights / weights.sum() * len(weights)
        others = np.arange(len(shares), dtype=np.int32)
        _balance(shares, others)
        return cls(shares.astype(np.float32), others)


@kernel
def _balance(shares: npt.NDArray[np.float64], others: Words) -> None:
    """Cut shares that are more than one into pieces that fill up those that are less."""
    small, large = np.empty(len(shares), np.int64), np.empty(len(shares), np.int64)
    few = many = 0
    for word in range(len(shares)):
        if shares[word] < 1:
            small[few] = word
            few += 1
        else:
            large[many] = word
            many += 1
    while few and many:
        few -= 1
        poor, rich = small[few], large[many - 1]
        others[poor] = rich
        shares[rich] -= 1 - shares[poor]
        if shares[rich] < 1:
            many -= 1
            small[few] = rich
            few += 1
    for k in range(few):  # what is left by rounding
        shares[small[k]] = 1


@dataclass(frozen=True)
class WindowSampler:
    """Makes windows of a text: which words are kept, how far each looks, and what is drawn against it."""

    window: int
    draws: int
    alias_table: AliasTable
    keep: Floats

    @classmethod
    def of(
        cls,
        counts: npt.NDArray[np.integer | np.floating],
        *,
        window: int,
        negatives: int,
        sample: float,
    ) -> "WindowSampler":
        """By how often each word stands in the text; those that never do come last."""
        share = np.maximum(counts, 1e-9) / max(counts.sum(), 1)
        keep = np.minimum(np.sqrt(sample / share) + sample / share, 1).astype(np.float32)
        table = AliasTable.of(counts[: np.count_nonzero(counts)])
        return cls(window, draws_of(window, negatives), table, keep)

    def windows(self, numbers: Words, offsets: Ints, seed: np.uint64) -> tuple[Windows, Ints]:
        """The windows of some rows of word numbers, -1 for no word; and where each word of them stood."""
        words, firsts, lasts, places = _thinned(numbers, offsets, self.keep, seed)
        reaches = np.empty(len(words), np.uint8)
        drawn = np.empty(-(-len(words) // TOGETHER) * self.draws, np.int32)
        _draw(seed, self.window, self.alias_table.chances, self.alias_table.others, reaches, drawn)
        return Windows(words, firsts, lasts, reaches, self.window, 0, len(words), drawn, self.draws), places


def draws_of(window: int, negatives: int) -> int:
    """How many words are drawn against sixteen."""
    # Heavier draws made the vectors run away in windows of sixty over two thousand words.
    enough = MOST_NEGATIVES if window <= USUAL_WINDOW else MOST_NEGATIVES // 2
    return DRAWS * -(-negatives * max(window, USUAL_WINDOW) // (USUAL_WINDOW * enough))


class WindowFeed:
    """The words of a corpus in blocks of as many; ``numbers`` says which word each of the corpus's is."""

    unit = "words"

    def __init__(
        self,
        corpus: Corpus,
        numbers: Words,
        counts: Ints,
        *,
        window: int,
        negatives: int,
        sample: float,
        block_words: int,
        seed: int,
    ) -> None:
        self._corpus, self._numbers = corpus, numbers
        self._block, self._seed = block_words, seed
        self._starts = _starts(corpus)
        words = int(self._starts[-1])
        self.between_exchanges = LEAST_BETWEEN, max(words // EXCHANGES, LEAST_BETWEEN)
        self._sampler = WindowSampler.of(counts, window=window, negatives=negatives, sample=sample)

    def __len__(self) -> int:
        return (int(self._starts[-1]) + self._block - 1) // self._block

    def rows(self, block: int) -> int:
        return min(self._block, int(self._starts[-1]) - block * self._block)

    def piece(self, piece: Piece, epoch: int) -> Windows:
        """Of a block that is shared, all find the same windows, and each learns some of the words."""
        first = piece.block * self._block
        last = first + self.rows(piece.block)
        rows = np.arange(
            np.searchsorted(self._starts, first, "right") - 1, np.searchsorted(self._starts, last, "left")
        )
        tokens, offsets = self._corpus.take(rows)
        skipped = int(self._starts[rows[0]])
        cut = np.clip(offsets, first - skipped, last - skipped)
        numbers = self._numbers[tokens[cut[0] : cut[-1]]]
        windows, places = self._sampler.windows(
            numbers, cut - cut[0], seed_of(self._seed, epoch, piece.block)
        )
        begin, end = np.searchsorted(places, [piece.first, piece.last]).tolist()
        return windows._replace(begin=begin, end=end)


def seed_of(seed: int, epoch: int, block: int) -> np.uint64:
    """What is random in a block comes from this."""
    return np.uint64(_seed(np.uint64(seed), np.uint64(epoch), np.uint64(block)))


def _starts(corpus: Corpus) -> Ints:
    """Where each row begins among all words of the corpus."""
    return np.append(0, np.cumsum(corpus.lengths(np.arange(len(corpus)))))


@kernel
def _seed(seed: np.uint64, epoch: np.uint64, block: np.uint64) -> np.uint64:
    return mix(mix(mix(seed + STEP) + epoch) + block)


@kernel
def _thinned(
    numbers: Words, offsets: Ints, keep: Floats, seed: np.uint64
) -> tuple[Words, Words, Words, Ints]:
    """The known words that are kept, where the row of each begins and ends, and where each stood."""
    words, places = np.empty(len(numbers), np.int32), np.empty(len(numbers), np.int64)
    firsts, lasts = np.empty(len(numbers), np.int32), np.empty(len(numbers), np.int32)
    count, state = 0, seed
    for row in range(len(offsets) - 1):
        begin = count
        for i in range(offsets[row], offsets[row + 1]):
            word = numbers[i]
            if word < 0:
                continue
            state += STEP
            if np.float32(mix(state) >> R40) * TO_FRACTION < keep[word]:
                words[count], places[count] = word, i
                count += 1
        firsts[begin:count] = begin
        lasts[begin:count] = count
    return words[:count], firsts[:count], lasts[:count], places[:count]


@kernel
def _draw(
    seed: np.uint64, window: int, chances: Floats, others: Words, reaches: Reaches, drawn: Words
) -> None:
    """How far each word looks, from one word to the whole window, and the words drawn."""
    state, size = mix(seed), np.uint64(len(chances))
    for i in range(len(reaches)):
        state += STEP
        reaches[i] = 1 + mix(state) % np.uint64(window)
    for i in range(len(drawn)):
        state += STEP
        number = mix(state)  # its lower half says which word, its upper end whether that one or the other
        word = (number & LOW) * size >> R32
        drawn[i] = word if np.float32(number >> R40) * TO_FRACTION < chances[word] else others[word]
