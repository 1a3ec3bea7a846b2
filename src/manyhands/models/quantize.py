"""Small bundles: as many features as fit, those that matter most, with codes in place of numbers."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import MiniBatchKMeans

from manyhands.errors import UsageError
from manyhands.models.bundle import Bundle, model_of
from manyhands.models.fasttext import FastTextModel
from manyhands.models.learner import Arrays
from manyhands.models.ngrams import NgramsModel
from manyhands.models.packed import CENTROIDS, PACKED, Groups, pack_slots
from manyhands.models.saving import StrPath, load_classifier, record_of, write_bundle

OVERHEAD_BYTES = 16 << 10  # card, record, checksums and the head of the file
SAMPLE_ROWS = 20_000
NARROW, GROUP_COLUMNS = 12, 5  # columns that share a code; of a narrow table, two
MIDDLING = 1000  # features before this number are all frequent
LEAST_NORM = np.float32(1e-12)
SLOT_BYTES = 1.25  # what a slot takes at first guess

Table = npt.NDArray[np.float32]


def quantize_bundle(path: StrPath, out: StrPath, size_bytes: int, *, overwrite: bool = False) -> Bundle:
    """Write a small copy of a bundle. The scores in its record are those of the model it was made from."""
    full = load_classifier(path)
    old = record_of(full)
    record: dict[str, Any] = {name: old[name] for name in ("model", "data") if name in old}
    record |= {"quantized": {"bytes": size_bytes, "scores_of_full_model": _last_scores(old)}}
    small = quantized(full, size_bytes)
    write_bundle(small, out, record, overwrite=overwrite)
    return small


def _last_scores(record: dict[str, Any]) -> dict[str, Any] | None:
    scores = record.get("scores")
    found = scores.get("test") if isinstance(scores, dict) else None
    return found if isinstance(found, dict) else None


def quantized(bundle: Bundle, size_bytes: int) -> Bundle:
    """The same model in no more than ``size_bytes`` on disk."""
    model = bundle.model
    if PACKED in bundle.config.facts:
        raise UsageError("this bundle is quantised already; quantise the one that it was made from")
    if not isinstance(model, NgramsModel | FastTextModel):
        raise UsageError(
            f"a model of the kind {bundle.config.model} cannot be quantised; train one with --model ngrams"
        )
    arrays = model.arrays()
    name = "table" if isinstance(model, NgramsModel) else "vectors"
    table: Table = arrays[name]
    rest = {key: a for key, a in arrays.items() if key != name and not key.startswith("feature_")}
    scaled = int(isinstance(model, NgramsModel))  # the first column there is a scale, apart from the rest
    layout = _Layout(name, scaled, _groups(table.shape[1], scaled))
    config_bytes = len(bundle.config.model_dump_json(indent=1).encode())
    fixed = OVERHEAD_BYTES + config_bytes + CENTROIDS * 4 * (table.shape[1] + 1)
    room = size_bytes - fixed - sum(array.nbytes for array in rest.values())
    count = min(int(room / (layout.codes + SLOT_BYTES)), len(table))
    if count < 1:
        raise UsageError(f"--size is too small: all but the features needs {size_bytes - room:,} bytes")
    order, slots = np.argsort(-_weight(table, scaled), kind="stable"), model.space.slots()
    packed = _packed(table, slots, order[:count], layout)
    while (over := _feature_bytes(packed) - room) > 0:
        count -= over // (layout.codes + 1) + 1
        if count < 1:
            raise UsageError(f"--size is too small: {size_bytes:,} bytes leave no room for a feature")
        packed = _packed(table, slots, order[:count], layout)
    facts = {**bundle.config.facts, PACKED: layout.facts()}
    config = bundle.config.model_copy(update={"facts": facts})
    stored: Arrays = {**packed, **rest}
    return replace(bundle, config=config, model=model_of(config, stored), stored=stored, folder=None)


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


def _packed(
    table: Table, slots: npt.NDArray[np.uint32], chosen: npt.NDArray[np.intp], layout: _Layout
) -> Arrays:
    chosen = chosen[np.argsort(slots[chosen])]
    arrays: Arrays = {"slots": pack_slots(slots[chosen])}
    rows, often = table[chosen], _often(chosen)
    if layout.with_norm:
        norms = np.maximum(np.abs(rows[:, layout.scaled :]).max(axis=1, keepdims=True), LEAST_NORM)
        rows[:, layout.scaled :] /= norms
        codes, logarithms = _coded(np.log(norms), often)
        arrays |= {"codes.norm": codes, "centroids.norm": np.exp(logarithms)}
    for number, (first, last) in enumerate(layout.groups):
        codes, centroids = _coded(np.ascontiguousarray(rows[:, first:last]), often)
        arrays |= {f"codes.{number}": codes, f"centroids.{number}": centroids}
    return arrays


def _coded(rows: Table, often: Table) -> tuple[npt.NDArray[np.uint8], Table]:
    """The nearest of 256 centroids for each row; those of frequent features are met more closely."""
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
