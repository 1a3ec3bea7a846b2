"""A crew of threads in one process: what ``server`` would make of so many machines of one worker each.

Driver, workers and shards are the real ones; only the way between them is emulated, in memory. Each worker
holds a model of its own, so it takes the memory of all of them, and it tells nothing of how fast they are.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from manyhands.catalog import LEARNERS, load
from manyhands.records import Progress, Resources, Silent
from manyhands.spread.counted import Counting
from manyhands.spread.merge import ENOUGH, learning_machines
from manyhands.spread.server.driver import Driver, Manner
from manyhands.spread.server.messages import Push, Reply, Table
from manyhands.spread.server.shard import Shard
from manyhands.spread.server.worker import Onlooker, Worker
from manyhands.storage.tensors import Arrays
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.job import Job, Outcome
from manyhands.training.learn import begin

STALL_SECONDS = 3600.0
WAIT_SECONDS = 0.5  # for pushes of other threads


class LocalShards:
    """Shards in this process. They wait long for pushes: threads share cores, as machines do not."""

    def __init__(self, count: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self.all = [Shard(number, count, least_seconds=wait_seconds) for number in range(count)]

    def __len__(self) -> int:
        return len(self.all)

    def exchange(self, pushes: Sequence[Push]) -> list[Reply]:
        return [shard.exchange(push) for shard, push in zip(self.all, pushes, strict=True)]

    def tell_all(self, replica: int, life: int) -> list[Reply]:
        return [shard.tell_all(replica, life) for shard in self.all]


class _Thread:
    """A worker that is a thread."""

    def __init__(
        self,
        job: Job,
        examples: LabelledRows,
        shards: LocalShards,
        rank: int,
        workers: int,
        sums: list[bytes],
    ) -> None:
        self._of = job, examples, rank, workers, sums
        self._shards = shards
        self._worker: Any = None
        self.hand = ThreadPoolExecutor(1)

    def open(self) -> Any:
        job, examples, rank, workers, sums = self._of
        self._worker = Worker(job, examples, job.previous and job.previous.model, rank, workers, sums)
        return self._worker.place()

    def speak(self, number: int, life: int, begin: Any) -> int:
        return int(self._worker.speak(number, life, self._shards, begin))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


class LocalLines:
    """The driver's way to threads."""

    shares_memory, here = False, ""

    def __init__(
        self, job: Job, examples: LabelledRows, workers: int, sums: list[bytes], shards: int
    ) -> None:
        self._job, self._examples, self._workers, self.shards = job, examples, workers, shards
        self._sums = sums
        self._shards = LocalShards(shards)
        self._threads: list[_Thread] = []

    def start(self, rank: int, node: str = "") -> Any:
        self._threads.append(
            _Thread(self._job, self._examples, self._shards, rank, self._workers, self._sums)
        )
        return self._threads[-1]

    def ask(self, who: Any, what: str, *arguments: Any, **named: Any) -> Any:
        return who.hand.submit(getattr(who, what), *arguments, **named)

    def wait(self, asked: Sequence[Future[Any]], seconds: float) -> Sequence[Any]:
        return list(wait(asked, seconds, FIRST_COMPLETED).done) if asked else []

    def answer(self, asked: Future[Any]) -> Any:
        return asked.result()

    def stop(self, who: Any) -> None:
        who.hand.shutdown(wait=False)

    def begin_shards(self, tables: list[Table], replicas: int, values: list[Arrays]) -> None:
        for shard, mine in zip(self._shards.all, values, strict=True):
            shard.begin(tables, replicas, mine)

    def shard_states(self) -> list[Arrays]:
        return [shard.state() for shard in self._shards.all]

    def end(self) -> None:
        for thread in self._threads:
            self.stop(thread)


def emulate(
    job: Job,
    examples: LabelledRows,
    valid: LabelledRows | None,
    workers: int,
    *,
    shards: int = 2,
    staleness: int = 4,
    sync: bool = False,
    progress: Progress | None = None,
    enough: Mapping[str, int] = ENOUGH,
    most_stretch: float = 1.0,
) -> Outcome:
    """What so many machines of one worker with one thread each end with; of few rows, fewer learn.

    Threads wait for each other more than they learn, as machines with a slow link do. So with
    ``most_stretch`` exchanges are soon as far apart as that allows; without, as on a fast link.
    """
    job = replace(job, resources=Resources(1, job.resources.memory_bytes), checkpoint=None)
    workers, said = learning_machines(workers, load(LEARNERS, "model", job.model), examples, enough)
    if progress and said:
        progress.say(said)
    exchange = Counting(workers)
    training = begin(job, examples, valid, exchange, Silent())
    lines = LocalLines(job, training.examples, workers, exchange.sums, shards)
    feed = training.learner.feed(training.examples, job.settings.seed, job.resources, Silent(), Onlooker())
    manner = Manner(workers, staleness, sync, True, STALL_SECONDS, most_stretch)
    driver = Driver(training, feed, lines, manner, Silent())
    try:
        driver.begin()
        validate = training.validation(valid)
        return training.run(lambda: driver.run(validate))
    finally:
        lines.end()
