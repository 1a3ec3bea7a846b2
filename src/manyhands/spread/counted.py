"""What a driver has counted, told to those who begin the same learner: none of them reads all rows again.

A learner counts in its share of the rows, and asks its crew to add up what all have counted. So the driver
counts everything and keeps the sums, and whoever comes later counts nothing and is given them.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.training.exchange import Alone


class Counting(Alone):
    """The driver's side: alone with all rows, for so many ``workers``."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers, self.sums = workers, list[bytes]()

    def sum(self, numbers: npt.NDArray[Any]) -> None:
        self.sums.append(numbers.tobytes())


class Counted(Alone):
    """The side of the others: they have no rows to count, and are told the sums in the same order."""

    def __init__(self, workers: int, sums: Iterable[bytes]) -> None:
        super().__init__()
        self.workers, self._sums = workers, deque(sums)

    def share(self, count: int) -> tuple[int, int]:
        return 0, 0

    def sum(self, numbers: npt.NDArray[Any]) -> None:
        numbers[...] = np.frombuffer(self._sums.popleft(), numbers.dtype).reshape(numbers.shape)
