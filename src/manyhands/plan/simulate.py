"""Turns one by one, where no formula holds: workers that are unequal, or that do not wait for each other."""

import heapq
from functools import cache

import numpy as np

from manyhands.plan.fleet import Floats

TURNS = 256
SEED = 0  # always the same: a little more of something must never look like less


@cache
def _noise(workers: int) -> Floats:
    return np.random.default_rng(SEED).standard_normal((TURNS, workers))


def mean_of_slowest(steps: Floats, jitter: float) -> float:
    """Seconds until the last of all workers is through with a step, on average.

    >>> round(mean_of_slowest(np.array([1.0, 3.0]), 0.0), 3)
    3.0
    """
    return float((steps * np.exp(jitter * _noise(len(steps)) - jitter**2 / 2)).max(axis=1).mean())


def without_waiting(steps: Floats, jitter: float, service: float, staleness: int = 4) -> float:
    """Seconds between two turns of a worker, on average, if nobody waits for the slowest.

    Every exchange takes ``service`` seconds of its worker. No worker is more than ``staleness`` turns ahead
    of the last.

    >>> round(without_waiting(np.array([1.0, 1.0]), 0.0, 0.2), 2)
    1.2
    >>> round(without_waiting(np.array([1.0, 3.0]), 0.0, 0.0, staleness=1000), 2)  # 4 turns in 3 s
    1.5
    """
    noise = np.exp(jitter * _noise(len(steps)) - jitter**2 / 2)
    ready = [(float(seconds) + service, worker) for worker, seconds in enumerate(steps)]
    heapq.heapify(ready)
    turns, now = np.zeros(len(steps), int), 0.0
    held: list[int] = []  # those that are too far ahead
    for _ in range(TURNS * len(steps)):
        now, worker = heapq.heappop(ready)
        turns[worker] += 1
        held.append(worker)
        last = int(turns.min())
        for waiting in [other for other in held if turns[other] - last <= staleness]:
            held.remove(waiting)
            seconds = float(steps[waiting] * noise[turns[waiting] % TURNS, waiting])
            heapq.heappush(ready, (now + seconds + service, waiting))
    return now * len(steps) / float(turns.sum())
