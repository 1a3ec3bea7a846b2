"""PIP loss: how far two embeddings of the same words are from each other, whichever way each is turned.

Nobody can say what one number of a word vector means: turn all vectors together, and the model is the same.
What stays are the inner products of words with words. The loss is the distance of the two tables of these,
``|| E1 E1' - E2 E2' ||`` (Yin and Shen, "On the Dimensionality of Word Embedding", 2018).

The tables have a row and a column for each word, so they are never made: with few dimensions, the products
``E'E`` of a block of words at a time are enough, and the loss is the root of
``||E1'E1||^2 - 2 ||E1'E2||^2 + ||E2'E2||^2``. Where the two are nearly the same, these large numbers leave
but 8 of 16 digits to their difference. Then E2 is first turned towards E1 as far as it goes (Procrustes).
With D and S, their difference and sum thereafter, D'S is symmetric, and the squared loss is
``(trace(S'S D'D) + ||D'S||^2) / 2``: nothing large is subtracted any more.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.parallel import map_ordered, one_thread_each
from manyhands.text.embedding import Embedding

Matrix = npt.NDArray[np.floating[Any]]
Wide = npt.NDArray[np.float64]

CELLS_AT_ONCE = 1 << 21  # 16 MB of 64-bit numbers
NEAR = 1e-3  # a relative loss below which the plain formula has lost too many digits
# Sums of 64-bit numbers in another order differ by about 1e-15 of the whole. What is smaller than this
# share of the norms is called 0; vectors of 32 bits are themselves rounded at 6e-8.
NOISE = 1e-13
STREAM = 0x706970  # the noise must not be that with which a model of the same seed began


@dataclass(frozen=True)
class PipReport:
    """How far an embedding is from a reference, over their common words.

    ``loss`` depends on lengths as much as on directions: an embedding of zeros scores the norm of the
    reference's table, and so beats any with larger norms in wrong directions, and many in right ones.
    So compare ``equal_norm``, where the embedding is first scaled until its table has the norm of the
    reference's, or ``relative``, which is that as a share of this norm: 0 is the reference itself, turned
    or not, ``zero`` stands for nothing at all, and ``random`` is what Gaussian noise of the same shape gets.
    Anything that has learnt something lies well below ``random``.
    """

    words: int
    dim: int
    loss: float
    equal_norm: float
    relative: float
    random: float
    zero: float = 1.0

    def facts(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Gauge:
    """The norms of both tables, and the loss as a share of the second once the first has the same norm."""

    first: float
    second: float
    relative: float

    @property
    def loss(self) -> float:
        """The loss without scaling. If the first norm is t times the second, and this is 1, its square is
        t relative^2 + (t - 1)^2: the relative loss tells the angle between the tables, as in a triangle.
        """
        if not self.second:
            return self.first
        ratio = self.first / self.second
        share = math.hypot(math.sqrt(ratio) * self.relative, ratio - 1)
        return _without_noise(share, max(ratio, 1)) * self.second


def pip_loss(first: Matrix, second: Matrix, *, threads: int = 1) -> float:
    """The distance between the tables of inner products; rows are words, the same in both.

    Here the tables are [[1, 0], [0, 1]] and [[4, 0], [0, 1]], and turning by a right angle changes nothing.

    >>> one, two = np.array([[1.0, 0], [0, 1]]), np.array([[2.0, 0], [0, 1]])
    >>> f"{pip_loss(one, two):.6f}", pip_loss(one, one), pip_loss(two, two @ np.array([[0, 1], [-1, 0]]))
    ('3.000000', 0.0, 0.0)
    """
    return _gauge(first, second, threads).loss


def pip_report(embedding: Matrix, reference: Matrix, *, seed: int = 0, threads: int = 1) -> PipReport:
    """The loss in all its forms, with what nothing and what chance would get."""
    gauge = _gauge(embedding, reference, threads)
    if not gauge.second:
        raise InputError("the vectors to compare with are all 0; choose another reference")
    return PipReport(
        words=len(embedding),
        dim=int(embedding.shape[1]),
        loss=gauge.loss,
        equal_norm=gauge.relative * gauge.second,
        relative=gauge.relative,
        random=_chance(reference, int(embedding.shape[1]), gauge.second, seed, threads),
    )


def evaluate_pip(embedding: Embedding, reference: Embedding, *, seed: int = 0, threads: int = 1) -> PipReport:
    """Compare two embeddings over the words that both have."""
    ours, theirs = common_words(embedding, reference)
    return pip_report(embedding.vectors[ours], reference.vectors[theirs], seed=seed, threads=threads)


def common_words(first: Embedding, second: Embedding) -> tuple[Ints, Ints]:
    """The rows of the words that both embeddings have, in the order of the first."""
    found = pc.index_in(first.vocabulary.words, value_set=second.vocabulary.words)
    ours = np.flatnonzero(np.asarray(pc.is_valid(found)))
    if not len(ours):
        raise InputError("the two embeddings have no word in common; check that they are of one language")
    return ours, np.asarray(found.take(pa.array(ours)), np.int64)


def _gauge(first: Matrix, second: Matrix, threads: int) -> _Gauge:
    if first.ndim != 2 or second.ndim != 2 or len(first) != len(second) or not first.size or not second.size:
        shapes = " and ".join(" x ".join(map(str, matrix.shape)) for matrix in (first, second))
        raise InputError(f"vectors of {shapes} cannot be compared; both need a row for each word")
    width = max(first.shape[1], second.shape[1])

    def products(rows: slice) -> Wide:
        one, two = _wide(first[rows], width), _wide(second[rows], width)
        return np.stack([one.T @ one, one.T @ two, two.T @ two])

    squares = _added_up(products, len(first), width, threads)
    norms = np.linalg.norm(squares, axis=(1, 2))
    if not np.isfinite(norms).all():
        raise InputError("some word vectors are not finite numbers; the model has probably diverged")
    ours, mixed, theirs = norms.tolist()
    if not ours or not theirs:
        return _Gauge(ours, theirs, 1.0)
    relative = math.sqrt(max(0.0, 2 - 2 * (mixed / ours) * (mixed / theirs)))
    if relative < NEAR:
        relative = _apart(first, second, squares, (ours, theirs), threads)
    return _Gauge(ours, theirs, relative)


def _apart(first: Matrix, second: Matrix, squares: Wide, norms: tuple[float, float], threads: int) -> float:
    """The loss between the two, both scaled to tables of norm 1, and the second turned towards the first."""
    scales = [1 / math.sqrt(norm) for norm in norms]
    with one_thread_each:  # small products: threads would cost more than they save
        left, _, right = np.linalg.svd(squares[1])
        turn = (left @ right).T * scales[1]
        mixed = scales[0] * squares[1] @ turn
        sums = scales[0] ** 2 * squares[0] + mixed + mixed.T + turn.T @ squares[2] @ turn

    def products(rows: slice) -> Wide:
        one, two = _wide(first[rows], len(turn)), _wide(second[rows], len(turn)) @ turn
        one *= scales[0]
        difference = one - two
        one += two
        return np.stack([difference.T @ difference, difference.T @ one])

    differences, crossed = _added_up(products, len(first), len(turn), threads)
    squared = float(np.vdot(sums, differences)) + float(np.vdot(crossed, crossed))
    return _without_noise(math.sqrt(max(0.0, squared / 2)), float(np.linalg.norm(sums)))


def _chance(reference: Matrix, dim: int, norm: float, seed: int, threads: int) -> float:
    """The relative loss of noise of the same norm."""
    width = max(dim, reference.shape[1])

    def products(rows: slice) -> Wide:
        theirs = _wide(reference[rows], width)
        noise = np.zeros_like(theirs)
        # Numbered by where the block begins: threads need not wait for each other's noise.
        random = np.random.default_rng((STREAM, seed, rows.start))
        noise[:, :dim] = random.standard_normal((len(theirs), dim))
        return np.stack([noise.T @ noise, noise.T @ theirs])

    own, mixed = np.linalg.norm(_added_up(products, len(reference), width, threads), axis=(1, 2)).tolist()
    return math.sqrt(max(0.0, 2 - 2 * (mixed / own) * (mixed / norm)))


def _added_up(products: Callable[[slice], Wide], rows: int, width: int, threads: int) -> Wide:
    """The sum over blocks of rows, always in their order: the same however many threads there are."""
    step = max(1, CELLS_AT_ONCE // width)
    blocks = (slice(start, start + step) for start in range(0, rows, step))
    with one_thread_each:
        return np.asarray(sum(map_ordered(products, blocks, threads)))


def _wide(rows: Matrix, width: int) -> Wide:
    """As 64-bit numbers, with columns of 0 up to the width."""
    out = np.zeros((len(rows), width))
    out[:, : rows.shape[1]] = rows
    return out


def _without_noise(value: float, whole: float) -> float:
    return value if value > NOISE * whole else 0.0
