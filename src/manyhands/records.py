"""The small frozen types that every package shares."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import NamedTuple, Protocol

SPLITS = ("train", "valid", "test")


class Rejection(NamedTuple):
    """A row of the input that could not be used."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} line {self.line}: {self.reason}"


@dataclass(frozen=True)
class Ledger:
    """Where every row of the input went: ``read`` is the sum of all others.

    >>> Ledger(read=5, kept=2, duplicates=1, empty=1, rejected=1).adds_up
    True
    """

    read: int = 0
    kept: int = 0
    duplicates: int = 0
    empty: int = 0
    rejected: int = 0

    @property
    def adds_up(self) -> bool:
        return self.read == self.kept + self.duplicates + self.empty + self.rejected


@dataclass(frozen=True)
class StreamLedger:
    """Where every message of a stream went: ``read`` is the sum of all others.

    >>> StreamLedger(read=3, learnt=2, rejected=1) + StreamLedger(read=2, learnt=1, empty=1)
    StreamLedger(read=5, learnt=3, empty=1, rejected=1)
    """

    read: int = 0
    learnt: int = 0
    empty: int = 0
    rejected: int = 0

    def __add__(self, other: "StreamLedger") -> "StreamLedger":
        parts = zip(astuple(self), astuple(other), strict=True)
        return StreamLedger(*(mine + theirs for mine, theirs in parts))


@dataclass(frozen=True)
class ScoringLedger:
    """Where every row of scored files went: ``read`` is the sum of all others, and all are in the output.

    >>> ScoringLedger(read=3, scored=2, rejected=1) + ScoringLedger(read=2, scored=1, empty=1)
    ScoringLedger(read=5, scored=3, empty=1, rejected=1)
    """

    read: int = 0
    scored: int = 0
    empty: int = 0
    rejected: int = 0

    def __add__(self, other: "ScoringLedger") -> "ScoringLedger":
        parts = zip(astuple(self), astuple(other), strict=True)
        return ScoringLedger(*(mine + theirs for mine, theirs in parts))


@dataclass(frozen=True)
class Resources:
    """What a run may use: it decides how fast, never what comes out."""

    threads: int
    memory_bytes: int


class Progress(Protocol):
    """Whoever watches long work. ``total`` is None where it cannot be known."""

    def stage(self, name: str, total: int | None, unit: str) -> None: ...

    def advance(self, done: int, note: str = "") -> None: ...

    def say(self, sentence: str) -> None:
        """Tell what should be known before the work goes on."""
        ...


class Silent:
    """Nobody watches."""

    def stage(self, name: str, total: int | None, unit: str) -> None:
        pass

    def advance(self, done: int, note: str = "") -> None:
        pass

    def say(self, sentence: str) -> None:
        pass


@dataclass(frozen=True)
class Traffic:
    """What the exchange between workers cost."""

    bytes: int = 0
    wait_seconds: float = 0.0
    staleness: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)  # of the bytes, what they were, where that is known


# What a step is spent on, in its order. ``learn`` is all of it for models that learn in place.
PARTS = {
    "load": "rows made ready that had to be waited for",
    "forward": "from words to scores",
    "backward": "from the loss to the gradient",
    "learn": "rows learnt in place",
    "exchange": "gradients or rows sent and added up",
    "wait": "for slower workers",
    "update": "the weights moved",
    "validate": "scores of the validation rows",
}


@dataclass
class Clock:
    """Seconds by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def divide(self, name: str, parts: dict[str, float]) -> None:
        """Give what was spent on ``name`` to its parts, as threads took for them side by side."""
        spent, total = self.seconds.pop(name, 0.0), sum(parts.values())
        for part, seconds in parts.items():
            self.add(part, spent * seconds / total if total else 0.0)

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - began)
