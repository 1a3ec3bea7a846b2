"""The rule of ``merge``, for moves that come in one after the other and not all together.

A replica's move of a row is divided by how many replicas move that row: so far it counts at once, and the
rest is owed. A share of what is owed is paid with every push, so much that after a push of everyone it
comes to what ``merge`` would pay in one exchange. The share follows the agreement of moves with what is
owed, as there, once in as many pushes as there are replicas. A row that one replica alone moves is owed
nothing.

Who moves a row is counted over spans of pushes, in which each replica exchanges the row about twice; the last
span counts as long as the next is not over.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import kernel
from manyhands.kernels.simd import Floats
from manyhands.spread.merge import FASTER, HOTTEST, MOST_PAID, SELDOM, SLOWER, often
from manyhands.spread.server.messages import Halves, News, Rows, Table, widen

Bits = npt.NDArray[np.uint64]  # one for each replica
MOST_REPLICAS = 64
BATCHES = 0.5  # the power of the number of replicas by which moves of an optimizer are divided
SPAN = 2  # exchanges of each replica, over which movers are counted
ONE, EVERYONE = np.uint64(1), ~np.uint64(0)


class Arrivals:
    """The rows of one table that one shard owns: what is agreed on, what is owed, who has yet to be told."""

    def __init__(
        self, table: Table, own: slice, replicas: int, weights: Floats, squares: Floats, owed: Floats | None
    ) -> None:
        rows = len(weights)
        self.table, self._own, self._replicas = table, own, replicas
        self.weights, self.squares = weights, squares
        # What is owed to each weight, and at last the share that is paid of it.
        self.owed = np.zeros(weights.size + 1, np.float32) if owed is None else owed
        if owed is None:
            self.owed[-1] = self._least_paid
        # Of each row: the span in which it was moved last, by whom, and by how many in the one before.
        self._span, self._who = np.full(rows, -1, np.int32), np.zeros(rows, np.uint64)
        self._movers = np.zeros(rows, np.uint8)
        self._news = np.zeros(rows, np.uint64)
        hot = self.count(min(HOTTEST, table.rows))
        self._moved = np.zeros((hot, weights.shape[1]), np.float32)  # in the pushes since the share was set
        self._before = self._debts[:hot].copy()
        self._pushes = 0
        self._seldom = 1 if table.by_frequency or table.rows <= HOTTEST else SELDOM
        # Of rows that are learnt apart, the rarer ones move too little between two exchanges to go too far.
        self._paid_little = hot if table.apart else rows

    def count(self, reach: int) -> int:
        """How many of the first rows of the whole table are here."""
        return len(range(*self._own.indices(reach)))

    @property
    def _least_paid(self) -> float:
        return 1 / (self._replicas + 1)

    @property
    def _debts(self) -> Floats:
        return self.owed[:-1].reshape(self.weights.shape)

    @property
    def share(self) -> float:
        """The share of what is owed that this table would pay in a whole turn."""
        return float(self.owed[-1])

    def add(self, replica: int, reach: int, rows: Rows, values: Halves, share: float) -> None:
        """Take over what a replica has moved."""
        moves = widen(values)
        if self._replicas == 1:  # it is right in all that it says
            self.weights[rows] += moves[:, : self.table.width]
            if self.table.squares:
                self.squares[rows] += moves[:, -1]
            return
        if self.table.by_batches:
            self.weights[rows] += moves * np.float32(self._replicas**-BATCHES)
            self._news[rows] = EVERYONE
            return
        # So much in every push, that it comes to the share when all who move a row have pushed.
        shares = 1 - (1 - share) ** (1 / np.maximum(np.arange(self._replicas + 1), 1))
        _absorb(
            self.weights,
            self.squares,
            self._debts,
            self._span,
            self._who,
            self._movers,
            self._news,
            self._moved,
            rows,
            moves,
            ONE << np.uint64(replica),
            shares.astype(np.float32),
            self._paid_little,
            self.count(reach),
            self._pushes,
            SPAN * self._replicas * self._seldom,
            self.count(min(often(self.table.apart), self.table.rows))
            if self.table.by_frequency
            else len(self.weights),
        )
        self._pushes += 1
        if self._pushes % self._replicas == 0:
            self._follow()

    def _follow(self) -> None:
        """The share follows how far all have moved in the direction of what was owed."""
        agreement = _agreement(self._before, self._moved)
        share = self.share * math.exp((FASTER if agreement > 0 else SLOWER) * agreement)
        self.owed[-1] = min(max(share, self._least_paid), MOST_PAID)
        self._moved[:] = 0
        self._before[:] = self._debts[: len(self._before)]

    def news(self, replica: int, reach: int, *, all_rows: bool = False) -> News:
        """What a replica has not been told yet of the first rows, or all of it."""
        count, bit = self.count(reach), ONE << np.uint64(replica)
        rows = np.arange(count) if all_rows else np.flatnonzero(self._news[:count] & bit)
        self._news[rows] &= ~bit
        squares = self.squares[rows] if len(self.squares) else self.squares
        weights = self.weights[rows]
        return News(rows.astype(np.int32), weights if all_rows else weights.astype(np.float16), squares)

    def kept(self) -> dict[str, npt.NDArray[Any]]:
        """All that there is to know, as arrays."""
        return {
            "weights": self.weights,
            "squares": self.squares,
            "owed": self.owed,
            "span": self._span,
            "who": self._who.view(np.int64),
            "movers": self._movers,
            "news": self._news.view(np.int64),
            "moved": self._moved,
            "before": self._before,
            "pushes": np.array([self._pushes]),
        }

    def restore(self, kept: dict[str, npt.NDArray[Any]]) -> None:
        for name, array in self.kept().items():
            array[...] = kept[name]
        self._pushes = int(kept["pushes"][0])


@kernel
def _bits(of: np.uint64) -> int:
    count = 0
    while of != np.uint64(0):
        of &= of - np.uint64(1)
        count += 1
    return count


@kernel
def _absorb(
    weights: Floats,
    squares: Floats,
    owed: Floats,
    span: Rows,
    who: Bits,
    movers: npt.NDArray[np.uint8],
    news: Bits,
    moved: Floats,
    rows: Rows,
    moves: Floats,
    me: np.uint64,
    shares: Floats,
    paid_little: int,
    reach: int,
    pushes: int,
    length: int,
    first: int,
) -> None:
    """Rows within reach that nobody has moved are paid as well; ``shares`` are by the number of movers.

    A span is so long for the first rows, which are exchanged every time, and twice as long for as many more.
    """
    width, at, one = weights.shape[1], 0, np.float32(1)
    last, hot, everyone = len(shares) - 1, len(moved), ~np.uint64(0)
    for row in range(reach):
        if row == first:
            first, length = 2 * first, 2 * length
        if at == len(rows) or rows[at] != row:
            share = shares[last] if row < paid_little else one
            changed = False
            for k in range(width):
                paid = share * owed[row, k]
                owed[row, k] -= paid
                weights[row, k] += paid
                changed |= paid != 0
            if changed:
                news[row] |= everyone
            continue
        now = pushes // length
        if span[row] != now:
            movers[row] = _bits(who[row]) if span[row] == now - 1 else 0
            span[row], who[row] = now, me
        else:
            who[row] |= me
        count = min(max(int(movers[row]), _bits(who[row])), last)
        scale = one
        if len(squares):
            growth, known = moves[at, width], squares[row]
            # A replica divided by the root of its own squares: corrected to what those of all would make.
            if count > 1 and known + count * growth > 0:
                scale = np.float32(np.sqrt((known + growth) / (known + count * growth)))
            squares[row] = known + growth
        share = shares[count] if row < paid_little else one
        rest = np.float32((count - 1) / count)
        as_said = scale == one
        for k in range(width):
            move = scale * moves[at, k]
            owed[row, k] += rest * move
            paid = share * owed[row, k]
            owed[row, k] -= paid
            weights[row, k] += (one - rest) * move + paid
            as_said &= row >= paid_little or (rest == 0 and paid == 0)
            if row < hot:
                moved[row, k] += move
        news[row] |= ~me if as_said else everyone
        at += 1


@kernel
def _agreement(owed: Floats, moves: Floats) -> float:
    """From -1 to 1, how far moves have the direction of what is owed."""
    product, far, debts = 0.0, 0.0, 0.0
    for row in range(owed.shape[0]):
        for k in range(owed.shape[1]):
            move, debt = float(moves[row, k]), float(owed[row, k])
            product += move * debt
            far += move * move
            debts += debt * debt
    return product / np.sqrt(far * debts) if far * debts > 0 else 0.0
