"""What workers, shards and the driver say to each other: plain values and arrays."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernels.simd import Floats
from manyhands.models.learner import Learner, Piece, StateArray

Halves = npt.NDArray[np.uint16]  # the upper half of the bits of each number (bfloat16)
Rows = npt.NDArray[np.int32]
UPPER = np.uint32(16)  # bits, which travel; the others do not


class Table(NamedTuple):
    """An array as shards know it: rows of weights, and a column of AdaGrad's squares if it has one."""

    name: str
    rows: int
    width: int
    squares: bool
    by_frequency: bool
    apart: bool
    by_batches: bool  # of a model that shares batches: every replica moves it by an optimizer of its own


class Moves(NamedTuple):
    """How far a replica has moved some rows that a shard owns; ``reach`` limits what it is told."""

    reach: int  # in rows of the whole table
    rows: Rows  # as the shard numbers them
    values: Halves


class News(NamedTuple):
    """Rows of a table that others have moved, as they are now."""

    rows: Rows
    values: npt.NDArray[np.float16] | Floats  # half of the bits, unless it is all that there is
    squares: Floats


@dataclass(frozen=True)
class Push:
    """What one replica has to say to one shard, and what it asks for."""

    replica: int
    life: int  # a replica that began again counts its pushes anew
    sequence: int
    clock: int  # of the shard, when it was asked last
    share: float  # the least that any shard would pay of what is owed
    pull: bool
    moves: tuple[Moves, ...]  # one for each table

    @property
    def bytes(self) -> int:
        return sum(part.rows.nbytes + part.values.nbytes for part in self.moves)


@dataclass(frozen=True)
class Reply:
    clock: int  # how many pushes are merged
    generation: int  # and in how many turns
    behind: int  # how many pushes of others the replica had not known of
    share: float
    news: tuple[News, ...]

    @property
    def bytes(self) -> int:
        return sum(part.rows.nbytes + part.values.nbytes + part.squares.nbytes for part in self.news)


@dataclass(frozen=True)
class Lease:
    """Rows that one worker is given to learn, all of one epoch."""

    number: int
    turn: int  # how many exchanges' worth of rows had been given out before
    epoch: int
    pieces: tuple[Piece, ...]
    rates: tuple[float, ...]

    @property
    def rows(self) -> int:
        return sum(piece.last - piece.first for piece in self.pieces)


class Learnt(NamedTuple):
    """How a lease went."""

    total: float
    rows: float
    seconds: float


class Exchanged(NamedTuple):
    """How an exchange went."""

    bytes: int
    behind: int
    seconds: float


class Place(NamedTuple):
    """Where a worker runs, and the open files by which others of its machine find its tables."""

    node: str
    host: str
    process: int
    files: tuple[int, ...]
    tables: dict[str, int]  # of these files, those of what is learnt in common; empty if not all are


def exchanged_parts(learner: Learner) -> dict[str, StateArray]:
    """What is learnt in common; what an optimizer remembers stays with each replica."""
    return {name: part for name, part in learner.state().items() if not part.memory}


def table_of(name: str, part: StateArray, *, by_batches: bool = False) -> Table:
    array = part.array.reshape(len(part.array), -1)
    width = (part.last or array.shape[1]) - part.first
    squares, often, apart = part.squares is not None, part.by_frequency, part.apart
    return Table(name, len(array), width, squares, often, apart, by_batches)


def widen(halves: Halves) -> Floats:
    """Numbers of whose bits only the upper half has come."""
    return (halves.astype(np.uint32) << UPPER).view(np.float32)
