"""A shard of the parameter server: it owns every so-manieth row of each table, hot and rare ones alike."""

import tempfile
from pathlib import Path
from typing import Any

from manyhands.errors import ResumableError
from manyhands.spread.server.arrivals import Arrivals
from manyhands.spread.server.journal import Journal
from manyhands.spread.server.messages import News, Push, Reply, Table
from manyhands.storage.tensors import Arrays

LOG_BYTES = 64 << 20  # at least so much is logged before a snapshot is taken
LOG_SHARE = 4  # and so many times what the shard itself holds


class Shard:
    """The state of a shard. A push is taken over once, however often it comes."""

    def __init__(self, number: int, shards: int, name: str | None = None) -> None:
        self._own = slice(number, None, shards)
        self._arrivals: list[Arrivals] = []
        self._clock = self._replicas = 0
        self._sequences: dict[int, tuple[int, int]] = {}  # the last push of each replica: its life and number
        self._journal = None
        if name is not None:
            self._journal = Journal(Path(tempfile.gettempdir()) / f"manyhands-{name}" / str(number))
            self._recover()

    def begin(self, tables: list[Table], replicas: int, values: Arrays) -> None:
        """Take over the first weights; what has begun already, because this is asked again, goes on."""
        if self._arrivals:
            return
        self._replicas = replicas
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
        self._keep()

    def _keep(self) -> None:
        if self._journal:
            facts = {
                "tables": [part.table._asdict() for part in self._arrivals],
                "replicas": self._replicas,
                "clock": self._clock,
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
        self._clock = facts["clock"]
        self._sequences = {replica: (life, number) for replica, life, number in facts["sequences"]}
        for push in self._journal.pushes():
            if self._is_new(push):
                self._add(push)

    def _is_new(self, push: Push) -> bool:
        return (push.life, push.sequence) > self._sequences.get(push.replica, (-1, -1))

    def _add(self, push: Push) -> tuple[News, ...]:
        share = min(push.share, *(part.share for part in self._arrivals))
        for part, moves in zip(self._arrivals, push.moves, strict=True):
            part.add(push.replica, moves.reach, moves.rows, moves.values, share)
        self._sequences[push.replica] = push.life, push.sequence
        self._clock += 1
        return self._news(push, all_rows=False) if push.pull else ()

    def _news(self, push: Push, *, all_rows: bool) -> tuple[News, ...]:
        return tuple(
            part.news(push.replica, moves.reach, all_rows=all_rows)
            for part, moves in zip(self._arrivals, push.moves, strict=True)
        )

    def exchange(self, push: Push) -> Reply:
        """Take over what a replica has learnt, and tell it what it asks for."""
        self._check()
        behind = self._clock - push.clock
        if self._is_new(push):
            if self._journal:
                self._journal.append(push)
            news = self._add(push)
            self._keep_if_long()
        else:  # the answer to it was lost, and nobody knows what had been in it
            news = self._news(push, all_rows=True) if push.pull else ()
        return Reply(self._clock, behind, min(part.share for part in self._arrivals), news)

    def tell_all(self, replica: int) -> Reply:
        """All that is agreed on, for a replica that begins."""
        self._check()
        news = tuple(part.news(replica, part.table.rows, all_rows=True) for part in self._arrivals)
        return Reply(self._clock, 0, min(part.share for part in self._arrivals), news)

    def state(self) -> Arrays:
        """Weights, squares and what is owed, of every table; the driver knows which rows these are."""
        kept = {}
        for part in self._arrivals:
            for key, array in (("weights", part.weights), ("squares", part.squares), ("owed", part.owed)):
                kept[f"{part.table.name}.{key}"] = array
        return kept

    def _check(self) -> None:
        """Its files are on the disk of the machine that it ran on."""
        if not self._arrivals:
            raise ResumableError(
                "a shard has begun on another machine, and what it held is lost; repeat the command with "
                "--resume"
            )

    def _keep_if_long(self) -> None:
        if self._journal:
            size = sum(part.weights.nbytes for part in self._arrivals)
            if self._journal.log_bytes > max(LOG_BYTES, LOG_SHARE * size):
                self._keep()

    def end(self) -> None:
        """Leave nothing behind."""
        if self._journal:
            self._journal.remove()
