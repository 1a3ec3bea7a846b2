"""The last pass of ``prepare``: final ids looked up, and every row put at its place in its part."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from manyhands.data.counting import PREFIX_SHIFT, PREFIXES, Counts
from manyhands.data.labels import UNLABELLED, Classes
from manyhands.data.spool import Spool
from manyhands.data.store import OFFSETS, PartPlan, PartWriter, parts_needed
from manyhands.kernel import Ints, kernel
from manyhands.parallel import side_by_side
from manyhands.records import SPLITS, Progress, Resources
from manyhands.text.ragged import from_arrow
from manyhands.text.vocabulary import Vocabulary
from manyhands.text.words import UNIT_BYTES, Units, next_number


def plan_parts(found: Counts, classes: Classes, vocabulary: Vocabulary) -> list[PartPlan]:
    """Which parts there will be: this depends on the rows alone, not on who prepares them."""
    dtypes = {
        "tokens": "<u2" if vocabulary.ids <= 1 << 16 else "<u4",
        "offsets": "<i8",
        "labels": "<i4",
        "weights": "<f4",
    } | ({"label_offsets": "<i8"} if classes.several else {})
    plans = []
    for number, split in enumerate(SPLITS):
        parts = parts_needed(int(found.tokens[number].sum()))
        starts = dict.fromkeys(dtypes, 0)
        for part in range(parts):
            prefixes = slice(part * PREFIXES // parts, (part + 1) * PREFIXES // parts)
            rows = int(found.rows[number, prefixes].sum())
            tokens = int(found.tokens[number, prefixes].sum())
            labels = int(found.labels[number, prefixes].sum()) if classes.several else rows
            shapes = {"tokens": tokens, "offsets": rows + 1, "labels": labels, "weights": rows}
            if classes.several:
                shapes["label_offsets"] = rows + 1
            plans.append(PartPlan(f"{split}-{part:03d}.h5", split, shapes, dtypes, dict(starts)))
            for name, length in shapes.items():
                starts[name] += length - (name in OFFSETS)
    return plans


class Writer:
    """Fills the parts of a dataset from the spool of kept rows."""

    def __init__(
        self,
        folder: Path,
        found: Counts,
        classes: Classes,
        vocabulary: Vocabulary,
        final_ids: npt.NDArray[np.uint32],
        bases: Ints,
        spools: tuple[Spool, Spool],
    ) -> None:
        self.plans = plan_parts(found, classes, vocabulary)
        self._parts = [PartWriter(folder, plan) for plan in self.plans]
        self._of_split = [[p for p in self._parts if p.plan.split == split] for split in SPLITS]
        self._final_ids, self._bases = final_ids, bases
        self._rows, self._kept = spools
        self._several = classes.several
        self._label_offsets = np.r_[0, np.cumsum([len(c) for c in classes.of_label])].astype(np.int64)
        flat = [number for of_label in classes.of_label for number in of_label]
        self._label_values = np.array(flat, np.int32)
        # How many rows, tokens and labels of the split stand before each prefix.
        self._rows_before = _before(found.rows)
        self._tokens_before = _before(found.tokens)
        self._labels_before = _before(found.labels)

    def write(self, partitions: int, resources: Resources, progress: Progress) -> None:
        progress.stage("writing", partitions, "partitions")
        for part in self._parts:
            part.write("offsets", 0, np.array([part.plan.starts["tokens"]]))
            if self._several:
                part.write("label_offsets", 0, np.array([part.plan.starts["labels"]]))
        for done, _ in enumerate(side_by_side(self._take, range(partitions), resources.threads)):
            progress.advance(done + 1)
        for part in self._parts:
            part.close()

    def _take(self, partition: int) -> None:
        kept, batch = self._kept.read(partition), self._rows.read(partition)
        if kept is None or batch is None:
            return
        self._rows.drop(partition)
        row, high, split, label, weight = (kept[name].to_numpy() for name in kept.schema.names)
        stored, all_lengths = from_arrow(batch["units"]), batch["length"].to_numpy().astype(np.int64)
        units = stored.data.view(np.uint16)
        bases = self._bases[batch["table"].to_numpy()]
        for number in range(len(SPLITS)):
            for part, chosen, prefix in self._by_part(number, np.flatnonzero(split == number), high):
                lengths = all_lengths[row[chosen]]
                tokens = np.empty(lengths.sum(), part.plan.dtypes["tokens"])
                _look_up(units, stored.offsets, row[chosen], bases, self._final_ids, tokens)
                first = int(self._rows_before[number, prefix]) - part.plan.starts["weights"]
                token = int(self._tokens_before[number, prefix])
                part.write("tokens", token - part.plan.starts["tokens"], tokens)
                part.write("offsets", first + 1, token + np.cumsum(lengths))
                part.write("weights", first, weight[chosen])
                self._write_labels(part, number, prefix, first, label[chosen])

    def _write_labels(
        self, part: PartWriter, split: int, prefix: int, row: int, labels: npt.NDArray[np.int32]
    ) -> None:
        if not len(self._label_values):
            part.write("labels", row, np.full(len(labels), UNLABELLED))
        elif not self._several:
            part.write("labels", row, self._label_values[labels])
        else:
            starts = self._label_offsets[labels]
            sizes = self._label_offsets[labels + 1] - starts
            before = int(self._labels_before[split, prefix])
            each = np.repeat(starts - np.r_[0, np.cumsum(sizes)[:-1]], sizes) + np.arange(sizes.sum())
            part.write("labels", before - part.plan.starts["labels"], self._label_values[each])
            part.write("label_offsets", row + 1, before + np.cumsum(sizes))

    def _by_part(
        self, split: int, rows: Ints, high: npt.NDArray[np.uint64]
    ) -> Iterator[tuple[PartWriter, Ints, int]]:
        """The rows that go into each part, and the prefix of the first of them."""
        parts = self._of_split[split]
        prefixes = (high[rows] >> PREFIX_SHIFT).astype(np.int64)
        part_of = prefixes * len(parts) // PREFIXES
        for number in np.unique(part_of).tolist():
            chosen = part_of == number
            yield parts[number], rows[chosen], int(prefixes[chosen][0])


def _before(counts: Ints) -> Ints:
    return np.cumsum(counts, axis=1) - counts


@kernel
def _look_up(
    units: Units,
    offsets: Ints,
    rows: Ints,
    bases: Ints,
    ids: npt.NDArray[np.uint32],
    out: npt.NDArray[np.uint32],
) -> None:
    """Offsets are in bytes."""
    at = np.uint64(0)
    for row in rows:
        base = np.uint64(bases[row])
        i, end = offsets[row] // UNIT_BYTES, offsets[row + 1] // UNIT_BYTES
        while i < end:
            number, i = next_number(units, i)
            out[at] = ids[base + number]
            at += np.uint64(1)
