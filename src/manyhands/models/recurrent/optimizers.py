"""Ways of moving along a gradient. Rows of a table that nothing touched stay as they are."""

from typing import Protocol

import numpy as np

from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.models.learner import StateArray
from manyhands.models.model import Arrays

FIRST, SECOND = 0.9, 0.999  # how much of the mean and of the mean square is kept from step to step
LEAST = np.float32(1e-8)


class Optimizer(Protocol):
    """``remembered`` is what ``state`` gave of another, if this one is to go on in the same memory."""

    def __init__(
        self, arrays: Arrays, momentum: float, decay: float, remembered: Arrays | None = None
    ) -> None: ...

    def begin_step(self) -> None: ...

    def move(self, name: str, rows: Ints, gradient: Floats, rate: float) -> None:
        """Move some rows of an array along ``gradient``, which points to where they are better."""
        ...

    def state(self) -> Arrays:
        """All that it remembers, as it is: not a copy."""
        ...


def state_of(weights: Arrays, optimizer: Optimizer) -> dict[str, StateArray]:
    """What learning changes: the weights, and what the optimizer remembers of them."""
    remembered = {name: StateArray(array, memory=True) for name, array in optimizer.state().items()}
    return {**{name: StateArray(array) for name, array in weights.items()}, **remembered}


def _memory(kind: str, arrays: Arrays, remembered: Arrays | None) -> Arrays:
    """A number for each of the weights."""
    if remembered is None:
        return {name: np.zeros_like(array) for name, array in arrays.items()}
    return {name: remembered[f"{kind}.{name}"] for name in arrays}


def _rows(array: Floats) -> Floats:
    return array.reshape(-1, array.shape[-1])


class Sgd:
    """Straight along the gradient, with momentum."""

    def __init__(
        self, arrays: Arrays, momentum: float, decay: float, remembered: Arrays | None = None
    ) -> None:
        self._arrays, self._momentum, self._decay = arrays, momentum, decay
        self._speeds = _memory("speeds", arrays, remembered)

    def begin_step(self) -> None:
        pass

    def move(self, name: str, rows: Ints, gradient: Floats, rate: float) -> None:
        shrunk = rate * self._decay
        array, speeds = _rows(self._arrays[name]), _rows(self._speeds[name])
        _sgd(rate, self._momentum, shrunk, rows, gradient, array, speeds)

    def state(self) -> Arrays:
        return {f"speeds.{name}": array for name, array in self._speeds.items()}


class Adam:
    """Every number has a step of its own; what ``decay`` takes away is apart from that, as in AdamW."""

    def __init__(
        self, arrays: Arrays, momentum: float, decay: float, remembered: Arrays | None = None
    ) -> None:
        self._arrays, self._decay = arrays, decay
        self._means, self._squares = (_memory(kind, arrays, remembered) for kind in ("means", "squares"))
        self._steps = np.zeros(1, np.int64) if remembered is None else remembered["steps"]

    def begin_step(self) -> None:
        self._steps += 1

    def move(self, name: str, rows: Ints, gradient: Floats, rate: float) -> None:
        shrunk = rate * self._decay
        array, mean, square = (_rows(of[name]) for of in (self._arrays, self._means, self._squares))
        _adam(rate, int(self._steps[0]), shrunk, rows, gradient, array, mean, square)

    def state(self) -> Arrays:
        kept = {"means": self._means, "squares": self._squares}
        moments = {f"{kind}.{name}": array for kind, of in kept.items() for name, array in of.items()}
        return {**moments, "steps": self._steps}


@kernel
def _sgd(
    rate: float, momentum: float, shrunk: float, rows: Ints, gradient: Floats, array: Floats, speeds: Floats
) -> None:
    size, kept, stay = np.float32(rate), np.float32(momentum), np.float32(1 - shrunk)
    for i in range(len(rows)):
        row = rows[i]
        for k in range(array.shape[1]):
            speeds[row, k] = kept * speeds[row, k] + gradient[i, k]
            array[row, k] = array[row, k] * stay + size * speeds[row, k]


@kernel
def _adam(
    rate: float,
    step: int,
    shrunk: float,
    rows: Ints,
    gradient: Floats,
    array: Floats,
    mean: Floats,
    square: Floats,
) -> None:
    first, second, stay = np.float32(FIRST), np.float32(SECOND), np.float32(1 - shrunk)
    size = np.float32(rate / (1 - FIRST**step))
    even = np.float32(1 / (1 - SECOND**step))
    for i in range(len(rows)):
        row = rows[i]
        for k in range(array.shape[1]):
            g = gradient[i, k]
            m = first * mean[row, k] + (np.float32(1) - first) * g
            v = second * square[row, k] + (np.float32(1) - second) * g * g
            mean[row, k], square[row, k] = m, v
            array[row, k] = array[row, k] * stay + size * m / (np.sqrt(v * even) + LEAST)
