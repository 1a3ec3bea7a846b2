"""What a model is to the training loop: something that learns from blocks of rows.

The loop knows nothing else of it. A model that is added to the catalog follows this protocol,
and the contract tests then hold it to it.
"""

from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from manyhands.records import Progress, Resources
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


class Feed(Protocol):
    """The rows of a lesson in blocks that fit a model, the same blocks in every epoch."""

    def __len__(self) -> int: ...

    def rows(self, block: int) -> int: ...

    def block(self, number: int) -> Any: ...


class Model(Protocol):
    """A trained model: what a bundle holds, and what predicts."""

    @property
    def labels(self) -> list[str]: ...

    @property
    def several(self) -> bool:
        """A text may have several labels, or none."""
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
    shares_batches: ClassVar[bool]  # threads share each block, inside ``learn``, and not the blocks

    @classmethod
    def begin(
        cls, settings: Any, lesson: Lesson, previous: Any | None, resources: Resources, progress: Progress
    ) -> tuple[Self, Feed]:
        """A learner that knows nothing yet, or what ``previous`` knew; and the lesson in blocks for it."""
        ...

    def learn(self, block: Any, rate: float, seed: int) -> Loss:
        """One pass over a block, rows in the order of ``seed``; threads may do this side by side."""
        ...

    def weights(self) -> Arrays:
        """Every array that learning changes, as it is: not a copy."""
        ...

    def model(self) -> Any:
        """The model as it is now, for scoring; it shares its memory with the learner."""
        ...
