"""The kernels of a GRU, over texts packed by time as in ``lstm_kernels``.

A row of ``gates`` holds reset and update gate and the candidate, each as wide as the state.
"""

import numpy as np

from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.models.recurrent.lstm_kernels import ONE, sigmoids, tangents


@kernel
def forwards(
    gates: Floats, recurrent: Floats, bias: Floats, counts: Ints, starts: Ints, h: Floats, held: Floats
) -> None:
    """``gates`` come with what the input adds to them, and become what they are.

    ``held`` is what the state adds to the candidate before the reset gate; ``recurrent`` is
    (state, 3 x state).
    """
    width = h.shape[1]
    added = np.zeros((counts[0], 3 * width), np.float32)
    for t in range(len(counts)):
        first, count, before = starts[t], counts[t], starts[t - 1] if t else 0
        if t:
            np.dot(h[before : before + count], recurrent, added[:count])
        for row in range(count):
            at = first + row
            for k in range(2 * width):
                gates[at, k] += added[row, k]
            sigmoids(gates, at * 3 * width, 2 * width)
            for k in range(width):
                held[at, k] = added[row, 2 * width + k] + bias[k]
                gates[at, 2 * width + k] += gates[at, k] * held[at, k]
            tangents(gates, at * 3 * width + 2 * width, width)
            for k in range(width):
                new, kept = gates[at, 2 * width + k], gates[at, width + k]
                h[at, k] = (ONE - kept) * new
                if t:
                    h[at, k] += kept * h[before + row, k]


@kernel
def backwards(
    gates: Floats,
    recurrent: Floats,
    counts: Ints,
    starts: Ints,
    h: Floats,
    held: Floats,
    from_state: Floats,
    dh: Floats,
) -> None:
    """From the gradient of every state to that of what the input and what the state add to the gates.

    The first is written over ``gates``, the second to ``from_state``: they differ in the candidate.
    ``recurrent`` is (3 x state, state) here.
    """
    width, later = h.shape[1], 0
    added = np.empty((counts[0], width), np.float32)
    carried = np.zeros((counts[0], width), np.float32)
    for t in range(len(counts) - 1, -1, -1):
        first, count, before = starts[t], counts[t], starts[t - 1] if t else 0
        if later:
            np.dot(from_state[first + count : first + count + later], recurrent, added[:later])
            for row in range(later):
                for k in range(width):
                    dh[first + row, k] += added[row, k] + carried[row, k]
        for row in range(count):
            at = first + row
            for k in range(width):
                reset, kept, new = gates[at, k], gates[at, width + k], gates[at, 2 * width + k]
                slope = dh[at, k]
                past = h[before + row, k] if t else np.float32(0)
                by_new = slope * (ONE - kept) * (ONE - new * new)
                gates[at, k] = from_state[at, k] = by_new * held[at, k] * reset * (ONE - reset)
                by_kept = slope * (past - new) * kept * (ONE - kept)
                gates[at, width + k] = from_state[at, width + k] = by_kept
                gates[at, 2 * width + k] = by_new
                from_state[at, 2 * width + k] = by_new * reset
                carried[row, k] = slope * kept
        later = count
