"""Adam: every number has a step of its own. Rows of a table that nothing touched stay as they are."""

import numpy as np

from manyhands.kernel import Ints, kernel
from manyhands.lines import Floats

FIRST, SECOND = 0.9, 0.999  # how much of the mean and of the mean square is kept from step to step
LEAST = np.float32(1e-8)


@kernel
def update(
    rate: float, step: int, rows: Ints, gradient: Floats, array: Floats, mean: Floats, square: Floats
) -> None:
    """Move ``array[rows]`` along ``gradient``, which points to where it is better."""
    first, second = np.float32(FIRST), np.float32(SECOND)
    size = np.float32(rate / (1 - FIRST**step))
    even = np.float32(1 / (1 - SECOND**step))
    for i in range(len(rows)):
        row = rows[i]
        for k in range(array.shape[1]):
            g = gradient[i, k]
            m = first * mean[row, k] + (np.float32(1) - first) * g
            v = second * square[row, k] + (np.float32(1) - second) * g * g
            mean[row, k], square[row, k] = m, v
            array[row, k] += size * m / (np.sqrt(v * even) + LEAST)
