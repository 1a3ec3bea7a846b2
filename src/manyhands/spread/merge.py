"""How the moves of several workers become one: of what they learnt alike, the mean at once, the rest as fast
as they go on to agree with it.

Workers that learn in place begin from weights that all agree on and move them, each by its own rows. One
process would have made all these moves, one after the other. Their sum goes too far where rows that come
later would have learnt less, had they known of the others. Their mean goes not far enough elsewhere: what
everyone touches would be learnt the slower, the more workers there are. So a row moves by the mean of those
who moved it, and the rest of the sum is owed to it. Of what is owed, a share is paid in every exchange. As
long as workers go on in the direction of what is owed, it is right, and the share grows up to the whole; as
soon as they turn back in any array, it was too much, and the share falls, down to about one by the number
of workers. A row that one worker has moved is owed nothing. To rows that are learnt apart, as words are,
all is paid at once, but for the hottest.

AdaGrad's squares are sums, so they are added up. A worker divided its moves by the root of its own squares;
they are corrected by what the squares of all would have made of them, had they grown alike for everyone.

Exchanges are the further apart, the more has been learnt: see ``exchanges``. Rows that move often are
exchanged often, and the others seldom: see ``reach``. The ways that failed are in
docs/explanation/decisions/0013-merging.md.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Bytes, Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.models.learner import Learner, StateArray
from manyhands.text.labelled_rows import LabelledRows

OFTEN = 512  # rows that are exchanged every time, of those that many texts move together
HOTTEST = 2048  # and of those that are learnt apart; by so many is told whether workers agree
FEW = 20_000  # rows that are sent at once, moved or not: another message would take longer
SELDOM = 16  # larger arrays whose rows stand in no order are exchanged so seldom, but then whole
NONE = -1  # in place of the column of squares
GROWTH = 0.01  # of all that was learnt so far, what is learnt before the next exchange
MOST_PAID = 0.97  # of what is owed: something must be left to tell whether it was right
FASTER, SLOWER = 1.0, 2.0  # how the share that is paid follows the agreement; if both are 1, it may diverge

# Rows, or words of running text, that a machine must have of its own. Of fewer, the merged model is worse
# than that of one machine: decision 13 has the figures.
ENOUGH = {"labels": 12_000, "words": 2_000_000}

Sum = Callable[[npt.NDArray[Any]], None]  # adds up over all workers, in place


def often(apart: bool) -> int:
    """How many of the rows that move most are exchanged every time."""
    return HOTTEST if apart else OFTEN


def reach(number: int, part: StateArray) -> int:
    """How many rows the exchange of this ``number`` takes, from the first, which move most, on.

    The hottest rows are exchanged every time, twice as many every second time, and so on. As frequencies
    fall with the rank of a word, a row moves about as often between two of its exchanges, whichever it is.

    >>> table = StateArray(np.zeros((10_000, 1)), by_frequency=True)
    >>> [reach(number, table) for number in (1, 2, 3, 4, 8)]
    [512, 1024, 512, 2048, 4096]
    """
    rows = len(part.array)
    if part.by_frequency:
        return min(often(part.apart) * (number & -number), rows)
    return rows if rows <= HOTTEST or number % SELDOM == 0 else 0


def exchanges(seen: int, rows: int, least: int, most: int) -> list[float]:
    """After which shares of the next ``rows`` a crew exchanges, if it has ``seen`` so many before.

    Early, when every row tells much, the first exchanges come soon.

    >>> exchanges(0, 100, 20, 50), exchanges(3000, 100, 20, 50)
    ([0.2, 0.4, 0.6, 0.8, 1.0], [0.3, 0.603, 1.0])
    """
    points, at = [], 0.0
    while at < rows:
        between = min(max(GROWTH * (seen + at), least), most)
        at = at + between if at + 1.5 * between <= rows else rows
        points.append(at / rows)
    return points


def useful(machines: int, amount: int, enough: int) -> int:
    """How many of the machines can learn so many rows or words, and still be as good as one of them alone.

    >>> [useful(16, rows, ENOUGH["labels"]) for rows in (5_000, 25_000, 200_000, 1_000_000)]
    [1, 2, 16, 16]
    """
    return max(min(machines, amount // enough if enough else machines), 1)


def learning_machines(
    machines: int, kind: type[Learner], examples: LabelledRows, enough: Mapping[str, int] = ENOUGH
) -> tuple[int, str]:
    """How many of the machines are to learn these rows, and what people should know of it, if any.

    Models that share batches are as good with any number of machines.
    """
    if kind.shares_batches:
        return machines, ""
    amount = len(examples) if kind.learns == "labels" else examples.corpus.tokens
    learning = useful(machines, amount, enough[kind.learns])
    if learning == machines:
        return machines, ""
    what = "rows" if kind.learns == "labels" else "words"
    return learning, f"{amount:,} {what} are too few for {machines} machines: {learning} will learn them"


class Merge:
    """What all workers agree on of one array, and what is owed to it."""

    def __init__(self, part: StateArray, workers: int, owed: Floats | None = None) -> None:
        self._array = part.array.reshape(len(part.array), -1)
        self._first, last = part.first, part.last or self._array.shape[1]
        self._squares = NONE if part.squares is None else part.squares
        self._least_paid = np.float32(1 / (workers + 1))
        # Of rows that are learnt apart, the rarer ones move too little between two exchanges to go too far.
        self._paid_little = HOTTEST if part.apart else len(self._array)
        self._agreed = self._array[:, self._first : last].copy()
        known = self._array[:, self._squares] if part.squares is not None else np.zeros(0, np.float32)
        self._agreed_squares = known.copy()
        # What is owed to each weight, and at last the share that is paid: checkpoints keep both.
        self.owed = np.zeros(self._agreed.size + 1, np.float32) if owed is None else owed
        if owed is None:
            self.owed[-1] = self._least_paid
        self._owed = self.owed[:-1].reshape(self._agreed.shape)

    def moved(self, rows: int) -> Bytes:
        """Which of the first rows this worker has moved: 1 or 0 for each."""
        out = np.empty(rows, np.uint8)
        _find_moved(self._array, self._first, self._agreed, out)
        return out

    def lines(self, rows: Ints, movers: Floats) -> Floats:
        """What this worker has to say of these rows, which have so many movers: how far it has moved each.

        A last column says by how much the squares have grown, if there are any.
        """
        width = self._agreed.shape[1]
        out = np.empty((len(rows), width + (self._squares != NONE)), np.float32)
        squares = self._agreed_squares
        _gather(self._array, self._first, self._squares, self._agreed, squares, rows, movers, out)
        return out

    def share(self, movers: Floats, totals: Floats) -> float:
        """The share of what is owed that this array would pay, by what all have said; see ``agree``."""
        agreement = _agreement(self._owed, movers[:HOTTEST], totals)
        share = self.owed[-1] * math.exp((FASTER if agreement > 0 else SLOWER) * agreement)
        self.owed[-1] = min(max(share, self._least_paid), MOST_PAID)
        return float(self.owed[-1])

    def agree(self, movers: Floats, totals: Floats, share: float | None = None) -> None:
        """Take over what all have said: how many ``movers`` each of the first rows has, and the sums.

        ``totals`` has a line for each row that has movers. Without a ``share``, the least is paid, which is
        right however long the workers were apart.
        """
        _agree(
            self._array,
            self._first,
            self._squares,
            self._agreed,
            self._agreed_squares,
            self._owed,
            movers,
            totals,
            np.float32(self._least_paid if share is None else share),
            len(self._array) if share is None else self._paid_little,
        )

    def agree_on_means(self, movers: Floats, means: Floats) -> None:
        """As ``agree``, where of each row the mean over its ``movers`` is at hand."""
        rows, columns = np.flatnonzero(movers), slice(self._first, self._first + self._agreed.shape[1])
        count, found = movers[rows, None], means[rows]
        totals = (found[:, columns] - self._agreed[rows]) * count
        if self._squares != NONE:
            known, squares = self._agreed_squares[rows, None], found[:, self._squares, None]
            growth = (squares - known) * count
            totals = np.hstack([totals * np.sqrt(squares / (known + growth)), growth])
        self.agree(movers, totals)


def merge_hottest(merges: list[Merge], reaches: list[int], workers: int, add_halves: Sum) -> None:
    """Merge the first rows of several arrays, moved or not, in one message.

    The squares of these rows, which move most, are taken to have grown for every worker.
    """
    said = []
    for merge, rows in zip(merges, reaches, strict=True):
        lines = merge.lines(np.arange(rows), np.full(rows, workers, np.float32))
        said.append(np.column_stack([merge.moved(rows), lines]))
    message = _join(said)
    add_halves(message)
    movers = [np.ascontiguousarray(total[:, 0]) for total in _split(message, said)]
    totals = [
        np.ascontiguousarray(total[count > 0, 1:])
        for total, count in zip(_split(message, said), movers, strict=True)
    ]
    _agree_on_all(merges, movers, totals)


def merge_moved(merges: list[Merge], reaches: list[int], workers: int, add_up: Sum, add_halves: Sum) -> None:
    """Merge those of the first rows that anyone has moved: first all tell which, then how far."""
    counter = np.uint8 if workers < 1 << 8 else np.int32
    moved = [merge.moved(rows).astype(counter) for merge, rows in zip(merges, reaches, strict=True)]
    message = _join(moved)
    add_up(message)
    movers = [count.astype(np.float32) for count in _split(message, moved)]
    rows_of = [np.flatnonzero(count) for count in movers]
    three = zip(merges, rows_of, movers, strict=True)
    lines = [merge.lines(rows, count[rows]) for merge, rows, count in three]
    message = _join(lines)
    add_halves(message)
    _agree_on_all(merges, movers, _split(message, lines))


def _agree_on_all(merges: list[Merge], movers: list[Floats], totals: list[Floats]) -> None:
    """Arrays move each other: if what is owed to any of them was too much, all are paid slowly."""
    three = list(zip(merges, movers, totals, strict=True))
    share = min(merge.share(count, total) for merge, count, total in three)
    for merge, count, total in three:
        merge.agree(count, total, share)


def _join(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([array.reshape(-1) for array in arrays])


def _split(message: npt.NDArray[Any], like: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    parts = np.split(message, np.cumsum([array.size for array in like])[:-1])
    return [part.reshape(array.shape) for part, array in zip(parts, like, strict=True)]


@kernel
def _find_moved(array: Floats, first: int, agreed: Floats, out: Bytes) -> None:
    for row in range(len(out)):
        moved = False
        for k in range(agreed.shape[1]):
            moved |= array[row, first + k] != agreed[row, k]
        out[row] = moved


@kernel
def _gather(
    array: Floats,
    first: int,
    squares: int,
    agreed: Floats,
    agreed_squares: Floats,
    rows: Ints,
    movers: Floats,
    out: Floats,
) -> None:
    width = agreed.shape[1]
    for i in range(len(rows)):
        row, scale = rows[i], np.float32(1)
        if squares >= 0:
            growth = array[row, squares] - agreed_squares[row]
            out[i, width] = growth
            scale = np.sqrt(array[row, squares] / (agreed_squares[row] + movers[i] * growth))
        for k in range(width):
            out[i, k] = (array[row, first + k] - agreed[row, k]) * scale


@kernel
def _agreement(owed: Floats, movers: Floats, totals: Floats) -> float:
    """From -1 to 1, how far the moves of the first rows have the direction of what is owed to them."""
    product, moves, debts, at = 0.0, 0.0, 0.0, 0
    for row in range(len(movers)):
        count = movers[row]
        for k in range(owed.shape[1]):
            mean, debt = float(totals[at, k] / count) if count else 0.0, float(owed[row, k])
            product += mean * debt
            moves += mean * mean
            debts += debt * debt
        at += count > 0
    return product / np.sqrt(moves * debts) if moves * debts > 0 else 0.0


@kernel
def _agree(
    array: Floats,
    first: int,
    squares: int,
    agreed: Floats,
    agreed_squares: Floats,
    owed: Floats,
    movers: Floats,
    totals: Floats,
    share: np.float32,
    paid_little: int,
) -> None:
    """The first rows, which are ``paid_little``, are paid a share of what they are owed, the others all."""
    at, one, width = 0, np.float32(1), agreed.shape[1]
    for row in range(len(movers)):
        count = movers[row]
        for k in range(width):
            mean = totals[at, k] / count if count else np.float32(0)
            rest = (count - one) * mean if count else np.float32(0)
            paid = (share if row < paid_little else one) * (owed[row, k] + rest)
            owed[row, k] += rest - paid
            agreed[row, k] += mean + paid
            array[row, first + k] = agreed[row, k]
        if count:
            if squares >= 0:
                agreed_squares[row] += totals[at, width]
                array[row, squares] = agreed_squares[row]
            at += 1
