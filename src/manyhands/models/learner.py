"""What a model is to the training loop: something that learns from blocks of rows.

The loop knows nothing else of it. A model that is added to the catalog follows this protocol,
and the contract tests then hold it to it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from manyhands.models.model import Arrays
from manyhands.records import Clock, Progress, Resources
from manyhands.settings import ModelSettings
from manyhands.text.labelled_rows import LabelledRows


class Loss(NamedTuple):
    """Sums, never means: whoever combines divides once."""

    total: float
    rows: float

    @property
    def mean(self) -> float:
        return self.total / self.rows if self.rows else 0.0


class Piece(NamedTuple):
    """The rows of a block from ``first`` up to ``last``: what one worker does of it."""

    block: int
    first: int
    last: int


class StateArray(NamedTuple):
    """An array that learning changes, and what it is to workers who merge what each has learnt.

    Of each row, the columns from ``first`` up to ``last`` are weights, and the column ``squares`` is
    AdaGrad's sum of squares; other columns do not change. ``memory`` is what an optimizer remembers
    apart from that. Where rows are ``by_frequency``, those that move most come first. Where rows are
    ``apart``, each is learnt from pairs of its own, as a word's vector is; otherwise many rows fit a text
    together.
    """

    array: npt.NDArray[Any]
    first: int = 0
    last: int | None = None
    squares: int | None = None
    memory: bool = False
    by_frequency: bool = False
    apart: bool = False


class Feed(Protocol):
    """All rows in blocks that fit a model: each row once an epoch, blocks always as long.

    What counts as a row is a text with its labels, or a single word where running text is learnt.
    """

    unit: str  # "rows" or "words"
    # How much the workers of a crew learn, all together, before those that learn in place exchange it: at
    # least, when they know nothing yet, and at most.
    between_exchanges: tuple[int, int]

    def __len__(self) -> int: ...

    def rows(self, block: int) -> int: ...

    def piece(self, piece: Piece, epoch: int) -> Any:
        """Some rows, ready to be learnt; threads may ask for several at once, of one epoch at a time."""
        ...


class Crew(Protocol):
    """Those who learn together, as a learner sees them."""

    clock: Clock
    workers: int

    def share(self, count: int) -> tuple[int, int]:
        """This worker's share of so many rows or blocks: from where to where. Alone, all of them."""
        ...

    def sum(self, numbers: npt.NDArray[Any]) -> None:
        """Add up what every worker has, in place: all then have the same. Alone, nothing changes."""
        ...

    def zeros(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        """Room for weights that are learnt in place: workers of one machine share it."""
        ...

    def to_fill(self, rows: int) -> tuple[int, int]:
        """The rows of such an array that are this worker's to fill: from where to where."""
        ...


class Learner(Protocol):
    """A model that is being trained."""

    Settings: ClassVar[type[ModelSettings]]
    Model: ClassVar[type[Any]]
    summary: ClassVar[str]  # a line for people who choose
    learns: ClassVar[Literal["labels", "words"]]  # to tell labels of texts, or vectors of words
    # Workers and threads share each block, inside ``learn``, and add up their gradients; otherwise
    # each learns blocks of its own, in place.
    shares_batches: ClassVar[bool]

    @classmethod
    def begin(
        cls,
        settings: Any,
        examples: LabelledRows,
        previous: Any | None,
        resources: Resources,
        progress: Progress,
        crew: Crew,
    ) -> Self:
        """A learner of these rows, their words and labels; it knows nothing yet, or all of ``previous``.

        What has to be counted, each worker counts in its share of the rows.
        """
        ...

    def feed(
        self, examples: LabelledRows, seed: int, resources: Resources, progress: Progress, crew: Crew
    ) -> Feed:
        """All or some of the rows that it began with, in blocks; ``seed`` decides which come together.

        Whatever is made ahead, is made of this worker's share of the blocks.
        """
        ...

    def learn(self, rows: Any, rate: float, seed: int, crew: Crew) -> Loss:
        """One pass over a piece of the feed; what is random in it comes from ``seed``.

        A learner that shares batches gives the loss of the whole crew; of the others, threads may
        do this side by side.
        """
        ...

    def state(self) -> dict[str, StateArray]:
        """Every array that learning changes, as it is and not a copy, and how it merges."""
        ...

    def model(self) -> Any:
        """The model as it is now, for scoring; it shares its memory with the learner."""
        ...


Zeros = Callable[[int, int], npt.NDArray[np.float32]]  # room for so many rows of such a width


class PieceLearner(Protocol):
    """Learns the pieces of a stream in tables that others may have as well, perhaps in another process.

    The tables and a piece are all that it needs to know. What must not be done by several at once, it does
    inside ``alone``.
    """

    def __init__(
        self, settings: Any, tables: Arrays, threads: int, alone: AbstractContextManager[Any]
    ) -> None: ...

    def learn(self, piece: Any, rate: float) -> Loss:
        """Threads may do this side by side, and while later blocks are read, unless they share pieces."""
        ...


class StreamLearner(Protocol):
    """A model that learns from a stream without end: what it knows has a size that is fixed beforehand."""

    Settings: ClassVar[type[ModelSettings]]
    Model: ClassVar[type[Any]]
    Pieces: ClassVar[type[PieceLearner]]
    learns: ClassVar[Literal["labels", "words"]]
    shares_batches: ClassVar[
        bool
    ]  # threads share each piece, inside ``learn``: pieces are learnt in their order
    without: ClassVar[frozenset[str]]  # settings that mean nothing here, or cannot be had
    settings: Any

    def __init__(self, settings: Any, half_life: float, resources: Resources, zeros: Zeros) -> None:
        """It knows nothing yet. After ``half_life`` messages, what was counted weighs half."""
        ...

    def read(self, rows: LabelledRows, block: int, messages: int) -> list[Any]:
        """Count what stands in a block of so many messages, and make pieces of it that can be learnt.

        Blocks are read in the order of the stream. What is random in a piece comes from the seed of the
        settings, the number of the block and that of the piece.
        """
        ...

    def tables(self) -> Arrays:
        """What pieces are learnt in: arrays made by ``zeros``, the same until a block needs larger ones."""
        ...

    def state(self) -> Arrays:
        """All that it has learnt and counted; with ``facts``, what ``restore`` needs to go on."""
        ...

    def facts(self) -> dict[str, Any]: ...

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None: ...

    def model(self) -> Any | None:
        """The model as it is now, to be used before more is learnt; None while it knows too little."""
        ...


def arrays_of(learner: Learner) -> Arrays:
    """Every array that learning changes, by its name."""
    return {name: part.array for name, part in learner.state().items()}
