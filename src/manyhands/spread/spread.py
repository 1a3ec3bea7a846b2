"""What a spread is: a way of sharing the work of a run among threads, processes or machines."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from manyhands.records import Progress
from manyhands.settings import Settings
from manyhands.spread.stream_crew import StreamCrew
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.job import Job, Outcome, Role
from manyhands.training.learn import Watch


class Spread(ABC):
    """A way of sharing the work. A new one needs ``run``, and its settings if it has any."""

    Settings: ClassVar[type[Settings]] = Settings
    summary: ClassVar[str]  # a line for people who choose
    turn: ClassVar[str] = "epoch"  # what it validates after
    decides: ClassVar[frozenset[str]] = frozenset()  # settings that decide the result, not only the speed
    counts: ClassVar[str | None] = None  # the setting that says how many workers there are
    threaded: ClassVar[bool] = True  # a worker may have several threads
    leaving_seconds: ClassVar[float] = 0.6  # from when a checkpoint is kept until all have ended
    waits: ClassVar[bool] = True  # for the slowest worker in every exchange
    sends_weights: ClassVar[bool] = False  # all of them, to one machine and back; else what was moved
    copies: ClassVar[int] = 1  # of what a learner keeps, that one of several machines may come to hold
    adds_up_bytes: ClassVar[bool] = False  # its traffic is that of all workers, not of one
    Streaming: ClassVar[type[StreamCrew] | None] = None  # who learns from streams; None: it cannot

    def advice(self, data: Sequence[str], settings: Mapping[str, Any]) -> str:
        """A sentence for people whom something else would serve better; empty for all others."""
        return ""

    def check(self, job: Job) -> None:  # noqa: B027 - most have nothing to say
        """Tell what cannot work before anything begins."""

    def launches(self) -> bool:
        """Whether ``launch`` starts processes that open the rows themselves."""
        return False

    def launch(self, job: Job, threads: int | None, progress: Progress) -> Role:
        """Start the processes that it needs, if it does not run here; gives what is left to do here.

        ``threads`` are those that the user asked for.
        """
        return Role.LEADS

    @abstractmethod
    def run(
        self,
        job: Job,
        examples: LabelledRows,
        valid: LabelledRows | None,
        progress: Progress,
        watch: Watch | None = None,
    ) -> Outcome:
        """Learn the rows. ``watch`` is told of every round."""
