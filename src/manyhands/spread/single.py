"""``single``: one process, whose threads learn side by side in the same memory, without locks (Hogwild)."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

from manyhands.catalog import STREAM_LEARNERS, load
from manyhands.models.learner import Loss, StreamLearner
from manyhands.models.model import Arrays
from manyhands.records import Progress, Resources
from manyhands.spread.spread import Spread
from manyhands.spread.stream_crew import StreamCrew
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.exchange import Alone
from manyhands.training.job import Job, Outcome
from manyhands.training.learn import Watch, learn


class StreamThreads(StreamCrew):
    """Threads of this process. One alone learns each piece before the next block is read."""

    summary = "threads of this process"

    def __init__(self, settings: Any, resources: Resources, *, deterministic: bool) -> None:
        self._threads, self._tables = 1 if deterministic else resources.threads, Arrays()

    @contextmanager
    def working(self, model: str, settings: Any, progress: Progress) -> Iterator[None]:
        kind: type[StreamLearner] = load(STREAM_LEARNERS, "model", model)
        side_by_side = self._threads > 1 and not kind.shares_batches
        self.blocks_ahead = self._threads if side_by_side else 0
        with ThreadPoolExecutor(self._threads) as executor:
            self._executor = executor if side_by_side else None
            yield

    def learn(self, pieces: Sequence[Any], rate: float) -> "Sequence[Future[Loss]]":
        tables = self._learner.tables()
        if any(array is not self._tables.get(name) for name, array in tables.items()):
            self._tables = tables
            self._pieces = self._learner.Pieces(self._learner.settings, tables, self._threads, nullcontext())
        if self._executor is not None:
            return [self._executor.submit(self._pieces.learn, piece, rate) for piece in pieces]
        return [_done(self._pieces.learn(piece, rate)) for piece in pieces]


def _done(loss: Loss) -> "Future[Loss]":
    future: Future[Loss] = Future()
    future.set_result(loss)
    return future


class Single(Spread):
    summary = StreamThreads.summary
    Streaming = StreamThreads

    def run(
        self,
        job: Job,
        examples: LabelledRows,
        valid: LabelledRows | None,
        progress: Progress,
        watch: Watch | None = None,
    ) -> Outcome:
        return learn(job, examples, valid, Alone(), progress, watch)
