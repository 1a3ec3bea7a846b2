"""Where every row of a dataset goes: this depends on the rows alone, and not on who prepares them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.data.labels import UNLABELLED, Classes
from manyhands.data.prepare.fold import DatasetCounts
from manyhands.data.prepare.partitions import PREFIXES, first_prefix, prefixes_of
from manyhands.data.store import OFFSETS, PartPlan, parts_needed
from manyhands.kernels.compile import Ints, kernel
from manyhands.records import SPLITS
from manyhands.text.labelled_rows import Labels
from manyhands.text.ragged import from_arrow
from manyhands.text.words import UNIT_BYTES, Units, next_number

Ids = npt.NDArray[np.uint32]


class ArraySegment(NamedTuple):
    """Some elements of one array of a part, and from which on."""

    part: int
    name: str
    start: int
    values: npt.NDArray[np.generic]


class Layout:
    """The parts of a dataset, and which rows stand where in them."""

    def __init__(self, counts: DatasetCounts, classes: Classes, ids: int) -> None:
        self.plans = _plan(counts, classes, ids)
        self.multi_label = classes.multi_label
        self.label_values, self.label_offsets = classes.flatten()
        # How many rows, tokens and labels of the split stand before each prefix.
        every = {"rows": counts.rows, "tokens": counts.tokens, "labels": counts.labels}
        self.before = {name: np.cumsum(some, axis=1) - some for name, some in every.items()}
        self.first_part = [[plan.split for plan in self.plans].index(split) for split in SPLITS]
        self.parts = [sum(plan.split == split for plan in self.plans) for split in SPLITS]

    def first_offsets(self) -> Iterator[ArraySegment]:
        """Where the first row of each part begins."""
        for number, plan in enumerate(self.plans):
            yield ArraySegment(number, "offsets", 0, np.array([plan.starts["tokens"]]))
            if self.multi_label:
                yield ArraySegment(number, "label_offsets", 0, np.array([plan.starts["labels"]]))


class RowEncoder:
    """Gives the rows of one partition their final ids and places; they may come in several batches."""

    def __init__(self, layout: Layout, partition: int, partitions: int, final_ids: Ids, bases: Ints) -> None:
        self._layout, self._final_ids, self._bases = layout, final_ids, bases
        prefix = first_prefix(partition, partitions)
        self._at = {name: before[:, prefix].copy() for name, before in layout.before.items()}

    def segments(self, kept: pa.RecordBatch, batch: pa.RecordBatch) -> Iterator[ArraySegment]:
        """``kept`` names rows of ``batch`` in the order of their digests."""
        row, high, split, label, weight = (kept[name].to_numpy() for name in kept.schema.names)
        stored, all_lengths = from_arrow(batch["units"]), batch["length"].to_numpy().astype(np.int64)
        units = stored.data.view(np.uint16)
        bases = self._bases[batch["table"].to_numpy()]
        for number in range(len(SPLITS)):
            for part, chosen in self._by_part(number, np.flatnonzero(split == number), high):
                plan = self._layout.plans[part]
                lengths = all_lengths[row[chosen]]
                tokens = np.empty(lengths.sum(), plan.dtypes["tokens"])
                _look_up(units, stored.offsets, row[chosen], bases, self._final_ids, tokens)
                first = int(self._at["rows"][number]) - plan.starts["weights"]
                token = int(self._at["tokens"][number])
                yield ArraySegment(part, "tokens", token - plan.starts["tokens"], tokens)
                yield ArraySegment(part, "offsets", first + 1, token + np.cumsum(lengths))
                yield ArraySegment(part, "weights", first, weight[chosen])
                yield from self._labels(part, number, first, label[chosen])
                self._at["rows"][number] += len(chosen)
                self._at["tokens"][number] += len(tokens)

    def _labels(
        self, part: int, split: int, row: int, labels: npt.NDArray[np.int32]
    ) -> Iterator[ArraySegment]:
        layout = self._layout
        if not len(layout.label_values):
            yield ArraySegment(part, "labels", row, np.full(len(labels), UNLABELLED))
        elif not layout.multi_label:
            yield ArraySegment(part, "labels", row, layout.label_values[labels])
        else:
            each = Labels(layout.label_values, layout.label_offsets, []).take(labels.astype(np.int64))
            before = int(self._at["labels"][split])
            yield ArraySegment(part, "labels", before - layout.plans[part].starts["labels"], each.ids)
            yield ArraySegment(part, "label_offsets", row + 1, before + each.offsets[1:])
            self._at["labels"][split] += len(each.ids)

    def _by_part(self, split: int, rows: Ints, high: npt.NDArray[np.uint64]) -> Iterator[tuple[int, Ints]]:
        """The rows that go into each part, one part after the other."""
        part_of = prefixes_of(high[rows]) * self._layout.parts[split] // PREFIXES
        for number in np.unique(part_of).tolist():
            yield self._layout.first_part[split] + number, rows[part_of == number]


def _plan(counts: DatasetCounts, classes: Classes, ids: int) -> list[PartPlan]:
    dtypes = {
        "tokens": "<u2" if ids <= 1 << 16 else "<u4",
        "offsets": "<i8",
        "labels": "<i4",
        "weights": "<f4",
    } | ({"label_offsets": "<i8"} if classes.multi_label else {})
    plans = []
    for number, split in enumerate(SPLITS):
        parts = parts_needed(int(counts.tokens[number].sum()))
        starts = dict.fromkeys(dtypes, 0)
        for part in range(parts):
            prefixes = slice(part * PREFIXES // parts, (part + 1) * PREFIXES // parts)
            rows = int(counts.rows[number, prefixes].sum())
            tokens = int(counts.tokens[number, prefixes].sum())
            labels = int(counts.labels[number, prefixes].sum()) if classes.multi_label else rows
            shapes = {"tokens": tokens, "offsets": rows + 1, "labels": labels, "weights": rows}
            if classes.multi_label:
                shapes["label_offsets"] = rows + 1
            plans.append(PartPlan(f"{split}-{part:03d}.h5", split, shapes, dtypes, dict(starts)))
            for name, length in shapes.items():
                starts[name] += length - (name in OFFSETS)
    return plans


@kernel
def _look_up(units: Units, offsets: Ints, rows: Ints, bases: Ints, ids: Ids, out: Ids) -> None:
    """Offsets are in bytes."""
    at = np.uint64(0)
    for row in rows:
        base = np.uint64(bases[row])
        i, end = offsets[row] // UNIT_BYTES, offsets[row + 1] // UNIT_BYTES
        while i < end:
            number, i = next_number(units, i)
            out[at] = ids[base + number]
            at += np.uint64(1)
