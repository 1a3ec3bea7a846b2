"""Workers on Ray that learn the pieces of a stream, in the memory of the process that reads it.

That process counts, owns the vocabulary and makes the snapshots; workers get pieces and nothing else. They
run on its machine, so that all learn in the same tables. A worker that is killed is started again by Ray.
"""

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from manyhands.catalog import STREAM_LEARNERS, load
from manyhands.engines.ray import check_address, cores_here, exposed, on_this_machine, ray
from manyhands.errors import ManyhandsError, UsageError
from manyhands.kernels.simd import Floats
from manyhands.models.learner import Loss, PieceLearner, StreamLearner
from manyhands.models.model import Arrays
from manyhands.records import Progress, Resources
from manyhands.spread.server.memory import can_share
from manyhands.spread.server.settings import StreamWorkerSettings
from manyhands.spread.server.shared_tables import SharedTables, TablePlaces, TablesLock, mapped_tables
from manyhands.spread.stream_crew import StreamCrew, WorkerLostError

CLIENT = "ray://"
STORE_BYTES = 256 << 20  # that pieces on their way may take
START_SECONDS = 120.0
PAUSE_SECONDS = 0.1  # before a worker that is being started is asked again


class PieceWorker:
    """A process that learns pieces. It keeps nothing, so one that is started again goes on at once."""

    def __init__(self, model: str, settings: dict[str, Any], threads: int) -> None:
        self._kind: type[StreamLearner] = load(STREAM_LEARNERS, "model", model)
        self._settings, self._threads = self._kind.Settings(**settings), threads
        self._version, self._opening = 0, threading.Lock()
        self._pieces: PieceLearner | None = None

    def ready(self) -> None:
        """It has started."""

    def learn(self, places: TablePlaces, piece: Any, rate: float) -> tuple[float, float]:
        loss = self._in(places).learn(_writable(piece), rate)
        return loss.total, loss.rows

    def _in(self, places: TablePlaces) -> PieceLearner:
        """Threads may ask at once; all pieces of other tables were learnt before."""
        with self._opening:
            if self._pieces is None or places.version != self._version:
                make, tables = self._kind.Pieces, mapped_tables(places)
                self._pieces = make(self._settings, tables, self._threads, TablesLock(places))
                self._version = places.version
            return self._pieces


def _writable(value: Any) -> Any:
    """A piece as it was made: Ray's arrays are read-only, and kernels are compiled for the others."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple):
        return type(value)(*map(_writable, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{part.name: _writable(getattr(value, part.name)) for part in fields(value)})
    return value


class StreamWorkers(StreamCrew):
    """Threads of this process give pieces to workers, and wait for their answers."""

    Settings = StreamWorkerSettings
    summary = "worker processes on Ray, in the memory of the one that reads"

    def __init__(self, settings: StreamWorkerSettings, resources: Resources, *, deterministic: bool) -> None:
        check_address(settings.address)
        if settings.address is not None and settings.address.startswith(CLIENT):
            raise UsageError(
                "workers of a stream learn in the memory of the process that reads it: start it on a machine "
                "of the cluster, with --address auto"
            )
        if deterministic:
            raise UsageError(
                "--deterministic is not for --spread server, whose workers never meet in the same order; "
                "use --spread single"
            )
        if not can_share():
            raise UsageError(
                "this system lets no processes share memory by their open files; use --spread single"
            )
        self._settings, self.workers = settings, settings.workers
        self._threads = max(resources.threads // settings.workers, 1)
        self._shared, self._version, self._tables = SharedTables(), 0, Arrays()

    def zeros(self, rows: int, width: int) -> Floats:
        return self._shared.zeros(rows, width)

    @contextmanager
    def working(self, model: str, settings: Any, progress: Progress) -> Iterator[None]:
        progress.stage("starting Ray", None, "workers")
        with ray(self._settings.address, self.workers * self._threads, STORE_BYTES) as library:
            progress.say(exposed(library))
            if cores_here(library) < self.workers * self._threads:
                raise UsageError(
                    f"Ray has {cores_here(library)} cores on this machine, and {self.workers} workers of "
                    f"{self._threads} threads need more; lower --workers or --threads"
                )
            self._ray = library
            kind: type[StreamLearner] = load(STREAM_LEARNERS, "model", model)
            at_once = 1 if kind.shares_batches else self._threads
            self._actors = self._start(model, settings.model_dump(), at_once)
            self._free: queue.Queue[Any] = queue.Queue()
            for actor in self._actors * (at_once + 1):  # one piece more is there when it has learnt those
                self._free.put(actor)
            self.blocks_ahead = self._free.qsize()
            try:
                with ThreadPoolExecutor(self._free.qsize()) as self._executor:
                    yield
            finally:
                for actor in self._actors:
                    library.kill(actor)

    def _start(self, model: str, settings: dict[str, Any], at_once: int) -> list[Any]:
        kept_alive = {"num_cpus": self._threads, "max_restarts": -1, "max_task_retries": 0}
        kept_alive["max_concurrency"] = at_once
        kind = self._ray.remote(PieceWorker).options(
            **kept_alive, scheduling_strategy=on_this_machine(self._ray)
        )
        return [kind.remote(model, settings, self._threads) for _ in range(self.workers)]

    def serve(self, learner: StreamLearner) -> None:
        super().serve(learner)
        errors, ends = self._ray.exceptions, time.monotonic() + START_SECONDS
        for actor in self._actors:
            while True:
                try:
                    self._ray.get(actor.ready.remote(), timeout=START_SECONDS)
                    break
                except (errors.GetTimeoutError, errors.RayActorError) as error:
                    if time.monotonic() > ends:
                        reason = str(error).partition("\n")[0]
                        raise ManyhandsError(f"Ray could not start a worker here: {reason}") from None
                    time.sleep(PAUSE_SECONDS)  # it is being started again

    def learn(self, pieces: Sequence[Any], rate: float) -> "Sequence[Future[Loss]]":
        tables = self._learner.tables()
        if any(array is not self._tables.get(name) for name, array in tables.items()):
            self._tables, self._version = tables, self._version + 1
            self._places = self._shared.places(tables, self._version)
        return [self._executor.submit(self._learnt, self._places, piece, rate) for piece in pieces]

    def _learnt(self, places: TablePlaces, piece: Any, rate: float) -> Loss:
        """Have a piece learnt by whoever is free."""
        errors, actor = self._ray.exceptions, self._free.get()
        try:
            asked = actor.learn.remote(places, piece, rate)
            return Loss(*self._ray.get(asked, timeout=self._settings.stall_seconds))
        except errors.GetTimeoutError:
            self._ray.kill(actor, no_restart=False)
            silent = f"a worker was silent for {self._settings.stall_seconds:g} s and is replaced"
            raise WorkerLostError(silent) from None
        except errors.RayActorError:  # it is gone, or being started again
            raise WorkerLostError("a worker was lost") from None
        except errors.RayTaskError as error:
            if isinstance(error.cause, ManyhandsError):
                raise error.cause from None
            raise
        finally:
            self._free.put(actor)
