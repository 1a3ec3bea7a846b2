"""Workers and replicas as the driver sees them: who is where, has which rows, and shares tables with whom."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from manyhands.spread.server.messages import Learnt, Lease, Place


@dataclass(eq=False)
class Hand:
    """A worker, as the driver sees it."""

    rank: int
    who: Any
    place: Place | None = None
    ready: bool = False
    leases: dict[int, Lease] = field(default_factory=dict)
    heard: float = 0.0  # when it answered last, or was given something after it had nothing
    restarts: int = 0
    rows: Counter[int] = field(default_factory=Counter)  # that it has learnt, by epoch
    seconds: dict[int, float] = field(default_factory=dict)  # which it took for that
    speed: float = 0.0  # rows a second, lately
    idle: float = 0.0  # seconds without anything to learn
    waits_for: str = ""  # who holds the oldest rows, if that keeps it from going on

    @property
    def name(self) -> str:
        where = f" on {self.place.host} (process {self.place.process})" if self.place else ""
        return f"worker {self.rank}{where}"


@dataclass(eq=False)
class Group:
    """The workers of one replica, and what they have learnt that shards do not have yet.

    Shards are told at the beginning how many replicas there may be: one without members is free for whoever
    comes to a machine where nobody is.
    """

    number: int
    members: list[Hand] = field(default_factory=list)
    key: str = ""  # the machine whose memory they share
    speaker: Hand | None = None
    life: int = 0
    done: list[tuple[Lease, Learnt]] = field(default_factory=list)
    pushing: list[tuple[Lease, Learnt]] | None = None  # in the exchange that is under way
    pushed_at: float = 0.0
    epoch: int = -1  # the last of which it was given rows
    whole: bool = False  # the next exchange is to take all rows
    settled: bool = False  # it has taken all rows since that was asked for

    @property
    def rows(self) -> int:
        return sum(lease.rows for lease, _ in self.done)
