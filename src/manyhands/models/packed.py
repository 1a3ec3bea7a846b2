"""Packed arrays: how a quantised bundle keeps its features, and how they become plain again.

Every group of columns of a table is a code of one byte, the number of one of 256 centroids;
where there are several groups, the largest number of a row is kept apart, as one more code.
Slots are kept as the distances between them: a byte each, and 255 stands for "255 and more".
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.models.learner import Arrays

PACKED = "packed"
CENTROIDS = 256
ESCAPE = 255

Groups = list[tuple[int, int]]  # columns from, to


def pack_slots(slots: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Rising slots as the distances between them.

    >>> pack_slots(np.array([3, 5, 600], np.uint32)).tolist()
    [3, 2, 255, 255, 85]
    >>> unpack_slots(pack_slots(np.array([3, 5, 600], np.uint32)), 1024).tolist()
    [3, 5, 600]
    """
    distances = np.diff(slots.astype(np.int64), prepend=0)
    ends = np.cumsum(distances // ESCAPE + 1) - 1
    out = np.full(int(ends[-1]) + 1 if len(ends) else 0, ESCAPE, np.uint8)
    out[ends] = np.remainder(distances, ESCAPE)
    return out


def unpack_slots(packed: npt.NDArray[np.uint8], limit: int) -> npt.NDArray[np.int64]:
    """The opposite; refuses slots that are not below ``limit``, or that do not rise."""
    sums = np.cumsum(packed.astype(np.int64))
    slots: npt.NDArray[np.int64] = sums[packed != ESCAPE]
    if len(slots) and (int(slots[-1]) >= limit or bool((np.diff(slots) <= 0).any())):
        raise InputError("the packed features are damaged")
    return slots


def _decoded(arrays: Arrays, name: str, rows: int, columns: int) -> npt.NDArray[Any]:
    codes, centroids = arrays[f"codes.{name}"], arrays[f"centroids.{name}"]
    fits = codes.shape == (rows,) and centroids.shape == (CENTROIDS, columns)
    if not fits or codes.dtype != np.uint8 or centroids.dtype != np.float32:
        raise InputError("the codes of the packed features do not fit their number")
    return np.asarray(centroids[codes])


def unpack(facts: dict[str, Any], arrays: Arrays, slots: int) -> Arrays:
    """The plain arrays of a packed model."""
    packed = facts[PACKED]
    if arrays["slots"].dtype != np.uint8 or arrays["slots"].ndim != 1:
        raise InputError("the packed features are damaged")
    places = unpack_slots(arrays["slots"], slots)
    groups: Groups = [(int(first), int(last)) for first, last in packed["groups"]]
    width = groups[-1][1]
    joined = [first for first, _ in groups] == [0, *(last for _, last in groups[:-1])]
    if not joined or not 0 < width <= 1 << 20 or any(last <= first for first, last in groups):
        raise InputError("the packed features are not described as they should be")
    table = np.zeros((len(places), width), np.float32)
    for number, (first, last) in enumerate(groups):
        table[:, first:last] = _decoded(arrays, str(number), len(places), last - first)
    if "codes.norm" in arrays:
        scaled = packed["scaled"]
        if type(scaled) is not int or not 0 <= scaled <= width:
            raise InputError("the packed features are not described as they should be")
        with np.errstate(over="ignore", invalid="ignore"):  # of a damaged file
            table[:, scaled:] *= _decoded(arrays, "norm", len(places), 1)
    known = np.zeros(-(-slots // 64) * 64, np.uint8)
    known[places] = 1
    plain = {
        key: value for key, value in arrays.items() if not key.startswith(("codes.", "centroids.", "slots"))
    }
    return {
        **plain,
        packed["table"]: table,
        "feature_bits": np.packbits(known, bitorder="little").view(np.uint64),
        "feature_numbers": np.arange(len(places), dtype=np.uint32),
    }
