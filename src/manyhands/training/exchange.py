"""How the workers of a run share what they learn; alone, there is nothing to share."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import aligned_zeros
from manyhands.models.learner import Feed, Learner, Loss, Piece
from manyhands.records import Clock, Traffic
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.state import State

Floats = npt.NDArray[np.float32]
ROUND_BLOCKS = 32  # of one process that learns in place: checkpoints and progress come between rounds


class Work(NamedTuple):
    """Some rows of a feed, ready to be learnt."""

    rows: Any
    rate: float
    seed: int


Step = list[Work]  # what is learnt between two exchanges; threads share it
Learn = Callable[[Step], Loss]


class Exchange(Protocol):
    """What the loop asks of a way of spreading the work. A learner knows it as its crew."""

    clock: Clock
    workers: int
    stopping: bool  # someone asked the crew to stop: it does so after the round, and all together
    stops_after: int  # rounds, from when it is asked

    keeps_weights: bool  # of workers that share their weights, one keeps copies of them

    def join(self, identity: dict[str, Any], kind: type[Learner], examples: LabelledRows) -> str:
        """Wait for all, and make sure that all mean the same run; gives what people should know, if any."""
        ...

    def start(self, learner: Learner, state: State) -> None:
        """Begin together, at the same weights and place."""
        ...

    def stop(self) -> None:
        """Ask the crew to stop."""
        ...

    def share(self, count: int) -> tuple[int, int]: ...

    def zeros(self, rows: int, width: int) -> Floats: ...

    def to_fill(self, rows: int) -> tuple[int, int]: ...

    def rounds(self, learner: Learner, feed: Feed, order: Ints) -> list[Ints]:
        """The blocks of an epoch, round by round: after a round, all workers agree on everything."""
        ...

    def steps(self, learner: Learner, feed: Feed, blocks: Ints) -> list[list[Piece]]:
        """This worker's share of a round, cut where it will exchange what it has learnt."""
        ...

    def sum(self, numbers: npt.NDArray[Any]) -> None:
        """The sum over all workers, in place: for learners that share batches, in every step."""
        ...

    def round(self, learner: Learner, steps: Iterable[Step], learn: Learn) -> Loss:
        """Learn this worker's share of a round, and exchange it step by step; gives the loss of all."""
        ...

    def gather(self, rows: int, make: Callable[[int, int], Floats]) -> Floats:
        """So many rows of numbers, of which each worker makes some: ``make`` is told from where to where."""
        ...

    def lap(self) -> dict[str, Any]:
        """Where the time went since the last lap, worker by worker, and who had what share."""
        ...

    def finish(self) -> Traffic: ...


class Alone:
    """One process; its threads share memory."""

    stops_after = 0

    def __init__(self) -> None:
        self.clock, self.workers, self.stopping, self.keeps_weights = Clock(), 1, False, True

    def join(self, identity: dict[str, Any], kind: type[Learner], examples: LabelledRows) -> str:
        return ""

    def start(self, learner: Learner, state: State) -> None:
        pass

    def stop(self) -> None:
        self.stopping = True

    def share(self, count: int) -> tuple[int, int]:
        return 0, count

    def zeros(self, rows: int, width: int) -> Floats:
        return aligned_zeros(rows, width)

    def to_fill(self, rows: int) -> tuple[int, int]:
        return 0, rows

    def rounds(self, learner: Learner, feed: Feed, order: Ints) -> list[Ints]:
        size = 1 if learner.shares_batches else ROUND_BLOCKS
        return [order[at : at + size] for at in range(0, len(order), size)]

    def steps(self, learner: Learner, feed: Feed, blocks: Ints) -> list[list[Piece]]:
        return [[Piece(block, 0, feed.rows(block)) for block in blocks.tolist()]]

    def sum(self, numbers: npt.NDArray[Any]) -> None:
        pass

    def round(self, learner: Learner, steps: Iterable[Step], learn: Learn) -> Loss:
        return total_loss(learn(step) for step in steps)

    def gather(self, rows: int, make: Callable[[int, int], Floats]) -> Floats:
        return make(0, rows)

    def lap(self) -> dict[str, Any]:
        seconds, self.clock.seconds = self.clock.seconds, {}
        return {"seconds": {name: [round(spent, 6)] for name, spent in seconds.items()}, "shares": []}

    def finish(self) -> Traffic:
        return Traffic()


def total_loss(losses: Iterable[Loss]) -> Loss:
    every = list(losses)
    return Loss(sum(loss.total for loss in every), sum(loss.rows for loss in every))
