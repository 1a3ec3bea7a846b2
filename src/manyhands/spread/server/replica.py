"""A replica's side of the exchange with shards: what all agreed on when it looked last, and its moves since.

Only half of the bits of a move travel. What is rounded away remains part of the next move: nothing is lost.
"""

import time
from collections.abc import Sequence
from itertools import count
from typing import Protocol

import numpy as np

from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.models.learner import StateArray
from manyhands.spread.merge import reach
from manyhands.spread.server.messages import Exchanged, Halves, Moves, News, Push, Reply, table_of

NONE = -1  # in place of the column of squares
# Of a weight: a row that has moved by less waits for the next exchange, as does what was rounded away.
LITTLE = np.float32(2**-10)


class Shards(Protocol):
    """The way to all shards, who answer side by side."""

    def __len__(self) -> int: ...

    def exchange(self, pushes: Sequence[Push]) -> list[Reply]: ...

    def tell_all(self, replica: int, life: int) -> list[Reply]: ...


class Copy:
    """One table of a replica, and what is known of it."""

    def __init__(self, name: str, part: StateArray, shards: int) -> None:
        self.part, self.table, self._shards = part, table_of(name, part), shards
        self._array = part.array.reshape(len(part.array), -1)
        self._squares = NONE if part.squares is None else part.squares
        first = part.first
        self._known = self._array[:, first : first + self.table.width].copy()
        squares = self._array[:, self._squares] if part.squares is not None else np.zeros(0, np.float32)
        self._known_squares = squares.copy()

    def moves(self, rows: int) -> list[Moves]:
        """How far the first rows have moved, for each shard; from now on it is known."""
        found = []
        for shard in range(self._shards):
            mine = _moved(self._array, self.part.first, self._known, shard, self._shards, rows)
            values = np.empty((len(mine), self.table.width + (self._squares != NONE)), np.uint16)
            _take_moves(
                self._array,
                self.part.first,
                self._squares,
                self._known,
                self._known_squares,
                mine,
                values,
            )
            found.append(Moves(rows, (mine // self._shards).astype(np.int32), values))
        return found

    def hear(self, shard: int, news: News) -> None:
        """Take over what others have learnt; what was learnt here since the last push remains."""
        rows = news.rows.astype(np.int64) * self._shards + shard
        _hear(
            self._array,
            self.part.first,
            self._squares,
            self._known,
            self._known_squares,
            rows,
            news.values.astype(np.float32, copy=False),
            news.squares,
        )

    def know(self, shard: int, news: News) -> None:
        """Take note of what shards have, and leave the table as it is."""
        rows = news.rows.astype(np.int64) * self._shards + shard
        self._known[rows] = news.values
        if self._squares != NONE:
            self._known_squares[rows] = news.squares

    def forget_moves(self) -> None:
        """Go back to what is known."""
        first = self.part.first
        self._array[:, first : first + self.table.width] = self._known
        if self._squares != NONE:
            self._array[:, self._squares] = self._known_squares


class Replica:
    """The tables in which one or more workers learn, seen from who speaks for them."""

    def __init__(
        self, number: int, life: int, parts: dict[str, StateArray], shards: Shards, *, in_place: bool
    ) -> None:
        self._number, self._life, self._shards = number, life, shards
        self._copies = [Copy(name, part, len(shards)) for name, part in parts.items()]
        self._in_place, self._share = in_place, 1.0
        self._clocks = [0] * len(shards)
        self._sequence = count()
        self._generations = 0  # that shards have merged: all replicas send the same rows for the next

    def begin_from_shards(self, *, keep: bool) -> int:
        """Take over all that they have; ``keep`` moves that they do not have yet. Gives the bytes of it."""
        replies = self._shards.tell_all(self._number, self._life)
        self._generations = max(reply.generation for reply in replies)
        for shard, reply in enumerate(replies):
            self._clocks[shard] = reply.clock
            for copy, news in zip(self._copies, reply.news, strict=True):
                copy.know(shard, news) if keep else copy.hear(shard, news)
        if not keep:
            for copy in self._copies:
                copy.forget_moves()
        return sum(reply.bytes for reply in replies)

    def exchange(self, *, whole: bool, pull: bool) -> Exchanged:
        """Push what has moved and hear what others have: of the hottest rows, or of the ``whole`` tables."""
        began, number = time.perf_counter(), self._generations + 1
        reaches = [
            copy.table.rows if whole or not self._in_place else reach(number, copy.part)
            for copy in self._copies
        ]
        moves = [copy.moves(rows) for copy, rows in zip(self._copies, reaches, strict=True)]
        sequence = next(self._sequence)
        pushes = [
            Push(
                self._number,
                self._life,
                sequence,
                self._clocks[shard],
                self._share,
                pull,
                tuple(parts[shard] for parts in moves),
            )
            for shard in range(len(self._shards))
        ]
        replies = self._shards.exchange(pushes)
        for shard, reply in enumerate(replies):
            self._clocks[shard] = reply.clock
            for copy, news in zip(self._copies, reply.news, strict=False):
                copy.hear(shard, news)
        self._generations = max(reply.generation for reply in replies)
        self._share = min(reply.share for reply in replies)
        sent = sum(push.bytes for push in pushes) + sum(reply.bytes for reply in replies)
        return Exchanged(sent, max(reply.behind for reply in replies), time.perf_counter() - began)


@kernel
def _moved(array: Floats, first: int, known: Floats, shard: int, shards: int, rows: int) -> Ints:
    """Which of a shard's rows, among the first, have moved."""
    out, found = np.empty((rows + shards - 1) // shards, np.int64), 0
    for row in range(shard, rows, shards):
        for k in range(known.shape[1]):
            if abs(array[row, first + k] - known[row, k]) > LITTLE * abs(known[row, k]):
                out[found] = row
                found += 1
                break
    return out[:found]


@kernel
def _take_moves(
    array: Floats,
    first: int,
    squares: int,
    known: Floats,
    known_squares: Floats,
    rows: Ints,
    out: Halves,
) -> None:
    """The upper half of the bits of each move, rounded, and what that makes known."""
    width, upper, half = known.shape[1], np.uint32(16), np.uint32(0x8000)
    number = np.empty(1, np.float32)
    bits = number.view(np.uint32)
    for i in range(len(rows)):
        row = rows[i]
        for k in range(width):
            number[0] = array[row, first + k] - known[row, k]
            out[i, k] = (bits[0] + half) >> upper
            bits[0] = np.uint32(out[i, k]) << upper
            known[row, k] += number[0]
        if squares >= 0:
            number[0] = array[row, squares] - known_squares[row]
            out[i, width] = (bits[0] + half) >> upper
            bits[0] = np.uint32(out[i, width]) << upper
            known_squares[row] += number[0]


@kernel
def _hear(
    array: Floats,
    first: int,
    squares: int,
    known: Floats,
    known_squares: Floats,
    rows: Ints,
    values: Floats,
    new_squares: Floats,
) -> None:
    for i in range(len(rows)):
        row = rows[i]
        for k in range(known.shape[1]):
            array[row, first + k] += values[i, k] - known[row, k]
            known[row, k] = values[i, k]
        if squares >= 0:
            array[row, squares] += new_squares[i] - known_squares[row]
            known_squares[row] = new_squares[i]
