"""The rule of ``merge``, for replicas that push at their own pace.

Pushes that come at about the same time are one *generation*, and are merged together when it is closed: a
row moves by the mean of those who move it, the rest is owed, and a share of what is owed is paid. If all are
in time, this is what ``merge`` does in one exchange. A replica that is late is not waited for: its push
belongs to the next generation. It is one of those who move a row all the same, if it did so in its last
push, so that two who never meet do not go twice as far. Of what is owed, a generation pays by how many of
all replicas are in it.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import kernel
from manyhands.kernels.simd import Floats
from manyhands.spread.merge import FASTER, HOTTEST, MOST_PAID, SLOWER
from manyhands.spread.server.messages import Halves, News, Rows, Table, widen

Bits = npt.NDArray[np.uint64]  # one for each replica
MOST_REPLICAS = 64
BATCHES = 0.5  # the power of the number of replicas by which moves of an optimizer are divided
ONE, EVERYONE = np.uint64(1), ~np.uint64(0)


class Arrivals:
    """The rows of one table that one shard owns: what is agreed on, what is owed, who has yet to be told."""

    def __init__(
        self, table: Table, own: slice, replicas: int, weights: Floats, squares: Floats, owed: Floats | None
    ) -> None:
        rows = len(weights)
        self.table, self._own, self._replicas = table, own, replicas
        self.weights, self.squares = weights, squares
        self._least_paid = 1 / (replicas + 1)
        # What is owed to each weight, and at last the share that is paid of it.
        self.owed = np.zeros(weights.size + 1, np.float32) if owed is None else owed
        if owed is None:
            self.owed[-1] = self._least_paid
        self._debts = self.owed[:-1].reshape(weights.shape)
        self._news = np.zeros(rows, np.uint64)
        self._who = np.zeros(rows, np.uint64)  # those who moved a row when they pushed last
        self._ever = np.zeros(rows, np.uint64)  # and those who ever did
        # In the generation that is open: how far rows were moved, by whom, and how many of them it concerns.
        collects = self.waits
        self._sums = np.zeros(weights.shape if collects else (0, 0), np.float32)
        self._growth = np.zeros(len(squares) if collects else 0, np.float32)
        self._movers = np.zeros(rows if collects else 0, np.uint64)
        self._reach = 0
        # Of rows that are learnt apart, the rarer ones move too little between two exchanges to go too far.
        self._hot = self.count(min(HOTTEST, table.rows))
        self._paid_little = self._hot if table.apart else rows

    @property
    def waits(self) -> bool:
        """Whether pushes are merged with those of others, and do not count at once."""
        return self._replicas > 1 and not self.table.by_batches

    def count(self, reach: int) -> int:
        """How many of the first rows of the whole table are here."""
        return len(range(*self._own.indices(reach)))

    @property
    def share(self) -> float:
        """The share of what is owed that this table would pay."""
        return float(self.owed[-1])

    def add(self, replica: int, reach: int, rows: Rows, values: Halves) -> None:
        """Take note of what a replica has moved; it counts when the generation is closed."""
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
        me, count = ONE << np.uint64(replica), self.count(reach)
        self._who[:count] &= ~me
        self._reach = max(self._reach, count)
        self._ever[rows] |= me
        _collect(self._sums, self._growth, self._movers, self._who, rows, moves, me)

    def judge(self, pushes: int) -> None:
        """The share follows how far those who are in this generation went the way of what is owed."""
        hot = min(self._hot, self._reach)
        agreement = _agreement(self._debts[:hot], self._sums, self._movers)
        turn = pushes / self._replicas
        share = self.share * math.exp((FASTER if agreement > 0 else SLOWER) * agreement * turn)
        self.owed[-1] = min(max(share, self._least_paid), MOST_PAID)

    def close(self, pushes: int, share: float) -> None:
        """Merge the moves of so many pushes."""
        # So much in every generation, that it comes to the share when everyone has pushed once.
        paid = np.float32(1 - (1 - share) ** (pushes / self._replicas))
        _close(
            self.weights,
            self.squares,
            self._debts,
            self._sums,
            self._growth,
            self._movers,
            self._who,
            self._news,
            paid,
            self._paid_little,
            self._reach,
        )
        self._reach = 0

    def news(self, replica: int, reach: int, *, all_rows: bool = False) -> News:
        """What a replica has not been told yet of the first rows, or all of it.

        Of rarer rows it is told once it has moved them itself: most are in the texts of one replica only. Not
        so of words, each of which would begin to be learnt from nothing in every replica.
        """
        count, bit = self.count(reach), ONE << np.uint64(replica)
        due = self._news[:count] & bit
        if self.waits and not self.table.apart:
            due[self._hot :] &= self._ever[self._hot : count]
        rows = np.arange(count) if all_rows else np.flatnonzero(due)
        self._news[rows] &= ~bit
        squares = self.squares[rows] if len(self.squares) else self.squares
        weights = self.weights[rows]
        return News(rows.astype(np.int32), weights if all_rows else weights.astype(np.float16), squares)

    def kept(self) -> dict[str, npt.NDArray[Any]]:
        """All that there is to know while no generation is open, as arrays."""
        return {
            "weights": self.weights,
            "squares": self.squares,
            "owed": self.owed,
            "who": self._who.view(np.int64),
            "ever": self._ever.view(np.int64),
            "news": self._news.view(np.int64),
        }

    def restore(self, kept: dict[str, npt.NDArray[Any]]) -> None:
        for name, array in self.kept().items():
            array[...] = kept[name]


@kernel
def _bits(of: np.uint64) -> int:
    count = 0
    while of != np.uint64(0):
        of &= of - np.uint64(1)
        count += 1
    return count


@kernel
def _collect(
    sums: Floats, growth: Floats, movers: Bits, who: Bits, rows: Rows, moves: Floats, me: np.uint64
) -> None:
    width = sums.shape[1]
    for at in range(len(rows)):
        row = rows[at]
        who[row] |= me
        movers[row] |= me
        for k in range(width):
            sums[row, k] += moves[at, k]
        if len(growth):
            growth[row] += moves[at, width]


@kernel
def _agreement(owed: Floats, sums: Floats, movers: Bits) -> float:
    """From -1 to 1, how far moves of the first rows have the direction of what is owed to them."""
    product, far, debts = 0.0, 0.0, 0.0
    for row in range(len(owed)):
        count = max(_bits(movers[row]), 1)
        for k in range(owed.shape[1]):
            mean, debt = float(sums[row, k] / count), float(owed[row, k])
            product += mean * debt
            far += mean * mean
            debts += debt * debt
    return product / np.sqrt(far * debts) if far * debts > 0 else 0.0


@kernel
def _close(
    weights: Floats,
    squares: Floats,
    owed: Floats,
    sums: Floats,
    growth: Floats,
    movers: Bits,
    who: Bits,
    news: Bits,
    share: np.float32,
    paid_little: int,
    reach: int,
) -> None:
    """Rows within reach that nobody has moved are paid as well."""
    width, one, everyone = weights.shape[1], np.float32(1), ~np.uint64(0)
    for row in range(reach):
        mine = movers[row]
        count, scale = max(np.float32(_bits(who[row])), one), one
        if len(squares) and mine != np.uint64(0):
            known, each = squares[row], growth[row] / np.float32(_bits(mine))
            # A replica divided by the root of its own squares: corrected to what those of all would make.
            if count > one and known + count * each > 0:
                scale = np.sqrt((known + each) / (known + count * each))
            squares[row] = known + growth[row]
            growth[row] = 0
        part = share if row < paid_little else one
        changed, as_said = False, scale == one and _bits(mine) == 1
        for k in range(width):
            total = scale * sums[row, k]
            at_once = total / count
            rest = total - at_once
            paid = part * (owed[row, k] + rest)
            owed[row, k] += rest - paid
            weights[row, k] += at_once + paid
            sums[row, k] = 0
            changed |= at_once != 0 or paid != 0
            as_said &= row >= paid_little or (rest == 0 and paid == 0)
        if changed:
            news[row] |= ~mine if as_said else everyone
        movers[row] = np.uint64(0)
