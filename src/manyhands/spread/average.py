"""``average``: partitions of the rows are trained apart, as tasks of Spark, and their weights averaged.

The driver's loop is the usual one, and a turn of it is a round: every partition goes on alone from the
same weights, and each row of the weights becomes the mean over those who moved it. The means are made
chunk by chunk where the tasks run, so no machine holds more than one model and some chunks.
"""

import os
import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.cluster import raise_told, running, spark
from manyhands.errors import InputError, UsageError
from manyhands.kernel import Ints
from manyhands.machine import LEAST_BYTES
from manyhands.models.learner import Arrays, Feed, Learner, Loss, Piece
from manyhands.records import Progress, Traffic
from manyhands.spread.job import Job, Outcome
from manyhands.spread.merging import packed, put, slices
from manyhands.spread.partition import NO_CHUNK, SCHEMA, TOLD, Round, merge, parts_in, train_share
from manyhands.spread.running import Watch, learn
from manyhands.storage.files import STDIN
from manyhands.text.lesson import Lesson
from manyhands.train.exchange import Alone, Course, Learn
from manyhands.train.state import State

CONF = ("spark.driver.maxResultSize=0",)  # what comes back is one model, however large


def run(
    job: Job, lesson: Lesson, valid: Lesson | None, progress: Progress, watch: Watch | None = None
) -> Outcome:
    """The driver's part; who has no session yet is given one."""
    call = _call(job)
    spread = job.spread
    progress.stage("starting Spark", None, "tasks")
    with spark(spread.master, (*CONF, *spread.spark_conf), "manyhands train") as session:
        partitions = spread.partitions or min(session.sparkContext.defaultParallelism, len(lesson))
        settled = {"partitions": partitions, "rounds": spread.rounds or job.settings.epochs}
        # The identity of the run needs what was settled; and a checkpoint is kept after every round.
        job = replace(
            job,
            spread=spread.model_copy(update=settled),
            frame=job.frame.model_copy(update={"checkpoint_seconds": 0.0}),
        )
        return learn(job, lesson, valid, Averaging(session, job, call, lesson, progress), progress, watch)


def _call(job: Job) -> dict[str, Any]:
    """What executors need to open the same rows and to begin the same learner."""
    if job.call is None:
        raise UsageError("--spread average needs files, which its executors can open")
    if STDIN in job.call["data"]:
        raise UsageError("executors cannot share standard input; give a file")
    previous = job.call["continue_from"]
    settings = {**job.settings.model_dump(mode="json"), **job.frame.model_dump(mode="json")}
    settings.pop("vectors", None)  # the weights that are broadcast hold them already
    return {
        **job.call,
        "data": [_absolute(name) for name in job.call["data"]],
        "continue_from": previous and _absolute(previous),
        "settings": {name: value for name, value in settings.items() if value is not None},
    }


def _absolute(name: str) -> str:
    return name if "://" in name else os.path.abspath(name)  # noqa: PTH100 - a pattern is no Path


class RoundFeed:
    """The driver has no rows, only turns: a round is one block, as long as Spark found it to be."""

    def __init__(self, unit: str, examples: int) -> None:
        self.unit, self.examples = unit, examples

    def __len__(self) -> int:
        return 1

    def rows(self, block: int) -> int:
        return self.examples

    def piece(self, piece: Piece, epoch: int) -> None:
        return None


class _TasksDone:
    """Shows tasks that are done as rows that are learnt: the bar stays that of the round."""

    def __init__(self, progress: Progress, rows: int) -> None:
        self._progress, self._rows = progress, rows
        self._tasks: int | None = None

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self._tasks = total

    def advance(self, done: int, note: str = "") -> None:
        self._progress.advance(self._rows * done // (self._tasks or 1), note)


class Averaging(Alone):
    """The exchange of the driver, which learns nothing itself."""

    def __init__(
        self, session: Any, job: Job, call: dict[str, Any], lesson: Lesson, progress: Progress
    ) -> None:
        super().__init__()
        self._session, self._progress, self._lesson = session, progress, lesson
        self.workers, self.share = job.spread.partitions or 1, np.zeros(0, np.int64)
        self._momentum = job.spread.outer_momentum
        self._next = Round(
            run=secrets.token_hex(8),
            call=call,
            data="",
            memory_bytes=max(job.resources.memory_bytes // _tasks_at_once(session), LEAST_BYTES),
            partitions=self.workers,
            rounds=job.spread.rounds or 1,
            number=0,
        )
        self._velocity: Arrays = {}
        self._bytes = 0

    def meet(self, identity: dict[str, Any], rows: int) -> None:
        if rows < self.workers:
            raise InputError(f"{rows} rows are too few for {self.workers} partitions; lower --partitions")
        self._next = replace(self._next, data=identity["data"])

    def course(self, feed: Feed, epochs: int) -> Course:
        examples = len(self._lesson) if feed.unit == "rows" else self._lesson.corpus.tokens
        self._feed = RoundFeed(feed.unit, max(examples * epochs // self._next.rounds, 1))
        return Course(self._feed, self._next.rounds, "round")

    def start(self, learner: Learner, state: State) -> None:
        self._next = replace(self._next, number=state.epoch + state.round)
        if self._momentum and not state.velocity:
            arrays, known = learner.weights(), learner.model().arrays()
            # Not of what an optimizer remembers: its squares must not swing below nothing.
            state.velocity = {name: np.zeros_like(arrays[name]) for name in arrays if name in known}
        self._velocity = state.velocity

    def pieces(self, learner: Learner, feed: Feed, blocks: Ints) -> list[Piece]:
        return [Piece(0, 0, 0)]

    def round(self, learner: Learner, rows: list[Any], learn: Learn) -> Loss:
        arrays = learner.weights()
        with self.clock.on("learn"):
            table = self._job(arrays)
        with self.clock.on("update"):
            is_fact = pc.equal(table["chunk"], NO_CHUNK)
            facts = sorted(parts_in(table.filter(is_fact).to_batches()), key=lambda part: part.partition)
            for part in facts:
                if part.kind == TOLD:
                    raise_told(part.values.decode())
            before = {name: arrays[name].copy() for name in self._velocity}
            places = slices(arrays, self.workers)
            for part in parts_in(table.to_batches()):
                if part.chunk != NO_CHUNK:
                    put(part, places[part.chunk], arrays)
            self._push_on(before, arrays)
        total, counted, sent = np.sum([np.frombuffer(part.values) for part in facts], axis=0).tolist()
        self._bytes += int(sent)
        self._feed.examples = int(sum(part.weight for part in facts))
        if not self._feed.examples:
            raise UsageError(f"--rounds {self._next.rounds} is more than there are blocks of rows; lower it")
        self._next = replace(self._next, number=self._next.number + 1)
        return Loss(total, counted)

    def _job(self, arrays: Arrays) -> pa.Table:
        """A round of Spark's: the weights go out, partitions learn, and the means of all come back."""
        this, context = self._next, self._session.sparkContext
        weights = context.broadcast(packed(arrays))
        merges = min(len(slices(arrays, self.workers)), context.defaultParallelism)

        def train(batches: Any) -> Any:
            return train_share(this, weights, batches)

        learnt = self._session.range(0, this.partitions, 1, this.partitions).mapInArrow(train, SCHEMA)
        # To whoever merges a chunk, its parts come one after the other.
        chunks = learnt.repartition(merges, "chunk").sortWithinPartitions("chunk").mapInArrow(merge, SCHEMA)
        shown = _TasksDone(self._progress, self._feed.examples)
        try:
            table: pa.Table = running(self._session, shown, f"round {this.number + 1}", chunks.toArrow)
        finally:
            weights.destroy()
        self._bytes += sum(array.nbytes for array in arrays.values()) + table.nbytes
        return table

    def _push_on(self, before: Arrays, arrays: Arrays) -> None:
        """Nesterov's momentum over the moves of the mean."""
        kept = np.float32(self._momentum)
        for name, speed in self._velocity.items():
            move = arrays[name] - before[name]
            speed[...] = kept * speed + move
            arrays[name][...] = before[name] + move + kept * speed

    def finish(self) -> Traffic:
        return Traffic(self._bytes)


def _tasks_at_once(session: Any) -> int:
    """How many tasks share the memory of a machine."""
    context = session.sparkContext
    executors = int(context._jsc.sc().getExecutorMemoryStatus().size())  # the driver among them
    return -(-int(context.defaultParallelism) // max(executors - 1, 1))
