"""The rows that could not be used: counted by reason, and listed in a file."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from manyhands.kernel import Ints
from manyhands.records import Rejection

FILE = "rejected.csv"


class Reasons:
    """How many rows were rejected for what, and one of them."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()
        self._first: Rejection | None = None

    def __len__(self) -> int:
        return self.by_reason.total()

    def count(self, by_reason: dict[str, int], first: Rejection | None) -> None:
        """More of them, the first by file and line among them."""
        self.by_reason.update(by_reason)
        self._first = min(filter(None, (self._first, first)), default=None)

    def first(self) -> Rejection:
        if self._first is None:
            raise ValueError("nothing was rejected")
        return self._first


class Rejections(Reasons):
    """All of them, by file and line: grows while the input is read, at a few bytes a row."""

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

    def _table(self) -> pa.Table:
        reasons = pa.array(list(self._codes), pa.string())
        tables = [
            pa.table(
                {
                    "file": pa.repeat(pa.scalar(file, pa.string()), len(lines)),
                    "line": lines,
                    "reason": reasons.take(codes),
                }
            )
            for file, lines, codes in self._pieces
        ]
        schema = pa.schema({"file": pa.string(), "line": pa.int64(), "reason": pa.string()})
        return pa.concat_tables([schema.empty_table(), *tables]).sort_by(
            [("file", "ascending"), ("line", "ascending")]
        )

    def save(self, folder: Path) -> None:
        with pa.OSFile(str(folder / FILE), "wb") as file:
            pyarrow.csv.write_csv(self._table(), file)
