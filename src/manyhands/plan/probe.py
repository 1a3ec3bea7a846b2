"""A short probe of this machine: a few small trainings with the settings of the large one.

What differs from run to run is measured: rows, threads, batches, workers. What exchanges between machines
would send is counted by a crew of machines that is emulated in memory.
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
from manyhands.spread.merge import ENOUGH
from manyhands.spread.spread import Spread
from manyhands.training.job import Call, job_for
from manyhands.training.splits import Splits, open_splits

FEW_ROWS = 400
SECONDS = 2.5  # of the larger runs, on one thread, for an epoch
LONG_ENOUGH = 0.75  # seconds, to tell how long more rows would take
MOST_COUNTED = 20_000  # rows of an emulated crew, which counts bytes and takes its time
MOST_EPOCHS = 3  # of a run of the probe: the first takes longer than the others
EXCHANGES = 50  # of models that learn in place, in an epoch: their number hardly matters, their bytes do
WORDS_GROW = 0.6  # the power of the rows by which their distinct words grow
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
    sent: float  # bytes, of a turn
    later_laps: float  # of all epochs or rounds, the share behind the first
    later_learning: float  # seconds of those


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
        self._job = job_for(model, settings, resources_for(None, 1), spread=spread, call=self._call)
        self._kind: type[Learner] = load(LEARNERS, "model", model)
        self._way: type[Spread] = load(SPREADS, "spread", spread)
        self._shares = self._kind.shares_batches
        self._splits = self._open(spread, settings, None)
        self.settings: ModelSettings = self._job.settings
        self.rows, self.epochs = len(self._splits.train), self.settings.epochs
        self.words = self._splits.train.corpus.tokens / max(self.rows, 1)
        if self._shares:  # of fewer rows, batches would be smaller than those of the whole training
            settings = {**settings, "batch_size": self._batch(self.rows)}
            self.settings = self.settings.model_copy(update={"batch_size": settings["batch_size"]})
        self._settings = settings
        self._own = {name: value for name, value in settings.items() if self._is_own(name)}
        self._sample, self._before, self._validation = FEW_ROWS, 0.0, 0.0
        self._sent = 0.0  # by Spark in a round of the probe
        self._bytes: dict[tuple[int, int], int] = {}  # by rows and epochs, of a worker of two machines

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
        yield Run(self.work(part, 1, SINGLE), _here(1, 1), small.seconds)
        yield from self._runs(large, self._sample, epochs, SINGLE, 1, 1)
        if cores() > 1:
            taken = self._best(self._sample, threads=cores(), **{**alone, "epochs": epochs})
            yield from self._runs(taken, self._sample, epochs, SINGLE, 1, cores())
        if self._shares:
            yield from self._other_batches(part, alone)
        if self._spread != SINGLE:
            yield from self._crew()
        if self._way.counts and not self._way.sends_weights:
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
        self._sent = taken.sent
        work, here = self.work(self._sample, epochs, self._spread), _here(workers, 1)
        yield Run(work, here, taken.seconds)
        later = replace(work, epochs=epochs * taken.later_laps, loop_only=True)
        yield Run(later, here, max(taken.later_learning, 1e-3))

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
            batch=rows / EXCHANGES,
            exchange_bytes=0.0,
            shared=True,
            recurrent=self._shares,
            in_memory=True,
            balanced=True,
            passes_before=self._before,
            validation=self._validation,
            engine=spread != SINGLE,
        )
        if self._shares:
            every = replace(every, batch=self._batch(rows) / self._amount_of_row)
        else:
            enough = ENOUGH[self._kind.learns]
            every = replace(every, most_machines=max(int(rows * self._amount_of_row) // enough, 1))
        exchanges = epochs * rows / every.batch
        every = replace(every, exchange_bytes=self._bytes_of(rows, epochs) / exchanges)
        if spread == SINGLE:
            return every
        if self._way.sends_weights:
            return self._averaged(every)
        return replace(every, waits=self._way.waits)

    def _averaged(self, work: Work) -> Work:
        """Whole weights travel, a few times: to every machine and back, of which the probe saw the sum."""
        often: dict[str, Any] = {"turns_of_worker": PARTITION_ROUNDS, "most_turns": MOST_ROUNDS}
        grown = (work.rows / self._sample) ** WORDS_GROW
        return replace(
            work,
            batch=work.rows,
            remakes=not self._shares,
            **({} if self._shares else often),
            exchange_bytes=self._sent / 2 * grown,
            pattern=Pattern.STAR,
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
        turns = sum(lap["rounds"] for lap in laps)
        sent = record["traffic"]["bytes"] / max(turns, 1)
        learning = record["learning_seconds"]
        first, behind = laps[0]["learning_seconds"], 1 - 1 / len(laps)
        if first >= learning:  # one lap, or a server that ends all of them together
            first, behind = 0.0, 1.0
        return _Taken(seconds, learning, validating, sent, behind, learning - first)


def _here(workers: int, threads: int) -> Cluster:
    return Cluster((Group(this_machine(), 1, workers, CPU, threads),))
