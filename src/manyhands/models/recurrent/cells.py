"""Recurrent cells: how the state of a text changes with every step, and the way back.

A cell is given what the input adds to its gates, for all steps of many packed texts at once (see
``lstm_kernels``), and gives the state after every step. On the way back it turns the gradient of
the states into that of the gates' inputs and of its own arrays.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from manyhands.kernels.simd import Floats
from manyhands.models.model import Arrays
from manyhands.models.recurrent import equations, gru_kernels, lstm_kernels
from manyhands.models.recurrent.sequences import Packed

Sizes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Trace:
    """What a layer has seen on the way forwards: the state after each step, and what the way back needs."""

    gates: Floats
    h: Floats
    more: tuple[Any, ...]


class Cell(Protocol):
    @staticmethod
    def sizes(below: int, width: int) -> Sizes:
        """The arrays of a layer. ``inputs`` and ``bias`` are what makes the gates' inputs."""
        ...

    @staticmethod
    def forwards(layer: Arrays, gates: Floats, packed: Packed) -> Trace: ...

    @staticmethod
    def backwards(layer: Arrays, trace: Trace, packed: Packed, dh: Floats) -> Arrays:
        """The gradient of the arrays but ``inputs``; afterwards ``trace.gates`` holds that of its inputs."""
        ...


class Lstm:
    """Input, forget and output gate and the candidate, in compiled kernels."""

    @staticmethod
    def sizes(below: int, width: int) -> Sizes:
        return {"inputs": (4 * width, below), "recurrent": (4 * width, width), "bias": (4 * width,)}

    @staticmethod
    def forwards(layer: Arrays, gates: Floats, packed: Packed) -> Trace:
        h, c, shown = (np.empty((len(gates), layer["recurrent"].shape[1]), np.float32) for _ in range(3))
        turned = np.ascontiguousarray(layer["recurrent"].T)
        lstm_kernels.forwards(gates, turned, packed.counts, packed.starts, h, c, shown)
        return Trace(gates, h, (c, shown))

    @staticmethod
    def backwards(layer: Arrays, trace: Trace, packed: Packed, dh: Floats) -> Arrays:
        c, shown = trace.more
        lstm_kernels.backwards(trace.gates, layer["recurrent"], packed.counts, packed.starts, c, shown, dh)
        return _by_states(trace.gates, trace.h, packed)


class Equations(Lstm):
    """The same cell, as the four equations say it, step by step: to read and compare with, not for speed."""

    @staticmethod
    def forwards(layer: Arrays, gates: Floats, packed: Packed) -> Trace:
        h, steps = equations.forwards(gates, layer["recurrent"], packed.counts, packed.starts)
        return Trace(gates, h, (steps,))

    @staticmethod
    def backwards(layer: Arrays, trace: Trace, packed: Packed, dh: Floats) -> Arrays:
        (steps,) = trace.more
        trace.gates[:] = equations.backwards(steps, layer["recurrent"], packed.counts, packed.starts, dh)
        return _by_states(trace.gates, trace.h, packed)


class Gru:
    """Reset and update gate and the candidate, for which the reset gate holds the state back."""

    @staticmethod
    def sizes(below: int, width: int) -> Sizes:
        return {
            "inputs": (3 * width, below),
            "recurrent": (3 * width, width),
            "bias": (3 * width,),
            "state_bias": (width,),
        }

    @staticmethod
    def forwards(layer: Arrays, gates: Floats, packed: Packed) -> Trace:
        h, held = (np.empty((len(gates), layer["recurrent"].shape[1]), np.float32) for _ in range(2))
        turned = np.ascontiguousarray(layer["recurrent"].T)
        gru_kernels.forwards(gates, turned, layer["state_bias"], packed.counts, packed.starts, h, held)
        return Trace(gates, h, (held,))

    @staticmethod
    def backwards(layer: Arrays, trace: Trace, packed: Packed, dh: Floats) -> Arrays:
        (held,) = trace.more
        from_state = np.empty_like(trace.gates)
        gru_kernels.backwards(
            trace.gates, layer["recurrent"], packed.counts, packed.starts, trace.h, held, from_state, dh
        )
        out = _by_states(from_state, trace.h, packed)
        width = trace.h.shape[1]
        return {**out, "bias": trace.gates.sum(axis=0), "state_bias": out["bias"][2 * width :].copy()}


def _by_states(gates: Floats, h: Floats, packed: Packed) -> Arrays:
    """The gradient of the arrays that stand between one state and the next."""
    first = int(packed.counts[0])
    before = np.empty((len(h) - first, h.shape[1]), np.float32)
    lstm_kernels.states_before(h, packed.counts, packed.starts, before)
    return {"recurrent": gates[first:].T @ before, "bias": gates.sum(axis=0)}


CELLS: dict[str, type[Cell]] = {"lstm": Lstm, "gru": Gru, "equations": Equations}
