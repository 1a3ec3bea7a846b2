"""The learning rate, by how many rows the whole crew has seen: right however fast each worker is."""

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["linear", "cosine", "constant"]


@dataclass(frozen=True)
class Schedule:
    """Up to ``rate`` over a share of all ``rows``, and from there down to nothing, or level.

    >>> [Schedule(0.5, 100).at(seen) for seen in (0, 50, 100, 120)]
    [0.5, 0.25, 0.0, 0.0]
    >>> [round(Schedule(1.0, 100, "cosine", 0.2).at(seen), 2) for seen in (0, 10, 20, 60, 100)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    rate: float
    rows: int
    shape: Shape = "linear"
    warm_up: float = 0.0

    def at(self, seen: int) -> float:
        done, climb = min(seen / self.rows, 1.0), self.warm_up
        if done < climb:
            return self.rate * done / climb
        left = (1 - done) / (1 - climb) if climb < 1 else 1.0
        if self.shape == "constant":
            return self.rate
        return self.rate * (left if self.shape == "linear" else (1 - math.cos(math.pi * left)) / 2)
