"""The words of an embedding on a plane, for people to look at, and the neighbours that they truly have.

The layout is t-SNE's. It runs on one thread: with several, sums are added up in another order,
a page would differ from run to run, and beside other busy processes it takes four times as long.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import Floats
from manyhands.parallel import map_ordered, one_thread_each
from manyhands.records import Progress, Silent
from manyhands.text.embedding import Embedding

MOST_WORDS = 20_000  # more make a page that a browser draws slowly
MOST_SEED = 2**32 - 1
NEIGHBOURS = 10
INNER_DIM = 50  # t-SNE looks for near words in so many dimensions: that is quicker, and no worse
PERPLEXITY = 30.0
ROUNDS, ANGLE = 600, 0.7  # beside 1000 and 0.5: twice as fast, and as many neighbours stand near
FEW_WORDS = 10  # t-SNE has nothing to go by
LEAST_SPREAD = 1e-6
SMALL, SHAKE = 1e-4, 0.1
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Plane:
    """Word ``i`` stands at ``positions[i]``; ``neighbours[i]`` are those nearest to it in the full space.

    The most frequent words come first, the nearest neighbours too; ``cosines`` are theirs.
    """

    words: list[str]
    positions: Floats
    neighbours: npt.NDArray[np.int32]
    cosines: Floats


def plane(
    embedding: Embedding, words: int = 2000, seed: int = 0, threads: int = 1, progress: Progress | None = None
) -> Plane:
    """Lay out the first ``words`` words that have a letter or a digit, and a vector with a direction."""
    if not 1 <= words <= MOST_WORDS:
        raise UsageError(f"--words must be from 1 to {MOST_WORDS:,}, not {words:,}")
    if not 0 <= seed <= MOST_SEED:
        raise UsageError(f"a seed is from 0 to {MOST_SEED}, not {seed}")
    progress = progress or Silent()
    shown, units = _chosen(embedding, words)
    progress.stage("layout", None, "words")
    positions = _layout(units, seed)
    progress.stage("neighbours", len(shown), "words")
    neighbours, cosines = _neighbours(units, threads, progress)
    return Plane(shown, positions, neighbours, cosines)


def _chosen(embedding: Embedding, count: int) -> tuple[list[str], Floats]:
    """The words to show, and their vectors, each of length one."""
    words: list[str] = []
    rows: list[Floats] = []
    for start in range(0, len(embedding), ROWS_AT_ONCE):
        block = np.asarray(embedding.vectors[start : start + ROWS_AT_ONCE], np.float64)
        lengths = np.linalg.norm(block, axis=1)
        names = embedding.vocabulary.words[start : start + ROWS_AT_ONCE].to_pylist()
        good = np.isfinite(lengths) & (lengths > 0) & np.array([_says_something(name) for name in names])
        places = np.flatnonzero(good)[: count - len(words)]
        words += [names[place] for place in places.tolist()]
        rows.append((block[places] / lengths[places, None]).astype(np.float32))
        if len(words) == count:
            break
    if not words:
        raise InputError("no word has both a letter or digit and a vector other than 0; give other vectors")
    return words, np.concatenate(rows)


def _says_something(word: str) -> bool:
    """True unless the word is made of punctuation alone.

    >>> [_says_something(word) for word in ("king", "1984", "été", "--", "")]
    [True, True, True, False, False]
    """
    return any(character.isalnum() for character in word)


def _layout(units: Floats, seed: int) -> Floats:
    with threadpool_limits(1):
        inner = _principal(units)
        if len(inner) < FEW_WORDS or inner.shape[1] < 2 or float(inner[:, 1].std()) < LEAST_SPREAD:
            flat = np.zeros((len(inner), 2), np.float32)
            flat[:, : inner.shape[1]] = inner[:, :2]
            return flat
        perplexity = min(PERPLEXITY, (len(inner) - 1) / 3)
        start = _start(inner, seed)
        layout = TSNE(perplexity=perplexity, init=start, random_state=seed, max_iter=ROUNDS, angle=ANGLE)
        return np.asarray(layout.fit_transform(inner), np.float32)


def _start(inner: Floats, seed: int) -> Floats:
    """The plane on which the words differ most, drawn small, and shaken: equal words must come apart."""
    flat = inner[:, :2] / inner[:, 0].std()
    shaken = flat + SHAKE * np.random.default_rng(seed).standard_normal(flat.shape)
    return np.asarray(SMALL * shaken, np.float32)


def _principal(units: Floats) -> Floats:
    """The vectors in the directions in which they differ most."""
    centred = units.astype(np.float64) - units.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)  # the largest come last
    return np.ascontiguousarray(centred @ axes[:, ::-1][:, :INNER_DIM], np.float32)


def _neighbours(units: Floats, threads: int, progress: Progress) -> tuple[npt.NDArray[np.int32], Floats]:
    """The nearest by cosine among all that are shown, found by comparing all with all."""
    count = min(NEIGHBOURS, len(units) - 1)
    nearest = np.zeros((len(units), count), np.int32)
    cosines = np.zeros((len(units), count), np.float32)
    if not count:
        return nearest, cosines

    def find(start: int) -> tuple[int, Ints, Floats]:
        near = units[start : start + ROWS_AT_ONCE] @ units.T
        rows = np.arange(len(near))
        near[rows, start + rows] = -np.inf  # a word is not its own neighbour
        found = np.argpartition(-near, count - 1, axis=1)[:, :count]
        values = np.take_along_axis(near, found, 1)
        order = np.lexsort((found, -values), axis=1)
        return start, np.take_along_axis(found, order, 1), np.take_along_axis(values, order, 1)

    with one_thread_each:
        for start, found, values in map_ordered(find, range(0, len(units), ROWS_AT_ONCE), threads):
            nearest[start : start + len(found)] = found
            cosines[start : start + len(found)] = np.clip(values, -1, 1)
            progress.advance(start + len(found))
    return nearest, cosines
