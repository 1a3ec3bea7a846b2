"""How the members of a crew share what they learn; alone, there is nothing to share."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Ints
from manyhands.models.learner import Feed, Learner, Loss, Piece
from manyhands.records import Clock, Traffic
from manyhands.train.state import State

Floats = npt.NDArray[np.float32]
Learn = Callable[[], list[Loss]]


class Course(NamedTuple):
    """What the loop goes through: so many turns of a feed, with a validation after each."""

    feed: Feed
    turns: int
    turn: str = "epoch"


class Exchange(Protocol):
    """What the loop asks of a way of spreading the work. A learner knows it as its crew."""

    clock: Clock
    workers: int
    stopping: bool  # someone asked the crew to stop: it does so after the round, and all together
    share: Ints | None  # the rows that this process makes ready for learning; None for all

    def meet(self, identity: dict[str, Any], rows: int) -> None:
        """Wait for all, and make sure that all mean the same run."""
        ...

    def course(self, feed: Feed, epochs: int) -> Course:
        """How ``epochs`` of the rows are gone through."""
        ...

    def start(self, learner: Learner, state: State) -> None:
        """Everyone begins from the same weights, and from the same place in the training."""
        ...

    def pieces(self, learner: Learner, feed: Feed, blocks: Ints) -> list[Piece]:
        """What this worker does of a round."""
        ...

    def sum(self, numbers: Floats) -> None:
        """The sum over the crew, in place: for learners that share batches, in every step."""
        ...

    def round(self, learner: Learner, rows: list[Any], learn: Learn) -> Loss:
        """Have ``rows``, this worker's part of a round, learnt, and share it; gives the crew's loss."""
        ...

    def made_together(self, rows: int, make: Callable[[int, int], Floats]) -> Floats:
        """So many rows of numbers, of which each worker makes some: ``make`` is told from where to where."""
        ...

    def lap(self) -> dict[str, Any]:
        """Where the time went since the last lap, worker by worker, and who had what share."""
        ...

    def finish(self) -> Traffic: ...


class Alone:
    """One process; its threads share memory."""

    share: Ints | None = None

    def __init__(self) -> None:
        self.clock, self.workers, self.stopping = Clock(), 1, False

    def meet(self, identity: dict[str, Any], rows: int) -> None:
        pass

    def course(self, feed: Feed, epochs: int) -> Course:
        return Course(feed, epochs)

    def start(self, learner: Learner, state: State) -> None:
        pass

    def pieces(self, learner: Learner, feed: Feed, blocks: Ints) -> list[Piece]:
        return [Piece(block, 0, feed.rows(block)) for block in blocks.tolist()]

    def sum(self, numbers: Floats) -> None:
        pass

    def round(self, learner: Learner, rows: list[Any], learn: Learn) -> Loss:
        return added(learn())

    def made_together(self, rows: int, make: Callable[[int, int], Floats]) -> Floats:
        return make(0, rows)

    def lap(self) -> dict[str, Any]:
        seconds, self.clock.seconds = self.clock.seconds, {}
        return {"seconds": {name: [round(spent, 6)] for name, spent in seconds.items()}, "shares": []}

    def finish(self) -> Traffic:
        return Traffic()


def added(losses: list[Loss]) -> Loss:
    return Loss(sum(loss.total for loss in losses), sum(loss.rows for loss in losses))
