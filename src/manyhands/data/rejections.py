"""The rows that could not be used: counted by reason, and listed in a file."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from manyhands.kernel import Ints
from manyhands.records import Rejection

FILE = "rejected.csv"


class Rejections:
    """Grows while the input is read, at a few bytes a row."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._pieces: list[tuple[str, Ints, Ints]] = []
        self.by_reason: Counter[str] = Counter()

    def __len__(self) -> int:
        return self.by_reason.total()

    def add(self, file: str, rejected: list[tuple[int, str]]) -> None:
        """``rejected`` holds lines of the file, and why each is of no use."""
        if not rejected:
            return
        lines, reasons = zip(*rejected, strict=True)
        codes = [self._codes.setdefault(reason, len(self._codes)) for reason in reasons]
        self._pieces.append((file, np.array(lines, np.int64), np.array(codes, np.int64)))
        self.by_reason.update(reasons)

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

    def first(self) -> Rejection:
        return Rejection(**self._table().slice(0, 1).to_pylist()[0])

    def save(self, folder: Path) -> None:
        with pa.OSFile(str(folder / FILE), "wb") as file:
            pyarrow.csv.write_csv(self._table(), file)
