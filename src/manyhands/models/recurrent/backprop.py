"""From packed texts to scores, and from the loss back to the gradient of every array."""

import time
from dataclasses import dataclass

import numpy as np

from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import Floats
from manyhands.models.losses import errors_of_rows, probabilities_of_rows
from manyhands.models.model import Arrays, Scores
from manyhands.models.recurrent import pooling
from manyhands.models.recurrent.cells import CELLS, Trace
from manyhands.models.recurrent.network import Network, layer_name
from manyhands.models.recurrent.sequences import Batch, Packed

POOLED = 1 << 16  # in the place of a level, where dropout is told what it drops


@dataclass(frozen=True)
class Work:
    """What is to be done with a batch. ``vectors`` has a row for every word, or step of numbers."""

    network: Network
    vectors: Floats
    loss: int
    pool: str
    dropout: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Part:
    """The gradient of a few rows; of the words' vectors, only those that occurred."""

    cost: float
    weight: float
    words: Ints
    vectors: Floats
    rest: Arrays
    forward_seconds: float
    backward_seconds: float


@dataclass(frozen=True)
class _Seen:
    """What was seen on the way forwards: what each level read, and a trace for every way it was read in.

    The lowest level read each distinct word once, and ``where`` says which step is which of them.
    """

    words: Ints
    where: Ints
    below: list[Floats]
    traces: list[list[Trace]]


@dataclass(frozen=True)
class Passed:
    """The way of some texts forwards: ``outputs`` is what the linear layer makes of each one's state."""

    seen: _Seen | None  # None where no text has a word
    pooled: Floats
    came_from: list[Ints]
    outputs: Floats


def forwards(work: Work, packed: Packed, batch: Batch | None = None) -> Passed:
    """From texts to outputs, in the order of the packed ones; a ``batch`` says that it is for training."""
    seen = _forwards(work, packed, batch) if len(packed.words) else None
    pooled, came_from = _pooled(work, packed, seen.traces[-1] if seen else [])
    if batch is not None:
        _drop_pooled(work, pooled, batch)
    outputs = pooled @ work.network.rest["output"].T + work.network.rest["output_bias"]
    return Passed(seen, pooled, came_from, outputs)


def backwards(
    work: Work, packed: Packed, passed: Passed, by_outputs: Floats, batch: Batch | None = None
) -> tuple[Ints, Floats, Arrays]:
    """From the gradient of the outputs to that of all arrays: some words, their vectors', and the rest's."""
    rest: Arrays = {"output": by_outputs.T @ passed.pooled, "output_bias": by_outputs.sum(axis=0)}
    if passed.seen is None:
        return packed.words, np.empty((0, work.network.shape.widths[0]), np.float32), rest
    by_pooled = np.asarray(by_outputs @ work.network.rest["output"], np.float32)
    if batch is not None:
        _drop_pooled(work, by_pooled, batch)
    vectors = _backwards(work, packed, batch, passed.seen, passed.came_from, by_pooled, rest)
    return passed.seen.words, vectors, rest


def scores_of(work: Work, packed: Packed) -> Scores:
    """The probability of each label for each text, in the order of the packed ones."""
    scores = forwards(work, packed).outputs
    probabilities_of_rows(scores, work.loss)
    return scores


def gradients(work: Work, batch: Batch) -> Part:
    """The gradient of the likelihood of a batch's labels, summed over its rows."""
    began = time.perf_counter()
    passed = forwards(work, batch.packed, batch)
    errors = passed.outputs  # become that, in place
    cost = errors_of_rows(errors, work.loss, batch.labels, batch.label_offsets, batch.weights)
    middle = time.perf_counter()
    words, vectors, rest = backwards(work, batch.packed, passed, errors, batch)
    seconds = middle - began, time.perf_counter() - middle
    return Part(cost, float(batch.weights.sum()), words, vectors, rest, *seconds)


def _forwards(work: Work, packed: Packed, batch: Batch | None) -> _Seen:
    """Every level in turn. A word's part in the gates is computed once, however often it stands there."""
    network, shape = work.network, work.network.shape
    words, where = np.unique(packed.words, return_inverse=True)
    seen = _Seen(words, where, [work.vectors[words]], [])
    for level in range(len(shape.widths) - 1):
        traces = []
        for way, name in enumerate(shape.directions):
            layer = network.layer(level, name)
            gates = seen.below[level] @ layer["inputs"].T
            gates += layer["bias"]
            if level == 0:
                gates = _gathered(gates, where if way == 0 else where[packed.mirror])
            elif way:
                gates = _gathered(gates, packed.mirror)
            traces.append(CELLS[shape.cell].forwards(layer, gates, packed))
        seen.traces.append(traces)
        if level + 2 < len(shape.widths):
            above = traces[0].h
            if len(traces) > 1:
                above = np.concatenate([above, traces[1].h[packed.mirror]], axis=1)
            seen.below.append(_dropped(work, above, level, batch))
    return seen


def _backwards(
    work: Work,
    packed: Packed,
    batch: Batch | None,
    seen: _Seen,
    came_from: list[Ints],
    by_pooled: Floats,
    rest: Arrays,
) -> Floats:
    """Add the gradient of every layer to ``rest``; gives that of the vectors of ``seen.words``."""
    network, shape = work.network, work.network.shape
    by_words = np.zeros_like(seen.below[0])
    by_states = [
        _unpooled(work, packed, came_from[way], by_pooled[:, way * width : (way + 1) * width], width)
        for way in range(len(shape.directions))
        for width in [shape.widths[-1]]
    ]
    for level in range(len(shape.widths) - 2, -1, -1):
        by_below = by_words if level == 0 else np.zeros_like(seen.below[level])
        for way, name in enumerate(shape.directions):
            layer, trace = network.layer(level, name), seen.traces[level][way]
            found = CELLS[shape.cell].backwards(layer, trace, packed, by_states[way])
            gates = trace.gates
            if level == 0:
                where = seen.where if way == 0 else seen.where[packed.mirror]
                gates = np.zeros((len(seen.words), trace.gates.shape[1]), np.float32)
                pooling.scatter(where, trace.gates, gates)
            elif way:
                gates = _gathered(trace.gates, packed.mirror)
            found["inputs"] = gates.T @ seen.below[level]
            by_below += gates @ layer["inputs"]
            rest |= {layer_name(level, name, part): array for part, array in found.items()}
        if level:
            by_below = _dropped(work, by_below, level - 1, batch)
            width = shape.widths[level]
            by_states = [by_below if not shape.bidirectional else np.ascontiguousarray(by_below[:, :width])]
            if shape.bidirectional:
                by_states.append(_gathered(np.ascontiguousarray(by_below[:, width:]), packed.mirror))
    return by_words


def _gathered(rows: Floats, where: Ints) -> Floats:
    out = np.empty((len(where), rows.shape[1]), np.float32)
    pooling.gather(where, rows, out)
    return out


def _dropped(work: Work, rows: Floats, level: int, batch: Batch | None) -> Floats:
    """Dropout, in training only: ``batch`` says which rows these are. The way back drops the same numbers."""
    if batch is None or not work.dropout:
        return rows
    rows, packed = rows.copy(), batch.packed
    pooling.drop(rows, work.dropout, work.seed + level, batch.rows, packed.counts, packed.starts)
    return rows


def _drop_pooled(work: Work, pooled: Floats, batch: Batch) -> None:
    if work.dropout:
        all_texts, first = np.array([len(pooled)]), np.zeros(1, np.int64)
        pooling.drop(pooled, work.dropout, work.seed + POOLED, batch.rows, all_texts, first)


def _pooled(work: Work, packed: Packed, traces: list[Trace]) -> tuple[Floats, list[Ints]]:
    """One vector for each text, and where its numbers came from.

    Each way is pooled in its own order: the last state of the way back is at the first word.
    """
    shape = work.network.shape
    out = np.zeros((len(packed.rows), shape.pooled), np.float32)
    came_from, width = [], shape.widths[-1]
    for way, trace in enumerate(traces):
        mine = np.zeros((len(out), width), np.float32)
        where = np.zeros((int(np.count_nonzero(packed.lengths)), width), np.int64)
        if work.pool == "max":
            pooling.pool_max(trace.h, packed.counts, packed.starts, mine, where)
        elif work.pool == "mean":
            pooling.pool_mean(trace.h, packed.counts, packed.starts, packed.lengths, mine)
        else:
            mine[: len(where)] = trace.h[packed.last]
            where[:] = packed.last[:, None]
        out[:, way * width : (way + 1) * width] = mine
        came_from.append(where)
    return out, came_from


def _unpooled(work: Work, packed: Packed, came_from: Ints, gradient: Floats, width: int) -> Floats:
    by_states, gradient = np.zeros((len(packed.words), width), np.float32), np.ascontiguousarray(gradient)
    if work.pool == "mean":
        pooling.unpool_mean(packed.counts, packed.starts, packed.lengths, gradient, by_states)
    else:
        pooling.unpool_max(came_from, gradient, by_states)
    return by_states
