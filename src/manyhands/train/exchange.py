"""How the members of a crew share what they learn; alone, there is nothing to share."""

from typing import Protocol

from manyhands.models.learner import Learner
from manyhands.records import Traffic


class Exchange(Protocol):
    """What the loop asks of a way of spreading the work."""

    def start(self, learner: Learner) -> None:
        """Everyone begins from the same weights."""
        ...

    def round(self, learner: Learner, rows: int) -> int:
        """Share a round; returns how many rows the whole crew has seen in it."""
        ...

    def finish(self, learner: Learner) -> Traffic: ...


class Alone:
    """One process; its threads share memory."""

    def start(self, learner: Learner) -> None:
        pass

    def round(self, learner: Learner, rows: int) -> int:
        return rows

    def finish(self, learner: Learner) -> Traffic:
        return Traffic()
