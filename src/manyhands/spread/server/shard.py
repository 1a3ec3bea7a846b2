"""A shard of the parameter server: it owns every so-manieth row of each table, hot and rare ones alike.

Pushes of replicas that are about as fast come at about the same time. A shard waits a little for those who
were in time before, and merges all that have come as one generation; then each of them is answered.
"""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from manyhands.errors import ResumableError
from manyhands.spread.server.arrivals import Arrivals
from manyhands.spread.server.journal import Journal
from manyhands.spread.server.messages import News, Push, Reply, Table
from manyhands.storage.tensors import Arrays

BEFORE_ALL = (-1, -1)  # a life and the number of a push
LOG_BYTES = 64 << 20  # at least so much is logged before a snapshot is taken
LOG_SHARE = 4  # and so many times what the shard itself holds
PATIENCE = 0.5  # of the time that the first replica took since the last generation, for the others
LEAST_SECONDS = 0.05  # and at least so long: a call takes milliseconds


class Shard:
    """The state of a shard, for several threads. A push is taken over once, however often it comes."""

    def __init__(
        self, number: int, shards: int, name: str | None = None, least_seconds: float = LEAST_SECONDS
    ) -> None:
        self._own, self._least_seconds = slice(number, None, shards), least_seconds
        self._arrivals: list[Arrivals] = []
        self._clock = self._replicas = 0
        self._sequences: dict[int, tuple[int, int]] = {}  # the last push of each replica: its life and number
        self._changed = threading.Condition()
        self._generation = 0  # the one that is open, and who is in it, with the share that each would pay
        self._here: dict[int, float] = {}
        self._expected: set[int] = set()  # who was in the last one
        self._opened = self._closes = time.monotonic()
        self._journal = None
        if name is not None:
            self._journal = Journal(Path(tempfile.gettempdir()) / f"manyhands-{name}" / str(number))
            self._recover()

    def begin(self, tables: list[Table], replicas: int, values: Arrays) -> None:
        """Take over the first weights; what has begun already, because this is asked again, goes on."""
        with self._changed:
            if self._arrivals:
                return
            self._replicas, self._expected = replicas, set(range(replicas))
            self._arrivals = [
                Arrivals(
                    table,
                    self._own,
                    replicas,
                    values[f"{table.name}.weights"].copy(),
                    values[f"{table.name}.squares"].copy(),
                    values[f"{table.name}.owed"].copy() if f"{table.name}.owed" in values else None,
                )
                for table in tables
            ]
            self._opened = time.monotonic()
            self._keep()

    def _keep(self) -> None:
        if self._journal:
            facts = {
                "tables": [part.table._asdict() for part in self._arrivals],
                "replicas": self._replicas,
                "clock": self._clock,
                "generation": self._generation,
                "expected": sorted(self._expected),
                "sequences": [[replica, *last] for replica, last in self._sequences.items()],
            }
            kept = {
                f"{part.table.name}.{key}": array
                for part in self._arrivals
                for key, array in part.kept().items()
            }
            self._journal.begin_anew(kept, facts)

    def _recover(self) -> None:
        """Go on from what a process that was killed has left, if there was one."""
        found = self._journal.snapshot() if self._journal else None
        if not found or not self._journal:
            return
        arrays, facts = found
        self._replicas = facts["replicas"]
        for fields in facts["tables"]:
            table = Table(**fields)
            mine: dict[str, Any] = {
                key.removeprefix(f"{table.name}."): array
                for key, array in arrays.items()
                if key.startswith(f"{table.name}.") and "." not in key.removeprefix(f"{table.name}.")
            }
            part = Arrivals(
                table, self._own, self._replicas, mine["weights"].copy(), mine["squares"].copy(), None
            )
            part.restore(mine)
            self._arrivals.append(part)
        self._clock, self._generation = facts["clock"], facts["generation"]
        self._expected = set(facts["expected"])
        self._sequences = {replica: (life, number) for replica, life, number in facts["sequences"]}
        for push in self._journal.pushes():
            if push is None and self._here:
                self._merge()
            elif push is not None and self._is_new(push):
                self._add(push)

    @property
    def _waits(self) -> bool:
        return any(part.waits for part in self._arrivals)

    def _is_new(self, push: Push) -> bool:
        return (push.life, push.sequence) > self._sequences.get(push.replica, BEFORE_ALL)

    def _add(self, push: Push) -> None:
        for part, moves in zip(self._arrivals, push.moves, strict=True):
            part.add(push.replica, moves.reach, moves.rows, moves.values)
        self._sequences[push.replica] = push.life, push.sequence
        if self._waits:
            self._here[push.replica] = push.share
        else:
            self._clock, self._generation = self._clock + 1, self._generation + 1

    def _close(self) -> None:
        """Merge what has come, and wake up those who wait for it."""
        if self._journal:
            self._journal.append_close()
        self._merge()
        self._keep_if_long()
        self._changed.notify_all()

    def _merge(self) -> None:
        pushes = len(self._here)
        for part in self._arrivals:
            part.judge(pushes)
        # Tables move each other: if what is owed to any of them was too much, all are paid slowly.
        share = min(*self._here.values(), *(part.share for part in self._arrivals))
        for part in self._arrivals:
            part.close(pushes, share)
        self._clock, self._generation = self._clock + pushes, self._generation + 1
        self._expected, self._here = set(self._here), {}
        self._opened = time.monotonic()

    def exchange(self, push: Push) -> Reply:
        """Take over what a replica has learnt, and tell it what it asks for."""
        with self._changed:
            self._check()
            is_new = self._is_new(push)
            if is_new:
                self._take(push)
            self._wait(push.replica)
            behind = max(self._clock - push.clock - 1, 0)
            # If the answer was lost before, nobody knows what had been in it.
            news = self._news(push, all_rows=not is_new) if push.pull else ()
            return self._reply(behind, news)

    def _take(self, push: Push) -> None:
        if push.replica in self._here:  # it has begun again
            self._close()
        if self._journal:
            self._journal.append(push)
        if not self._here:
            now = time.monotonic()
            self._closes = now + max(PATIENCE * (now - self._opened), self._least_seconds)
        self._add(push)
        if not self._here:
            self._keep_if_long()

    def _wait(self, replica: int) -> None:
        """Until the generation that a replica is in is closed."""
        generation = self._generation
        while replica in self._here and generation == self._generation:
            left = self._closes - time.monotonic()
            if left <= 0 or self._expected <= self._here.keys():
                self._close()
            else:
                self._changed.wait(left)

    def _news(self, push: Push, *, all_rows: bool) -> tuple[News, ...]:
        return tuple(
            part.news(push.replica, moves.reach, all_rows=all_rows)
            for part, moves in zip(self._arrivals, push.moves, strict=True)
        )

    def _reply(self, behind: int, news: tuple[News, ...]) -> Reply:
        share = min(part.share for part in self._arrivals)
        return Reply(self._clock, self._generation, behind, share, news)

    def tell_all(self, replica: int, life: int) -> Reply:
        """All that is agreed on, for a replica that begins; a push of its life before that comes too late."""
        with self._changed:
            self._check()
            self._sequences[replica] = max(self._sequences.get(replica, BEFORE_ALL), (life, BEFORE_ALL[1]))
            rows = [part.news(replica, part.table.rows, all_rows=True) for part in self._arrivals]
            return self._reply(0, tuple(rows))

    def state(self) -> Arrays:
        """Weights, squares and what is owed, of every table; the driver knows which rows these are."""
        kept = {}
        with self._changed:
            for part in self._arrivals:
                for key, array in (("weights", part.weights), ("squares", part.squares), ("owed", part.owed)):
                    kept[f"{part.table.name}.{key}"] = array.copy()
        return kept

    def _check(self) -> None:
        """Its files are on the disk of the machine that it ran on."""
        if not self._arrivals:
            raise ResumableError(
                "a shard has begun on another machine, and what it held is lost; repeat the command with "
                "--resume"
            )

    def _keep_if_long(self) -> None:
        """While no generation is open: a snapshot has nothing of it."""
        if self._journal:
            size = sum(part.weights.nbytes for part in self._arrivals)
            if self._journal.log_bytes > max(LOG_BYTES, LOG_SHARE * size):
                self._keep()

    def end(self) -> None:
        """Leave nothing behind."""
        if self._journal:
            self._journal.remove()
