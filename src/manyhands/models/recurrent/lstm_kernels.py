"""The kernels of ``lstm``: one layer over many texts at once, forwards and backwards through time.

Texts are packed by time: first the first word of every text, then the second of all that have one,
and so on, the longest text first. So step ``t`` is ``counts[t]`` rows that begin at ``starts[t]``,
its texts are the first of those of the step before, and no time is spent on padding. A row of
``gates`` holds input, forget and output gate and the candidate, each as wide as the state.
"""

import numpy as np

from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.simd import LINE, Floats, logistic_line

ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)


@kernel
def sigmoids(array: Floats, start: int, count: int) -> None:
    """In place, from the number at ``start`` on, counted row after row."""
    whole = count - count % LINE
    for k in range(0, whole, LINE):
        logistic_line(array, start + k, ONE, ONE, ZERO)
    if whole < count:
        flat = array.reshape(-1)
        for k in range(start + whole, start + count):
            flat[k] = ONE / (ONE + np.exp(-flat[k]))


@kernel
def tangents(array: Floats, start: int, count: int) -> None:
    whole = count - count % LINE
    for k in range(0, whole, LINE):
        logistic_line(array, start + k, TWO, TWO, -ONE)
    if whole < count:
        flat = array.reshape(-1)
        for k in range(start + whole, start + count):
            flat[k] = np.tanh(flat[k])


@kernel
def forwards(
    gates: Floats, recurrent: Floats, counts: Ints, starts: Ints, h: Floats, c: Floats, shown: Floats
) -> None:
    """``gates`` come with what the input adds to them, and become what they are; ``shown`` is tanh(c).

    ``recurrent`` is (state, 4 x state): what the state before adds.
    """
    width = h.shape[1]
    added = np.empty((counts[0], 4 * width), np.float32)
    for t in range(len(counts)):
        first, count, before = starts[t], counts[t], starts[t - 1] if t else 0
        if t:
            np.dot(h[before : before + count], recurrent, added[:count])
        for row in range(count):
            at = first + row
            if t:
                for k in range(4 * width):
                    gates[at, k] += added[row, k]
            sigmoids(gates, at * 4 * width, 3 * width)
            tangents(gates, at * 4 * width + 3 * width, width)
            for k in range(width):
                c[at, k] = gates[at, k] * gates[at, 3 * width + k]
            if t:
                for k in range(width):
                    c[at, k] += gates[at, width + k] * c[before + row, k]
            for k in range(width):
                shown[at, k] = c[at, k]
            tangents(shown, at * width, width)
            for k in range(width):
                h[at, k] = gates[at, 2 * width + k] * shown[at, k]


@kernel
def backwards(
    gates: Floats, recurrent: Floats, counts: Ints, starts: Ints, c: Floats, shown: Floats, dh: Floats
) -> None:
    """From the gradient of every state, ``dh``, to that of the gates' inputs, written over ``gates``.

    ``recurrent`` is (4 x state, state) here.
    """
    width, later = c.shape[1], 0
    dc, added = np.zeros((counts[0], width), np.float32), np.empty((counts[0], width), np.float32)
    for t in range(len(counts) - 1, -1, -1):
        first, count, before = starts[t], counts[t], starts[t - 1] if t else 0
        if later:
            np.dot(gates[first + count : first + count + later], recurrent, added[:later])
            for row in range(later):
                for k in range(width):
                    dh[first + row, k] += added[row, k]
        for row in range(count):
            at = first + row
            for k in range(width):
                shut, tip, slope = gates[at, 2 * width + k], shown[at, k], dh[at, k]
                gates[at, 2 * width + k] = slope * tip * shut * (ONE - shut)
                dc[row, k] += slope * shut * (ONE - tip * tip)
            for k in range(width):
                opened, new, slope = gates[at, k], gates[at, 3 * width + k], dc[row, k]
                gates[at, k] = slope * new * opened * (ONE - opened)
                gates[at, 3 * width + k] = slope * opened * (ONE - new * new)
            for k in range(width):
                kept, slope = gates[at, width + k], dc[row, k]
                past = c[before + row, k] if t else ZERO
                gates[at, width + k] = slope * past * kept * (ONE - kept)
                dc[row, k] = slope * kept
        later = count


@kernel
def states_before(h: Floats, counts: Ints, starts: Ints, out: Floats) -> None:
    """The state before each row of every step but the first."""
    at = 0
    for t in range(1, len(counts)):
        for row in range(counts[t]):
            for k in range(h.shape[1]):
                out[at, k] = h[starts[t - 1] + row, k]
            at += 1
