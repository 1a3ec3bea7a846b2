"""How the members of a crew share what they learn; alone, there is nothing to share."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Ints
from manyhands.models.learner import Feed, Learner, Loss, Piece
from manyhands.records import Clock, Traffic

Learn = Callable[[], list[Loss]]


class Exchange(Protocol):
    """What the loop asks of a way of spreading the work. A learner knows it as its crew."""

    clock: Clock

    def start(self, learner: Learner) -> None:
        """Everyone begins from the same weights."""
        ...

    def pieces(self, learner: Learner, feed: Feed, blocks: Ints) -> list[Piece]:
        """What this worker does of a round."""
        ...

    def sum(self, numbers: npt.NDArray[np.float32]) -> None:
        """The sum over the crew, in place: for learners that share batches, in every step."""
        ...

    def round(self, learner: Learner, rows: list[Any], learn: Learn) -> Loss:
        """Have ``rows``, this worker's part of a round, learnt, and share it; gives the crew's loss."""
        ...

    def together(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What every worker gives here, one row each."""
        ...

    def finish(self, learner: Learner) -> Traffic: ...


class Alone:
    """One process; its threads share memory."""

    def __init__(self) -> None:
        self.clock = Clock()

    def start(self, learner: Learner) -> None:
        pass

    def pieces(self, learner: Learner, feed: Feed, blocks: Ints) -> list[Piece]:
        return [Piece(block, 0, feed.rows(block)) for block in blocks.tolist()]

    def sum(self, numbers: npt.NDArray[np.float32]) -> None:
        pass

    def round(self, learner: Learner, rows: list[Any], learn: Learn) -> Loss:
        return added(learn())

    def together(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return numbers[None]

    def finish(self, learner: Learner) -> Traffic:
        return Traffic()


def added(losses: list[Loss]) -> Loss:
    return Loss(sum(loss.total for loss in losses), sum(loss.rows for loss in losses))
