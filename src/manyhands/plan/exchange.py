"""What an exchange takes: the bytes that go over the busiest link of a cluster, by who speaks with whom.

Links carry as much in both directions at once. What the workers of one machine say to each other does not
go over its link.
"""

from dataclasses import dataclass

import numpy as np

from manyhands.plan.costs import Costs
from manyhands.plan.fleet import Fleet, Floats
from manyhands.plan.work import Pattern, Work
from manyhands.spread.server.pace import STRETCH

SOLVED = 8  # times that the distance of exchanges and what they then take are put into each other


@dataclass(frozen=True)
class Exchanges:
    """Of each cluster: seconds of an exchange, and of what is sent at the end.

    Exchanges come to be ``stretch`` times further apart than would be best, after ``ramp`` of them.
    """

    seconds: Floats
    stretch: Floats
    ramp: Floats
    end: Floats

    def total(self, turns: Floats) -> Floats:
        """Seconds of all exchanges of a training that would best have so many."""
        count: Floats = np.minimum(turns / self.stretch + self.ramp, turns)
        return count * self.seconds + self.end


def exchanges_of(
    work: Work, fleet: Fleet, costs: Costs, count: Floats, rows: Floats, learning: Floats
) -> Exchanges:
    """``rows`` are those that all learn between two exchanges, and ``learning`` the seconds of that."""
    crew = (count * fleet.workers).sum(axis=1)
    lines = _Lines.of(work, fleet, costs, crew, count)
    stretch = np.ones_like(crew)
    seconds = lines.exchange(work, rows / crew)
    for _ in range(SOLVED if work.most_stretch > 1 else 0):
        stretch = np.clip(seconds / np.maximum(learning, 1e-12), 1, work.most_stretch)
        seconds = lines.exchange(work, stretch * rows / crew)
    ramp = np.log(stretch) / np.log(STRETCH) / lines.speakers  # every exchange of a replica stretches them
    return Exchanges(seconds, stretch, ramp, lines.end(work))


@dataclass(frozen=True)
class _Lines:
    """The lines between the workers of each cluster."""

    machines: Floats
    crew: Floats
    speakers: Floats  # who has something to say: workers, or one for all of a machine
    beside: Floats  # workers in a machine
    link: Floats  # bytes/s of the slowest
    latency: float
    bus: float
    turn: Floats  # seconds of an exchange, beside the link

    @classmethod
    def of(cls, work: Work, fleet: Fleet, costs: Costs, crew: Floats, count: Floats) -> "_Lines":
        machines, here = count.sum(axis=1), count > 0
        speakers = machines if work.in_memory else crew
        # Where there is a master or a driver, it does its part for a single worker, too.
        led = work.pattern in (Pattern.STAR, Pattern.MEANS)
        alone = ((speakers if work.in_place else crew) <= 1) & (not led)
        return cls(
            machines=machines,
            crew=crew,
            speakers=speakers,
            beside=np.where(here, fleet.workers, 1).max(axis=1),
            link=np.where(here, fleet.links(costs), np.inf).min(axis=1),
            latency=costs["latency"],
            bus=costs["bus"],
            turn=np.where(alone, 0, costs["turn"]),
        )

    def exchange(self, work: Work, rows: Floats) -> Floats:
        """Seconds of an exchange, after which every worker has learnt so many ``rows`` since the last."""
        bytes_of_worker = _bytes_after(work, rows)
        sent, messages = {
            Pattern.RING: self._ring,
            Pattern.STAR: self._star,
            Pattern.SHARDS: self._shards,
            Pattern.MEANS: self._means,
        }[work.pattern](work, bytes_of_worker)
        between = sent / self.link + messages * self.latency
        shared = work.in_memory or work.pattern in (Pattern.SHARDS, Pattern.MEANS)  # the turn has all of it
        inside = 0.0 if shared else 2 * (self.beside - 1) * work.exchange_bytes / self.bus
        return np.where(self.machines > 1, between, 0) + inside + self.turn

    def _ring(self, work: Work, each: Floats) -> tuple[Floats, Floats]:
        return 2 * (self.speakers - 1) / self.speakers * each, 2 * (self.speakers - 1)

    def _star(self, work: Work, each: Floats) -> tuple[Floats, Floats]:
        return 2 * (self.speakers - 1) * each, 2 * np.minimum(self.speakers - 1, 1)

    def _shards(self, work: Work, each: Floats) -> tuple[Floats, Floats]:
        """The machine with most shards hears all others, and its own workers speak with all other shards.

        First all push, then all are answered; ``each`` is both together.
        """
        here = np.ceil(work.shards / self.machines) / work.shards  # the share of the weights
        replicas = self.speakers / self.machines
        sent = replicas * np.maximum((self.machines - 1) * here, 1 - here) * each
        return sent, 2 * np.ones_like(sent)

    def _means(self, work: Work, each: Floats) -> tuple[Floats, Floats]:
        """Weights come from the driver, and machines pass them on to each other; then each merges a part of
        what all have moved, and the driver, who is on one of them, takes the means of all others.
        """
        elsewhere = 1 - 1 / self.machines
        means = _at_most_all(work, each * self.crew**work.moves_grow)
        sent = work.weights_bytes + self.crew / self.machines * elsewhere * each + elsewhere * means
        return sent, 3 * np.ones_like(sent)

    def end(self, work: Work) -> Floats:
        """Seconds of what is sent once more at the end: what the driver takes over from other machines."""
        return np.where(self.machines > 1, work.end_bytes * (1 - 1 / self.machines) / self.link, 0.0)


def _bytes_after(work: Work, rows: Floats) -> Floats:
    """What a worker has to say after so many rows: of those it has seen, many words come again."""
    if not work.exchange_rows:
        return np.full_like(rows, work.exchange_bytes)
    return _at_most_all(work, work.exchange_bytes * (rows / work.exchange_rows) ** work.moves_grow)


def _at_most_all(work: Work, moves: Floats) -> Floats:
    return np.minimum(moves, work.state_bytes) if work.state_bytes else moves
