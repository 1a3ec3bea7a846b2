"""Where every row of a dataset goes: this depends on the rows alone, and not on who prepares them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.data.counting import Counts
from manyhands.data.labels import UNLABELLED, Classes
from manyhands.data.reading import PREFIX_SHIFT, PREFIXES
from manyhands.data.store import OFFSETS, PartPlan, parts_needed
from manyhands.kernel import Ints, kernel
from manyhands.records import SPLITS
from manyhands.text.ragged import from_arrow
from manyhands.text.words import UNIT_BYTES, Units, next_number

Ids = npt.NDArray[np.uint32]


class Segment(NamedTuple):
    """Some elements of one array of a part, and from which on."""

    part: int
    name: str
    start: int
    values: npt.NDArray[np.generic]


class Layout:
    """The parts of a dataset, and which rows stand where in them."""

    def __init__(self, found: Counts, classes: Classes, ids: int) -> None:
        self.plans = _plan(found, classes, ids)
        self.several = classes.several
        self.label_offsets = np.r_[0, np.cumsum([len(c) for c in classes.of_label])].astype(np.int64)
        flat = [number for of_label in classes.of_label for number in of_label]
        self.label_values = np.array(flat, np.int32)
        # How many rows, tokens and labels of the split stand before each prefix.
        self.before = {"rows": _before(found.rows), "tokens": _before(found.tokens)}
        self.before["labels"] = _before(found.labels)
        self.first_part = [[plan.split for plan in self.plans].index(split) for split in SPLITS]
        self.parts = [sum(plan.split == split for plan in self.plans) for split in SPLITS]

    def beginnings(self) -> Iterator[Segment]:
        """Where the first row of each part begins."""
        for number, plan in enumerate(self.plans):
            yield Segment(number, "offsets", 0, np.array([plan.starts["tokens"]]))
            if self.several:
                yield Segment(number, "label_offsets", 0, np.array([plan.starts["labels"]]))


class Encoder:
    """Gives the rows of one partition their final ids and places; they may come in several batches."""

    def __init__(self, layout: Layout, partition: int, partitions: int, final_ids: Ids, bases: Ints) -> None:
        self._layout, self._final_ids, self._bases = layout, final_ids, bases
        prefix = -(-partition * PREFIXES // partitions)  # the first that falls to this partition
        self._at = {name: before[:, prefix].copy() for name, before in layout.before.items()}

    def segments(self, kept: pa.RecordBatch, batch: pa.RecordBatch) -> Iterator[Segment]:
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
                yield Segment(part, "tokens", token - plan.starts["tokens"], tokens)
                yield Segment(part, "offsets", first + 1, token + np.cumsum(lengths))
                yield Segment(part, "weights", first, weight[chosen])
                yield from self._labels(part, number, first, label[chosen])
                self._at["rows"][number] += len(chosen)
                self._at["tokens"][number] += len(tokens)

    def _labels(self, part: int, split: int, row: int, labels: npt.NDArray[np.int32]) -> Iterator[Segment]:
        layout = self._layout
        if not len(layout.label_values):
            yield Segment(part, "labels", row, np.full(len(labels), UNLABELLED))
        elif not layout.several:
            yield Segment(part, "labels", row, layout.label_values[labels])
        else:
            starts = layout.label_offsets[labels]
            sizes = layout.label_offsets[labels + 1] - starts
            before = int(self._at["labels"][split])
            each = np.repeat(starts - np.r_[0, np.cumsum(sizes)[:-1]], sizes) + np.arange(sizes.sum())
            first = before - layout.plans[part].starts["labels"]
            yield Segment(part, "labels", first, layout.label_values[each])
            yield Segment(part, "label_offsets", row + 1, before + np.cumsum(sizes))
            self._at["labels"][split] += int(sizes.sum())

    def _by_part(self, split: int, rows: Ints, high: npt.NDArray[np.uint64]) -> Iterator[tuple[int, Ints]]:
        """The rows that go into each part, one part after the other."""
        part_of = (high[rows] >> PREFIX_SHIFT).astype(np.int64) * self._layout.parts[split] // PREFIXES
        for number in np.unique(part_of).tolist():
            yield self._layout.first_part[split] + number, rows[part_of == number]


def _plan(found: Counts, classes: Classes, ids: int) -> list[PartPlan]:
    dtypes = {
        "tokens": "<u2" if ids <= 1 << 16 else "<u4",
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


def _before(counts: Ints) -> Ints:
    return np.cumsum(counts, axis=1) - counts


@kernel
def _look_up(
    units: Units,
    offsets: Ints,
    rows: Ints,
    bases: Ints,
    ids: Ids,
    out: Ids,
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
