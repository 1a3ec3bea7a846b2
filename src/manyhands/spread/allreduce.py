"""``allreduce``: a process for each worker, started by torchrun; all hold the whole model and add up what
they learn.

Learners that share batches add up their gradients in every step. The others learn blocks of their
own in place, and after every round the rows that anyone touched become the mean of what those who
touched them made of them.
"""

import json
import shutil
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.kernel import Ints
from manyhands.models.learner import Feed, Learner, Loss, Piece
from manyhands.records import PARTS, Clock, Progress, Traffic
from manyhands.spread.balance import Policy, by_speed, cut, equal
from manyhands.spread.group import Group
from manyhands.spread.job import Job, Outcome
from manyhands.spread.running import Watch, learn
from manyhands.spread.status import note_run
from manyhands.text.lesson import Lesson
from manyhands.train.exchange import Course, Learn, added
from manyhands.train.state import State

Floats = npt.NDArray[np.float32]


def run(
    job: Job, lesson: Lesson, valid: Lesson | None, progress: Progress, watch: Watch | None = None
) -> Outcome:
    """One worker's part; the crew has been started, and its environment says who this is."""
    with Group(job.spread.stall_seconds) as group:
        policy = Policy() if job.frame.deterministic else Policy.parse(job.spread.balance)
        exchange = AllReduce(group, policy)
        keeps = group.keeps_files(job.checkpoint)
        outcome = learn(job, lesson, valid, exchange, progress, watch, keeps=keeps)
        if keeps and group.rank and job.checkpoint:  # where files are not shared, nobody else will
            shutil.rmtree(job.checkpoint, ignore_errors=True)
        return outcome


class AllReduce:
    """The exchange of a crew."""

    share: Ints | None = None

    def __init__(self, group: Group, policy: Policy) -> None:
        self.clock, self.workers, self.stopping = Clock(), group.size, False
        self._group, self._policy = group, policy
        self._shares = equal(group.size)
        self._log: list[dict[str, Any]] = []
        self._steps = self._epochs = 0
        self._rows = self._work = 0.0  # since the shares were measured last
        self._waited = 0.0  # in this round
        self._given: deque[int] = deque()  # rows of the rounds that are settled and not yet learnt

    def meet(self, identity: dict[str, Any], rows: int) -> None:
        if rows < self.workers:
            raise InputError(f"{rows} rows are too few for {self.workers} workers; lower --workers")
        self._group.wait_for_all()
        meant = {**identity, "balance": repr(self._policy)}
        mine = zlib.crc32(json.dumps(meant, sort_keys=True, default=str).encode())
        others = self._group.gather(np.array([mine], np.float64))[:, 0]
        if (others != others[0]).any():
            other = int(np.flatnonzero(others != others[0])[0])
            raise InputError(
                f"{self._group.name(other)} has other data or settings than {self._group.name(0)}; "
                "give all workers the same command and the same files"
            )

    def course(self, feed: Feed, epochs: int) -> Course:
        return Course(feed, epochs)

    def start(self, learner: Learner, state: State) -> None:
        """From the weights of whoever has come furthest: a checkpoint may stand on one node only."""
        places = self._group.gather(np.array([state.seen, state.epoch], np.float64))
        leader = int(np.lexsort((-places[:, 1], -places[:, 0]))[0])
        facts = json.loads(self._group.text_of(leader, json.dumps(state.facts())))
        best = {**state.best} if facts["best_epoch"] else {}
        if facts["best_epoch"] and not best:
            best = {name: np.zeros_like(array) for name, array in learner.weights().items()}
        state.take(facts, best, {})
        self._steps = sum(lap["rounds"] for lap in state.laps) + state.round
        note_run(state.run)
        for array in [*learner.weights().values(), *(best[name] for name in sorted(best))]:
            self._group.same_for_all(array, leader)

    def pieces(self, learner: Learner, feed: Feed, blocks: Ints) -> list[Piece]:
        """A part of every block where batches are shared, whole blocks otherwise; as large as the share."""
        me, numbers = self._group.rank, blocks.tolist()
        if learner.shares_batches:
            parts = [(block, cut(feed.rows(block), self._shares)) for block in numbers]
            pieces = [Piece(block, bounds[me], bounds[me + 1]) for block, bounds in parts]
        else:
            bounds = cut(len(numbers), self._shares)
            pieces = [Piece(block, 0, feed.rows(block)) for block in numbers[bounds[me] : bounds[me + 1]]]
        self._given.append(sum(piece.last - piece.first for piece in pieces))
        return pieces

    def sum(self, numbers: Floats) -> None:
        with self.clock.on("exchange"):
            began = time.perf_counter()
            self.stopping |= self._group.sum(numbers)
            self._waited += time.perf_counter() - began

    def round(self, learner: Learner, rows: list[Any], learn: Learn) -> Loss:
        began, self._waited = time.perf_counter(), 0.0
        loss = added(learn()) if learner.shares_batches else self._merged(learner, rows, learn)
        self._work += time.perf_counter() - began - self._waited
        self._rows += self._given.popleft()
        self._steps += 1
        self._group.beat(self._steps)
        if self._policy.after_step(self._steps):
            self._rebalance()
        return loss

    def _merged(self, learner: Learner, rows: list[Any], learn: Learn) -> Loss:
        """Learn in place; then every row is where it was, plus the mean of the moves of all who moved it."""
        arrays, mine = learner.weights(), learner.touched(rows)
        before = {name: array[mine[name]] if name in mine else array.copy() for name, array in arrays.items()}
        loss = added(learn())
        with self.clock.on("exchange"):
            began = time.perf_counter()
            facts = np.array([loss.total, loss.rows, float(bool(rows))])
            everyone = self._group.gather(facts).sum(axis=0)
            for name, array in arrays.items():
                if name in mine:
                    self._merge_rows(array, mine[name], before[name])
                else:
                    moved = array - before[name]
                    self.stopping |= self._group.sum(moved)
                    array[...] = before[name] + moved / max(everyone[2], 1)
            self._waited += time.perf_counter() - began
        return Loss(float(everyone[0]), float(everyone[1]))

    def _merge_rows(self, array: Floats, mine: Ints, before: Floats) -> None:
        movers = np.zeros(len(array), np.float32)
        movers[mine] = 1
        self.stopping |= self._group.sum(movers)
        moved = np.flatnonzero(movers)
        moves = np.zeros((len(moved), array.shape[1]), np.float32)
        moves[np.searchsorted(moved, mine)] = array[mine] - before
        self.stopping |= self._group.sum(moves)
        array[mine] = before
        array[moved] += moves / movers[moved, None]

    def _rebalance(self) -> None:
        measured = self._group.gather(np.array([self._rows, self._work]))
        self._shares = by_speed(self._shares, measured[:, 0], measured[:, 1])
        self._log.append(
            {"step": self._steps, "shares": [round(share, 4) for share in self._shares.tolist()]}
        )
        self._rows = self._work = 0.0

    def made_together(self, rows: int, make: Callable[[int, int], Floats]) -> Floats:
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
