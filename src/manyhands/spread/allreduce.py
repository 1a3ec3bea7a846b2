"""``allreduce``: a process for each worker; each has its share of the rows.

Learners that share batches add up their gradients in every step. The others learn rows of their own in
place. Workers of one machine do so in the same memory, without locks (Hogwild), as threads do; machines merge
what they have learnt (see ``merge``): the rows that move most after every step, all of them after a round.
"""

import json
import shutil
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from manyhands.catalog import LEARNERS, load
from manyhands.engines import crew
from manyhands.engines.launch import launch_crew
from manyhands.errors import InputError, UsageError, missing_extra
from manyhands.kernels.compile import Ints
from manyhands.machine import LEAST_BYTES, cores
from manyhands.models.learner import Feed, Learner, Loss, Piece, StateArray, arrays_of
from manyhands.records import PARTS, Clock, Progress, Traffic
from manyhands.settings import Common, Settings
from manyhands.spread.balance import Policy, by_speed, cut, cut_at, cut_evenly, equal, side_by_side
from manyhands.spread.group import Group
from manyhands.spread.merge import (
    ENOUGH,
    FEW,
    Merge,
    exchanges,
    learning_machines,
    merge_hottest,
    merge_moved,
    reach,
)
from manyhands.spread.node import can_share
from manyhands.spread.spread import Spread
from manyhands.storage.files import STDIN
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.checkpoint import ANY
from manyhands.training.exchange import ROUND_BLOCKS, Learn, Step, total_loss
from manyhands.training.job import Job, Outcome, Role
from manyhands.training.learn import Watch, learn
from manyhands.training.state import State

WORKER = "manyhands.run.worker"  # the module that each process of a crew runs
# After so much, all workers agree on every row: a checkpoint can be kept, or the crew can stop.
ROUND_ROWS = {"rows": 1 << 20, "words": 1 << 24}

SMALL_BYTES = 1 << 30  # of data that is learnt in about the time that workers take to start
WORTH_MOVING = 0.05  # shares of rows that are learnt in place change if one of them does by so much

Numbers = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class AllReduceSettings(Settings):
    """Who is in the crew. Models that share batches come out the same, up to rounding; others merge."""

    workers: Annotated[
        int,
        Field(ge=1, le=512, description="Worker processes on this machine, sharing its cores."),
        Common("Worker processes."),
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
    """A worker's part, in a process that was started as one; otherwise a crew is started, and it does all."""

    Settings = AllReduceSettings
    summary = "a crew of processes, on one machine or many"
    counts = "workers"
    leaving_seconds = 0.8
    copies = 3  # its own, what all have agreed on, and what is owed to that

    def advice(self, data: Sequence[str], settings: Mapping[str, Any]) -> str:
        """On one machine threads do the same, and they start at once: of much data, that does not matter."""
        if settings.get("nodes", "1") != "1" or crew.inside() or _local_bytes(data) > SMALL_BYTES:
            return ""
        workers = settings.get("workers", AllReduceSettings.model_fields["workers"].default)
        return (
            f"on one machine, {workers} threads learn this as fast as {workers} workers, and start about a "
            f"second sooner: use --threads {workers} without --spread"
        )

    def check(self, job: Job) -> None:
        Policy.parse(_settings(job).balance)
        if not crew.inside():
            _crew(job).check()
            if not _of_one_machine(job) and find_spec("torch") is None:
                raise missing_extra("torch", "torch")
            if job.call is None or STDIN in job.call.data:
                raise UsageError("a crew cannot share standard input; give a file")

    def launches(self) -> bool:
        return not crew.inside()

    def launch(self, job: Job, threads: int | None, progress: Progress) -> Role:
        if crew.inside():
            return Role.FOLLOWS if crew.rank() else Role.LEADS
        assert job.call is not None  # noqa: S101 - checked above
        wanted = _crew(job)
        shared = {
            "threads": threads or max(cores() // wanted.workers, 1),
            "memory": max(job.resources.memory_bytes // wanted.workers, LEAST_BYTES),
        }
        here = launch_crew(WORKER, {**job.call.arguments(), **shared}, wanted, progress)
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
        job = replace(job, run=crew.known_run(ANY))
        deterministic = job.training.deterministic
        with Group(settings.stall_seconds, share=_can_share(job)) as group:
            policy = Policy() if deterministic else Policy.parse(settings.balance)
            keeps = group.keeps_files(job.checkpoint)
            threads = 1 if deterministic else job.resources.threads
            exchange = AllReduceExchange(group, policy, threads)
            outcome = learn(job, examples, valid, exchange, progress, watch, keeps=keeps)
            if keeps and group.rank and job.checkpoint:  # where files are not shared, nobody else will
                shutil.rmtree(job.checkpoint, ignore_errors=True)
            return outcome


def _local_bytes(names: Sequence[str]) -> int:
    """How large files and folders of this machine are; more than anything else, what cannot be looked at."""
    paths = [Path(name) for name in names]
    if not all(path.exists() for path in paths):
        return SMALL_BYTES + 1
    files = chain(*(path.iterdir() if path.is_dir() else [path] for path in paths))
    return sum(file.stat().st_size for file in files)


def _settings(job: Job) -> AllReduceSettings:
    if not isinstance(job.spread_settings, AllReduceSettings):
        raise TypeError("the job is for another spread")
    return job.spread_settings


def _can_share(job: Job) -> bool:
    """Who learns in the same memory as others never does so twice in the same order."""
    return load(LEARNERS, "model", job.model).shares_batches or not job.training.deterministic


def _of_one_machine(job: Job) -> bool:
    """Whether no worker has to speak with another one by PyTorch."""
    return _crew(job).of_one_machine and can_share() and _can_share(job)


def _crew(job: Job) -> crew.Crew:
    settings = _settings(job)
    return crew.Crew(settings.workers, settings.nodes, settings.rendezvous, settings.max_restarts)


class AllReduceExchange:
    """The exchange of a crew."""

    stops_after = 1  # the others are told with the sums of the next round

    def __init__(
        self, group: Any, policy: Policy, threads: int = 1, enough: Mapping[str, int] = ENOUGH
    ) -> None:
        self.clock, self.workers, self.stopping = Clock(), group.size, False
        self.keeps_weights = group.leads
        self._group, self._policy, self._threads, self._enough = group, policy, threads, enough
        self._learning = group.machines  # those that learn: of few rows, not all
        self._in_place = False
        self._parts: dict[str, StateArray] = {}
        self._merges: dict[str, Merge] = {}
        self._shares = equal(group.size)
        self._log: list[dict[str, Any]] = []
        self._steps = self._epochs = 0
        self._seen = 0  # rows of all rounds that are settled, by the whole crew
        self._rows = self._work = 0.0  # since the shares were measured last
        self._waited = self._spent = 0.0  # in this round, and in all of them
        self._given: deque[int] = deque()  # rows of the rounds that are settled and not yet learnt

    def join(self, identity: dict[str, Any], kind: type[Learner], examples: LabelledRows) -> str:
        if len(examples) < self.workers:
            raise InputError(f"{len(examples)} rows are too few for {self.workers} workers; lower --workers")
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
        return "" if kind.shares_batches else self._leave_out(kind, examples)

    def _leave_out(self, kind: type[Learner], examples: LabelledRows) -> str:
        """Of few rows, only some machines learn. The others go along; beside a single one, they just wait."""
        self._learning, said = learning_machines(self._group.machines, kind, examples, self._enough)
        machine_of = self._group.gather(np.array([self._group.machine], np.float64))[:, 0]
        self._shares = equal(self.workers) * (machine_of < self._learning)
        self._shares /= self._shares.sum()
        self.keeps_weights &= self._learning > 1 or self._group.machine == 0
        return said

    def start(self, learner: Learner, state: State) -> None:
        """From the weights of whoever has come furthest: a checkpoint may stand on one machine only."""
        self._in_place = not learner.shares_batches
        place = [state.seen, state.epoch] if self.keeps_weights else [-1, -1]
        places = self._group.gather(np.array(place, np.float64))
        leader = int(np.lexsort((-places[:, 1], -places[:, 0]))[0])
        facts = json.loads(self._group.text_of(leader, json.dumps(state.facts())))
        best = state.best if facts["best_epoch"] and self.keeps_weights else {}
        state.take(facts, best, state.owed)
        self._steps, self._seen = sum(lap["rounds"] for lap in state.laps) + state.round, state.seen
        crew.note_run(state.run)
        differed = self._take_over(learner, state, leader)
        if self._in_place and self._learning > 1 and self._group.leads:
            self._parts = learner.state()
            for name, part in self._parts.items():
                merge = self._merges[name] = Merge(part, self._learning, state.owed.get(name))
                state.owed[name] = merge.owed
                if differed:
                    self._group.same_for_machines(merge.owed, leader)
        self._group.be_strict()

    def _take_over(self, learner: Learner, state: State, leader: int) -> bool:
        """The weights of one worker for all; whether there was any difference."""
        if self._in_place and self._group.machines == 1:
            return False  # all have the very same
        arrays = arrays_of(learner)
        shared = self._in_place and not self._group.leads  # another one speaks for these weights
        mine = 0 if shared else _checksum([arrays, state.best, state.owed])
        sums = self._group.gather(np.array([mine, not shared], np.float64))
        sums = sums[sums[:, 1] > 0, 0]
        if (sums == sums[0]).all():
            return False
        for name, array in arrays.items():
            self._group.same_for_all(array, leader)
            if state.best_epoch:
                best = state.best.get(name, np.zeros_like(array))
                self._group.same_for_all(best, leader)
                if self.keeps_weights:
                    state.best[name] = best
        return True

    def stop(self) -> None:
        self._group.ask_to_stop()

    def share(self, count: int) -> tuple[int, int]:
        first, last = cut(count, self._shares)[self._group.rank : self._group.rank + 2]
        return first, last

    def zeros(self, rows: int, width: int) -> Floats:
        room: Floats = self._group.zeros((rows, width))
        return room

    def to_fill(self, rows: int) -> tuple[int, int]:
        bounds: tuple[int, int] = self._group.share_of_machine(rows)
        return bounds

    def rounds(self, learner: Learner, feed: Feed, order: Ints) -> list[Ints]:
        """Batches that are shared, one by one; of other blocks, as large a part of everyone's as of all."""
        if learner.shares_batches:
            return list(order.reshape(-1, 1))
        bounds = cut(len(order), self._shares)
        mine = [order[(order >= first) & (order < last)] for first, last in pairwise(bounds)]
        rows = sum(feed.rows(block) for block in range(len(feed)))
        count = max(rows // ROUND_ROWS[feed.unit], 1)
        return [side_by_side([_nth(blocks, n, count) for blocks in mine]) for n in range(count)]

    def steps(self, learner: Learner, feed: Feed, blocks: Ints) -> list[list[Piece]]:
        """A part of every batch that is shared, or the blocks of this worker's share."""
        if learner.shares_batches:
            steps = [[Piece(block, *self.share(feed.rows(block)))] for block in blocks.tolist()]
        else:
            first, last = self.share(len(feed))
            mine = [Piece(n, 0, feed.rows(n)) for n in blocks.tolist() if first <= n < last]
            steps = self._between_merges(mine, sum(feed.rows(block) for block in blocks.tolist()), feed)
        self._given.append(sum(piece.last - piece.first for step in steps for piece in step))
        return steps

    def _between_merges(self, mine: list[Piece], rows: int, feed: Feed) -> list[list[Piece]]:
        if self._learning == 1:  # there is nothing to merge; blocks are made a few at a time
            return [mine[at : at + ROUND_BLOCKS] for at in range(0, max(len(mine), 1), ROUND_BLOCKS)]
        # Everyone takes as many steps, however large its share is: nobody waits for one that has ended.
        points = exchanges(self._seen, rows, *feed.between_exchanges)
        self._seen += rows
        return [list(chain(*cut_evenly(step, self._threads))) for step in cut_at(mine, points)]

    def sum(self, numbers: Numbers) -> None:
        with self._waiting():
            self.stopping |= self._group.sum(numbers)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        with self.clock.on("exchange"):
            began = time.perf_counter()
            yield
            self._waited += time.perf_counter() - began

    def round(self, learner: Learner, steps: Iterable[Step], learn: Learn) -> Loss:
        began, self._waited = time.perf_counter(), 0.0
        if learner.shares_batches:
            loss = total_loss(learn(step) for step in steps)
        else:
            loss = self._learn_in_place(steps, learn)
        self._work += time.perf_counter() - began - self._waited
        self._spent += self._waited
        self._rows += self._given.popleft()
        self._steps += 1
        self._group.beat(self._steps)
        if not self._in_place and self._policy.after_step(self._steps):
            self._rebalance()
        return loss

    def _learn_in_place(self, steps: Iterable[Step], learn: Learn) -> Loss:
        """Merge the rows that move most after every step, all of them after the last."""
        losses = []
        with self._waiting():
            self._group.meet()  # a checkpoint may just be written of weights that are shared
        for number, step in enumerate(steps, 1):
            if number > 1:
                self._merge([reach(number - 1, part) for part in self._parts.values()])
            losses.append(learn(step))
        self._merge([len(part.array) for part in self._parts.values()])
        everyone = np.array(total_loss(losses), np.float64)
        self.sum(everyone)
        return Loss(*everyone.tolist())

    def _merge(self, reaches: list[int]) -> None:
        """Merge what machines have learnt, while their workers wait."""
        if self._learning == 1:
            return
        with self._waiting():
            self._group.meet()
            if self._group.leads:
                self._merge_machines(list(self._merges.values()), reaches)
            self._group.meet()

    def _merge_machines(self, merges: list[Merge], reaches: list[int]) -> None:
        group, count = self._group, self._learning
        if sum(reaches) <= FEW:
            merge_hottest(merges, reaches, count, group.add_halves)
        else:
            merge_moved(merges, reaches, count, group.add_up, group.add_halves)

    def _rebalance(self) -> None:
        measured = self._group.gather(np.array([self._rows, self._work]))
        shares = by_speed(self._shares, measured[:, 0], measured[:, 1])
        # Of rows that are learnt in place, features have to be made anew of those that move.
        if not self._in_place or (np.abs(shares - self._shares) > WORTH_MOVING * self._shares).any():
            self._shares = shares
        self._log.append(
            {"step": self._steps, "shares": [round(share, 4) for share in self._shares.tolist()]}
        )
        self._rows = self._work = 0.0

    def gather(self, rows: int, make: Callable[[int, int], Floats]) -> Floats:
        first, last = self.share(rows)
        mine = make(first, last)
        out = np.zeros((rows, mine.shape[1]), np.float32)
        out[first:last] = mine
        self._group.sum(out)
        return out

    def lap(self) -> dict[str, Any]:
        """Whoever spent least in exchanges waited for nobody: what the others spent more, they waited."""
        spent = self._group.gather(np.array([self.clock.seconds.get(name, 0.0) for name in PARTS]))
        exchange, wait = list(PARTS).index("exchange"), list(PARTS).index("wait")
        spent[:, wait] = spent[:, exchange] - spent[:, exchange].min()
        spent[:, exchange] -= spent[:, wait]
        self._epochs += 1
        # Shares of what is learnt in place are ranges of rows, each learnt once in an epoch.
        if self._policy.after_epoch(self._epochs) or (self._in_place and self._policy.steps):
            self._rebalance()
        self.clock.seconds, log, self._log = {}, self._log, []
        seconds = {
            name: [round(x, 6) for x in spent[:, i].tolist()]
            for i, name in enumerate(PARTS)
            if spent[:, i].any()
        }
        return {"seconds": seconds, "shares": log}

    def finish(self) -> Traffic:
        spent = self._group.gather(np.array([self._spent]))[:, 0]
        return Traffic(self._group.bytes, float(spent[self._group.rank] - spent.min()), 0.0)


def _nth(blocks: Ints, number: int, count: int) -> Ints:
    """The part of this ``number``, of so many."""
    return blocks[len(blocks) * number // count : len(blocks) * (number + 1) // count]


def _checksum(groups: list[dict[str, Numbers]]) -> int:
    total = 0
    for arrays in groups:
        for name in sorted(arrays):
            data = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data
            total = zlib.crc32(data, zlib.crc32(name.encode(), total))
    return total
