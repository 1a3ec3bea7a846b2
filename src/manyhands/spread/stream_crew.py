"""Who learns the pieces of a stream: what differs between the spreads that can."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from manyhands.errors import ManyhandsError
from manyhands.kernels.simd import Floats, aligned_zeros
from manyhands.models.learner import Loss, StreamLearner
from manyhands.records import Progress, Resources
from manyhands.settings import Settings


class WorkerLostError(ManyhandsError):
    """A worker has ended in the middle of a piece: nobody knows how much of it is in the tables."""


class StreamCrew(ABC):
    """Workers that learn in the tables of one learner, which reads and counts for all of them.

    So a word that gets a row, or leaves, does so for all of them at once, nothing has to be exchanged, and
    when all pieces are learnt the learner knows all that there is to be kept.
    """

    Settings: ClassVar[type[Settings]] = Settings
    summary: ClassVar[str]  # a line for people who choose
    workers: int = 1
    blocks_ahead: int  # that may be under way while the next one is read; 0: each is learnt before that

    @abstractmethod
    def __init__(self, settings: Any, resources: Resources, *, deterministic: bool) -> None:
        """Tell what cannot work before anything begins. Nothing is started yet."""

    def zeros(self, rows: int, width: int) -> Floats:
        """Room for tables that all of them learn in."""
        return aligned_zeros(rows, width)

    @abstractmethod
    def working(self, model: str, settings: Any, progress: Progress) -> AbstractContextManager[None]:
        """Inside, they learn. ``model`` is the learner's name in the catalog, with its ``settings``."""

    def serve(self, learner: StreamLearner) -> None:
        """From now on, they learn for this learner. Workers that were lost are back when this returns."""
        self._learner = learner

    @abstractmethod
    def learn(self, pieces: Sequence[Any], rate: float) -> "Sequence[Future[Loss]]":
        """Have these learnt, side by side if that is how they work; a future may say WorkerLostError."""
