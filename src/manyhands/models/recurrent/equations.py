"""The cell of an LSTM, from its four gate equations, for texts packed by time.

With x the input of a step, h the state and c the memory before it, and * number by number::

    i = sigmoid(W_i x + U_i h + b_i)        how much of what is new comes in
    f = sigmoid(W_f x + U_f h + b_f)        how much of the memory stays
    o = sigmoid(W_o x + U_o h + b_o)        how much of the memory is shown
    g = tanh   (W_g x + U_g h + b_g)        what is new

    c' = f * c + i * g
    h' = o * tanh(c')

``W x + b`` of all steps comes in one matrix product from whoever calls; here is what follows it.
"""

from typing import NamedTuple

import numpy as np

from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import Floats


class Step(NamedTuple):
    """What one step has seen, for the way back."""

    i: Floats
    f: Floats
    o: Floats
    g: Floats
    c: Floats
    c_before: Floats


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)


def forwards(inputs: Floats, recurrent: Floats, counts: Ints, starts: Ints) -> tuple[Floats, list[Step]]:
    """The state after every step, and the steps."""
    width = recurrent.shape[1]
    out = np.empty((len(inputs), width), np.float32)
    h = np.zeros((int(counts[0]), width), np.float32)
    c, steps = h, []
    for first, count in zip(starts.tolist(), counts.tolist(), strict=True):
        h, c_before = h[:count], c[:count]  # shorter texts have ended
        gates = inputs[first : first + count] + h @ recurrent.T
        i, f, o = (sigmoid(gates[:, k * width : (k + 1) * width]) for k in range(3))
        g = np.tanh(gates[:, 3 * width :])
        c = f * c_before + i * g
        h = o * np.tanh(c)
        out[first : first + count] = h
        steps.append(Step(i, f, o, g, c, c_before))
    return out, steps


def backwards(steps: list[Step], recurrent: Floats, counts: Ints, starts: Ints, dh: Floats) -> Floats:
    """From the gradient of every state, ``dh``, to that of the gates' inputs: the last step comes first."""
    width = recurrent.shape[1]
    out = np.empty((len(dh), 4 * width), np.float32)
    dh_later, dc_later = np.zeros((2, int(counts[0]), width), np.float32)
    for step, first, count in zip(steps[::-1], starts[::-1].tolist(), counts[::-1].tolist(), strict=True):
        shown = np.tanh(step.c)
        slope = dh[first : first + count] + dh_later[:count]
        dc = dc_later[:count] + slope * step.o * (1 - shown**2)
        gates = out[first : first + count]
        gates[:, :width] = dc * step.g * step.i * (1 - step.i)
        gates[:, width : 2 * width] = dc * step.c_before * step.f * (1 - step.f)
        gates[:, 2 * width : 3 * width] = slope * shown * step.o * (1 - step.o)
        gates[:, 3 * width :] = dc * step.i * (1 - step.g**2)
        dh_later[:count] = gates @ recurrent
        dc_later[:count] = dc * step.f
    return out
