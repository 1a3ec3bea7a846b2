"""A worker: it learns what it is given, in tables that it may share, and may speak for their replica."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy.typing as npt

from manyhands.catalog import LEARNERS, load
from manyhands.errors import ManyhandsError
from manyhands.kernels.simd import Floats
from manyhands.models.learner import Learner, Piece
from manyhands.records import Resources, Silent
from manyhands.spread.balance import cut, cut_evenly, equal
from manyhands.spread.counted import Counted
from manyhands.spread.server.memory import Memory
from manyhands.spread.server.messages import Exchanged, Learnt, Lease, Place, exchanged_parts
from manyhands.spread.server.replica import Replica, Shards
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.exchange import Alone, total_loss
from manyhands.training.job import Call, Job
from manyhands.training.loop import block_seed
from manyhands.training.splits import reopen

# How the tables of a replica stand to what shards have: equal, ahead of it, or to be fetched from there.
Begin = Literal["equal", "ahead", "fetch"]


@dataclass(frozen=True)
class Opening:
    """What a worker is told before it begins: plain values only."""

    call: Call
    data: str  # the fingerprint of the rows
    threads: int
    memory_bytes: int
    rank: int
    workers: int


class Member(Counted):
    """What a learner sees of the others: what the driver has counted, and that some blocks are its own."""

    def __init__(self, rank: int, workers: int, sums: list[bytes], memory: Memory) -> None:
        super().__init__(workers, sums)
        self._rank, self._memory, self._begun = rank, memory, False

    def zeros(self, rows: int, width: int) -> Floats:
        return self._memory.zeros(rows, width)

    def share(self, count: int) -> tuple[int, int]:
        """Nothing, as long as rows are counted; then the blocks that it is to be given first."""
        if not self._begun and self.workers > 1:
            return super().share(count)
        first, last = cut(count, equal(self.workers))[self._rank : self._rank + 2]
        return first, last

    def sum(self, numbers: npt.NDArray[Any]) -> None:
        """What the driver has counted; later, each learns alone."""
        if not self._begun and self.workers > 1:
            super().sum(numbers)

    def has_begun(self) -> None:
        self._begun = True


class Onlooker(Alone):
    """What a driver is to a learner: it knows of the blocks, and makes none of them."""

    def share(self, count: int) -> tuple[int, int]:
        return 0, 0


class Worker:
    """Learns in its own process; the driver decides what, and when its replica exchanges."""

    def __init__(
        self,
        job: Job,
        examples: LabelledRows,
        previous: Any,
        rank: int,
        workers: int,
        sums: list[bytes],
        node: str = "",
    ) -> None:
        self._job, self._node, self._memory = job, node, Memory()
        crew = Member(rank, workers, sums, self._memory)
        kind: type[Learner] = load(LEARNERS, "model", job.model)
        self._learner = kind.begin(job.settings, examples, previous, job.resources, Silent(), crew)
        crew.has_begun()
        self._crew = crew
        self._feed = self._learner.feed(examples, job.settings.seed, job.resources, Silent(), crew)
        self._threads = 1 if self._learner.shares_batches else job.resources.threads
        self._executor = ThreadPoolExecutor(self._threads)
        self._replica: Replica | None = None

    @classmethod
    def open(cls, opening: Opening, sums: list[bytes], node: str) -> "Worker":
        """Open the same rows as the driver did, and begin the same learner by what it has counted."""
        resources = Resources(opening.threads, opening.memory_bytes)
        rows = reopen(opening.call, opening.data, resources)
        return cls(rows.job, rows.train, rows.previous, opening.rank, opening.workers, sums, node)

    def place(self) -> Place:
        parts = exchanged_parts(self._learner)
        tables = {name: self._memory.file_of(part.array) for name, part in parts.items()}
        shared = {name: file for name, file in tables.items() if file is not None}
        here, files = socket.gethostname(), tuple(self._memory.files)
        return Place(self._node, here, os.getpid(), files, shared if len(shared) == len(tables) else {})

    def join(self, other: Place) -> Place:
        """Learn in the tables of another worker of this machine."""
        self._memory.take_over(other.process, other.files)
        return self.place()

    def speak(self, number: int, life: int, shards: Shards, begin: Begin) -> int:
        """Exchange for the replica from now on; the bytes of what had to be fetched for that."""
        parts = exchanged_parts(self._learner)
        in_place = not self._learner.shares_batches
        self._replica = Replica(number, life, parts, shards, in_place=in_place)
        return 0 if begin == "equal" else self._replica.begin_from_shards(keep=begin == "ahead")

    def exchange(self, *, whole: bool, pull: bool) -> Exchanged:
        return self._speaker.exchange(whole=whole, pull=pull)

    @property
    def _speaker(self) -> Replica:
        if self._replica is None:
            raise ManyhandsError("this worker does not speak for its replica")
        return self._replica

    def learn(self, lease: Lease) -> Learnt:
        """Threads share a lease; what is random comes from the place of its rows."""
        began = time.perf_counter()
        rates = dict(zip((piece.block for piece in lease.pieces), lease.rates, strict=True))
        pieces = list(lease.pieces)
        if not self._learner.shares_batches:
            pieces = list(chain(*cut_evenly(pieces, self._threads)))

        def learn(piece: Piece) -> Any:
            rows = self._feed.piece(piece, lease.epoch)
            seed = block_seed(self._job.settings.seed, lease.epoch, piece.block) + piece.first
            return self._learner.learn(rows, rates[piece.block], seed, self._crew)

        every = map if len(pieces) == 1 or self._threads == 1 else self._executor.map
        loss = total_loss(every(learn, pieces))
        return Learnt(*loss, time.perf_counter() - began)
