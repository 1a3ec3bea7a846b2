"""The rows that are still to be learnt, and who has which: every row once an epoch, whoever is lost.

Each worker has a range of the blocks, of which it has made features ahead. Whoever has done its own
takes from the one that has most left: so the faster do more.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from manyhands.models.learner import Feed, Piece
from manyhands.spread.balance import cut, equal
from manyhands.spread.server.messages import Lease
from manyhands.training.loop import block_order
from manyhands.training.schedule import Schedule

ABOUT = 1.25  # times the rows that are asked for, before a block is cut


class Work:
    """The epochs from ``epoch`` up to ``epochs``; what is done of them is ``learnt``."""

    def __init__(
        self,
        feed: Feed,
        workers: int,
        seed: int,
        schedule: Schedule,
        *,
        epoch: int,
        epochs: int,
        learnt: Sequence[Sequence[int]] = (),
        whole: bool = False,
    ) -> None:
        self._sizes = [feed.rows(block) for block in range(len(feed))]
        self._workers, self._seed, self._schedule, self._epochs = workers, seed, schedule, epochs
        self._whole = whole  # blocks are batches: none is cut
        self.rows = sum(self._sizes)
        self._learnt: dict[int, list[Piece]] = {}  # of the epochs that are not over
        for of, *piece in learnt:
            self._learnt.setdefault(of, []).append(Piece(*piece))
        self._done = {of: _rows(pieces) for of, pieces in self._learnt.items()}
        self.given = epoch * self.rows + sum(_rows(pieces) for pieces in self._learnt.values())
        self._numbers = 0
        self._returned: deque[tuple[int, deque[Piece]]] = deque()
        self._epoch = epoch - 1
        self._own: list[deque[Piece]] = []
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._epoch += 1
        order = block_order(self._seed, self._epoch, len(self._sizes)).tolist()
        left: dict[int, list[Piece]] = {}
        for piece in self._learnt.get(self._epoch, []):
            left.setdefault(piece.block, []).append(piece)
        bounds = pairwise(cut(len(order), equal(self._workers)))
        self._own = [
            deque(
                part
                for block in order
                if first <= block < last
                for part in _without(Piece(block, 0, self._sizes[block]), left.get(block, []))
            )
            for first, last in bounds
        ]

    def take(self, worker: int, rows: int, turn: int) -> Lease | None:
        """About so many rows for a worker; None where there are none."""
        if self._returned:
            epoch, pieces = self._returned[0]
            lease = self._lease(epoch, _first(pieces, rows, whole=self._whole), turn)
            if not pieces:
                self._returned.popleft()
            return lease
        while not any(self._own):
            if self._epoch + 1 >= self._epochs:
                return None
            self._begin_epoch()
        own = self._own[worker]
        from_whom = own or max(self._own, key=len)
        some = _first(from_whom, rows, whole=self._whole, last=not own)
        lease = self._lease(self._epoch, some, turn)
        self.given += lease.rows
        return lease

    def _lease(self, epoch: int, pieces: list[Piece], turn: int) -> Lease:
        """Every piece has the learning rate of how much had been given out before it."""
        rates, given = [], self.given
        for piece in pieces:
            rates.append(self._schedule.at(given))
            given += piece.last - piece.first
        self._numbers += 1
        return Lease(self._numbers, turn, epoch, tuple(pieces), tuple(rates))

    def give_back(self, lease: Lease) -> None:
        """What a worker that is lost had not learnt, or what was lost with it."""
        self._returned.append((lease.epoch, deque(lease.pieces)))

    def commit(self, lease: Lease) -> None:
        """It is learnt, and shards have it."""
        self._learnt.setdefault(lease.epoch, []).extend(lease.pieces)
        self._done[lease.epoch] = self._done.get(lease.epoch, 0) + lease.rows

    def is_over(self, epoch: int) -> bool:
        return self._done.get(epoch, 0) == self.rows

    def forget(self, epoch: int) -> None:
        self._learnt.pop(epoch, None)

    def learnt(self) -> list[list[int]]:
        """What is done of the epochs that are not over, as a checkpoint has it: epoch, block, from, to."""
        return [[epoch, *piece] for epoch, pieces in self._learnt.items() for piece in pieces]


def _rows(pieces: Sequence[Piece]) -> int:
    return sum(piece.last - piece.first for piece in pieces)


def _first(pieces: deque[Piece], rows: int, *, whole: bool = False, last: bool = False) -> list[Piece]:
    """Take about so many rows away, the first or the ``last``; a block is not cut for a few more or less.

    >>> left = deque([Piece(7, 0, 10), Piece(3, 0, 10)])
    >>> _first(left, 15)
    [Piece(block=7, first=0, last=10), Piece(block=3, first=0, last=5)]
    >>> _first(left, 4, last=True), left
    ([Piece(block=3, first=5, last=10)], deque([]))
    """
    some: list[Piece] = []
    while pieces and rows > 0:
        piece = pieces.pop() if last else pieces.popleft()
        size = piece.last - piece.first
        if not whole and size > ABOUT * rows:
            piece, rest = piece._replace(last=piece.first + rows), piece._replace(first=piece.first + rows)
            pieces.append(rest) if last else pieces.appendleft(rest)
        elif some and size - rows > rows:
            pieces.append(piece) if last else pieces.appendleft(piece)
            break
        some.append(piece)
        rows -= size
    return some


def _without(piece: Piece, learnt: Sequence[Piece]) -> list[Piece]:
    """What is left of a block.

    >>> _without(Piece(7, 0, 10), [Piece(7, 6, 8), Piece(7, 0, 2)])
    [Piece(block=7, first=2, last=6), Piece(block=7, first=8, last=10)]
    """
    left, at = [], piece.first
    for done in sorted(learnt):
        if done.first > at:
            left.append(Piece(piece.block, at, done.first))
        at = max(at, done.last)
    if at < piece.last:
        left.append(Piece(piece.block, at, piece.last))
    return left
