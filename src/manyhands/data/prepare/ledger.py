"""What every engine does in the same way: account for the input, judge it, and write the manifest."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from manyhands.data.labels import NEUTRAL, Classes, LabelEncoder
from manyhands.data.manifest import VERSION, FileFacts, LabelFacts, Manifest, PartFacts, SourceFacts
from manyhands.data.prepare.fold import DatasetCounts
from manyhands.data.prepare.layout import Layout
from manyhands.data.prepare.partitions import SourceFile
from manyhands.data.store import WHOLE, PartPlan, write_whole
from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.records import SPLITS, Ledger, Rejection
from manyhands.settings import PrepareSettings
from manyhands.storage.files import flush, sha256
from manyhands.text.vocabulary import FILE as VOCABULARY_FILE
from manyhands.text.vocabulary import Vocabulary

REJECTED_FILE = "rejected.csv"
HOPELESS_ROWS = 10_000


class RejectionCounts:
    """How many rows were rejected for what, and the first of them by file and line."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()
        self.first: Rejection | None = None

    def __len__(self) -> int:
        return self.by_reason.total()

    def count(self, by_reason: dict[str, int], first: Rejection | None) -> None:
        """Add more of them; ``first`` is the first of these."""
        self.by_reason.update(by_reason)
        self.first = min(filter(None, (self.first, first)), default=None)


class Rejections(RejectionCounts):
    """All of them, to be listed in a file: grows while the input is read, at a few bytes a row."""

    def __init__(self) -> None:
        super().__init__()
        self._codes: dict[str, int] = {}
        self._pieces: list[tuple[str, Ints, Ints]] = []

    def add(self, file: str, rejected: list[tuple[int, str]]) -> None:
        """``rejected`` holds lines of the file, and why each is of no use."""
        if not rejected:
            return
        lines, reasons = zip(*rejected, strict=True)
        codes = [self._codes.setdefault(reason, len(self._codes)) for reason in reasons]
        self._pieces.append((file, np.array(lines, np.int64), np.array(codes, np.int64)))
        line, reason = min(rejected)
        self.count(Counter(reasons), Rejection(file, line, reason))

    def save(self, folder: Path) -> None:
        reasons = pa.array(list(self._codes), pa.string())
        schema = pa.schema({"file": pa.string(), "line": pa.int64(), "reason": pa.string()})
        tables = [
            pa.table([pa.repeat(file, len(lines)), lines, reasons.take(codes)], schema=schema)
            for file, lines, codes in self._pieces
        ]
        table = pa.concat_tables([schema.empty_table(), *tables])
        with pa.OSFile(str(folder / REJECTED_FILE), "wb") as out:
            pyarrow.csv.write_csv(table.sort_by([("file", "ascending"), ("line", "ascending")]), out)


@dataclass
class InputSummary:
    """What the first pass learns of the input."""

    encoder: LabelEncoder
    rejections: RejectionCounts
    rates_stars: bool = False
    rows: int = 0
    empty: int = 0

    @property
    def bad_rows(self) -> int:
        """Rejected rows, less those that the user asked to leave out."""
        return len(self.rejections) - self.rejections.by_reason[NEUTRAL]

    @property
    def hopeless(self) -> bool:
        """Not one of many rows could be used: no need to read on."""
        return self.bad_rows == self.rows >= HOPELESS_ROWS

    def check(self, max_rejected: float) -> None:
        """Stop here if too much of the input is of no use."""
        if not self.rows:
            raise InputError("the input holds no rows at all")
        if self.bad_rows > max_rejected * self.rows:
            reasons = ", ".join(
                f"{count:,} x {reason}" for reason, count in self.rejections.by_reason.most_common(3)
            )
            raise InputError(
                f"{self.bad_rows:,} of {self.rows:,} rows cannot be used, more than --max-rejected "
                f"{max_rejected:.2%}; the first is {self.rejections.first} (in all: {reasons})"
            )
        if self.rows == self.empty + len(self.rejections):
            raise InputError(f"none of the {self.rows:,} rows holds any text that can be used")

    def ledger(self, kept: int, duplicates: int) -> Ledger:
        ledger = Ledger(self.rows, kept, duplicates, self.empty, len(self.rejections))
        if not ledger.adds_up:
            raise AssertionError(f"rows were lost or counted twice: {ledger}")
        return ledger


@dataclass(frozen=True)
class DatasetSummary:
    """All that is known of a dataset when its rows are written."""

    files: list[SourceFile]
    settings: PrepareSettings
    input: InputSummary
    counts: DatasetCounts
    classes: Classes
    vocabulary: Vocabulary
    layout: Layout

    def save(self, folder: Path, parts: list[FileFacts], rejected: FileFacts) -> None:
        """Write the vocabulary, the view of all parts as one file and, last, the manifest."""
        self.vocabulary.save(folder)
        write_whole(folder, self.layout.plans)
        files = {name: file_facts(folder / name) for name in (WHOLE, VOCABULARY_FILE)}
        rows, classes = int(self.counts.rows.sum()), self.classes
        Manifest(
            version=VERSION,
            rows=rows,
            tokens=int(self.counts.tokens.sum()),
            splits={split: int(self.counts.rows[number].sum()) for number, split in enumerate(SPLITS)},
            labels=LabelFacts(
                scheme=self.input.encoder.scheme, names=classes.names, multi_label=classes.multi_label
            ),
            vocabulary=len(self.vocabulary),
            ledger=self.input.ledger(rows, self.counts.duplicates),
            rejections=dict(sorted(self.input.rejections.by_reason.items())),
            settings=self.settings,
            sources=[_source_facts(file) for file in self.files],
            parts=[_part_facts(plan, facts) for plan, facts in zip(self.layout.plans, parts, strict=True)],
            files=files | {REJECTED_FILE: rejected},
        ).save(folder)


def file_facts(path: Path) -> FileFacts:
    """Size and checksum of a finished file, which is on the disk itself from now on."""
    facts = FileFacts(bytes=path.stat().st_size, sha256=sha256(path))
    flush(path)
    return facts


def _source_facts(source: SourceFile) -> SourceFacts:
    split = SPLITS[source.origin] if source.origin else None
    return SourceFacts(name=source.file.name, bytes=source.file.size, split=split)


def _part_facts(plan: PartPlan, facts: FileFacts) -> PartFacts:
    rows, tokens = plan.shapes["weights"], plan.shapes["tokens"]
    return PartFacts(name=plan.name, split=plan.split, rows=rows, tokens=tokens, **facts.model_dump())
