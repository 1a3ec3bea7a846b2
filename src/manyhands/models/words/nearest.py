"""The words whose vectors point the same way: exact, by products with a block of rows at a time.

Nothing is copied or normalised as a whole, so the vectors may stay mapped in their file.
"""

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from manyhands.errors import UnknownWordError, UsageError
from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import Floats
from manyhands.text.embedding import UNKNOWN, Embedding

NUMBERS_AT_ONCE = 1 << 22  # of the vectors, and of the cosines with all queries
QUERIES_AT_ONCE = 256
MANY = 8  # times as many candidates as places: then it pays to look for the least that can be among them
SPELLINGS, SPELLED_WORDS = 3, 50_000
LEAST = 1e-6  # what cosines are divided by at least, as gensim has it

METHODS = ("add", "mul")
Found = list[tuple[str, float]]
Score = Callable[[Floats], Floats]


class Known(NamedTuple):
    """Words with their vectors; ``rows`` are UNKNOWN for those that were spelled."""

    vectors: Floats
    rows: Ints


def nearest(
    embedding: Embedding, queries: Floats, top: int = 10, exclude: Sequence[Sequence[int]] = ()
) -> tuple[Ints, Floats]:
    """The ``top`` rows with the greatest cosines to each query, and these; of equal ones, the first rows.

    ``exclude`` has rows to leave out for each query. Where there are fewer words than places, the last
    rows are UNKNOWN. A vector of zeros has a cosine of 0 with all.

    >>> import pyarrow as pa
    >>> from manyhands.text.vocabulary import Vocabulary
    >>> words = Vocabulary(pa.array(["north", "east", "south"], pa.large_string()), np.array([3, 2, 1]))
    >>> embedding = Embedding(words, np.array([[0, 2], [1, 0], [0, -1]], np.float32))
    >>> rows, cosines = nearest(embedding, np.array([[0, 1]], np.float32), top=2)
    >>> rows.tolist(), cosines.tolist()
    ([[0, 1]], [[1.0, 0.0]])
    """
    shape = len(queries), min(top, len(embedding))
    rows, cosines = np.empty(shape, np.int64), np.empty(shape, np.float32)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        part = slice(start, start + QUERIES_AT_ONCE)
        rows[part], cosines[part] = _search(embedding, _unit(queries[part]), top, exclude[part])
    return rows, np.minimum(cosines, 1)


def analogy(
    embedding: Embedding,
    positive: Floats,
    negative: Floats,
    top: int = 10,
    exclude: Sequence[int] = (),
    method: str = "add",
) -> tuple[Ints, Floats]:
    """The rows that are like the positive vectors and unlike the negative ones, and how much so.

    ``add`` is the cosine with the mean of all, ``mul`` the product of the cosines with the positive
    ones by that with the negative ones, all moved to 0 … 1; unit vectors are expected.
    """
    if method not in METHODS:
        raise UsageError(f"there is no method '{method}'; there are: {', '.join(METHODS)}")
    if method == "add":
        rows, scores = nearest(embedding, mean_of(positive, negative)[None], top, [exclude])
        return rows[0], scores[0]

    def score(cosines: Floats) -> Floats:
        likeness = (1 + cosines) / 2
        like, unlike = (part.prod(axis=0) for part in np.split(likeness, [len(positive)]))
        return np.asarray(like / (unlike + LEAST))[None]

    queries = _unit(np.concatenate([positive, negative]))
    rows, scores = _search(embedding, queries, top, [exclude], score)
    return rows[0], scores[0]


def mean_of(positive: Floats, negative: Floats) -> Floats:
    """The mean of the vectors, the negative ones turned round."""
    return np.asarray((positive.sum(axis=0) - negative.sum(axis=0)) / max(len(positive) + len(negative), 1))


def look_up(embedding: Embedding, words: Sequence[str], of: str) -> Known:
    """The vectors of words that must all have one; ``of`` is what the error calls the embedding."""
    vectors, found = embedding.vectors_of(words)
    if not found.all():
        word = words[int(found.argmin())]
        close = spellings(embedding, word)
        guess = f"; did you mean {', '.join(close)}?" if close else ""
        raise UnknownWordError(f"'{word}' is not among the {len(embedding):,} words of {of}{guess}")
    return Known(vectors, embedding.places(words))


def spellings(embedding: Embedding, word: str) -> list[str]:
    """Up to three of the more frequent words that are spelled nearly like this one."""
    return get_close_matches(word, embedding.vocabulary.words[:SPELLED_WORDS].to_pylist(), SPELLINGS)


def neighbours(embedding: Embedding, words: Sequence[str], top: int = 10, *, of: str) -> list[Found]:
    """For each word the nearest others with their cosines."""
    _check(top)
    found = look_up(embedding, words, of)
    rows, cosines = nearest(embedding, found.vectors, top, found.rows[:, None].tolist())
    return [with_words(embedding, some, scores) for some, scores in zip(rows, cosines, strict=True)]


def complete(
    embedding: Embedding, first: str, second: str, third: str, top: int = 10, method: str = "add", *, of: str
) -> Found:
    """What ``third`` is to as ``first`` is to ``second``, the likeliest words first."""
    _check(top)
    found = look_up(embedding, [second, third, first], of)
    units = _unit(found.vectors)
    rows, scores = analogy(embedding, units[:2], units[2:], top, found.rows.tolist(), method)
    return with_words(embedding, rows, scores)


def with_words(embedding: Embedding, rows: Ints, scores: Floats) -> Found:
    """The words of the rows that were found, with their scores."""
    some = rows[rows != UNKNOWN].tolist()
    words = embedding.vocabulary.words
    return [(str(words[row]), score) for row, score in zip(some, scores.tolist(), strict=False)]


def _check(top: int) -> None:
    if top < 1:
        raise UsageError(f"--top must be 1 or more, not {top}")


def _unit(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), np.float32)


def _search(
    embedding: Embedding,
    queries: Floats,
    top: int,
    exclude: Sequence[Sequence[int]],
    score: Score = lambda cosines: cosines,
) -> tuple[Ints, Floats]:
    """The best rows by ``score``, which gets a row of cosines for each query."""
    best: tuple[Ints, Floats] | None = None
    for first, cosines in _cosines(embedding, queries):
        scores = score(cosines)
        if best is None:
            shape = (len(scores), min(top, len(embedding)))
            best = np.full(shape, UNKNOWN, np.int64), np.full(shape, -np.inf, np.float32)
        for query, rows in enumerate(exclude):
            here = np.asarray(rows, np.int64) - first
            scores[query, here[(here >= 0) & (here < scores.shape[1])]] = -np.inf
        _merge(*best, scores, first)
    return best or (np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0), np.float32))


def _cosines(embedding: Embedding, queries: Floats) -> Iterator[tuple[int, Floats]]:
    step = max(NUMBERS_AT_ONCE // max(embedding.dim, len(queries)), 1)
    for first in range(0, len(embedding), step):
        block = embedding.vectors[first : first + step]
        squares = np.einsum("ij,ij->i", block, block)
        norms = np.sqrt(squares, where=squares > 0, out=np.ones_like(squares))
        cosines = queries @ block.T
        cosines /= norms
        yield first, cosines


def _merge(best_rows: Ints, best_scores: Floats, scores: Floats, first: int) -> None:
    """Put the scores of a block in their places among the best so far, which have smaller rows."""
    queries, places = best_rows.shape
    if not places:
        return
    better = scores > best_scores[:, -1:]
    if places < scores.shape[1] and np.count_nonzero(better) > MANY * best_rows.size:
        better &= scores >= np.partition(np.fmax(scores, -np.inf), -places, axis=1)[:, -places, None]
    which, columns = np.nonzero(better)
    if not len(which):
        return
    owners = np.concatenate([np.repeat(np.arange(queries), places), which])
    rows = np.concatenate([best_rows.ravel(), columns + first])
    values = np.concatenate([best_scores.ravel(), scores[which, columns]])
    order = np.lexsort((rows, -values, owners))
    starts = np.searchsorted(owners[order], np.arange(queries))
    chosen = order[starts[:, None] + np.arange(places)]
    best_rows[:], best_scores[:] = rows[chosen], values[chosen]
