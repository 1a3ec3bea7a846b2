"""The gradient of a whole batch in one buffer, so that a crew can add up theirs in one go."""

import numpy as np

from manyhands.kernels.compile import Ints
from manyhands.kernels.simd import Floats
from manyhands.models.learner import Loss
from manyhands.models.model import Arrays
from manyhands.models.recurrent import pooling
from manyhands.models.recurrent.backprop import Part
from manyhands.models.recurrent.network import Network
from manyhands.models.recurrent.optimizers import Optimizer


class Gradient:
    """Where the arrays should move, and the loss; of the words' vectors, only those of ``words``.

    ``tables`` are arrays beside the network, each with the rows of it that move and how wide it is. All
    workers know the words of the whole batch, so the buffer means the same to each of them. Its last
    two numbers are the loss and the weight of the rows.
    """

    def __init__(
        self, network: Network, words: Ints, tables: dict[str, tuple[Ints, int]] | None = None
    ) -> None:
        embedded = words if len(network.embedding) else words[:0]  # rows of numbers are not learnt
        tables = {"embedding": (embedded, network.shape.widths[0]), **(tables or {})}
        self.touched = {name: rows for name, (rows, _) in tables.items()}
        sizes = {name: (len(rows), width) for name, (rows, width) in tables.items()} | network.shape.arrays()
        self.buffer = np.zeros(sum(int(np.prod(size)) for size in sizes.values()) + 2, np.float32)
        self.arrays: Arrays = {}
        start = 0
        for name, size in sizes.items():
            end = start + int(np.prod(size))
            self.arrays[name] = self.buffer[start:end].reshape(size)
            start = end

    @property
    def loss(self) -> Loss:
        return Loss(*self.buffer[-2:].tolist())

    def add(self, part: Part) -> None:
        self.add_arrays(part.words, part.vectors, part.rest)
        self.add_loss(part.cost, part.weight)

    def add_arrays(self, words: Ints, vectors: Floats, rest: Arrays) -> None:
        for name, array in rest.items():
            self.arrays[name] += array
        if len(self.arrays["embedding"]):
            places = np.searchsorted(self.touched["embedding"], words)
            pooling.scatter(places, vectors, self.arrays["embedding"])

    def add_loss(self, cost: float, weight: float) -> None:
        self.buffer[-2:] += (cost, weight)

    def step(self, optimizer: Optimizer, rate: float, most_norm: float) -> None:
        """Divide once, cut to ``most_norm`` where it is longer, and move along it."""
        if not self.loss.rows > 0:
            return
        numbers, factor = self.buffer[:-2], 1 / self.loss.rows
        norm = factor * float(np.sqrt(np.dot(numbers, numbers)))
        numbers *= np.float32(factor * min(1.0, most_norm / max(norm, 1e-12)))
        optimizer.begin_step()
        for name, array in self.arrays.items():
            rows = array.reshape(-1, array.shape[-1])
            if len(rows):
                optimizer.move(name, self.touched.get(name, np.arange(len(rows))), rows, rate)
