"""``stream``: learn from messages without end, each of which counts once in the model that is kept."""

import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from manyhands.bundle.bundle import VERSION, Bundle, BundleConfig
from manyhands.catalog import STREAMS, load
from manyhands.data.messages import Classes, Layout, MessageParser, ParsedMessages
from manyhands.data.streams.stream import Position, describe, kind_of
from manyhands.errors import InputError, ManyhandsError, UsageError
from manyhands.machine import resources_for
from manyhands.models.learner import Loss, StreamLearner
from manyhands.records import Progress, Silent, StreamLedger
from manyhands.spread.stream_crew import WorkerLostError
from manyhands.storage.files import StrPath
from manyhands.streaming.history import MOST_DRIFTS, MOST_POINTS, Drift, History
from manyhands.streaming.job import StreamJob, job_for
from manyhands.streaming.judge import Judge, judge_for
from manyhands.streaming.reader import BlockReader
from manyhands.streaming.record import record_of
from manyhands.streaming.snapshot import Snapshots
from manyhands.training.checkpoint import alone_in
from manyhands.training.trackers import Scalars, open_scalars

LOOK_SECONDS = 0.25  # between looks at the clock while no message comes
MOST_SETBACKS = 10  # between two snapshots
NOTHING = Loss(0.0, 0.0)


@dataclass
class StreamState:
    """How far it has come. All of it is kept in the snapshot, with the learner's arrays."""

    position: Position | None = None
    ledger: StreamLedger = field(default_factory=StreamLedger)
    blocks: int = 0
    words: int = 0
    seconds: float = 0.0  # in which there was something to learn
    layout: Layout | None = None
    classes: list[str] = field(default_factory=list)
    since: Loss = NOTHING  # since the last point of the history
    history: History = field(default_factory=History)
    drift: Drift = field(default_factory=Drift)
    drifts: list[int] = field(default_factory=list)  # after so many messages
    scores: list[dict[str, Any]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "StreamState":
        """The opposite of ``facts``."""
        return cls(
            **{
                **facts,
                "ledger": StreamLedger(**facts["ledger"]),
                "layout": None if facts["layout"] is None else Layout(**facts["layout"]),
                "since": Loss(*facts["since"]),
                "history": History(**facts["history"]),
                "drift": Drift(**facts["drift"]),
            }
        )


@dataclass(frozen=True)
class Streamed:
    """What was learnt when ``stream`` ended."""

    record: dict[str, Any]
    bundle: Bundle | None  # None where there was too little to make a model


def stream(
    url: str,
    out: StrPath,
    *,
    model: str = "ngrams",
    spread: str = "single",
    minutes: float | None = None,
    messages: int | None = None,
    evaluate_every: float | None = None,
    evaluate_on: StrPath | None = None,
    track: str | None = None,
    overwrite: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Streamed:
    """Learn from a stream, and keep a whole model at ``out`` all the while.

    It ends with the stream, after ``minutes``, or when ``messages`` have been read in all; called again, it
    goes on from its last snapshot. Every ``evaluate_every`` seconds, it is judged by the rows, or for word
    vectors by the folder of similarity sets, of ``evaluate_on``. ``settings`` are those of the model, of the
    stream (``StreamingSettings``), of how messages are read (``ReadingSettings``) and of the spread.
    """
    job = job_for(url, model, settings, resources_for(memory, threads), spread)
    snapshots, watcher = Snapshots(os.fspath(out)), progress or Silent()
    if track is not None and snapshots.store is not None:
        raise UsageError(f"--track writes beside a local --out, and {out} is not one; leave it out")
    with alone_in(snapshots.folder):
        snapshots.refuse_others(overwrite)
        snapshots.fetch()
        live = Live(job, snapshots, watcher)
        live.take_up()
        if evaluate_every is not None:
            live.judge_every(evaluate_every, judge_for(job, evaluate_on))
        with snapshots.uploaded(watcher.say), open_scalars(track, snapshots.events) as live.scalars:
            live.run(minutes, messages)
        return Streamed(live.record(), live.bundle())


@dataclass(frozen=True)
class _UnderWay:
    """A block that is being learnt."""

    messages: ParsedMessages
    words: int
    losses: "Sequence[Future[Loss]]"


class Live:
    """A model that learns from a stream."""

    def __init__(self, job: StreamJob, snapshots: Snapshots, progress: Progress) -> None:
        self.job, self.snapshots = job, snapshots
        self._progress = progress
        self._crew = job.crew()
        self._judge: Judge | None = None
        self._judge_seconds, self._judged_at = 0.0, time.monotonic()
        self._setbacks = 0  # since the last snapshot was kept
        self.scalars: Scalars | None = None
        self._begin()

    def _begin(self) -> None:
        """Know nothing yet."""
        job, self.state = self.job, StreamState()
        self.learner: StreamLearner = job.learner(
            job.settings, job.stream.half_life, job.resources, self._crew.zeros
        )
        self._classes: Classes | None = None
        self._seen = 0  # rows or words that were given to threads
        self._read_blocks = 0
        self._kept_at, self._kept_messages, self._point = time.monotonic(), 0, (0, 0, 0.0)
        self._under_way: deque[_UnderWay] = deque()
        self._whole = True  # False while the learner is ahead of what is said of it

    def judge_every(self, seconds: float, judge: Judge) -> None:
        self._judge, self._judge_seconds = judge, seconds

    def take_up(self) -> None:
        """Go on from the newest snapshot, if there is one."""
        kept = self.snapshots.load()
        if kept is None:
            self.snapshots.rejected.unlink(missing_ok=True)  # of a run that was killed before its first one
            return
        arrays, facts = kept
        _refuse_another_job(facts["job"], self.job.identity(), self.snapshots.name)
        self.learner.restore(arrays, facts["learner"])
        self.state = state = StreamState.of(facts["state"])
        self._read_blocks, self._seen = state.blocks, facts["seen"]
        self._kept_messages, self._point = state.ledger.read, (state.ledger.read, state.words, state.seconds)
        self._progress.say(f"going on after {state.ledger.read:,} messages, from {self.snapshots.name}")
        if not load(STREAMS, "stream", kind_of(self.job.url)).replays:
            self._progress.say("what was read behind that snapshot cannot be read again, and is not learnt")

    def run(self, minutes: float | None, messages: int | None) -> None:
        """Learn until it is time to end. An interrupt leaves a snapshot behind."""
        job = self.job
        with self._crew.working(job.model, job.settings, self._progress):
            until = None if minutes is None else time.monotonic() + 60 * minutes  # workers have started
            while True:
                self._crew.serve(self.learner)
                try:
                    self._follow(until, messages)
                    return
                except WorkerLostError as lost:
                    self._go_back(lost)

    def _go_back(self, lost: WorkerLostError) -> None:
        """To the last snapshot: weights, counts, ledger and position together, as after any kill."""
        self._setbacks += 1
        if self._setbacks > MOST_SETBACKS:
            raise ManyhandsError("workers of Ray end again and again; look into its logs, in /tmp/ray")
        self._progress.say(f"{lost}; what was learnt since the last snapshot is learnt again")
        wait([future for block in self._under_way for future in block.losses])
        self._begin()
        self.take_up()

    def _follow(self, until: float | None, messages: int | None) -> None:
        job, state = self.job, self.state
        most = None if messages is None else max(messages - state.ledger.read, 0)
        parser = MessageParser(describe(job.url), job.reading, state.layout, labelled=job.labelled)
        reader = BlockReader(job.url, state.position, parser, job.stream, most)
        with reader.reading():
            self._progress.stage("stream", messages, "messages")
            try:
                while until is None or time.monotonic() < until:
                    began = time.monotonic()
                    block = reader.next(LOOK_SECONDS)
                    if isinstance(block, type):
                        break
                    if block is not None:
                        state.layout = state.layout or parser.layout
                        self._learn(block)
                        state.seconds += time.monotonic() - began
                    else:
                        self._finish(0)
                    self._judge_in_time()
                    self._keep_in_time()
                    self._tell()
            except BaseException as stopping:
                if self._whole and not isinstance(stopping, Exception):  # interrupted: nothing is lost
                    self.keep()
                raise
            self.keep()

    def _learn(self, block: ParsedMessages) -> None:
        """Count a block, and have it learnt."""
        layout = self.state.layout
        if self.job.labelled and self._classes is None and layout is not None:
            self._classes = Classes(layout.scheme, self.state.classes)
        known = len(self._classes.names) if self._classes else 0
        rows = block.rows(self._classes)
        if self._classes is not None and len(self._classes.names) > known:
            self._finish(0)  # the learner makes larger tables, and nobody may learn in the old ones by then
        self._whole = False
        pieces = self.learner.read(rows, self._read_blocks, block.ledger.read)
        self._read_blocks += 1
        rate = self.job.settings.learning_rate
        if self.job.settings.anneal:
            rate /= np.sqrt(1 + self._seen / self.job.settings.anneal)
        self._seen += len(rows) if self.job.labelled else rows.corpus.tokens
        losses = self._crew.learn(pieces, rate)
        self._under_way.append(_UnderWay(block, rows.corpus.tokens, losses))
        self._whole = True
        self._finish(self._crew.blocks_ahead)

    def _finish(self, left: int) -> None:
        """Wait until no more than so many blocks are under way, and account for those that were learnt."""
        state = self.state
        while len(self._under_way) > left:
            done = self._under_way[0]
            found = [future.result() for future in done.losses]
            total, rows = sum(loss.total for loss in found), sum(loss.rows for loss in found)
            if not np.isfinite(total):
                raise InputError(
                    f"the loss became {total} after {state.ledger.read:,} messages; lower --learning-rate"
                )
            self._whole = False
            self._under_way.popleft()
            self.snapshots.reject(done.messages.rejected)
            state.position, state.blocks = done.messages.position, state.blocks + 1
            state.ledger += done.messages.ledger
            state.words += done.words
            state.since = Loss(state.since.total + total, state.since.rows + rows)
            if rows and self.scalars is not None:
                self.scalars.add("loss/block", total / rows, state.ledger.read)
            if rows and state.drift.add(total / rows):
                state.drifts = [*state.drifts, state.ledger.read][-MOST_DRIFTS:]
                self._progress.say(f"the loss has risen: drift after {state.ledger.read:,} messages")
            self._whole = True

    def _judge_in_time(self) -> None:
        """Judge the model, if it is time and it has learnt since; the stream waits."""
        if self._judge is None or time.monotonic() - self._judged_at < self._judge_seconds:
            return
        self._finish(0)
        self._judged_at, state, bundle = time.monotonic(), self.state, self.bundle()
        known = state.scores[-1]["messages"] if state.scores else 0
        if bundle is None or state.ledger.read == known:
            return
        found = self._judge(bundle)
        state.scores.append({"messages": state.ledger.read, **found})
        if len(state.scores) > MOST_POINTS:
            state.scores = state.scores[1::2]
        for name, value in found.items():
            if self.scalars is not None:
                self.scalars.add(f"scores/{name}", value, state.ledger.read)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        self._progress.say(f"after {state.ledger.read:,} messages: {shown}")

    def _keep_in_time(self) -> None:
        stream, now = self.job.stream, time.monotonic()
        new = self.state.ledger.read - self._kept_messages
        many = stream.snapshot_messages is not None and new >= stream.snapshot_messages
        if new and (many or now - self._kept_at >= stream.snapshot_seconds):
            self.keep()

    def keep(self) -> None:
        """A snapshot of all that was learnt, in whole blocks."""
        self._finish(0)
        state = self.state
        if self._classes is not None:
            state.classes = self._classes.names
        if state.ledger.read > self._point[0]:
            now = (state.ledger.read, state.words, state.seconds)
            messages, words, seconds = (new - old for new, old in zip(now, self._point, strict=True))
            state.history.add(messages=int(messages), words=int(words), seconds=seconds, loss=state.since)
            state.since, self._point = NOTHING, now
        facts = {"job": self.job.identity(), "state": state.facts(), "learner": self.learner.facts()}
        self.snapshots.save(self.learner.state(), {**facts, "seen": self._seen}, self.bundle(), self.record())
        self._kept_at, self._kept_messages, self._setbacks = time.monotonic(), state.ledger.read, 0

    def bundle(self) -> Bundle | None:
        model = self.learner.model()
        if model is None:
            return None
        facts = model.facts()
        config = BundleConfig(
            version=VERSION,
            model=self.job.model,
            labels=facts.pop("labels", []),
            label_scheme=self.state.layout.scheme if self.state.layout else "none",
            text=self.job.reading.text,
            facts=facts,
            settings=self.job.settings.model_dump(exclude=set(self.job.learner.without)),
        )
        return Bundle(config, model)

    def record(self) -> dict[str, Any]:
        return record_of(self.job, self.state, self._crew.workers)

    def _tell(self) -> None:
        points, since = self.state.history.points, self.state.since
        if not since.rows and points:
            since = Loss(points[-1]["loss_total"], points[-1]["loss_rows"])
        self._progress.advance(self.state.ledger.read, f"loss {since.mean:.4f}")


def _refuse_another_job(then: dict[str, Any], now: dict[str, Any], out: str) -> None:
    for name in {**now, **then}:  # the stream and the model first
        if then.get(name) != now.get(name):
            raise UsageError(
                f"{out} was learnt with {name} {then.get(name)}, now it is {now.get(name)}; repeat the same "
                "command, choose another --out, or pass --overwrite to begin anew"
            )
