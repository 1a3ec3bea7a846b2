"""Who gets how much of the work: by how fast each has been, so that all are ready together."""

import re
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from manyhands.errors import UsageError
from manyhands.kernels.compile import Ints
from manyhands.models.learner import Piece

Shares = npt.NDArray[np.float64]

LEAST_SHARE = 1e-3  # however slow a worker was: it may have had one bad moment


@dataclass(frozen=True)
class Policy:
    """How often speeds are measured and shares rebalanced: every so many epochs or steps, once, or never."""

    epochs: int = 0
    steps: int = 0
    once: bool = False

    @classmethod
    def parse(cls, text: str) -> "Policy":
        """As a user writes it.

        >>> Policy.parse("every:2"), Policy.parse("steps:200")
        (Policy(epochs=2, steps=0, once=False), Policy(epochs=0, steps=200, once=False))
        >>> Policy.parse("often")
        Traceback (most recent call last):
        manyhands.errors.UsageError: --balance is every:N (epochs), steps:N, once or off, not 'often'
        """
        found = re.fullmatch(r"(every|steps):([1-9]\d{0,8})", text)
        if found:
            number = int(found[2])
            return cls(epochs=number) if found[1] == "every" else cls(steps=number)
        if text not in ("once", "off"):
            raise UsageError(f"--balance is every:N (epochs), steps:N, once or off, not '{text}'")
        return cls(epochs=1 if text == "once" else 0, once=text == "once")

    def after_step(self, step: int) -> bool:
        return self.steps > 0 and step % self.steps == 0

    def after_epoch(self, epoch: int) -> bool:
        return epoch == 1 if self.once else self.epochs > 0 and epoch % self.epochs == 0


def equal(workers: int) -> Shares:
    return np.full(workers, 1 / workers)


def by_speed(shares: Shares, rows: Shares, seconds: Shares) -> Shares:
    """New shares from what each worker did and how long it worked, not counting what it waited.

    A worker that did nothing keeps its share, be it none.

    >>> by_speed(equal(2), np.array([100.0, 100.0]), np.array([1.0, 3.0])).tolist()
    [0.75, 0.25]
    """
    known = (rows > 0) & (seconds > 0)
    if not known.any():
        return shares
    speeds = np.where(known, rows / np.maximum(seconds, 1e-9), 0.0)
    new = np.where(known, speeds / max(speeds.sum(), 1e-12) * shares[known].sum(), shares)
    new = np.where(shares > 0, np.maximum(new, LEAST_SHARE), 0.0)
    return np.asarray(new / new.sum())


def cut(rows: int, shares: Shares) -> list[int]:
    """Where each worker's part of ``rows`` begins, and the end: whole rows, one each where there are so many.

    Who has no share gets nothing.

    >>> cut(10, np.array([0.75, 0.25])), cut(4, np.array([0.98, 0.01, 0.01])), cut(1, equal(3))
    ([0, 8, 10], [0, 2, 3, 4], [0, 1, 1, 1])
    >>> cut(10, np.array([0.5, 0.5, 0.0]))
    [0, 5, 10, 10]
    """
    counts = np.floor(shares * rows + 1e-9).astype(np.int64)
    order = np.argsort(counts - shares * rows, kind="stable")
    counts[order[: rows - int(counts.sum())]] += 1
    if rows >= np.count_nonzero(shares):
        for worker in np.flatnonzero((counts == 0) & (shares > 0)):
            counts[counts.argmax()] -= 1
            counts[worker] = 1
    return [0, *np.cumsum(counts).tolist()]


def side_by_side(parts: list[Ints]) -> Ints:
    """The blocks of several workers in the order in which they come when all begin and end together.

    The learning rate falls from block to block, so all workers are to be at the same place of its way.

    >>> side_by_side([np.array([1, 2, 3, 4]), np.array([7, 8])]).tolist()
    [1, 7, 2, 3, 8, 4]
    """
    when = np.concatenate([(np.arange(len(part)) + 1) / (len(part) + 1) for part in parts])
    return np.concatenate(parts)[np.argsort(when, kind="stable")]


def cut_evenly(pieces: list[Piece], count: int) -> list[list[Piece]]:
    """The same rows in so many parts, one after the other; pieces are cut only where they are too few.

    >>> cut_evenly([Piece(7, 0, 10), Piece(3, 0, 10)], 3)
    [[Piece(block=7, first=0, last=6)], [Piece(block=7, first=6, last=10), Piece(block=3, first=0, last=3)], \
[Piece(block=3, first=3, last=10)]]
    >>> cut_evenly([Piece(7, 0, 10), Piece(3, 0, 10)], 2)
    [[Piece(block=7, first=0, last=10)], [Piece(block=3, first=0, last=10)]]
    """
    if len(pieces) >= count:
        return [pieces[len(pieces) * n // count : len(pieces) * (n + 1) // count] for n in range(count)]
    return cut_at(pieces, [(n + 1) / count for n in range(count)])


def cut_at(pieces: list[Piece], points: list[float]) -> list[list[Piece]]:
    """The same rows in parts, one after the other, that end at these shares of all rows.

    >>> cut_at([Piece(7, 0, 10), Piece(3, 0, 10)], [0.25, 1.0])
    [[Piece(block=7, first=0, last=5)], [Piece(block=7, first=5, last=10), Piece(block=3, first=0, last=10)]]
    """
    starts = [0, *accumulate(piece.last - piece.first for piece in pieces)]
    bounds = [0, *(int(starts[-1] * point + 1e-6) for point in points)]
    parts: list[list[Piece]] = [[] for _ in points]
    at = 0
    for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
        while at < len(pieces) and starts[at] < high:
            piece, first, last = pieces[at], max(low, starts[at]), min(high, starts[at + 1])
            part.append(Piece(piece.block, piece.first + first - starts[at], piece.first + last - starts[at]))
            if starts[at + 1] > high:
                break
            at += 1
    return parts
