"""``allreduce``: a process for each worker, started by torchrun; all hold the whole model and add up what
they learn.

Learners that share batches add up their gradients in every step. The others learn rows of their own in
place, and merge what they have learnt (see ``merge``): the rows that move most after every step, all of them
after a round.
"""

import json
import shutil
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from manyhands.engines import torchrun
from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Ints
from manyhands.machine import LEAST_BYTES, cores
from manyhands.models.learner import Feed, Learner, Loss, Piece, StateArray, arrays_of
from manyhands.records import PARTS, Clock, Progress, Traffic
from manyhands.settings import Common, Settings
from manyhands.spread.balance import Policy, by_speed, cut, cut_at, cut_evenly, deal, equal
from manyhands.spread.group import Group
from manyhands.spread.merge import FEW, Merge, exchanges, merge_hottest, merge_moved, reach
from manyhands.spread.spread import Spread
from manyhands.storage.files import STDIN
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.checkpoint import ANY
from manyhands.training.exchange import Learn, Step, total_loss
from manyhands.training.job import Job, Outcome, Role
from manyhands.training.learn import Watch, learn
from manyhands.training.state import State

WORKER = "manyhands.run.worker"  # the module that each process of a crew runs
# After so much, all workers agree on every row: a checkpoint can be kept, or the crew can stop.
ROUND_ROWS = {"rows": 1 << 20, "words": 1 << 24}

Floats = npt.NDArray[np.float32]


class AllReduceSettings(Settings):
    """Who is in the crew. Models that share batches come out the same, up to rounding; others merge."""

    workers: Annotated[
        int, Field(ge=1, le=512, description="Worker processes on this machine, sharing its cores."), Common()
    ] = 2
    balance: Annotated[
        str, Field(description="How often work is rebalanced by speed: every:N (epochs), steps:N, once, off.")
    ] = "steps:50"
    nodes: Annotated[
        str,
        Field(
            pattern=r"^[1-9][0-9]{0,3}(:[1-9][0-9]{0,3})?$",
            description="Number of machines, or from:to, as 1:2; each runs this command.",
        ),
    ] = "1"
    rendezvous: Annotated[
        str | None,
        Field(
            pattern=r"^[^\s:/]+:[0-9]{1,5}$", description="Where machines meet: address:port of one of them."
        ),
    ] = None
    max_restarts: Annotated[
        int, Field(ge=0, le=10_000, description="How often a crew that lost a worker is restarted.")
    ] = 10
    stall_seconds: Annotated[
        float, Field(ge=1, le=86_400, description="Restart workers if one is silent for this many seconds.")
    ] = 120.0


class AllReduce(Spread):
    """Under torchrun, a worker's part; otherwise torchrun is started, and its workers do all."""

    Settings = AllReduceSettings
    summary = "a crew of processes, on one machine or many, started by torchrun"

    def check(self, job: Job) -> None:
        Policy.parse(_settings(job).balance)
        if not torchrun.inside():
            _crew(job).check()
            if job.call is None or STDIN in job.call.data:
                raise UsageError("a crew cannot share standard input; give a file")

    def launch(self, job: Job, threads: int | None, progress: Progress) -> Role:
        if torchrun.inside():
            return Role.FOLLOWS if torchrun.rank() else Role.LEADS
        assert job.call is not None  # noqa: S101 - checked above
        crew = _crew(job)
        shared = {
            "threads": threads or max(cores() // crew.workers, 1),
            "memory": max(job.resources.memory_bytes // crew.workers, LEAST_BYTES),
        }
        here = torchrun.launch_crew(WORKER, {**job.call.arguments(), **shared}, crew, progress)
        return Role.WRITTEN if here else Role.WRITTEN_ELSEWHERE

    def run(
        self,
        job: Job,
        examples: LabelledRows,
        valid: LabelledRows | None,
        progress: Progress,
        watch: Watch | None = None,
    ) -> Outcome:
        settings = _settings(job)
        job = replace(job, run=torchrun.known_run(ANY))
        with Group(settings.stall_seconds) as group:
            policy = Policy() if job.training.deterministic else Policy.parse(settings.balance)
            keeps = group.keeps_files(job.checkpoint)
            threads = 1 if job.training.deterministic else job.resources.threads
            exchange = AllReduceExchange(group, policy, threads)
            outcome = learn(job, examples, valid, exchange, progress, watch, keeps=keeps)
            if keeps and group.rank and job.checkpoint:  # where files are not shared, nobody else will
                shutil.rmtree(job.checkpoint, ignore_errors=True)
            return outcome


def _settings(job: Job) -> AllReduceSettings:
    if not isinstance(job.spread_settings, AllReduceSettings):
        raise TypeError("the job is for another spread")
    return job.spread_settings


def _crew(job: Job) -> torchrun.Crew:
    settings = _settings(job)
    return torchrun.Crew(settings.workers, settings.nodes, settings.rendezvous, settings.max_restarts)


class AllReduceExchange:
    """The exchange of a crew."""

    def __init__(self, group: Any, policy: Policy, threads: int = 1) -> None:
        self.clock, self.workers, self.stopping = Clock(), group.size, False
        self._group, self._policy, self._threads = group, policy, threads
        self._parts: dict[str, StateArray] = {}
        self._merges: dict[str, Merge] = {}
        self._shares = equal(group.size)
        self._log: list[dict[str, Any]] = []
        self._steps = self._epochs = 0
        self._seen = 0  # rows of all rounds that are settled, by the whole crew
        self._rows = self._work = 0.0  # since the shares were measured last
        self._waited = 0.0  # in this round
        self._given: deque[int] = deque()  # rows of the rounds that are settled and not yet learnt

    def start(self, learner: Learner, state: State, identity: dict[str, Any], rows: int) -> None:
        if rows < self.workers:
            raise InputError(f"{rows} rows are too few for {self.workers} workers; lower --workers")
        self._group.wait_for_all()
        self._refuse_if_others_differ(identity)
        self._begin_together(learner, state)

    def _refuse_if_others_differ(self, identity: dict[str, Any]) -> None:
        meant = {**identity, "balance": repr(self._policy)}
        mine = zlib.crc32(json.dumps(meant, sort_keys=True, default=str).encode())
        others = self._group.gather(np.array([mine], np.float64))[:, 0]
        if (others != others[0]).any():
            other = int(np.flatnonzero(others != others[0])[0])
            raise InputError(
                f"{self._group.name(other)} has other data or settings than {self._group.name(0)}; "
                "give all workers the same command and the same files"
            )

    def _begin_together(self, learner: Learner, state: State) -> None:
        """From the weights of whoever has come furthest: a checkpoint may stand on one node only."""
        places = self._group.gather(np.array([state.seen, state.epoch], np.float64))
        leader = int(np.lexsort((-places[:, 1], -places[:, 0]))[0])
        facts = json.loads(self._group.text_of(leader, json.dumps(state.facts())))
        best, owed = {**state.best} if facts["best_epoch"] else {}, state.owed
        if facts["best_epoch"] and not best:
            best = {name: np.zeros_like(array) for name, array in arrays_of(learner).items()}
        state.take(facts, best, {})
        self._steps, self._seen = sum(lap["rounds"] for lap in state.laps) + state.round, state.seen
        torchrun.note_run(state.run)
        for array in [*arrays_of(learner).values(), *(best[name] for name in sorted(best))]:
            self._group.same_for_all(array, leader)
        if not learner.shares_batches:
            self._parts = learner.state()
            self._merges = {
                name: Merge(part, self.workers, owed.get(name)) for name, part in self._parts.items()
            }
            state.owed = {name: merge.owed for name, merge in self._merges.items()}
            for array in state.owed.values():
                self._group.same_for_all(array, leader)

    def round_blocks(self, learner: Learner, feed: Feed) -> int:
        return 1 if learner.shares_batches else max(ROUND_ROWS[feed.unit] // feed.rows(0), 1)

    def steps(self, learner: Learner, feed: Feed, blocks: Ints) -> list[list[Piece]]:
        """A part of every block where batches are shared, whole blocks otherwise; as large as the share."""
        me, numbers = self._group.rank, blocks.tolist()
        if learner.shares_batches:
            bounds = [(block, cut(feed.rows(block), self._shares)) for block in numbers]
            steps = [[Piece(block, at[me], at[me + 1])] for block, at in bounds]
        else:
            rows = sum(feed.rows(block) for block in numbers)
            # Everyone takes as many steps, however large its share is: nobody waits for one that has ended.
            points = exchanges(self._seen, rows, *feed.between_exchanges)
            self._seen += rows
            mine = [Piece(numbers[n], 0, feed.rows(numbers[n])) for n in deal(len(numbers), self._shares)[me]]
            steps = [list(chain(*cut_evenly(step, self._threads))) for step in cut_at(mine, points)]
        self._given.append(sum(piece.last - piece.first for step in steps for piece in step))
        return steps

    def sum(self, numbers: Floats) -> None:
        with self.clock.on("exchange"):
            began = time.perf_counter()
            self.stopping |= self._group.sum(numbers)
            self._waited += time.perf_counter() - began

    def round(self, learner: Learner, steps: Iterable[Step], learn: Learn) -> Loss:
        began, self._waited = time.perf_counter(), 0.0
        if learner.shares_batches:
            loss = total_loss(learn(step) for step in steps)
        else:
            loss = self._merge_after_each(steps, learn)
        self._work += time.perf_counter() - began - self._waited
        self._rows += self._given.popleft()
        self._steps += 1
        self._group.beat(self._steps)
        if self._policy.after_step(self._steps):
            self._rebalance()
        return loss

    def _merge_after_each(self, steps: Iterable[Step], learn: Learn) -> Loss:
        """Learn in place, and merge the rows that move most after every step, all of them after the last."""
        losses = []
        for number, step in enumerate(steps, 1):
            if number > 1:
                self._merge([reach(number - 1, part) for part in self._parts.values()])
            losses.append(learn(step))
        self._merge([len(part.array) for part in self._parts.values()])
        everyone = self._group.gather(np.array(total_loss(losses))).sum(axis=0)
        self.sum(np.zeros(1, np.float32))  # it tells whether anyone is to stop
        return Loss(*everyone.tolist())

    def _merge(self, reaches: list[int]) -> None:
        merges, group = list(self._merges.values()), self._group
        with self.clock.on("exchange"):
            began = time.perf_counter()
            if sum(reaches) <= FEW:
                merge_hottest(merges, reaches, self.workers, group.add_halves)
            else:
                merge_moved(merges, reaches, self.workers, group.add_up, group.add_halves)
            self._waited += time.perf_counter() - began

    def _rebalance(self) -> None:
        measured = self._group.gather(np.array([self._rows, self._work]))
        self._shares = by_speed(self._shares, measured[:, 0], measured[:, 1])
        self._log.append(
            {"step": self._steps, "shares": [round(share, 4) for share in self._shares.tolist()]}
        )
        self._rows = self._work = 0.0

    def gather(self, rows: int, make: Callable[[int, int], Floats]) -> Floats:
        bounds = cut(rows, self._shares)
        mine = make(bounds[self._group.rank], bounds[self._group.rank + 1])
        out = np.zeros((rows, mine.shape[1]), np.float32)
        out[bounds[self._group.rank] : bounds[self._group.rank + 1]] = mine
        self._group.sum(out)
        return out

    def lap(self) -> dict[str, Any]:
        """Whoever spent least in exchanges waited for nobody: what the others spent more, they waited."""
        spent = self._group.gather(np.array([self.clock.seconds.get(name, 0.0) for name in PARTS]))
        exchange, wait = list(PARTS).index("exchange"), list(PARTS).index("wait")
        spent[:, wait] = spent[:, exchange] - spent[:, exchange].min()
        spent[:, exchange] -= spent[:, wait]
        self._epochs += 1
        if self._policy.after_epoch(self._epochs):
            self._rebalance()
        self.clock.seconds, log, self._log = {}, self._log, []
        seconds = {
            name: [round(x, 6) for x in spent[:, i].tolist()]
            for i, name in enumerate(PARTS)
            if spent[:, i].any()
        }
        return {"seconds": seconds, "shares": log}

    def finish(self) -> Traffic:
        waited = self._group.gather(np.array([self._group.seconds]))[:, 0]
        return Traffic(self._group.bytes, float(waited[self._group.rank] - waited.min()), 0.0)
