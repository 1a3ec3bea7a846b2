"""One partition's part of a round, done by a Python that Spark keeps for many tasks.

What was opened for one task is kept for the next: rounds after the first begin at once.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from manyhands.catalog import LEARNERS, load
from manyhands.engines.spark import error_as_text
from manyhands.errors import ManyhandsError
from manyhands.kernels.compile import Ints
from manyhands.models.learner import Feed, Learner, Loss, Piece, arrays_of
from manyhands.records import Resources, Silent
from manyhands.spread.chunks import Part, mean_of, parts_of, unpack
from manyhands.spread.counted import Counted
from manyhands.training.exchange import Alone, total_loss
from manyhands.training.job import Call, Job
from manyhands.training.learn import schedule_of
from manyhands.training.loop import block_order, block_seed
from manyhands.training.splits import reopen

SCHEMA = "chunk int, partition int, weight double, kind string, rows binary, values binary, movers binary"
COLUMNS = pa.schema(
    [
        ("chunk", pa.int32()),
        ("partition", pa.int32()),
        ("weight", pa.float64()),
        ("kind", pa.string()),
        ("rows", pa.binary()),
        ("values", pa.binary()),
        ("movers", pa.binary()),
    ]
)
NO_CHUNK = -1  # of what is no part of the weights, but tells how a task went:
FACTS, TOLD = "facts", "told"
KEPT_FEEDS = 4
STEP = 0x9E3779B97F4A7C15
SEEDS = 1 << 63


@dataclass(frozen=True)
class Round:
    """What every task of a round is told: plain values only."""

    run: str
    call: Call
    data: str  # the fingerprint of the rows
    memory_bytes: int  # for one task
    partitions: int
    rounds: int
    number: int  # of this one


def share_of(rows: int, partitions: int, seed: int, partition: int, *, shuffled: bool = False) -> Ints:
    """A partition's rows: the same for the whole run, as many as the others have, or one more.

    Of rows that are shuffled already, those that stand together.
    """
    order = np.arange(rows) if shuffled else np.random.default_rng(seed).permutation(rows)
    return np.sort(order[partition * rows // partitions : (partition + 1) * rows // partitions])


def seed_of(seed: int, partition: int) -> int:
    """A seed of its own; that of the first is the run's, so that one partition learns as one process does."""
    return (seed + partition * STEP) % SEEDS


def train_share(
    this: Round, counted: Any, weights: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What Spark runs: the partitions whose numbers come in, from the weights that were broadcast.

    ``counted``, broadcast as well, is what the driver has counted.
    """
    for batch in batches:
        for partition in batch.column(0).to_pylist():
            try:
                for part in _learn(_opened(this, counted), this, weights.value, partition):
                    yield _batch(part)
            except ManyhandsError as error:  # raised, Spark would try it again
                yield _batch(Part(NO_CHUNK, partition, 0.0, TOLD, b"", error_as_text(error).encode()))


def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark runs behind it: each chunk of all partitions, which come together, becomes one."""
    for chunk, parts in groupby(parts_in(batches), key=lambda part: part.chunk):
        if chunk == NO_CHUNK:
            yield from map(_batch, parts)
        else:
            yield _batch(mean_of(list(parts)))


def parts_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    """One at a time: each may be megabytes."""
    for batch in batches:
        for row in range(len(batch)):
            yield Part(**batch.slice(row, 1).to_pylist()[0])


def _batch(part: Part) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([part._asdict()], COLUMNS)


class Opened:
    """The rows of a run and its learner, and the feeds of the partitions that came here last."""

    def __init__(self, this: Round, sums: list[bytes]) -> None:
        self.run, self._resources = this.run, Resources(1, this.memory_bytes)
        rows = reopen(this.call, this.data, self._resources)
        self.job, self._examples = rows.job, rows.train
        kind: type[Learner] = load(LEARNERS, "model", this.call.model)
        crew = Counted(this.partitions, sums) if this.partitions > 1 else Alone()
        self.learner = kind.begin(
            self.job.settings, rows.train, rows.previous, self._resources, Silent(), crew
        )
        self._feeds: OrderedDict[int, Feed] = OrderedDict()

    def feed(self, partition: int, partitions: int) -> Feed:
        if partition not in self._feeds:
            seed = self.job.settings.seed
            every = self._examples
            mine = every.take(share_of(len(every), partitions, seed, partition, shuffled=every.shuffled))
            some = Resources(1, self._resources.memory_bytes // KEPT_FEEDS)
            self._feeds[partition] = self.learner.feed(
                mine, seed_of(seed, partition), some, Silent(), Alone()
            )
            if len(self._feeds) > KEPT_FEEDS:
                self._feeds.popitem(last=False)
        self._feeds.move_to_end(partition)
        return self._feeds[partition]


_last: list[Opened] = []


def _opened(this: Round, counted: Any) -> Opened:
    """What this process opened for the run; what it had opened for another is let go."""
    if not _last or _last[0].run != this.run:
        _last.clear()
        _last.append(Opened(this, counted.value))
    return _last[0]


def _learn(opened: Opened, this: Round, weights: bytes, partition: int) -> Iterator[Part]:
    """Go on from the broadcast weights, from where the partition's schedule stands, up to the round's end."""
    job, learner, feed = opened.job, opened.learner, opened.feed(partition, this.partitions)
    arrays = arrays_of(learner)
    before = unpack(weights, arrays)
    for name, array in arrays.items():
        array[...] = before[name]
    # A round may end behind any block of any epoch.
    blocks = job.settings.epochs * len(feed)
    first, last = (number * blocks // this.rounds for number in (this.number, this.number + 1))
    loss, examples = learn_blocks(job, learner, feed, seed_of(job.settings.seed, partition), first, last)
    sent = 0
    for part in parts_of(before, arrays, partition, this.partitions, float(examples)):
        sent += len(part.values) + len(part.rows)
        yield part
    facts = np.array([*loss, sent], np.float64).tobytes()
    yield Part(NO_CHUNK, partition, float(examples), FACTS, b"", facts)


def learn_blocks(
    job: Job, learner: Learner, feed: Feed, seed: int, first: int, last: int
) -> tuple[Loss, int]:
    """Learn some blocks, counted over all epochs from the very beginning; gives loss and examples."""
    schedule, alone, losses = schedule_of(job, feed), Alone(), []
    seen, examples = first // len(feed) * sum(feed.rows(block) for block in range(len(feed))), 0
    for epoch in range(first // len(feed), -(-last // len(feed))):
        for place, block in enumerate(block_order(seed, epoch, len(feed)).tolist()):
            number, rows = epoch * len(feed) + place, feed.rows(block)
            if first <= number < last:
                piece = feed.piece(Piece(block, 0, rows), epoch)
                losses.append(learner.learn(piece, schedule.at(seen), block_seed(seed, epoch, block), alone))
                examples += rows
            seen += rows
    return total_loss(losses), examples
