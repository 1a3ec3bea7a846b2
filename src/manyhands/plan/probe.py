"""A short probe of this machine: a few small trainings with the settings of the large one.

What differs from run to run is measured: rows, threads, batches, workers. What machines would send each
other is counted: by the workers of the probe, where they exchange as machines do, else by a crew of machines
that is emulated in memory.
"""

import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.data.dataset import is_dataset
from manyhands.errors import UsageError
from manyhands.machine import cores, machine_memory, resources_for
from manyhands.models.learner import Learner
from manyhands.models.ngram import feed
from manyhands.models.words import windows
from manyhands.plan.calibrate import Run
from manyhands.plan.catalogue import Instance
from manyhands.plan.cluster import Cluster, Group
from manyhands.plan.costs import CPU
from manyhands.plan.work import Pattern, Work
from manyhands.records import Progress, Silent
from manyhands.run.train import train
from manyhands.settings import ModelSettings
from manyhands.spread.average import MOST_ROUNDS, PARTITION_ROUNDS
from manyhands.spread.emulated import emulate
from manyhands.spread.merge import ENOUGH, exchanges
from manyhands.spread.server.pace import MOST_STRETCH
from manyhands.spread.spread import Spread
from manyhands.training.choose import choose
from manyhands.training.job import Call, job_for
from manyhands.training.splits import Splits, open_splits

FEW_ROWS = 400
SECONDS = 2.5  # of the larger runs, on one thread, for an epoch
LONG_ENOUGH = 0.75  # seconds, to tell how long more rows would take
MOST_COUNTED = 20_000  # rows of an emulated crew, which counts bytes and takes its time
MOST_EPOCHS = 3  # of a run of the probe: the first takes longer than the others
# Of models that learn in place, as their feeds have it: the least rows or words between two exchanges, and
# how many exchanges an epoch has once these come to more.
BETWEEN = {
    "labels": (feed.LEAST_BETWEEN, feed.EXCHANGES),
    "words": (windows.LEAST_BETWEEN, windows.EXCHANGES),
}
WORDS_GROW = 0.6  # the power of the rows by which their distinct words grow (Heaps), until it is measured
WORKERS = 2
SINGLE = "single"
THIS_MACHINE = "this machine"


@dataclass(frozen=True)
class Probe:
    """What was measured, and what the whole training has to do."""

    runs: list[Run]
    work: Work
    settings: ModelSettings
    words: float  # of a row
    seconds: float  # that the probe itself took


@dataclass(frozen=True)
class _Taken:
    """What a training took."""

    seconds: float
    learning: float
    validating: float
    sent: dict[str, int]  # bytes of all workers, by what they were
    rounds: int  # exchanges
    state_bytes: float  # that the learner keeps
    later_laps: float  # of all epochs or rounds, the share behind the first
    later_learning: float  # seconds of those


@dataclass(frozen=True)
class _Said:
    """What workers of the probe said, as machines would."""

    moves: float  # bytes of a worker in an exchange
    rows: float  # that it had learnt since the last
    weights: float  # all of them, as they were sent
    grow: float  # the power of the rows by which moves grow


def this_machine() -> Instance:
    return Instance(
        name=THIS_MACHINE,
        provider="",
        region="",
        price=0.0,
        spot_price=None,
        currency="USD",
        date="",
        vcpus=cores(),
        memory_gib=machine_memory() / (1 << 30),
        device=None,
        devices=0,
        device_memory_gib=None,
        network_gbps=None,
        retired=False,
    )


def probe(
    data: str,
    *,
    model: str = "ngrams",
    spread: str = SINGLE,
    progress: Progress | None = None,
    **settings: Any,
) -> Probe:
    """Measure this machine for a training of ``data`` with these settings of ``train``."""
    began = time.monotonic()
    if not is_dataset([data]):
        raise UsageError(f"{data} is not prepared; make a dataset with: manyhands prepare {data} --out …")
    prober = _Prober(data, model, spread, settings, progress or Silent())
    runs = list(prober.measure())
    work = prober.work(prober.rows, prober.epochs, spread)
    return Probe(runs, work, prober.settings, prober.words, time.monotonic() - began)


class _Prober:
    def __init__(
        self, data: str, model: str, spread: str, settings: dict[str, Any], progress: Progress
    ) -> None:
        self._data, self._model, self._spread, self._progress = data, model, spread, progress
        self._call = Call((data,), "", model, spread, settings)
        self._splits = self._open(spread, settings, None)
        settings = self._with_choice(settings)
        self._job = job_for(model, settings, resources_for(None, 1), spread=spread, call=self._call)
        self._kind: type[Learner] = load(LEARNERS, "model", model)
        self._way: type[Spread] = load(SPREADS, "spread", spread)
        self._shares = self._kind.shares_batches
        self.settings: ModelSettings = self._job.settings
        self.rows, self.epochs = len(self._splits.train), self.settings.epochs
        self.words = self._splits.train.corpus.tokens / max(self.rows, 1)
        if self._shares:  # of fewer rows, batches would be smaller than those of the whole training
            settings = {**settings, "batch_size": self._batch(self.rows)}
            self.settings = self.settings.model_copy(update={"batch_size": settings["batch_size"]})
        self._settings = settings
        self._own = {name: value for name, value in settings.items() if self._is_own(name)}
        self._sample, self._before, self._validation = FEW_ROWS, 0.0, 0.0
        self._said = _Said(0.0, 0.0, 0.0, WORDS_GROW)
        self._state_bytes, self._state_grows = 0.0, 0.0  # of the sample, and the power of the rows
        self._bytes: dict[tuple[int, int], int] = {}  # by rows and epochs, of a worker of two machines

    def _with_choice(self, settings: dict[str, Any]) -> dict[str, Any]:
        """What training would choose decides how long it takes; it is chosen once, and not by each run."""
        job = job_for(self._model, settings, resources_for(None, None), spread=self._spread, call=self._call)
        chosen = choose(job, self._splits.train, self._progress)
        return settings if chosen is None else {**settings, **chosen.settings, "effort": 0}

    def _is_own(self, name: str) -> bool:
        return name not in self._way.Settings.model_fields

    def _open(self, spread: str, settings: dict[str, Any], rows: int | None) -> Splits:
        call = replace(self._call, settings=settings, spread=spread, rows=rows)
        job = job_for(self._model, settings, resources_for(None, 1), spread=spread, call=call)
        return open_splits((self._data,), job, Silent(), rows)

    def measure(self) -> Iterator[Run]:
        self._progress.stage("probe", None, "runs")
        alone = {"spread": SINGLE, **self._own, "epochs": 1}
        self._sample = self._size(alone)
        part, epochs = max(self._sample // 4, 1), min(self.epochs, MOST_EPOCHS)
        small = self._best(part, threads=1, **alone)
        large = self._best(self._sample, threads=1, **{**alone, "epochs": epochs})
        self._note_before(part, small, large, epochs)
        self._state_bytes = large.state_bytes
        self._state_grows = _power(large.state_bytes / small.state_bytes, self._sample / part)
        yield Run(self.work(part, 1, SINGLE), _here(1, 1), small.seconds)
        yield from self._runs(large, self._sample, epochs, SINGLE, 1, 1)
        if cores() > 1:
            taken = self._best(self._sample, threads=cores(), **{**alone, "epochs": epochs})
            yield from self._runs(taken, self._sample, epochs, SINGLE, 1, cores())
        if self._shares:
            yield from self._other_batches(part, alone)
        if self._spread != SINGLE:
            yield from self._crew()
        if not self._way.waits and not self._shares:
            yield self._replicas()
        if self._spread != SINGLE and not self._said.moves:
            self._count_bytes()

    def _size(self, alone: dict[str, Any]) -> int:
        """How many rows take about as long as a run of the probe may: more and more, until it can be told."""
        rows, taken = FEW_ROWS, self._train(FEW_ROWS, threads=1, **alone)
        while taken.seconds < LONG_ENOUGH and rows < self.rows:
            rows = min(rows * 4, self.rows)
            taken = self._train(rows, threads=1, **alone)
        return max(min(int(rows * SECONDS / taken.seconds), self.rows), 1)

    def _best(self, rows: int, **settings: Any) -> _Taken:
        """The faster of two: whatever else the machine does can only slow it down."""
        both = [self._train(rows, **settings) for _ in range(2)]
        return min(both, key=lambda taken: taken.seconds)

    def _note_before(self, part: int, small: _Taken, large: _Taken, epochs: int) -> None:
        """What comes before learning, in passes over the rows: the more rows there are, the longer it is."""
        apart = self._sample - part
        outside = [taken.seconds - taken.learning - taken.validating for taken in (small, large)]
        load_row = max(outside[1] - outside[0], 0.0) / apart if apart else 0.0
        self._before = load_row * self._sample / max(large.learning / epochs, 1e-6)
        self._validation = large.validating / epochs

    def _other_batches(self, rows: int, alone: dict[str, Any]) -> Iterator[Run]:
        """What a step takes whatever its rows are: four times as many rows in a step."""
        batch = self._batch(rows, 4)
        taken = self._train(rows, threads=1, **{**alone, "batch_size": batch})
        work = replace(self.work(rows, 1, SINGLE), batch=batch / self._amount_of_row)
        yield Run(replace(work, loop_only=True), _here(1, 1), taken.learning)

    def _batch(self, rows: int, times: int = 1) -> int:
        """Rows or words of a batch, where so many rows are learnt."""
        settings: Any = self.settings
        return int(settings.batch_for(int(rows * self._amount_of_row))) * times

    @property
    def _amount_of_row(self) -> float:
        """1, or words of a row where words are counted."""
        return 1.0 if self._kind.learns == "labels" else self.words

    def _crew(self) -> Iterator[Run]:
        """The spread itself, with few workers. The first turns start processes: the others are looked at."""
        workers = min(WORKERS, cores())
        epochs = 1 if self._often else MOST_EPOCHS
        counted = {self._way.counts: workers} if self._way.counts else {}
        settings = {**self._settings, **counted, "epochs": epochs}
        taken = self._train(self._sample, threads=1, spread=self._spread, **settings)
        self._note_said(taken, workers, epochs)
        work, here = self.work(self._sample, epochs, self._spread), _here(workers, 1)
        yield Run(work, here, taken.seconds)
        later = replace(work, epochs=epochs * taken.later_laps, loop_only=True)
        yield Run(later, here, max(taken.later_learning, 1e-3))

    def _replicas(self) -> Run:
        """Workers of a server that learn in the same memory say nothing: the same, as if on machines."""
        workers, epochs = min(WORKERS, cores()), min(self.epochs, MOST_EPOCHS)
        settings = {**self._settings, self._way.counts or "": workers, "epochs": epochs, "apart": True}
        taken = self._train(self._sample, threads=1, spread=self._spread, **settings)
        self._note_said(taken, workers, epochs)
        # What these workers said is known, and how often: nothing of it has to be predicted.
        work = replace(self.work(self._sample, epochs, self._spread), in_memory=False, in_place=False)
        work = replace(work, batch=self._said.rows, shared=False, most_stretch=1, loop_only=True)
        return Run(work, _here(workers, 1), max(taken.learning, 1e-3))

    def _note_said(self, taken: _Taken, workers: int, epochs: int) -> None:
        """Where nobody waits, each worker has exchanges of its own; otherwise they are those of all."""
        moves, turns = taken.sent.get("moves", 0), taken.rounds / (1 if self._way.waits else workers)
        if not moves or not turns:
            return
        said = moves / workers / turns
        weights = taken.sent["weights"] / (turns if self._way.sends_weights else 1)
        grow = WORDS_GROW
        if "means" in taken.sent and workers > 1:  # two workers have moved as much as one with twice the rows
            grow = min(max(_power(taken.sent["means"] / turns / said, workers), 0.0), 1.0)
        self._said = _Said(said, self._sample * epochs / workers / turns, weights, grow)

    @property
    def _often(self) -> bool:
        """Whether an epoch is several turns, of whole weights."""
        return self._way.sends_weights and not self._shares

    def _runs(
        self, taken: _Taken, rows: int, epochs: int, spread: str, workers: int, threads: int
    ) -> Iterator[Run]:
        """A training as two observations: the whole, and the loop alone."""
        work, here = self.work(rows, epochs, spread), _here(workers, threads)
        yield Run(work, here, taken.seconds)
        yield Run(replace(work, loop_only=True), here, max(taken.learning, 1e-3))

    def _count_bytes(self) -> None:
        """Of what two machines would send; more rows and more epochs follow from these."""
        whole = min(self._sample, MOST_COUNTED)
        part = max(whole // 4, 1)
        for rows, epochs in {(part, 1), (whole, 1), (part, min(self.epochs, MOST_EPOCHS))}:
            self._progress.advance(1, "counting what would be sent")
            settings = {**self._own, "epochs": epochs}
            call = replace(self._call, settings=settings, spread=SINGLE, rows=rows)
            job = job_for(self._model, settings, resources_for(None, 1), call=call)
            train_rows = open_splits((self._data,), job, Silent(), rows).train
            outcome = emulate(job, train_rows, None, WORKERS, enough=dict.fromkeys(ENOUGH, 0))
            self._bytes[rows, epochs] = outcome.traffic.bytes

    def _bytes_of(self, rows: int, epochs: float) -> float:
        """Of all exchanges of a worker. Words come again, so bytes grow more slowly than rows."""
        if not self._bytes:
            return 0.0
        counted = sorted({rows for rows, _ in self._bytes})
        part, whole = counted[0], counted[-1]
        first = self._bytes[part, 1]
        grows = math.log(self._bytes[whole, 1] / first) / math.log(whole / part) if whole > part else 1.0
        most = max(number for _, number in self._bytes)
        later = (self._bytes[part, most] - first) / (most - 1) if most > 1 else first
        return float((first + later * (epochs - 1)) * (rows / part) ** grows)

    def work(self, rows: int, epochs: int, spread: str) -> Work:
        """What a training of so many rows has to do under a spread."""
        every = Work(
            rows=rows,
            epochs=epochs,
            batch=rows,
            exchange_bytes=0.0,
            shared=True,
            recurrent=self._shares,
            in_memory=True,
            in_place=not self._shares,
            balanced=True,
            state_bytes=self._state_bytes * self._grown(rows),
            copies=self._way.copies,
            passes_before=self._before,
            validation=self._validation,
            engine=spread != SINGLE,
        )
        if self._shares:
            every = replace(every, batch=self._batch(rows) / self._amount_of_row)
        else:
            enough = ENOUGH[self._kind.learns]
            amount = int(rows * self._amount_of_row)
            batch = rows * epochs / self._exchanges(amount, epochs)
            every = replace(every, batch=batch, most_machines=max(amount // enough, 1))
        turns = epochs * rows / every.batch
        every = replace(every, exchange_bytes=self._bytes_of(rows, epochs) / turns)
        if spread == SINGLE:
            return every
        if self._way.sends_weights:
            return self._averaged(every)
        return every if self._way.waits else self._served(every)

    def _exchanges(self, amount: int, epochs: int) -> int:
        """Of so many rows or words, learnt in place: the first come soon."""
        least, often = BETWEEN[self._kind.learns]
        most, seen = max(amount // often, least), 0
        first = len(exchanges(seen, amount, least, most))
        return first + (epochs - 1) * len(exchanges(amount, amount, least, most))

    def _grown(self, rows: int) -> float:
        """How many times as large as that of the sample the model of so many rows is."""
        return float((rows / self._sample) ** self._state_grows)

    def _served(self, work: Work) -> Work:
        """Each replica tells shards what it moved; a worker of a model that shares batches is one, and
        learns whole batches. In the end the driver takes over the weights and what is owed to them, which
        is as much again; before that, all exchange what they have not yet, in half of the bits each way.
        """
        weights = self._said.weights * self._grown(int(work.rows))
        return replace(
            work,
            waits=False,
            pattern=Pattern.SHARDS,
            shards=getattr(self._job.spread_settings, "shards", 1),
            shared=not self._shares,
            in_memory=not self._shares,
            most_stretch=1 if self._shares else MOST_STRETCH,
            exchange_bytes=self._said.moves or work.exchange_bytes,
            exchange_rows=0 if self._shares else self._said.rows,
            end_bytes=(2 if self._shares else 3) * weights,
        )

    def _averaged(self, work: Work) -> Work:
        """Whole weights travel to every machine, a few times, and what each has moved to who merges it."""
        often: dict[str, Any] = {"turns_of_worker": PARTITION_ROUNDS, "most_turns": MOST_ROUNDS}
        return replace(
            work,
            batch=work.rows,
            remakes=not self._shares,
            **({} if self._shares else often),
            exchange_bytes=self._said.moves,
            exchange_rows=self._said.rows,
            moves_grow=self._said.grow,
            weights_bytes=self._said.weights * self._grown(int(work.rows)),
            pattern=Pattern.MEANS,
            in_memory=False,
            in_place=False,
            balanced=False,
            most_machines=Work.most_machines,
        )

    def _train(self, rows: int, *, threads: int, **settings: Any) -> _Taken:
        """A training, and again if kernels had to be compiled for it."""
        self._progress.advance(1, f"{min(rows, self.rows):,} rows")
        record: dict[str, Any] = {"compiled": True}
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                began = time.monotonic()
                trained = train(
                    self._data, Path(folder, "run"), model=self._model, threads=threads, rows=rows, **settings
                )
                seconds = time.monotonic() - began
            if trained is None:
                raise UsageError("a probe has all its workers on this machine; leave out --nodes")
            record = trained.record
            if not record["compiled"]:
                break
        laps = record["laps"]
        validating = sum(sum(lap["seconds"].get("validate", [])) for lap in laps)
        rounds, sent = sum(lap["rounds"] for lap in laps), record["traffic"]["kinds"]
        learning = record["learning_seconds"]
        first, behind = laps[0]["learning_seconds"], 1 - 1 / len(laps)
        if first >= learning:  # one lap, or a server that ends all of them together
            first, behind = 0.0, 1.0
        size = float(record["state_bytes"])
        return _Taken(seconds, learning, validating, sent, rounds, size, behind, learning - first)


def _power(grown: float, times: float) -> float:
    """The power of how many times more there was, by which something has grown.

    >>> round(_power(2.0, 4.0), 2), _power(3.0, 1.0)
    (0.5, 0.0)
    """
    return math.log(grown) / math.log(times) if times > 1 else 0.0


def _here(workers: int, threads: int) -> Cluster:
    return Cluster((Group(this_machine(), 1, workers, CPU, threads),))
