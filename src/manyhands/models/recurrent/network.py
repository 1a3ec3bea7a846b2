"""The arrays of a recurrent network: a vector for each word, layers of states, a linear output."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.kernels.simd import Floats
from manyhands.models.model import Arrays
from manyhands.models.recurrent.cells import CELLS

FORGET_BIAS = 1.0  # a state is kept at first, so that what was read early can be learnt from
LARGEST_FIRST_VECTOR = 0.5
DIRECTIONS = ("", "back.")  # a layer reads forwards and, if it is bidirectional, from the end as well


@dataclass(frozen=True)
class Shape:
    """``widths`` begins with what the first layer reads: the length of a word's vector, or of a row."""

    cell: str
    widths: tuple[int, ...]
    bidirectional: bool
    labels: int

    def __post_init__(self) -> None:
        if self.cell not in CELLS or type(self.bidirectional) is not bool or len(self.widths) < 2:
            raise InputError("the bundle is damaged (config.json); train or fetch it again")

    @property
    def directions(self) -> tuple[str, ...]:
        return DIRECTIONS if self.bidirectional else DIRECTIONS[:1]

    def below(self, level: int) -> int:
        """How much a layer reads."""
        return self.widths[level] * (len(self.directions) if level else 1)

    @property
    def pooled(self) -> int:
        return self.widths[-1] * len(self.directions)

    def layers(self) -> list[tuple[int, str]]:
        """The levels from below, each with the directions in which it reads."""
        return [(level, direction) for level in range(len(self.widths) - 1) for direction in self.directions]

    def arrays(self) -> dict[str, tuple[int, ...]]:
        """Every array but the vectors of words, and its shape."""
        out: dict[str, tuple[int, ...]] = {
            "output": (self.labels, self.pooled),
            "output_bias": (self.labels,),
        }
        for level, direction in self.layers():
            sizes = CELLS[self.cell].sizes(self.below(level), self.widths[level + 1])
            out |= {layer_name(level, direction, part): size for part, size in sizes.items()}
        return out


def layer_name(level: int, direction: str, part: str) -> str:
    return f"layer{level}.{direction}{part}"


@dataclass(frozen=True)
class Network:
    """``embedding`` has no row where rows of numbers are read and not words."""

    shape: Shape
    embedding: Floats
    rest: Arrays

    @classmethod
    def at_random(cls, shape: Shape, words: int, seed: int) -> Self:
        draw = np.random.default_rng(seed)

        def even(size: tuple[int, ...], reach: float) -> Floats:
            return draw.uniform(-reach, reach, size).astype(np.float32)

        rest: Arrays = {}
        for name, size in shape.arrays().items():
            width = shape.pooled if name.startswith("output") else shape.widths[_level(name) + 1]
            rest[name] = even(size, 1 / np.sqrt(width)) if len(size) > 1 else np.zeros(size, np.float32)
            if name.endswith(".bias") and shape.cell != "gru":
                rest[name][width : 2 * width] = FORGET_BIAS
        return cls(shape, even((words, shape.widths[0]), LARGEST_FIRST_VECTOR), rest)

    def layer(self, level: int, direction: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of one layer, by their short names."""
        head = layer_name(level, direction, "")
        parts = CELLS[self.shape.cell].sizes(1, 1)
        return {part: self.rest[head + part] for part in parts}

    def arrays(self) -> Arrays:
        return {"embedding": self.embedding, **self.rest}

    @classmethod
    def from_arrays(cls, shape: Shape, words: int, arrays: Arrays) -> Self:
        """A network of arrays that may come from anywhere: whether they fit each other is checked."""
        rest = {name: array for name, array in arrays.items() if name != "embedding"}
        sizes = {"embedding": (words, shape.widths[0]), **shape.arrays()}
        right = {name: array.shape for name, array in arrays.items()} == sizes
        if not right or any(array.dtype != np.float32 for array in arrays.values()):
            raise InputError("the arrays of the network do not fit each other")
        return cls(shape, arrays["embedding"], rest)

    def take_over(self, previous: "Network") -> None:
        """Begin with what an earlier network knew: its words and labels come first."""
        ours = self.arrays()
        for name, array in previous.arrays().items():
            if name not in ours or ours[name].shape[1:] != array.shape[1:] or len(ours[name]) < len(array):
                raise InputError(
                    "the bundle to continue from is of another shape; leave out what shapes the network"
                )
            ours[name][: len(array)] = array


def _level(name: str) -> int:
    return int(name.removeprefix("layer").partition(".")[0])
