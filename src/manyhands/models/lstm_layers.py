"""The recurrent network: its arrays, its scores, and the gradient of the loss by each of them."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.kernel import Ints
from manyhands.lines import LINE, Floats
from manyhands.models import lstm_kernels as kernels
from manyhands.models.learner import Arrays, Scores
from manyhands.models.losses import errors_of_rows, probabilities_of_rows
from manyhands.models.sequences import Batch, Packed

FORGET_BIAS = 1.0  # a state is kept at first, so that what was read early can be learnt from


@dataclass(frozen=True)
class Layer:
    """``inputs`` (4 x state, input), ``recurrent`` (4 x state, state) and ``bias`` add up to the gates."""

    inputs: Floats
    recurrent: Floats
    bias: Floats

    @property
    def width(self) -> int:
        return int(self.recurrent.shape[1])


@dataclass(frozen=True)
class Network:
    """A vector for each word, layers of states, and a linear output."""

    embedding: Floats
    layers: list[Layer]
    output: Floats
    output_bias: Floats

    @classmethod
    def at_random(cls, words: int, widths: list[int], labels: int, seed: int) -> Self:
        draw = np.random.default_rng(seed)

        def even(rows: int, columns: int, reach: float) -> Floats:
            return draw.uniform(-reach, reach, (rows, columns)).astype(np.float32)

        layers = []
        for below, width in pairwise(widths):
            reach = 1 / np.sqrt(width)
            bias = np.zeros(4 * width, np.float32)
            bias[width : 2 * width] = FORGET_BIAS
            layers.append(Layer(even(4 * width, below, reach), even(4 * width, width, reach), bias))
        embedding = even(words, widths[0], 0.5)
        output = even(labels, widths[-1], 1 / np.sqrt(widths[-1]))
        return cls(embedding, layers, output, np.zeros(labels, np.float32))

    def arrays(self) -> Arrays:
        out: Arrays = {
            "embedding": self.embedding,
            "output": self.output,
            "output_bias": self.output_bias,
        }
        for number, layer in enumerate(self.layers):
            out |= {f"layer{number}.{name}": getattr(layer, name) for name in ("inputs", "recurrent", "bias")}
        return out

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        count = sum(name.endswith(".recurrent") for name in arrays)
        layers = [
            Layer(*(arrays[f"layer{number}.{name}"] for name in ("inputs", "recurrent", "bias")))
            for number in range(count)
        ]
        return cls(arrays["embedding"], layers, arrays["output"], arrays["output_bias"])

    def zeros(self) -> Arrays:
        return {name: np.zeros_like(array) for name, array in self.arrays().items()}

    def check(self, words: int, labels: int) -> None:
        """Whether the arrays, which may come from anywhere, fit each other."""
        below = self.embedding.shape[1] if self.embedding.ndim == 2 else 0
        right = below > 0 and len(self.embedding) == words and bool(self.layers)
        for layer in self.layers:
            width = layer.recurrent.shape[1] if layer.recurrent.ndim == 2 else 0
            right = right and width > 0 and width % LINE == 0
            right = right and layer.recurrent.shape == (4 * width, width)
            right = right and layer.inputs.shape == (4 * width, below) and layer.bias.shape == (4 * width,)
            below = width
        right = right and self.output.shape == (labels, below) and self.output_bias.shape == (labels,)
        if not right or any(array.dtype != np.float32 for array in self.arrays().values()):
            raise InputError("the arrays of the network do not fit each other")

    def take_over(self, previous: "Network") -> None:
        """Begin with what an earlier network knew: its words and labels come first."""
        ours, theirs = self.arrays(), previous.arrays()
        for name, array in theirs.items():
            if ours[name].shape[1:] != array.shape[1:] or len(ours[name]) < len(array):
                raise InputError(
                    "the bundle to continue from is of another shape; leave out --hidden and --layers"
                )
            ours[name][: len(array)] = array


@dataclass(frozen=True)
class Work:
    """What is to be done with a batch."""

    network: Network
    loss: int
    pool: str


@dataclass
class Gradient:
    """Where the arrays should move, and the loss; of the embedding, only the rows of words that occurred."""

    cost: float
    words: Ints
    embedding: Floats
    rest: Arrays

    def plus(self, other: "Gradient") -> "Gradient":
        words, where = np.unique(np.concatenate([self.words, other.words]), return_inverse=True)
        embedding = np.zeros((len(words), self.embedding.shape[1]), np.float32)
        kernels.scatter(where[: len(self.words)], self.embedding, embedding)
        kernels.scatter(where[len(self.words) :], other.embedding, embedding)
        rest = {name: array + other.rest[name] for name, array in self.rest.items()}
        return Gradient(self.cost + other.cost, words, embedding, rest)

    def scaled(self, share: float, most_norm: float) -> "Gradient":
        """Divided once, and cut where it is too long."""
        parts = [self.embedding, *self.rest.values()]
        norm = share * float(np.sqrt(sum(float(np.square(part, dtype=np.float64).sum()) for part in parts)))
        factor = np.float32(share * min(1.0, most_norm / max(norm, 1e-12)))
        rest = {name: array * factor for name, array in self.rest.items()}
        return Gradient(self.cost, self.words, self.embedding * factor, rest)

    def named(self) -> dict[str, tuple[Ints, Floats]]:
        """The rows of each array that move, and how."""
        out = {"embedding": (self.words, self.embedding)}
        for name, array in self.rest.items():
            rows = array.reshape(-1, array.shape[-1])
            out[name] = (np.arange(len(rows)), rows)
        return out


@dataclass(frozen=True)
class _Pass:
    """What a layer has seen on the way forwards."""

    below: Floats  # what came in: the states below, or nothing where words did
    gates: Floats
    h: Floats
    c: Floats
    shown: Floats


def _forwards(layer: Layer, below: Floats, gates: Floats, packed: Packed) -> _Pass:
    h, c, shown = (np.empty((len(gates), layer.width), np.float32) for _ in range(3))
    recurrent = np.ascontiguousarray(layer.recurrent.T)
    kernels.forwards(gates, recurrent, packed.counts, packed.starts, h, c, shown)
    return _Pass(below, gates, h, c, shown)


def _all_layers(network: Network, packed: Packed) -> tuple[list[_Pass], Ints, Ints]:
    """Every layer in turn. A word's part in the gates is computed once, however often it stands there."""
    words, where = np.unique(packed.words, return_inverse=True)
    first = network.layers[0]
    table = network.embedding[words] @ first.inputs.T + first.bias
    gates = np.empty((len(where), 4 * first.width), np.float32)
    kernels.gather(where, table, gates)
    passes = [_forwards(first, np.empty((0, 0), np.float32), gates, packed)]
    for layer in network.layers[1:]:
        below = passes[-1].h
        gates = below @ layer.inputs.T
        gates += layer.bias
        passes.append(_forwards(layer, below, gates, packed))
    return passes, words, where


def _pooled(work: Work, packed: Packed, h: Floats) -> tuple[Floats, Ints]:
    """One vector for each text, and where its numbers came from."""
    width = work.network.layers[-1].width
    out = np.zeros((len(packed.rows), width), np.float32)
    where = np.zeros((int(np.count_nonzero(packed.lengths)), width), np.int64)
    if work.pool == "max":
        kernels.pool_max(h, packed.counts, packed.starts, out, where)
    elif work.pool == "mean":
        kernels.pool_mean(h, packed.counts, packed.starts, packed.lengths, out)
    elif len(where):
        last = packed.starts[packed.lengths[: len(where)] - 1] + np.arange(len(where))
        out[: len(where)] = h[last]
        where[:] = last[:, None]
    return out, where


def scores_of(work: Work, packed: Packed) -> Scores:
    """The probability of each label for each text, in the order of the packed ones."""
    if len(packed.words):
        passes, _, _ = _all_layers(work.network, packed)
        pooled, _ = _pooled(work, packed, passes[-1].h)
    else:
        pooled = np.zeros((len(packed.rows), work.network.layers[-1].width), np.float32)
    scores = pooled @ work.network.output.T + work.network.output_bias
    probabilities_of_rows(scores, work.loss)
    return scores


def gradients(work: Work, batch: Batch) -> Gradient:
    """The gradient of the likelihood of a batch's labels, summed over its rows."""
    network, packed = work.network, batch.packed
    passes: list[_Pass] = []
    h, words, where = np.empty((0, network.layers[-1].width), np.float32), packed.words, packed.words
    if len(packed.words):
        passes, words, where = _all_layers(network, packed)
        h = passes[-1].h
    pooled, came_from = _pooled(work, packed, h)
    scores = pooled @ network.output.T + network.output_bias
    cost = errors_of_rows(scores, work.loss, batch.labels, batch.label_offsets, batch.weights)
    rest: Arrays = {"output": scores.T @ pooled, "output_bias": scores.sum(axis=0)}
    if not passes:
        return _nothing_read(network, cost, rest)
    dh = _unpooled(work, packed, came_from, np.asarray(scores @ network.output, np.float32), h)
    for number in range(len(passes) - 1, 0, -1):
        rest |= _backwards(number, network.layers[number], passes[number], packed, dh)
        dh = passes[number].gates @ network.layers[number].inputs
    rest |= _backwards(0, network.layers[0], passes[0], packed, dh)
    by_word = np.zeros((len(words), 4 * network.layers[0].width), np.float32)
    kernels.scatter(where, passes[0].gates, by_word)
    rest["layer0.inputs"] = by_word.T @ network.embedding[words]
    return Gradient(cost, words, by_word @ network.layers[0].inputs, rest)


def _unpooled(work: Work, packed: Packed, came_from: Ints, gradient: Floats, h: Floats) -> Floats:
    dh = np.zeros_like(h)
    if work.pool == "mean":
        kernels.unpool_mean(packed.counts, packed.starts, packed.lengths, gradient, dh)
    else:
        kernels.unpool_max(came_from, gradient, dh)
    return dh


def _backwards(
    number: int, layer: Layer, seen: _Pass, packed: Packed, dh: Floats
) -> dict[str, npt.NDArray[Any]]:
    """The gradient of a layer's arrays; that of its gates stands in ``seen.gates`` afterwards."""
    counts, starts = packed.counts, packed.starts
    kernels.backwards(seen.gates, layer.recurrent, counts, starts, seen.c, seen.shown, dh)
    before = np.empty((len(seen.h) - int(counts[0]), layer.width), np.float32)
    kernels.states_before(seen.h, counts, starts, before)
    out = {"recurrent": seen.gates[counts[0] :].T @ before, "bias": seen.gates.sum(axis=0)}
    if number:
        out["inputs"] = seen.gates.T @ seen.below
    return {f"layer{number}.{name}": array for name, array in out.items()}


def _nothing_read(network: Network, cost: float, rest: Arrays) -> Gradient:
    """A batch without a known word moves the output alone."""
    zeros = {
        name: np.zeros_like(array) for name, array in network.arrays().items() if name.startswith("layer")
    }
    none = np.empty((0, network.embedding.shape[1]), np.float32)
    return Gradient(cost, np.empty(0, np.int64), none, {**rest, **zeros})
