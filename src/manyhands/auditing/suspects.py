"""Suspicious rows: those of which models that have not seen them find another label likelier."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from manyhands.auditing.ranking import Ranked
from manyhands.auditing.rows import AuditedRows
from manyhands.errors import UsageError
from manyhands.models.model import Contribution
from manyhands.storage.files import refuse_to_replace, writing

ROWS_AT_ONCE = 4096
DECIMALS = 6
COMPRESSED = (".gz", ".zst", ".bz2", ".lz4", ".br")


@dataclass(frozen=True)
class Suspect:
    """A row whose label looks wrong. ``file`` and ``line`` are the split and row of a prepared dataset."""

    file: str
    line: int
    label: str
    suggested_label: str
    probability: float  # of the label that it has
    suggested_probability: float
    text: str
    why: list[Contribution]  # the n-grams that speak most for the suggested label, against its own


@dataclass(frozen=True)
class Suspects:
    """All suspicious rows, and where their texts are."""

    source: AuditedRows
    ranked: Ranked

    def __len__(self) -> int:
        return len(self.ranked.rows)

    @property
    def names(self) -> list[str]:
        return self.source.examples.labels.names

    def listed(self, why: dict[int, list[Contribution]], most: int | None = None) -> Iterator[Suspect]:
        """Each with its place and its text, the most suspicious first; texts are fetched a few at a time."""
        ranked, names = self.ranked, self.names
        for start in range(0, len(ranked.rows[:most]), ROWS_AT_ONCE):
            rows = ranked.rows[:most][start : start + ROWS_AT_ONCE]
            for place, text in enumerate(self.source.examples.corpus.texts(rows).strings(), start):
                row = int(ranked.rows[place])
                yield Suspect(
                    *self.source.place(row),
                    label=names[int(ranked.labels[place])],
                    suggested_label=names[int(ranked.suggested[place])],
                    probability=round(float(ranked.probabilities[place]), DECIMALS),
                    suggested_probability=round(float(ranked.suggested_probabilities[place]), DECIMALS),
                    text=" ".join(text.split()),  # words that a dataset does not keep leave gaps
                    why=why.get(row, []),
                )

    def write(self, out: str, *, overwrite: bool = False) -> None:
        """Write all of them, without reasons, as CSV or JSON lines, as the name says."""
        kind = format_of(out)
        refuse_to_replace(out, overwrite)
        with writing(out) as file:
            if kind == ".csv":
                file.write(_csv(COLUMNS))
            for suspect in self.listed({}):
                file.write(_line(suspect, kind))


COLUMNS = [name for name in Suspect.__dataclass_fields__ if name != "why"]


def format_of(out: str) -> str:
    """The ending that says how rows are written, whether compressed or not."""
    path = PurePosixPath(out)
    kind = PurePosixPath(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
    if kind not in (".csv", ".jsonl"):
        raise UsageError(f"{out} must end in .csv or .jsonl, perhaps with .gz or .zst behind it")
    return kind


def _line(suspect: Suspect, kind: str) -> bytes:
    values = {name: getattr(suspect, name) for name in COLUMNS}
    if kind == ".csv":
        return _csv(list(values.values()))
    return (json.dumps(values, ensure_ascii=False) + "\n").encode()


def _csv(values: list[Any]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue().encode()
