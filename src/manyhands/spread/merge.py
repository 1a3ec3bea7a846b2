"""How the moves of several workers become one: of what they learnt alike, the mean at once, the rest little
by little.

Workers that learn in place begin from weights that all agree on and move them, each by its own rows. One
process would have made all these moves, one after the other. Their sum goes too far: rows that come later
would have learnt less, had they known of the others. Their mean goes not far enough: what everyone touches
would be learnt the slower, the more workers there are. So a row moves by the mean of those who moved it,
and the rest of the sum is owed to it: of that, a share of one by the number of workers is paid in every
exchange. All moves count in the end, as in one process, and none too many at once. A row that one worker
has moved is owed nothing.

AdaGrad's squares are sums, so they are added up. A worker divided its moves by the root of its own squares;
they are corrected by what the squares of all would have made of them, had they grown alike for everyone.

Rows that move often are exchanged often, and the others seldom: see ``reach``. The ways that failed are in
docs/explanation/decisions/0013-merging.md.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Bytes, Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.models.learner import StateArray

HOTTEST = 2048  # rows that are exchanged every time
FEW = 20_000  # rows that are sent at once, moved or not: another message would take longer
SELDOM = 16  # arrays whose rows stand in no order are exchanged so seldom, but then whole
NONE = -1  # in place of the column of squares

Sum = Callable[[npt.NDArray[Any]], None]  # adds up over all workers, in place


def reach(number: int, part: StateArray) -> int:
    """How many rows the exchange of this ``number`` takes, from the first, which move most, on.

    The hottest rows are exchanged every time, twice as many every second time, and so on. As frequencies
    fall with the rank of a word, a row moves about as often between two of its exchanges, whichever it is.

    >>> table = StateArray(np.zeros((10_000, 1)), by_frequency=True)
    >>> [reach(number, table) for number in (1, 2, 3, 4, 8)]
    [2048, 4096, 2048, 8192, 10000]
    """
    rows = len(part.array)
    if rows <= HOTTEST or (not part.by_frequency and number % SELDOM == 0):
        return rows
    return min(HOTTEST * (number & -number), rows) if part.by_frequency else 0


class Merge:
    """What all workers agree on of one array, and what is owed to it."""

    def __init__(self, part: StateArray, workers: int, owed: Floats | None = None) -> None:
        self._array = part.array.reshape(len(part.array), -1)
        self._first, last = part.first, part.last or self._array.shape[1]
        self._squares = NONE if part.squares is None else part.squares
        self._share = np.float32(1 / workers)
        self._agreed = self._array[:, self._first : last].copy()
        known = self._array[:, self._squares] if part.squares is not None else np.zeros(0, np.float32)
        self._agreed_squares = known.copy()
        self.owed = np.zeros_like(self._agreed) if owed is None else owed

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

    def agree(self, movers: Floats, totals: Floats) -> None:
        """Take over what all have said: how many ``movers`` each of the first rows has, and the sums.

        ``totals`` has a line for each row that has movers.
        """
        _agree(
            self._array,
            self._first,
            self._squares,
            self._agreed,
            self._agreed_squares,
            self.owed,
            movers,
            totals,
            self._share,
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
    for merge, total in zip(merges, _split(message, said), strict=True):
        movers = np.ascontiguousarray(total[:, 0])
        merge.agree(movers, np.ascontiguousarray(total[movers > 0, 1:]))


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
    for merge, count, total in zip(merges, movers, _split(message, lines), strict=True):
        merge.agree(count, total)


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
) -> None:
    at, one, width = 0, np.float32(1), agreed.shape[1]
    for row in range(len(movers)):
        count = movers[row]
        for k in range(width):
            mean = totals[at, k] / count if count else np.float32(0)
            paid = share * owed[row, k]
            owed[row, k] += (count - one) * mean - paid if count else -paid
            agreed[row, k] += mean + paid
            array[row, first + k] = agreed[row, k]
        if count:
            if squares >= 0:
                agreed_squares[row] += totals[at, width]
                array[row, squares] = agreed_squares[row]
            at += 1
