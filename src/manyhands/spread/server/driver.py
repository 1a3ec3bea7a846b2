"""The driver: hands out rows, has replicas exchange, judges what came of it, and copes with losses.

It learns nothing itself. Workers are given leases, two at a time, so that none waits for the next. What is
learnt counts when shards have it. For a validation or a checkpoint, all replicas push what they have, and
shards tell what is agreed on; meanwhile everyone goes on.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.errors import InputError, ManyhandsError
from manyhands.models.learner import Feed, Loss
from manyhands.records import Progress, Traffic
from manyhands.spread.merge import GROWTH
from manyhands.spread.server.arrivals import MOST_REPLICAS
from manyhands.spread.server.hands import Group, Hand
from manyhands.spread.server.lines import Lines, LostError
from manyhands.spread.server.memory import copy_table
from manyhands.spread.server.messages import (
    Exchanged,
    Learnt,
    Lease,
    Place,
    exchanged_parts,
    table_of,
)
from manyhands.spread.server.pace import MOST_STRETCH, Pace
from manyhands.spread.server.tables import for_shard, from_shards
from manyhands.spread.server.work import Work
from manyhands.spread.server.worker import Begin
from manyhands.training.learn import Training, schedule_of
from manyhands.training.state import NOTHING, Plan, Validate

# What travels: the first weights to shards, what is moved there and back, and what shards have, to one that
# begins or to the driver.
KINDS = ("weights", "moves", "states")
DEPTH = 2  # leases that a worker has at once
LEASES = 64  # of an epoch for each worker, at most, where nothing has to be exchanged
LEASE_SECONDS = 0.1  # and at least so long: a call costs milliseconds
FEWEST_LEASES = 8
END_LEASES = (
    8  # parts of what is left for each worker: so many times less than the others are the last leases
)
PUSH_SECONDS = 30.0  # a replica that is alone pushes so often: so much is lost with all of its workers
LOCAL_STEPS = 1  # batches that a replica learns between two exchanges, of models that share batches
SPEED_CHANGE = 0.2  # how far the speed of a worker follows that of its last lease
SHORTLY = 0.005
LOOK_SECONDS = 0.5  # the longest that the driver waits before it looks around
MOST_RESTARTS = 10  # of one worker
FIRST_SETTLING_SECONDS = 1.0  # a guess, until it has been measured
STOP_SECONDS = 20.0  # for keeping what was learnt, when the user wants to stop
SLOW_SECONDS = 1.0  # others wait so long for a worker before it is named


@dataclass(frozen=True)
class Manner:
    """How workers go on: see ``ServerSettings``."""

    workers: int
    staleness: int
    sync: bool
    apart: bool
    stall_seconds: float
    most_stretch: float = MOST_STRETCH  # how much further apart exchanges may be, where they take long
    joining: bool = False  # workers that have no place yet are not waited for


class Driver:
    """One run. ``training`` holds what is agreed on, as of the last time that everyone pushed all."""

    def __init__(
        self, training: Training, feed: Feed, lines: Lines, manner: Manner, progress: Progress
    ) -> None:
        self._training, self._feed, self._lines, self._manner = training, feed, lines, manner
        self._progress = progress
        job, state = training.job, training.state
        self._plan = Plan(
            epochs=job.settings.epochs,
            schedule=schedule_of(job, feed),
            seed=job.settings.seed,
            threads=job.resources.threads,
            patience=job.training.early_stopping,
            judged_by=training.judged_by,
        )
        self._work = Work(
            feed,
            manner.workers,
            job.settings.seed,
            self._plan.schedule,
            epoch=state.epoch,
            epochs=self._plan.epochs,
            learnt=state.learnt,
            whole=training.learner.shares_batches,
        )
        self._hands: list[Hand] = []
        self._groups: list[Group] = []
        self._asked: dict[Any, tuple[Callable[..., None], Any]] = {}
        self._seen, self._turn, self._turn_rows, self._exchanges = state.seen, 0, 0, 0
        self._exchanges_before = 0  # up to the end of the last epoch
        self._losses = {state.epoch: state.loss}
        self._losses |= {int(epoch): Loss(total, rows) for epoch, total, rows in state.ahead}
        self._learnt_rows: dict[int, int] = {}
        for epoch, _, first, last in state.learnt:
            self._learnt_rows[epoch] = self._learnt_rows.get(epoch, 0) + last - first
        self._sent, self._behind, self._began = dict.fromkeys(KINDS, 0), 0.0, time.monotonic()
        self._seconds = state.seconds
        self._waited: dict[str, float] = {}  # seconds, by whom others waited for
        self._waited_before: dict[str, float] = {}  # up to the end of the last epoch
        self._checked_at = time.monotonic()
        self._validating: Future[dict[str, float]] | None = None
        self._settling, self._settling_began, self._settling_took = False, 0.0, FIRST_SETTLING_SECONDS
        self._pace = Pace(manner.most_stretch)
        self._shown, self._shown_loss = -1, NOTHING  # the epoch and the last loss that the user was told
        self._speed = 0.0  # rows that the fastest worker learns in a second

    # --- the beginning

    def begin(self) -> None:
        """Start everyone, and let those of one machine learn in the same tables."""
        self._progress.stage("workers read the rows", None, "workers")
        self._hands = [Hand(rank, self._lines.start(rank)) for rank in range(self._manner.workers)]
        self._form_groups(self._opened())
        learner, state = self._training.learner, self._training.state
        parts = exchanged_parts(learner)
        shards = range(self._lines.shards)
        values = [for_shard(parts, state.owed, shard, self._lines.shards) for shard in shards]
        self._sent["weights"] += sum(array.nbytes for part in values for array in part.values())
        batches = learner.shares_batches
        tables = [table_of(name, part, by_batches=batches) for name, part in parts.items()]
        self._lines.begin_shards(tables, len(self._groups), values)
        for group in self._groups:
            here, group.members = group.members, []
            for hand in here:
                self._enter(group, hand, "fetch" if state.seen else "equal")

    def _opened(self) -> list[Hand]:
        """Those who have read their rows: all, or all who have a place where others may get one later."""
        joining = self._manner.joining
        placing = {self._lines.ask(hand.who, "node"): hand for hand in self._hands if joining}
        opening = {self._lines.ask(hand.who, "open"): hand for hand in self._hands}
        opened: list[Hand] = []
        while opening:
            for asked in self._lines.wait(list(opening), LOOK_SECONDS):
                hand = opening.pop(asked)
                try:
                    hand.place = self._lines.answer(asked)  # an error is told at once
                    opened.append(hand)
                except LostError:
                    self._start_again(hand)
                    opening[self._lines.ask(hand.who, "open")] = hand
                    placing = {one: who for one, who in placing.items() if who is not hand}
            self._progress.advance(len(opened))
            if joining and opened and len(self._lines.wait(list(placing), 0)) == len(opened):
                break
        for asked, hand in opening.items():
            self._asked[asked] = self._came, hand
        return sorted(opened, key=lambda hand: hand.rank)

    def _form_groups(self, opened: list[Hand]) -> None:
        """Replicas of those who are here; whoever comes later may be on a machine of its own."""
        found: dict[str, list[Hand]] = {}
        for hand in opened:
            found.setdefault(self._key(hand), []).append(hand)
        later = len(self._hands) - len(opened)
        if len(found) + later > MOST_REPLICAS:
            raise InputError(
                f"{len(self._hands)} workers may come to be {len(found) + later} replicas, which is more "
                f"than {MOST_REPLICAS}; lower --workers"
            )
        self._groups = [Group(number, found[key], key) for number, key in enumerate(found)]
        self._groups += [Group(len(found) + number) for number in range(later)]

    def _key(self, hand: Hand) -> str:
        """The same for workers that can learn in the same memory."""
        share = self._lines.shares_memory and not self._manner.apart
        share = share and not self._training.learner.shares_batches
        return hand.place.node if share and hand.place else str(hand.rank)

    @property
    def _alone(self) -> bool:
        """All learn in the same memory: there is nothing to merge."""
        return len(self._groups) == 1

    def _call(self, hand: Hand, what: str, *arguments: Any, **named: Any) -> Any:
        asked = self._lines.ask(hand.who, what, *arguments, **named)
        while not self._lines.wait([asked], LOOK_SECONDS):
            self._show()
        return self._lines.answer(asked)

    def _speak(self, group: Group, hand: Hand, begin: Begin) -> None:
        group.life += 1
        self._sent["states"] += self._call(hand, "speak", group.number, group.life, begin)
        group.speaker, group.pushed_at = hand, time.monotonic()

    # --- the loop

    def run(self, validate: Validate | None) -> Traffic:
        """Until the epochs are over or validation no longer improves."""
        state = self._training.state
        with ThreadPoolExecutor(1) as judge:
            try:
                self._began = time.monotonic()
                while not state.done(self._plan):
                    self._give_out()
                    self._exchange_where_due()
                    self._settle_if_due(validate, judge)
                    for asked in self._answered():
                        self._hear(asked)
                    self._look_for_silent()
                    self._show()
                    self._stop_at_budget()
            except BaseException as error:
                if not isinstance(error, Exception):  # an interrupt: what was learnt is not lost
                    self._settle_now()
                raise
        self._name_slow()
        idle = sum(hand.idle for hand in self._hands)
        behind = round(self._behind / max(self._exchanges, 1), 3)
        return Traffic(sum(self._sent.values()), round(idle, 3), behind, self._sent)

    def _show(self) -> None:
        """The first epoch that is not learnt yet."""
        epoch = self._training.state.epoch
        while epoch < self._plan.epochs - 1 and self._learnt_rows.get(epoch, 0) >= self._work.rows:
            epoch += 1
        if epoch != self._shown:
            self._shown = epoch
            title = f"epoch {epoch + 1} of {self._plan.epochs}"
            self._progress.stage(title, self._work.rows, self._feed.unit)
        now = time.monotonic()
        idle = [hand for hand in self._hands if not hand.leases and now - hand.heard > SLOW_SECONDS]
        slow = {hand.waits_for for hand in idle if hand.waits_for}
        note = f"waiting for {', '.join(sorted(slow))}" if slow else ""
        loss = self._shown_loss
        if loss.rows and not slow:
            note = f"loss {loss.mean:.4f}"
        self._progress.advance(min(self._learnt_rows.get(epoch, 0), self._work.rows), note)

    def _name_slow(self) -> None:
        for name, spent in self._waited.items():
            if spent >= SLOW_SECONDS:
                self._progress.say(f"others waited {spent:.1f} s for {name}; see --staleness")

    def _answered(self) -> Sequence[Any]:
        if self._validating is not None or not self._asked:  # which nobody answers
            time.sleep(SHORTLY)
            return self._lines.wait(list(self._asked), 0)
        return self._lines.wait(list(self._asked), LOOK_SECONDS)

    def _hear(self, asked: Any) -> None:
        if asked not in self._asked:  # of a worker whose loss has just been heard of
            return
        told, hand = self._asked.pop(asked)
        try:
            answer = self._lines.answer(asked)
        except LostError:
            self._lost(hand)
            return
        hand.heard = time.monotonic()
        told(hand, answer)

    # --- rows are given out

    def _between(self) -> int:
        """How many rows all together learn between two exchanges."""
        if self._training.learner.shares_batches:
            return LOCAL_STEPS * self._feed.rows(0) * self._manner.workers
        if self._alone:
            enough = int(LEASE_SECONDS * self._speed * self._manner.workers)
            return max(self._work.rows // LEASES, min(enough, self._work.rows // FEWEST_LEASES), 1)
        least, most = self._feed.between_exchanges
        return int(self._pace.stretch * min(max(GROWTH * self._work.given, least), most))

    def _portion(self, hand: Hand) -> int:
        """Its rows between two exchanges. The faster learn more, so that replicas exchange at one time."""
        between, speeds = self._between(), [other.speed for other in self._hands if other.ready]
        equal = self._alone or self._manner.sync or self._training.learner.shares_batches
        if equal or not all(speeds):
            return between // self._manner.workers
        return int(between * hand.speed / sum(speeds))

    def _give_out(self) -> None:
        if self._manner.sync:
            busy = any(hand.leases for hand in self._hands)
            if busy or (not self._alone and any(group.done or group.pushing for group in self._groups)):
                return
        for _ in range(1 if self._manner.sync else DEPTH):
            for hand in self._hands:
                if hand.ready and self._may_go_on(hand):
                    self._give(hand)

    def _may_go_on(self, hand: Hand) -> bool:
        group = self._group_of(hand)
        if (
            len(hand.leases) >= (DEPTH if self._alone and not self._manner.sync else 1)
            or group.speaker is None
        ):
            return False
        if not self._alone and (group.pushing is not None or group.rows >= self._quota(group)):
            return False  # an answer that comes late would make the hottest rows swing
        oldest, whose = self._oldest(hand)
        if self._turn - oldest <= self._manner.staleness or self._manner.sync:
            return True
        hand.waits_for = whose
        return False

    def _oldest(self, hand: Hand) -> tuple[int, str]:
        """The turn of the oldest rows that someone else has, and who that is."""
        found = [
            (lease.turn, other.name)
            for other in self._hands
            if other is not hand
            for lease in other.leases.values()
        ]
        return min(found, default=(self._turn, ""))

    @property
    def _left(self) -> int:
        """Rows that are not given out yet, of all epochs."""
        return self._plan.epochs * self._work.rows - self._work.given

    def _give(self, hand: Hand) -> None:
        between, workers = self._between(), self._manner.workers
        rows = self._portion(hand)
        if self._alone:  # ever less towards the end, so that all end together
            rows = min(rows, max(self._left // (END_LEASES * workers), rows // END_LEASES))
        lease = self._work.take(hand.rank, max(rows, 1), self._turn)
        if lease is None:
            return
        self._turn_rows += lease.rows
        if self._turn_rows >= between:
            self._turn, self._turn_rows = self._turn + 1, 0
        group = self._group_of(hand)
        if lease.epoch > group.epoch:  # rows that are exchanged seldom are so at least once an epoch
            whole = not self._alone and self._pace.affords_whole(lease.epoch)
            group.epoch, group.whole = lease.epoch, group.whole or whole
        if not hand.leases:
            self._note_idle(hand)
        hand.leases[lease.number] = lease
        self._ask(hand, lambda hand, learnt: self._learnt(hand, lease, learnt), "learn", lease)

    def _note_idle(self, hand: Hand) -> None:
        now = time.monotonic()
        hand.idle += now - hand.heard
        if hand.waits_for:
            self._waited[hand.waits_for] = self._waited.get(hand.waits_for, 0.0) + now - hand.heard
        hand.heard, hand.waits_for = now, ""

    def _ask(self, hand: Hand, told: Callable[..., None], what: str, *arguments: Any, **named: Any) -> None:
        self._asked[self._lines.ask(hand.who, what, *arguments, **named)] = told, hand

    def _group_of(self, hand: Hand) -> Group:
        return next(group for group in self._groups if hand in group.members)

    def _learnt(self, hand: Hand, lease: Lease, learnt: Learnt) -> None:
        if hand.leases.pop(lease.number, None) is None:
            return
        speed = lease.rows / max(learnt.seconds, 1e-6)
        hand.speed += (speed - hand.speed) * (SPEED_CHANGE if hand.speed else 1)
        self._speed = max(self._speed, speed)
        hand.rows[lease.epoch] += lease.rows
        hand.seconds[lease.epoch] = hand.seconds.get(lease.epoch, 0.0) + learnt.seconds
        if not np.isfinite(learnt.total):
            self._training.state.add(Loss(learnt.total, learnt.rows), self._feed.unit)
        self._group_of(hand).done.append((lease, learnt))
        self._learnt_rows[lease.epoch] = self._learnt_rows.get(lease.epoch, 0) + lease.rows
        self._shown_loss = Loss(learnt.total, learnt.rows)

    # --- replicas exchange

    def _quota(self, group: Group) -> int:
        return max(sum(self._portion(hand) for hand in group.members) * 3 // 4, 1)

    def _exchange_where_due(self) -> None:
        for group in self._groups:
            if group.pushing is not None or group.speaker is None:
                continue
            late = time.monotonic() - group.pushed_at >= PUSH_SECONDS
            due = late if self._alone else group.rows >= self._quota(group)
            over = self._manner.sync and not self._alone and not any(hand.leases for hand in group.members)
            if (group.whole and self._settling) or (group.done and (due or over)):
                self._exchange(group)

    def _exchange(self, group: Group) -> None:
        assert group.speaker is not None  # noqa: S101 - asked before
        group.pushing, group.done = group.done, []
        whole, group.whole = group.whole or self._alone, False
        asked_whole, asked_at, pushed_at = self._settling and whole, time.monotonic(), group.pushed_at

        def told(_: Hand, found: Exchanged) -> None:
            now = time.monotonic()
            self._pace.note(now - asked_at, now - pushed_at, whole=whole)
            self._exchanged(group, found, settled=asked_whole)

        self._ask(group.speaker, told, "exchange", whole=whole, pull=not self._alone)

    def _exchanged(self, group: Group, found: Exchanged, *, settled: bool) -> None:
        self._sent["moves"] += found.bytes
        self._behind += found.behind
        self._exchanges += 1
        group.pushed_at = time.monotonic()
        group.settled |= settled
        self._count(group.pushing or [])
        group.pushing = None

    def _count(self, done: list[tuple[Lease, Learnt]]) -> None:
        """These leases are learnt, and will not be lost."""
        for lease, learnt in done:
            self._work.commit(lease)
            self._seen += lease.rows
            known = self._losses.get(lease.epoch, NOTHING)
            self._losses[lease.epoch] = Loss(known.total + learnt.total, known.rows + learnt.rows)

    # --- all push what they have, and it is judged and kept

    def _settle_if_due(self, validate: Validate | None, judge: ThreadPoolExecutor) -> None:
        state = self._training.state
        if self._validating is not None:
            if not self._validating.done():
                return
            scores, self._validating = self._validating.result(), None
            self._end_epoch(scores)
            self._training.keep(state)
            return
        if not self._settling:
            # Where nothing is judged after an epoch, it need not be settled before the end of the last.
            epoch = state.epoch if validate else self._plan.epochs - 1
            ended = self._learnt_rows.get(epoch, 0) >= self._work.rows
            if ended and self._all_is_learnt and self._read_tables():
                self._judge_or_end(validate, judge)
                return
            seconds = self._training.job.training.checkpoint_seconds
            if ended or (self._training.keeper and time.monotonic() - self._checked_at >= seconds):
                self._begin_settling()
            return
        if not self._is_settled:
            return
        self._settling = False
        self._take_over()
        self._settling_took = time.monotonic() - self._settling_began
        self._judge_or_end(validate, judge)

    def _judge_or_end(self, validate: Validate | None, judge: ThreadPoolExecutor) -> None:
        """What the driver has is settled: have it judged, or go on to the next epoch."""
        state = self._training.state
        if validate and self._work.is_over(state.epoch):
            self._validating = judge.submit(validate)
            return
        while not state.done(self._plan) and self._work.is_over(state.epoch):
            self._end_epoch({})
        self._training.keep(state)

    @property
    def _is_settled(self) -> bool:
        """A replica for which nobody speaks has nothing: what it had is to be learnt again."""
        return all(
            group.speaker is None or (group.settled and group.pushing is None) for group in self._groups
        )

    def _begin_settling(self) -> None:
        self._settling, self._settling_began = True, time.monotonic()
        for group in self._groups:
            group.whole, group.settled = True, False

    def _take_over(self) -> None:
        """What shards have, and the state that belongs to it."""
        state = self._training.state
        parts = exchanged_parts(self._training.learner)
        states = self._lines.shard_states()
        self._sent["states"] += sum(array.nbytes for kept in states for array in kept.values())
        for name, part in parts.items():
            owed = from_shards(name, part, states)
            if len(self._groups) > 1:
                state.owed[name] = owed
        self._note_state()

    @property
    def _all_is_learnt(self) -> bool:
        epochs = range(self._training.state.epoch, self._plan.epochs)
        return all(self._learnt_rows.get(epoch, 0) >= self._work.rows for epoch in epochs)

    def _read_tables(self) -> bool:
        """Take over what workers of this machine have learnt from their memory, if it can be had.

        At the end only: until then shards must have it too, for the case that all workers are lost.
        """
        group = self._groups[0]
        place = group.speaker.place if group.speaker else None
        if not (self._alone and place and place.tables and place.node == self._lines.here):
            return False
        if group.pushing is not None:
            return False
        try:
            for name, part in exchanged_parts(self._training.learner).items():
                copy_table(place.process, place.tables[name], part.array)
        except ManyhandsError:  # it was lost just now
            return False
        self._count(group.done)
        group.done = []
        self._note_state()
        return True

    def _note_state(self) -> None:
        state = self._training.state
        now = time.monotonic()
        state.seconds, self._checked_at = self._seconds + now - self._began, now
        state.seen, state.learnt = self._seen, self._work.learnt()
        state.round = self._exchanges - self._exchanges_before
        self._note_losses()

    def _note_losses(self) -> None:
        state = self._training.state
        state.loss = self._losses.get(state.epoch, NOTHING)
        state.ahead = [[epoch, *loss] for epoch, loss in self._losses.items() if epoch > state.epoch]

    def _end_epoch(self, scores: dict[str, float]) -> None:
        state = self._training.state
        if not state.loss.rows:
            raise InputError(
                "there was nothing to learn: no row counts, or no word has a neighbour in its row"
            )
        self._work.forget(state.epoch)
        self._losses.pop(state.epoch, None)
        state.end_epoch(self._training.learner, self._plan, scores, self._lap())
        state.learnt = self._work.learnt()
        self._note_losses()
        self._exchanges_before = self._exchanges

    def _lap(self) -> dict[str, Any]:
        """Who learnt how much in this epoch, how long each worked, and whom others had to wait for."""
        epoch = self._training.state.epoch
        rows = [hand.rows.pop(epoch, 0) for hand in self._hands]
        seconds = [round(hand.seconds.pop(epoch, 0.0), 6) for hand in self._hands]
        shares = [round(count / max(sum(rows), 1), 4) for count in rows]
        lap: dict[str, Any] = {
            "seconds": {"learn": seconds},
            "shares": [{"step": self._exchanges, "shares": shares}],
        }
        before, self._waited_before = self._waited_before, {**self._waited}
        waited = {name: spent - before.get(name, 0.0) for name, spent in self._waited.items()}
        slow = {name: round(spent, 3) for name, spent in waited.items() if spent >= SLOW_SECONDS}
        return lap | ({"waited_for": slow} if slow else {})

    def _stop_at_budget(self) -> None:
        if self._training.account.is_short(self._settling_took):
            self._settle_now()
            self._training.exchange.stop()
            self._training.keep(self._training.state)

    def _settle_now(self) -> None:
        """Whoever stops keeps what was learnt so far, if it does not take long."""
        ends = time.monotonic() + STOP_SECONDS
        if self._validating is not None:
            self._validating.result()
        self._begin_settling()
        while time.monotonic() < ends:
            self._exchange_where_due()
            for asked in self._answered():
                self._hear(asked)
            if self._is_settled:
                self._take_over()
                return

    # --- whoever is lost

    def _lost(self, hand: Hand) -> None:
        """Others take up what it had; it is started again, and joins when it has read its rows."""
        if hand.ready:
            self._progress.say(f"{hand.name} is lost; others take up its rows")
        for asked in [asked for asked, (_, who) in self._asked.items() if who is hand]:
            del self._asked[asked]
        for lease in hand.leases.values():
            self._work.give_back(lease)
        hand.ready, hand.waits_for = False, ""
        hand.leases.clear()
        for group in self._groups:
            if hand in group.members:
                group.members.remove(hand)
                if group.speaker is hand:
                    self._find_speaker(group)
        self._start_again(hand)
        self._ask(hand, self._came, "open")

    def _start_again(self, hand: Hand) -> None:
        self._lines.stop(hand.who)
        hand.restarts += 1
        if hand.restarts > MOST_RESTARTS:
            raise ManyhandsError(f"{hand.name} ended again and again; look for its reason in Ray's logs")
        node, hand.place = hand.place.node if hand.place else "", None
        hand.who = self._lines.start(hand.rank, node)

    def _find_speaker(self, group: Group) -> None:
        """Another worker of the replica, if there is one. What was on its way may have come or not."""
        group.done, group.pushing = [*(group.pushing or []), *group.done], None
        group.speaker, group.whole = None, group.whole or self._settling
        others = [hand for hand in group.members if hand.ready]
        if not (others and self._alone):
            # Of several replicas, nobody knows which moves are its own: they are learnt again.
            for lease, _ in group.done:
                self._work.give_back(lease)
                self._learnt_rows[lease.epoch] -= lease.rows
            group.done = []
        if others:
            self._try_to_speak(group, others[0], "ahead" if self._alone else "fetch")

    def _try_to_speak(self, group: Group, hand: Hand, begin: Begin) -> None:
        try:
            self._speak(group, hand, begin)
        except LostError:
            group.speaker = hand  # it is lost as one that spoke
            self._lost(hand)

    def _came(self, hand: Hand, place: Place) -> None:
        """A worker has read its rows: it joins those of its machine, or is a new replica there."""
        hand.place = place
        key = self._key(hand)
        here = [group for group in self._groups if group.members and group.key == key]
        free = [group for group in self._groups if not group.members]
        if not (here or free):
            self._lines.stop(hand.who)
            self._progress.say(f"{hand.name} is not used: there are as many replicas as there were to be")
            return
        self._enter((here or free)[0], hand, "fetch")
        if hand.ready:
            self._progress.say(f"{hand.name} joins")

    def _enter(self, group: Group, hand: Hand, begin: Begin) -> None:
        """Speak for a replica that has nobody, or learn in the tables of those who are there."""
        others = [*group.members]
        group.members.append(hand)
        group.key = self._key(hand)
        if not others:
            self._try_to_speak(group, hand, begin)
        else:
            try:
                hand.place = self._call(hand, "join", others[0].place)
            except ManyhandsError:  # one of the two is lost; if it is the other, that will be heard
                self._lost(hand)
                return
        hand.ready, hand.heard = group.speaker is not None, time.monotonic()

    def _look_for_silent(self) -> None:
        """Who has not answered for too long is ended, and others do its work."""
        now = time.monotonic()
        for hand in self._hands:
            if hand.leases and now - hand.heard > self._manner.stall_seconds:
                self._lost(hand)
