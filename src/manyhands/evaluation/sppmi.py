"""The matrix that skip-gram factorises, straight from the text: shifted positive PMI, and its signal.

With k negatives, the inner product of a word and a context comes to their pointwise mutual information less
log k (Levy and Goldberg, "Neural Word Embedding as Implicit Matrix Factorization", 2014). The best vectors
of d dimensions for that are known without any training, so a trained embedding can be held against them.

Pairs of words are counted without a table of all pairs, and without a sort: where each word stands is
listed once, then a single row of counts is filled for one word after the other, and what is positive kept.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Ints, kernel, read_only
from manyhands.kernels.simd import Floats
from manyhands.parallel import map_ordered, one_thread_each
from manyhands.text.corpus import ROWS_AT_ONCE, Corpus

Tokens = npt.NDArray[np.int32]

BREAK = -1  # between two rows: no window reaches across
CELLS_AT_ONCE = 1 << 21  # pairs that a thread has room for, if they all turn out positive


def sppmi(
    corpus: Corpus, numbers: Ints, words: int, *, window: int = 5, shift: float = 5.0, threads: int = 1
) -> Any:
    """The matrix max(0, log(#(w, c) D / (#w #c)) - log shift) in rows (CSR), words by words.

    ``numbers`` gives the row of each word of the corpus, or -1: such words are taken out of the text before
    windows are, as skip-gram does. A context at distance n counts (window - n + 1) / window, how often
    a window of random length reaches it.

    >>> from manyhands.text.corpus import corpus_of
    >>> from manyhands.text.ragged import from_strings
    >>> corpus = corpus_of(from_strings(["a b", "a b c"]))
    >>> np.exp(sppmi(corpus, np.arange(3), 3, window=1, shift=1).toarray()).round()  # 2 * 6 / (2 * 3) ...
    array([[1., 2., 1.],
           [2., 1., 2.],
           [1., 2., 1.]], dtype=float32)
    """
    _check(corpus, numbers, words, window, shift)
    tokens, places, starts = _text_of(corpus, numbers, words)
    totals = np.zeros(words, np.int64)
    _reach(tokens, window, totals)
    if not totals.any():
        raise InputError("no two known words stand near each other in the corpus; give it more text")

    def work(part: tuple[int, int, int]) -> tuple[Tokens, Floats, Ints]:
        first, last, room = part
        columns, values = np.empty(room, np.int32), np.empty(room, np.float32)
        lengths = np.zeros(last - first, np.int64)
        size = _fill(tokens, places, starts, totals, first, window, float(shift), columns, values, lengths)
        return columns[:size].copy(), values[:size].copy(), lengths

    parts = list(map_ordered(work, _parts(starts, window), threads))
    columns, values, lengths = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    offsets = np.append(0, np.cumsum(lengths))
    matrix = sparse.csr_array((values, columns, offsets), shape=(words, words))
    matrix.sort_indices()
    return matrix


def signal(matrix: Any, dim: int, *, seed: int = 0) -> Floats:
    """U sqrt(Sigma) of the matrix's first ``dim`` singular values; columns beyond its rank are 0."""
    if dim < 1:
        raise UsageError(f"a signal matrix has 1 dimension or more, not {dim}")
    out = np.zeros((matrix.shape[0], dim), np.float32)
    if not matrix.nnz:
        return out
    with one_thread_each:  # the sparse products take the time; threads that wait for the rest would slow them
        left, strengths, _ = randomized_svd(matrix, min(dim, *matrix.shape), random_state=seed)
    # What is left of a direction that the matrix does not have is rounding.
    real = strengths > strengths[0] * np.finfo(np.float32).eps * np.sqrt(matrix.shape[0])
    out[:, : len(real)] = left * np.sqrt(np.where(real, strengths, 0))
    return out


def _check(corpus: Corpus, numbers: Ints, words: int, window: int, shift: float) -> None:
    if window < 1:
        raise UsageError(f"a window reaches 1 word or more, not {window}")
    if not shift >= 1:
        raise UsageError(f"PMI is shifted by 1 negative or more, not {shift}")
    if len(numbers) != len(corpus.words):
        raise UsageError(f"the corpus has {len(corpus.words):,} words but {len(numbers):,} are numbered")
    if len(numbers) and not -1 <= numbers.min() <= numbers.max() < words:
        raise UsageError(f"the words of the corpus must be numbered from -1 to {words - 1:,}")


def _text_of(corpus: Corpus, numbers: Ints, words: int) -> tuple[Tokens, Ints, Ints]:
    """All known words in their order, the places of each, and where among these those of a word begin."""
    pieces = [np.zeros(0, np.int32)]
    for start in range(0, len(corpus), ROWS_AT_ONCE):
        tokens, offsets = corpus.take(np.arange(start, min(start + ROWS_AT_ONCE, len(corpus))))
        out = np.empty(len(tokens) + len(offsets), np.int32)
        pieces.append(out[: _renumber(tokens, offsets, numbers, out)])
    flat = np.concatenate(pieces)
    starts = np.zeros(words + 2, np.int64)
    _count(flat, starts)
    np.cumsum(starts, out=starts)
    if starts[-1] < 2:
        raise InputError("the corpus has fewer than two words that the embedding knows; give it more text")
    places = np.empty(starts[-1], np.int64)
    _list_places(flat, starts[1:], places)  # moves each start on to the next one's
    return read_only(flat), read_only(places), read_only(starts[:-1])


@kernel
def _renumber(tokens: npt.NDArray[np.integer], offsets: Ints, numbers: Ints, out: Tokens) -> int:
    size = 0
    for row in range(len(offsets) - 1):
        for k in range(offsets[row], offsets[row + 1]):
            number = numbers[tokens[k]]
            if number >= 0:
                out[size] = number
                size += 1
        out[size] = BREAK
        size += 1
    return size


@kernel
def _count(flat: Tokens, starts: Ints) -> None:
    """Two places on, so that the sums are first where words begin, and after the listing again."""
    for word in flat:
        if word != BREAK:
            starts[word + 2] += 1


@kernel
def _list_places(flat: Tokens, nexts: Ints, places: Ints) -> None:
    for at in range(len(flat)):
        word = flat[at]
        if word != BREAK:
            places[nexts[word]] = at
            nexts[word] += 1


@kernel
def _reach(flat: Tokens, window: int, totals: Ints) -> None:
    """The weights of all contexts of each word, in units of 1 / window: whole numbers add up exactly."""
    for at in range(len(flat)):
        if flat[at] == BREAK:
            continue
        for distance in range(1, min(window, len(flat) - 1 - at) + 1):
            other = flat[at + distance]
            if other == BREAK:
                break
            totals[flat[at]] += window - distance + 1
            totals[other] += window - distance + 1


def _parts(starts: Ints, window: int) -> Iterator[tuple[int, int, int]]:
    """Words from first up to last, and the most cells that they may need."""
    words = len(starts) - 1
    ends = np.cumsum(np.minimum(np.diff(starts) * 2 * window, words))
    first, before = 0, 0
    while first < words:
        last = max(first + 1, int(np.searchsorted(ends, before + CELLS_AT_ONCE, side="right")))
        yield first, last, int(ends[last - 1]) - before
        first, before = last, int(ends[last - 1])


@kernel
def _fill(
    flat: Tokens,
    places: Ints,
    starts: Ints,
    totals: Ints,
    first: int,
    window: int,
    shift: float,
    columns: Tokens,
    values: Floats,
    lengths: Ints,
) -> int:
    words = len(starts) - 1
    counts = np.zeros(words, np.int64)
    met = np.empty(words, np.int64)
    whole = float(totals.sum())
    size = 0
    for k in range(len(lengths)):
        word, many = first + k, 0
        for place in places[starts[word] : starts[word + 1]]:
            for way in (-1, 1):
                at = place + way
                for weight in range(window, 0, -1):
                    if at < 0 or at == len(flat) or flat[at] == BREAK:
                        break
                    other = flat[at]
                    if counts[other] == 0:
                        met[many] = other
                        many += 1
                    counts[other] += weight
                    at += way
        before = size
        for other in met[:many]:
            lift = counts[other] * whole / (float(totals[word]) * float(totals[other]) * shift)
            counts[other] = 0
            if lift > 1:
                columns[size], values[size] = other, np.log(lift)
                size += 1
        lengths[k] = size - before
    return size
