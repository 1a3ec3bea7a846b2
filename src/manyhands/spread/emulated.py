"""A crew of threads in one process: what ``allreduce`` would make of so many machines of one worker each.

The exchange is the crew's own; only the lines between the machines are emulated, in memory. Each of them
holds a model of its own, so it takes the memory of all of them, and it tells nothing of how fast they are.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.simd import aligned_zeros
from manyhands.records import Progress, Resources, Silent
from manyhands.spread.allreduce import AllReduceExchange
from manyhands.spread.balance import Policy
from manyhands.spread.merge import ENOUGH
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.job import Job, Outcome
from manyhands.training.learn import learn

Numbers = npt.NDArray[Any]
UPPER_BITS, HALF_AN_END = np.uint32(0xFFFF0000), np.uint32(0x8000)


class Lines:
    """What the workers of an emulated crew share."""

    def __init__(self, workers: int) -> None:
        self.barrier = threading.Barrier(workers)
        self.said: list[Any] = [None] * workers


class EmulatedGroup:
    """One worker's end of the lines; see ``group.Group``."""

    def __init__(self, lines: Lines, rank: int) -> None:
        self.rank, self.size = rank, len(lines.said)
        self.machine, self.machines, self.leads = rank, self.size, True
        self.bytes, self.seconds = 0, 0.0
        self._lines = lines

    def _all_say(self, what: Any) -> list[Any]:
        """What each worker says."""
        self._lines.said[self.rank] = what
        self._lines.barrier.wait()
        said = list(self._lines.said)
        self._lines.barrier.wait()  # before anyone says something else
        return said

    def wait_for_all(self) -> None:
        self._lines.barrier.wait()

    def meet(self) -> None:
        pass

    def be_strict(self) -> None:
        pass

    def zeros(self, shape: tuple[int, int]) -> Numbers:
        return aligned_zeros(*shape)

    def share_of_machine(self, rows: int) -> tuple[int, int]:
        return 0, rows

    def name(self, worker: int) -> str:
        return f"worker {worker}"

    def beat(self, step: int) -> None:
        pass

    def add_up(self, numbers: Numbers) -> None:
        self.bytes += numbers.nbytes
        numbers[...] = np.sum(self._all_say(numbers.copy()), axis=0, dtype=numbers.dtype)

    def add_halves(self, numbers: Numbers) -> None:
        """As a crew sends them: without the lower half of their bits."""
        numbers[...] = ((numbers.view(np.uint32) + HALF_AN_END) & UPPER_BITS).view(np.float32)
        self.add_up(numbers)
        self.bytes -= numbers.nbytes // 2

    def sum(self, numbers: Numbers) -> bool:
        self.add_up(numbers)
        return False

    def gather(self, numbers: Numbers) -> Numbers:
        return np.stack(self._all_say(numbers))

    def text_of(self, worker: int, text: str) -> str:
        return str(self._all_say(text)[worker])

    def same_for_machines(self, array: Numbers, worker: int) -> None:
        self.same_for_all(array, worker)

    def same_for_all(self, array: Numbers, worker: int) -> None:
        array[...] = self._all_say(array.copy())[worker]


def emulate(
    job: Job,
    examples: LabelledRows,
    valid: LabelledRows | None,
    workers: int,
    progress: Progress | None = None,
    enough: Mapping[str, int] = ENOUGH,
) -> Outcome:
    """What the first of so many workers ends with, each of one thread."""
    job = replace(job, resources=Resources(1, job.resources.memory_bytes), checkpoint=None)
    lines = Lines(workers)

    def work(rank: int) -> Outcome:
        exchange = AllReduceExchange(EmulatedGroup(lines, rank), Policy(), enough=enough)
        told = progress if progress and not rank else Silent()
        try:
            return learn(job, examples, valid, exchange, told, keeps=False)
        except BaseException:
            lines.barrier.abort()  # the others would wait for ever
            raise

    with ThreadPoolExecutor(workers) as crew:
        return next(iter(list(crew.map(work, range(workers)))))
