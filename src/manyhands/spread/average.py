"""``average``: parameter averaging (local SGD). Partitions of the rows train apart, as tasks of Spark, and
after every round the weights become the mean.

In a round, every partition goes on alone from the same weights, and each row of the weights becomes the
mean over those who moved it. The means are made chunk by chunk where the tasks run, so no machine holds
more than one model and some chunks.
"""

import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from manyhands.catalog import LEARNERS, load
from manyhands.engines.spark import SparkSettings, raise_error_from, running, spark
from manyhands.errors import InputError, UsageError
from manyhands.machine import LEAST_BYTES
from manyhands.models.learner import Learner, Loss, arrays_of
from manyhands.models.model import Arrays
from manyhands.records import Progress, Traffic
from manyhands.spread.chunks import Part, Slice, pack, packing, put, rows_of, slices
from manyhands.spread.counted import Counting
from manyhands.spread.merge import Merge
from manyhands.spread.partition import NO_CHUNK, SCHEMA, TOLD, Round, merge, parts_in, train_share
from manyhands.spread.spread import Spread
from manyhands.storage.files import STDIN
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.job import Job, Outcome, call_elsewhere
from manyhands.training.learn import Training, Watch, begin
from manyhands.training.schedule import Schedule
from manyhands.training.state import Plan, Validate

# Of models that learn in place: what is owed to a row is paid in about as many rounds as there are
# partitions.
PARTITION_ROUNDS, MOST_ROUNDS = 2, 50  # in an epoch: for each partition, and in all
LEAST_ROUND = 1 << 8  # rows or words of a partition: a block, and a round cannot be less
KINDS = ("weights", "moves", "means")  # what travels: to all, from all to those who merge, and back
CONF = ("spark.driver.maxResultSize=0",)  # what comes back is one model, however large


class AverageSettings(SparkSettings):
    partitions: Annotated[
        int | None,
        Field(
            ge=1,
            le=100_000,
            description="Partitions that train independently; by default one for each Spark core.",
        ),
    ] = None
    rounds: Annotated[
        int | None,
        Field(
            ge=1,
            le=100_000,
            description="How often weights are averaged; 1 is once at the end. By default every epoch, "
            "or twice in it for each partition, at most 50 times, for models that learn in place.",
        ),
    ] = None


class Average(Spread):
    Settings = AverageSettings
    summary = "parameter averaging (local SGD) on Spark"
    turn = "round"
    decides = frozenset({"partitions", "rounds"})
    counts = "partitions"
    threaded = False
    sends_weights = True
    leaving_seconds = 2.0  # of which Spark takes most
    copies = 7  # a task's own and what was sent to it; the driver's, packed, in the JVM, and twice the means
    adds_up_bytes = True

    def check(self, job: Job) -> None:
        if job.call is None or STDIN in job.call.data:
            raise UsageError("executors cannot share standard input; give a file")

    def run(
        self,
        job: Job,
        examples: LabelledRows,
        valid: LabelledRows | None,
        progress: Progress,
        watch: Watch | None = None,
    ) -> Outcome:
        """The driver's part; who has no session yet is given one."""
        settings = job.spread_settings
        if not isinstance(settings, AverageSettings):
            raise TypeError("the job is for another spread")
        progress.stage("starting Spark", None, "tasks")
        with spark(settings.master, (*CONF, *settings.spark_conf), "manyhands train") as session:
            partitions = settings.partitions or min(session.sparkContext.defaultParallelism, len(examples))
            rounds = settings.rounds or default_rounds(job, examples, partitions)
            # The identity of the run needs what was settled; and a checkpoint is kept after every round.
            settings = settings.model_copy(update={"partitions": partitions, "rounds": rounds})
            each_round = job.training.model_copy(update={"checkpoint_seconds": 0.0})
            job = replace(job, spread_settings=settings, training=each_round)
            if len(examples) < partitions:
                raise InputError(
                    f"{len(examples)} rows are too few for {partitions} partitions; lower --partitions"
                )
            exchange = Counting(partitions)
            training = begin(job, examples, valid, exchange, progress, watch)
            first = Round(
                run=secrets.token_hex(8),
                call=call_elsewhere(job),
                data=training.examples.fingerprint,
                memory_bytes=max(job.resources.memory_bytes // _tasks_at_once(session), LEAST_BYTES),
                partitions=partitions,
                rounds=rounds,
                number=training.state.epoch,
            )
            counted = session.sparkContext.broadcast(exchange.sums)
            driver = Driver(session, training, first, counted, progress)
            validate = training.validation(valid)
            return training.run(lambda: driver.run(validate))


class Driver:
    """Goes through the rounds: in each, Spark trains the partitions and averages what they have learnt."""

    def __init__(
        self, session: Any, training: Training, first: Round, counted: Any, progress: Progress
    ) -> None:
        self._session, self._training, self._next, self._counted = session, training, first, counted
        self._progress, self._sent = progress, dict.fromkeys(KINDS, 0)
        self._merges: dict[str, Merge] = {}
        labelled, corpus = training.objective.labelled, training.examples.corpus
        self._unit = "rows" if labelled else "words"
        examples = (len(corpus) if labelled else corpus.tokens) * training.job.settings.epochs
        self._examples = max(examples // first.rounds, 1)  # in a round, as far as it is known

    def run(self, validate: Validate | None) -> Traffic:
        """The loop over rounds: what an epoch is to one process, a round is here."""
        training, state = self._training, self._training.state
        job, exchange = training.job, training.exchange
        plan = Plan(
            epochs=self._next.rounds,
            schedule=Schedule(0.0, 1),  # partitions have their own
            seed=job.settings.seed,
            threads=1,
            patience=rounds_of_patience(job, self._next.rounds),
            judged_by=training.judged_by,
        )
        self._begin_merging()
        while not state.done(plan):
            if not state.round:  # otherwise it was stopped after the round, while that was being validated
                self._progress.stage(f"round {state.epoch + 1} of {plan.epochs}", self._examples, self._unit)
                began, state.whole = time.monotonic(), False
                state.add(self._round(), self._unit)
                state.seen += self._examples
                state.round += 1
                state.left = 0
                state.whole = True
                state.seconds += time.monotonic() - began
                self._progress.advance(self._examples, f"loss {state.loss.mean:.4f}")
                training.keep(state)
            state.end_epoch(training.learner, plan, validate() if validate else {}, exchange.lap())
            state.left = 0 if state.done(plan) else 1
            training.keep(state)
        return Traffic(sum(self._sent.values()), kinds=self._sent)

    def _round(self) -> Loss:
        arrays, clock = arrays_of(self._training.learner), self._training.exchange.clock
        self._next = replace(self._next, number=self._training.state.epoch)
        with clock.on("learn"):
            table = self._job(arrays)
        with clock.on("update"):
            is_fact = pc.equal(table["chunk"], NO_CHUNK)
            facts = sorted(parts_in(table.filter(is_fact).to_batches()), key=lambda part: part.partition)
            for part in facts:
                if part.kind == TOLD:
                    raise_error_from(part.values.decode())
            chunks = (part for part in parts_in(table.to_batches()) if part.chunk != NO_CHUNK)
            self._take_over(chunks, arrays)
        total, counted, sent = np.sum([np.frombuffer(part.values) for part in facts], axis=0).tolist()
        self._sent["moves"] += int(sent)
        self._examples = int(sum(part.weight for part in facts))
        if not self._examples:
            raise UsageError(f"--rounds {self._next.rounds} is more than there are blocks of rows; lower it")
        return Loss(total, counted)

    def _job(self, arrays: Arrays) -> pa.Table:
        """A round of Spark's: the weights go out, partitions learn, and the means of all come back."""
        this, context, counted = self._next, self._session.sparkContext, self._counted
        packed = pack(arrays)
        weights = context.broadcast(packed)
        merges = min(len(slices(arrays, this.partitions)), context.defaultParallelism)

        def train(batches: Any) -> Any:
            return train_share(this, counted, weights, batches)

        learnt = self._session.range(0, this.partitions, 1, this.partitions).mapInArrow(train, SCHEMA)
        # To whoever merges a chunk, its parts come one after the other.
        chunks = learnt.repartition(merges, "chunk").sortWithinPartitions("chunk").mapInArrow(merge, SCHEMA)
        shown = _TasksDone(self._progress, self._examples)
        try:
            table: pa.Table = running(self._session, shown, f"round {this.number + 1}", chunks.toArrow)
        finally:
            weights.destroy()
        self._sent["weights"] += int(len(packed) * packing(packed))  # Spark compresses what goes to all
        self._sent["means"] += table.nbytes
        return table

    def _begin_merging(self) -> None:
        """Models that learn in place get all that partitions learnt, little by little: see ``Merge``."""
        learner, state = self._training.learner, self._training.state
        if learner.shares_batches or self._next.partitions == 1:
            return
        for name, part in learner.state().items():
            self._merges[name] = Merge(part, self._next.partitions, state.owed.get(name))
            state.owed[name] = self._merges[name].owed

    def _take_over(self, parts: Iterable[Part], arrays: Arrays) -> None:
        """Chunk by chunk; arrays that are merged wait until all their chunks are there."""
        places = slices(arrays, self._next.partitions)
        means = {name: rows_of(arrays, Slice(name, 0, len(arrays[name]))).copy() for name in self._merges}
        movers = {name: np.zeros(len(arrays[name]), np.float32) for name in self._merges}
        for part in parts:
            where = places[part.chunk]
            if where.name in self._merges:
                rows = where.first + part.moved()
                means[where.name][rows] = part.numbers()
                movers[where.name][rows] = np.frombuffer(part.movers, np.int32)
            else:
                put(part, where, arrays)
        for name, merging in self._merges.items():
            merging.agree_on_means(movers[name], means[name])


def default_rounds(job: Job, examples: LabelledRows, partitions: int) -> int:
    """Every epoch; models that learn in place drift apart in that time, so several times in each."""
    kind: type[Learner] = load(LEARNERS, "model", job.model)
    if kind.shares_batches or partitions == 1:
        return job.settings.epochs
    share = (len(examples) if kind.learns == "labels" else examples.corpus.tokens) // partitions
    often = min(PARTITION_ROUNDS * partitions, MOST_ROUNDS)
    return int(job.settings.epochs * min(max(share // LEAST_ROUND, 1), often))


def rounds_of_patience(job: Job, rounds: int) -> int:
    """Patience is counted in epochs, however many rounds they take."""
    return -(-job.training.early_stopping * rounds // job.settings.epochs)


class _TasksDone:
    """Shows tasks that are done as rows that are learnt: the bar stays that of the round."""

    def __init__(self, progress: Progress, rows: int) -> None:
        self._progress, self._rows = progress, rows
        self._tasks: int | None = None
        self.say = progress.say

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self._tasks = total

    def advance(self, done: int, note: str = "") -> None:
        self._progress.advance(self._rows * done // (self._tasks or 1), note)


def _tasks_at_once(session: Any) -> int:
    """How many tasks share the memory of a machine."""
    context = session.sparkContext
    executors = int(context._jsc.sc().getExecutorMemoryStatus().size())  # the driver among them
    return -(-int(context.defaultParallelism) // max(executors - 1, 1))
