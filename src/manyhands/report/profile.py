"""Where the time of a run went, worker by worker, from its record."""

from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from manyhands.errors import InputError
from manyhands.records import PARTS
from manyhands.report.records import read_record


@dataclass(frozen=True)
class Profile:
    """``seconds[part][worker]``; ``shares`` over time, each with the step after which it was measured."""

    model: str
    spread: str
    steps: int
    seconds: dict[str, list[float]]
    shares: list[tuple[int, list[float]]]

    @property
    def workers(self) -> int:
        return max((len(spent) for spent in self.seconds.values()), default=1)

    def total(self, worker: int) -> float:
        return sum(spent[worker] for spent in self.seconds.values() if worker < len(spent))

    def facts(self) -> dict[str, Any]:
        shares = [{"step": step, "shares": shares} for step, shares in self.shares]
        return {**asdict(self), "shares": shares}


def profile_of(run: str) -> Profile:
    """The profile of a run folder."""
    record = read_record(run)
    try:
        return from_record(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{run.rstrip('/')}/record.json does not say where the time went ({error}); train again"
        ) from None


def from_record(record: dict[str, Any]) -> Profile:
    laps = record["laps"]
    seconds: dict[str, list[float]] = {}
    shares: list[tuple[int, list[float]]] = []
    for lap in laps:
        for part in PARTS:
            new = [float(spent) for spent in lap["seconds"].get(part, [])]
            old = seconds.get(part, [])
            added = [a + b for a, b in zip_longest(old, new, fillvalue=0.0)]
            if added:
                seconds[part] = added
        shares += [(int(entry["step"]), [float(s) for s in entry["shares"]]) for entry in lap["shares"]]
    steps = sum(int(lap["rounds"]) for lap in laps)
    workers = max((len(spent) for spent in seconds.values()), default=1)
    even = {part: spent + [0.0] * (workers - len(spent)) for part, spent in seconds.items()}
    return Profile(str(record["model"]), str(record["spread"]), steps, even, shares)
