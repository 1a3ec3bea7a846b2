"""``server``: asynchronous training with a parameter server on Ray.

Shards of the server hold the tables, a part of the rows each. Workers learn leases of rows at their own pace.
Those of one machine do so in the same memory, without locks (Hogwild), as threads do; machines push what they
have moved to the shards, hear what others have, and never wait for them unless they are too far ahead.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from manyhands.engines.ray import check_address, exposed, free_cpus, ray
from manyhands.errors import InputError, UsageError
from manyhands.machine import LEAST_BYTES, cores
from manyhands.models.learner import arrays_of
from manyhands.records import Progress
from manyhands.spread.counted import Counting
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
        if len(examples) < settings.workers:
            raise InputError(
                f"{len(examples)} rows are too few for {settings.workers} workers; lower --workers"
            )
        exchange = Counting(settings.workers)
        training = begin(job, examples, valid, exchange, progress, watch)
        threads = self._threads or max(cores() // settings.workers, 1)
        size = sum(array.nbytes for array in arrays_of(training.learner).values())
        progress.stage("starting Ray", None, "workers")
        with ray(settings.address, settings.workers * threads, MESSAGES * size) as library:
            progress.say(exposed(library))
            if free_cpus(library) < settings.workers * threads:
                raise UsageError(
                    f"Ray has {free_cpus(library):.0f} cores, and {settings.workers} workers of {threads} "
                    "threads need more; lower --workers or --threads, or add machines"
                )
            openings, name = _openings(training, threads), secrets.token_hex(8)
            lines = RayLines(library, openings, exchange.sums, settings.shards, name)
            feed = training.learner.feed(
                training.examples, job.settings.seed, job.resources, progress, Onlooker()
            )
            manner = Manner(
                settings.workers, settings.staleness, settings.sync, settings.apart, settings.stall_seconds
            )
            driver = Driver(training, feed, lines, manner, progress)
            try:
                driver.begin()
                validate = training.validation(valid)
                return training.run(lambda: driver.run(validate))
            finally:
                lines.end()


def _settings(job: Job) -> ServerSettings:
    if not isinstance(job.spread_settings, ServerSettings):
        raise TypeError("the job is for another spread")
    return job.spread_settings


def _openings(training: Training, threads: int) -> list[Opening]:
    job, settings = training.job, _settings(training.job)
    return [
        Opening(
            call=call_elsewhere(job),
            data=training.examples.fingerprint,
            threads=threads,
            memory_bytes=max(job.resources.memory_bytes // (settings.workers + 1), LEAST_BYTES),
            rank=rank,
            workers=settings.workers,
        )
        for rank in range(settings.workers)
    ]
