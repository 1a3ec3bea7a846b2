"""The learning rate, by how many rows the whole crew has seen: right however fast each worker is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """From ``rate`` down to nothing over ``rows`` rows.

    >>> [Linear(0.5, 100).at(seen) for seen in (0, 50, 100, 120)]
    [0.5, 0.25, 0.0, 0.0]
    """

    rate: float
    rows: int

    def at(self, seen: int) -> float:
        return self.rate * max(1 - seen / self.rows, 0.0)
