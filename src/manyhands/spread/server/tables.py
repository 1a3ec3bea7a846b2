"""The tables of a learner, cut up for shards and put together again: each owns every so-manieth row."""

from typing import Any

import numpy as np

from manyhands.kernels.simd import Floats
from manyhands.models.learner import StateArray
from manyhands.storage.tensors import Arrays


def for_shard(parts: dict[str, StateArray], owed: Arrays, shard: int, shards: int) -> Arrays:
    """A shard's rows of all tables."""
    found: Arrays = {}
    for name, part in parts.items():
        weights, squares = _columns(part)
        found[f"{name}.weights"] = np.ascontiguousarray(weights[shard::shards], np.float32)
        found[f"{name}.squares"] = np.ascontiguousarray(squares[shard::shards], np.float32)
        if name in owed:
            debts = owed[name][:-1].reshape(weights.shape)[shard::shards]
            found[f"{name}.owed"] = np.append(debts.reshape(-1), owed[name][-1:])
    return found


def from_shards(name: str, part: StateArray, states: list[Arrays]) -> Floats:
    """Put together what shards have of a table, in its place; gives what is owed to it."""
    weights, squares = _columns(part)
    owed = np.zeros(weights.size + 1, np.float32)
    debts = owed[:-1].reshape(weights.shape)
    for shard, kept in enumerate(states):
        mine = slice(shard, None, len(states))
        weights[mine] = kept[f"{name}.weights"]
        if part.squares is not None:
            squares[mine] = kept[f"{name}.squares"]
        debts[mine] = kept[f"{name}.owed"][:-1].reshape(-1, weights.shape[1])
    owed[-1] = min(kept[f"{name}.owed"][-1] for kept in states)
    return owed


def _columns(part: StateArray) -> tuple[Any, Any]:
    array = part.array.reshape(len(part.array), -1)
    last = part.last or array.shape[1]
    squares = np.zeros(0, np.float32) if part.squares is None else array[:, part.squares]
    return array[:, part.first : last], squares
