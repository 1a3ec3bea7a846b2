"""Small models: as many features as fit, those that matter most, with codes in place of numbers.

Every group of columns of a table is a code of one byte, the number of one of 256 centroids (product
quantisation); where there are several groups, the largest number of a row is kept apart, as one more
code. Slots are kept as the distances between them: a byte each, and 255 stands for "255 and more".
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError, UsageError
from manyhands.models.model import Arrays
from manyhands.models.ngram.features import FeatureSpace, hashing_from

PACKED = "packed"
CENTROIDS = 256
ESCAPE = 255
SAMPLE_ROWS = 20_000
NARROW, GROUP_COLUMNS = 12, 5  # columns that share a code; of a narrow table, two
MIDDLING = 1000  # features before this number are all frequent
LEAST_NORM = np.float32(1e-12)
SLOT_BYTES = 1.25  # what a slot takes at first guess

Table = npt.NDArray[np.float32]

Groups = list[tuple[int, int]]  # columns from, to


class Packed(NamedTuple):
    """What a quantised model keeps on disk: how its arrays are packed, and these."""

    facts: dict[str, Any]
    arrays: Arrays


def quantize(arrays: Arrays, space: FeatureSpace, name: str, scaled: int, size: int, rest: int) -> Packed:
    """Pack the array ``name``, which has a row for each feature, so that all takes ``size`` bytes at most.

    ``rest`` of them are for what is not in arrays. The first ``scaled`` columns are apart from the others.
    """
    table: Table = arrays[name]
    others = {key: a for key, a in arrays.items() if key != name and not key.startswith("feature_")}
    layout = _Layout(name, scaled, _groups(table.shape[1], scaled))
    fixed = rest + CENTROIDS * 4 * (table.shape[1] + 1) + sum(array.nbytes for array in others.values())
    order, slots = np.argsort(-_weight(table, scaled), kind="stable"), space.slots()
    least = fixed + _feature_bytes(_pack(table, slots, order[:1], layout))
    if size < least:
        raise UsageError(f"--size is too small: at least {least:,} bytes are needed")
    left = size - fixed
    count = max(min(int(left / (layout.codes + SLOT_BYTES)), len(table)), 1)
    packed = _pack(table, slots, order[:count], layout)
    while (over := _feature_bytes(packed) - left) > 0:
        count = max(count - over // (layout.codes + 1) - 1, 1)
        packed = _pack(table, slots, order[:count], layout)
    return Packed(layout.facts(), {**packed, **others})


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


def _decode(arrays: Arrays, name: str, rows: int, columns: int) -> npt.NDArray[Any]:
    codes, centroids = arrays[f"codes.{name}"], arrays[f"centroids.{name}"]
    fits = codes.shape == (rows,) and centroids.shape == (CENTROIDS, columns)
    if not fits or codes.dtype != np.uint8 or centroids.dtype != np.float32:
        raise InputError("the codes of the packed features do not fit their number")
    return np.asarray(centroids[codes])


def unpack(facts: dict[str, Any], arrays: Arrays) -> tuple[Arrays, Packed | None]:
    """The plain arrays of a model, and what it keeps in their place if it was quantised."""
    if PACKED not in facts:
        return arrays, None
    packed, slots = facts[PACKED], hashing_from(facts["features"]).slots
    if arrays["slots"].dtype != np.uint8 or arrays["slots"].ndim != 1:
        raise InputError("the packed features are damaged")
    places = unpack_slots(arrays["slots"], slots)
    groups: Groups = [(int(first), int(last)) for first, last in packed["groups"]]
    width = groups[-1][1]
    joined = [first for first, _ in groups] == [0, *(last for _, last in groups[:-1])]
    if not joined or not 0 < width <= 1 << 20 or any(last <= first for first, last in groups):
        raise InputError("the bundle is damaged (config.json); train or fetch it again")
    table = np.zeros((len(places), width), np.float32)
    for number, (first, last) in enumerate(groups):
        table[:, first:last] = _decode(arrays, str(number), len(places), last - first)
    if "codes.norm" in arrays:
        scaled = packed["scaled"]
        if type(scaled) is not int or not 0 <= scaled <= width:
            raise InputError("the bundle is damaged (config.json); train or fetch it again")
        with np.errstate(over="ignore", invalid="ignore"):  # of a damaged file
            table[:, scaled:] *= _decode(arrays, "norm", len(places), 1)
    known = np.zeros(-(-slots // 64) * 64, np.uint8)
    known[places] = 1
    plain = {
        key: value for key, value in arrays.items() if not key.startswith(("codes.", "centroids.", "slots"))
    }
    unpacked: Arrays = {
        **plain,
        packed["table"]: table,
        "feature_bits": np.packbits(known, bitorder="little").view(np.uint64),
        "feature_numbers": np.arange(len(places), dtype=np.uint32),
    }
    return unpacked, Packed(packed, arrays)


@dataclass(frozen=True)
class _Layout:
    """Which columns share a code; from ``scaled`` on, they are divided by the largest of the row."""

    table: str
    scaled: int
    groups: Groups

    @property
    def with_norm(self) -> bool:
        return len(self.groups) - self.scaled > 1

    @property
    def codes(self) -> int:
        return len(self.groups) + self.with_norm

    def facts(self) -> dict[str, Any]:
        return {"table": self.table, "scaled": self.scaled, "groups": self.groups}


def _groups(columns: int, alone: int) -> Groups:
    step = 2 if columns <= NARROW else GROUP_COLUMNS
    starts = [*range(alone), *range(alone, columns, step)]
    return list(zip(starts, [*starts[1:], columns], strict=True))


def _feature_bytes(packed: Arrays) -> int:
    return sum(array.nbytes for name, array in packed.items() if not name.startswith("centroids"))


def _weight(table: Table, scaled: int) -> Table:
    """How much a feature moves scores: how far, by how often. Features are numbered by how often."""
    often = _often(np.arange(len(table)))
    far = np.abs(table[:, scaled:]).max(axis=1)
    return np.asarray(far * often * (table[:, 0] if scaled else 1), np.float32)


def _often(numbers: npt.NDArray[np.intp]) -> Table:
    """How often features stand in texts, roughly: the root of it, as what they add goes in all directions."""
    return np.asarray(1 / np.sqrt(numbers + float(MIDDLING)), np.float32)


def _pack(
    table: Table, slots: npt.NDArray[np.uint32], chosen: npt.NDArray[np.intp], layout: _Layout
) -> Arrays:
    chosen = chosen[np.argsort(slots[chosen])]
    arrays: Arrays = {"slots": pack_slots(slots[chosen])}
    rows, often = table[chosen], _often(chosen)
    if layout.with_norm:
        norms = np.maximum(np.abs(rows[:, layout.scaled :]).max(axis=1, keepdims=True), LEAST_NORM)
        rows[:, layout.scaled :] /= norms
        codes, logarithms = _encode(np.log(norms), often)
        arrays |= {"codes.norm": codes, "centroids.norm": np.exp(logarithms)}
    for number, (first, last) in enumerate(layout.groups):
        codes, centroids = _encode(np.ascontiguousarray(rows[:, first:last]), often)
        arrays |= {f"codes.{number}": codes, f"centroids.{number}": centroids}
    return arrays


def _encode(rows: Table, often: Table) -> tuple[npt.NDArray[np.uint8], Table]:
    """The nearest of 256 centroids for each row; those of frequent features are met more closely."""
    from sklearn.cluster import MiniBatchKMeans  # noqa: PLC0415 - its import takes a second

    chosen = np.random.default_rng(0).permutation(len(rows))[:SAMPLE_ROWS]
    sample = rows[chosen]
    distinct = np.unique(sample, axis=0)
    centroids = np.zeros((CENTROIDS, rows.shape[1]), np.float32)
    if len(distinct) <= CENTROIDS and len(sample) == len(rows):
        centroids[: len(distinct)] = distinct
        wanted = ((rows[:, None, :] - distinct[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
        return wanted.astype(np.uint8), centroids
    means = MiniBatchKMeans(min(CENTROIDS, len(distinct)), random_state=0, n_init=1, batch_size=4096)
    means.fit(sample, sample_weight=often[chosen])
    centroids[: means.n_clusters] = means.cluster_centers_
    return means.predict(rows).astype(np.uint8), centroids
