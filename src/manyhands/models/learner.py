"""What a model is to the training loop: something that learns from blocks of rows.

The loop knows nothing else of it. A model that is added to the catalog follows this protocol,
and the contract tests then hold it to it.
"""

from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Ints
from manyhands.records import Clock, Progress, Resources
from manyhands.settings import ModelSettings
from manyhands.text.corpus import Corpus
from manyhands.text.lesson import Lesson
from manyhands.text.ragged import Ragged

Arrays = dict[str, npt.NDArray[Any]]
Scores = npt.NDArray[np.float32]


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


class Feed(Protocol):
    """The rows of a lesson in blocks that fit a model: each row once an epoch, blocks always as long.

    What counts as a row is a text with its labels, or a single word where running text is learnt.
    """

    unit: str  # "rows" or "words"

    def __len__(self) -> int: ...

    def rows(self, block: int) -> int: ...

    def piece(self, piece: Piece, epoch: int) -> Any:
        """Some rows, ready to be learnt; threads may ask for several at once, of one epoch at a time."""
        ...


class Crew(Protocol):
    """Those who learn together, as a learner sees them."""

    clock: Clock

    def sum(self, numbers: npt.NDArray[np.float32]) -> None:
        """Add up what every worker has, in place: all then have the same. Alone, nothing changes."""
        ...


class Model(Protocol):
    """A trained model: what a bundle holds, and what predicts."""

    @property
    def labels(self) -> list[str]: ...

    @property
    def several(self) -> bool:
        """A text may have several labels, or none."""
        ...

    @property
    def reads_numbers(self) -> bool:
        """Its rows are numbers and not texts."""
        ...

    def read(self, normal: Ragged) -> Corpus:
        """Normalised texts as a corpus, made in the way that scores them soonest."""
        ...

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        """The probability of each label for each row."""
        ...

    def facts(self) -> dict[str, Any]:
        """What has to be known to open the model again, beside its arrays."""
        ...

    def arrays(self) -> Arrays:
        """Its arrays, under the names by which a bundle keeps them."""
        ...

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        """The opposite of ``facts`` and ``arrays``; they may come from anywhere, so all is checked."""
        ...


class Learner(Protocol):
    """A model that is being trained."""

    Settings: ClassVar[type[ModelSettings]]
    Model: ClassVar[type[Any]]
    learns: ClassVar[Literal["labels", "words"]]  # to tell labels of texts, or vectors of words
    # Workers and threads share each block, inside ``learn``, and add up their gradients; otherwise
    # each learns blocks of its own, in place.
    shares_batches: ClassVar[bool]

    @classmethod
    def begin(
        cls,
        settings: Any,
        lesson: Lesson,
        previous: Any | None,
        resources: Resources,
        progress: Progress,
        share: Ints | None = None,
    ) -> tuple[Self, Feed]:
        """A learner that knows nothing yet, or what ``previous`` knew; and the lesson in blocks for it.

        With ``share`` only those rows are in the blocks. The learner is that of the whole lesson all the
        same, so whoever learns other rows of it has the same words, and begins with the same numbers.
        """
        ...

    def feed(self, lesson: Lesson, seed: int, resources: Resources, progress: Progress) -> Feed:
        """Rows of the lesson it began with, in blocks; ``seed`` decides which rows come together."""
        ...

    def learn(self, rows: Any, rate: float, seed: int, crew: Crew) -> Loss:
        """One pass over a piece of the feed; what is random in it comes from ``seed``.

        A learner that shares batches gives the loss of the whole crew; of the others, threads may
        do this side by side.
        """
        ...

    def touched(self, pieces: list[Any]) -> dict[str, Ints]:
        """Which rows of its arrays learning these pieces can change; of an array not named, all."""
        ...

    def weights(self) -> Arrays:
        """Every array that learning changes, as it is: not a copy."""
        ...

    def model(self) -> Any:
        """The model as it is now, for scoring; it shares its memory with the learner."""
        ...
