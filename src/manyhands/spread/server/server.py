"""``server``: asynchronous training with a parameter server on Ray.

Shards of the server hold the tables, a part of the rows each. Workers learn leases of rows at their own pace.
Those of one machine do so in the same memory, without locks (Hogwild), as threads do; machines push what they
have moved to the shards, hear what others have, and never wait for them unless they are too far ahead.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from manyhands.catalog import LEARNERS, load
from manyhands.engines.ray import check_address, cores_of_machines, exposed, ray
from manyhands.errors import InputError, UsageError
from manyhands.machine import LEAST_BYTES, cores
from manyhands.models.learner import Learner, arrays_of
from manyhands.records import Progress
from manyhands.spread.counted import Counting
from manyhands.spread.merge import learning_machines
from manyhands.spread.server.actors import RayLines
from manyhands.spread.server.driver import Driver, Manner
from manyhands.spread.server.settings import WorkerSettings
from manyhands.spread.server.stream import StreamWorkers
from manyhands.spread.server.worker import Onlooker, Opening
from manyhands.spread.spread import Spread
from manyhands.storage.files import STDIN
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.job import Job, Outcome, Role, call_elsewhere
from manyhands.training.learn import Training, Watch, begin

MESSAGES = 4  # times the tables, that may be on their way at once


class ServerSettings(WorkerSettings):
    shards: Annotated[
        int, Field(ge=1, le=512, description="Processes that hold the weights, a part of the rows each.")
    ] = 1
    staleness: Annotated[
        int,
        Field(ge=0, le=10_000, description="How many exchanges a worker may be ahead of the slowest."),
    ] = 4
    sync: Annotated[
        bool, Field(description="Synchronous rounds: everyone waits for all, for comparison.")
    ] = False
    apart: Annotated[
        bool,
        Field(description="Workers of one machine share no memory, as if each had its own: for comparison."),
    ] = False


class Server(Spread):
    """The driver's part: workers and shards are actors of Ray."""

    Settings = ServerSettings
    summary = "asynchronous workers and a sharded parameter server, on Ray"
    counts = "workers"
    leaving_seconds = 3.0  # of which Ray takes most
    waits = False
    copies = 7  # a worker's own and what it knows, three of a shard, the driver's and what is owed to it
    adds_up_bytes = True
    Streaming = StreamWorkers

    def __init__(self) -> None:
        self._threads: int | None = None

    def advice(self, data: Sequence[str], settings: Mapping[str, Any]) -> str:
        """On one machine threads do the same."""
        if settings.get("address") is not None:
            return ""
        workers = settings.get("workers", ServerSettings.model_fields["workers"].default)
        return (
            f"on one machine, {workers} threads learn as fast as {workers} workers, and start sooner: use "
            f"--threads {workers} without --spread"
        )

    def check(self, job: Job) -> None:
        check_address(_settings(job).address)
        if job.call is None or STDIN in job.call.data:
            raise UsageError("workers cannot share standard input; give a file")
        if job.training.deterministic:
            raise UsageError(
                "--deterministic is not for --spread server, whose workers never meet in the same order; "
                "use --spread allreduce"
            )

    def launch(self, job: Job, threads: int | None, progress: Progress) -> Role:
        self._threads = threads  # those of each worker
        return Role.LEADS

    def run(
        self,
        job: Job,
        examples: LabelledRows,
        valid: LabelledRows | None,
        progress: Progress,
        watch: Watch | None = None,
    ) -> Outcome:
        settings = _settings(job)
        threads = self._threads or max(cores() // settings.workers, 1)
        with _machines(settings) as machines:
            kind = load(LEARNERS, "model", job.model)
            nodes, said = _nodes(settings, threads, machines, kind, examples)
            if said:
                progress.say(said)
            return self._run(job, examples, valid, progress, watch, threads, nodes)

    def _run(
        self,
        job: Job,
        examples: LabelledRows,
        valid: LabelledRows | None,
        progress: Progress,
        watch: Watch | None,
        threads: int,
        nodes: list[str],
    ) -> Outcome:
        settings, workers = _settings(job), len(nodes)
        if len(examples) < workers:
            raise InputError(f"{len(examples)} rows are too few for {workers} workers; lower --workers")
        exchange = Counting(workers)
        training = begin(job, examples, valid, exchange, progress, watch)
        size = sum(array.nbytes for array in arrays_of(training.learner).values())
        progress.stage("starting Ray", None, "workers")
        with ray(settings.address, workers * threads, MESSAGES * size) as library:
            progress.say(exposed(library))
            _check_room(cores_of_machines(library), settings, workers, threads, progress)
            openings = _openings(training, threads, workers)
            lines = RayLines(library, openings, nodes, exchange.sums, settings.shards)
            try:
                feed = training.learner.feed(
                    training.examples, job.settings.seed, job.resources, progress, Onlooker()
                )
                driver = Driver(training, feed, lines, _manner(settings, workers), progress)
                driver.begin()
                validate = training.validation(valid)
                return training.run(lambda: driver.run(validate))
            finally:
                lines.end()


def _check_room(
    machines: Mapping[str, int], settings: ServerSettings, workers: int, threads: int, progress: Progress
) -> None:
    """A Ray of our own has room for all workers; in a cluster, one is enough to begin with."""
    room = sum(count // threads for count in machines.values())
    if room >= workers:
        return
    if settings.address is None or not room:
        raise UsageError(
            f"Ray has room for {room} workers of {threads} threads, not for {workers}; lower --workers or "
            "--threads, or add machines"
        )
    progress.say(f"there is room for {room} of {workers} workers; the others join with more machines")


def _manner(settings: ServerSettings, workers: int) -> Manner:
    return Manner(
        workers,
        settings.staleness,
        settings.sync,
        settings.apart,
        settings.stall_seconds,
        joining=settings.address is not None,
    )


def _settings(job: Job) -> ServerSettings:
    if not isinstance(job.spread_settings, ServerSettings):
        raise TypeError("the job is for another spread")
    return job.spread_settings


@contextmanager
def _machines(settings: ServerSettings) -> Iterator[dict[str, int]]:
    """The cores of each machine; of a Ray that is yet to be started, those of this one."""
    if settings.address is None:
        yield {"": cores()}
        return
    with ray(settings.address, 0, 0) as library:
        yield cores_of_machines(library)


def _nodes(
    settings: ServerSettings,
    threads: int,
    machines: Mapping[str, int],
    kind: type[Learner],
    examples: LabelledRows,
) -> tuple[list[str], str]:
    """For every worker that is to be started, the machine that it must be on; empty if any will do.

    Of few rows only some machines learn, those with most cores; people should know it. Whoever asks for
    workers that are apart, for comparison, gets them all.
    """
    room = {machine: count // threads for machine, count in machines.items() if count >= threads}
    if settings.apart or not room:
        return [""] * settings.workers, ""
    # Workers without room may come to be on as many machines that join later.
    later = max(settings.workers - sum(room.values()), 0) if settings.address else 0
    wanted = min(len(room), settings.workers) + later
    learning, said = learning_machines(wanted, kind, examples)
    if learning == wanted:
        return [""] * settings.workers, ""
    largest = sorted(room, key=lambda machine: -room[machine])[:learning]
    there = [machine for machine in largest for _ in range(room[machine])]
    return [*there, *[""] * (learning - len(largest))][: settings.workers], said


def _openings(training: Training, threads: int, workers: int) -> list[Opening]:
    job = training.job
    return [
        Opening(
            call=call_elsewhere(job),
            data=training.examples.fingerprint,
            threads=threads,
            memory_bytes=max(job.resources.memory_bytes // (workers + 1), LEAST_BYTES),
            rank=rank,
            workers=workers,
        )
        for rank in range(workers)
    ]
