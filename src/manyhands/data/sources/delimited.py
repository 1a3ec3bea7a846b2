"""CSV and TSV: with a header (Hugging Face's ``text``, ``label``), or Yelp's without one."""

import csv
import io
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from manyhands.data.sources.blocks import BOM, RecordBlock, blocks, cut_delimited
from manyhands.data.sources.source import TEXT_NAMES, FieldNames, Records, Source, SourcePiece, Wording
from manyhands.errors import InputError
from manyhands.kernels.compile import Bytes, Ints
from manyhands.storage.files import InputStream
from manyhands.text.ragged import from_arrow

TOO_LONG = "a quote is never closed, or the row is longer than 8 MiB"


class Delimited(Source):
    """Rows under a header. A file without one takes column numbers as field names: 1, 2, …"""

    suffixes = (".csv", ".tsv")
    by_line = False  # a quoted field may hold line ends

    def __init__(self, stream: InputStream, fields: FieldNames) -> None:
        self._stream = stream
        self._delimiter = _delimiter(stream.head())
        self._names, self._has_header = self._header(fields)
        fields = fields.resolve(self._names, stream.file.name)
        for name in filter(None, (fields.text, fields.label, fields.weight)):
            if name not in self._names:
                raise InputError(f"{stream.file.name}: no column '{name}' among {', '.join(self._names)}")
        self.fields = fields
        self.rates_stars = fields.rates_stars
        self.columns = tuple(self._names) if self._has_header else ()

    @classmethod
    def knows(cls, head: bytes) -> bool:
        return any(name in TEXT_NAMES for name in _first_row(head))

    def _header(self, fields: FieldNames) -> tuple[list[str], bool]:
        first = _first_row(self._stream.head())
        if len(set(first)) < len(first):
            raise InputError(f"{self._stream.file.name} line 1: two columns have the same name")
        asked = [name for name in (fields.text, fields.label, fields.weight) if name]
        if asked and all(name.isdigit() for name in asked) and not set(asked) <= set(first):
            return [str(number + 1) for number in range(len(first))], False
        return first, True

    def pieces(self) -> Iterator[SourcePiece]:
        header = self._has_header
        for block in blocks(self._stream, self._cut, TOO_LONG):
            yield partial(self._parse, block, header)
            header = False

    def _cut(self, data: Bytes, final: bool) -> tuple[Ints, Ints]:
        return cut_delimited(data, final, ord(self._delimiter))

    def _parse(self, block: RecordBlock, header: bool) -> Records:
        first = min(int(header), len(block.lines))
        rows, lines = block.rows, block.lines[first:]
        table, bad = self._columns(rows.data[rows.offsets[first] : rows.offsets[-1]])
        fields = self.fields
        texts, labels = self._texts(table), table[fields.label] if fields.label else None
        weights = table[fields.weight] if fields.weight else None
        if len(table) + len(bad) != len(lines):
            raise InputError(
                f"{block.file} lines {lines[0]} to {lines[-1]}: the rows cannot be told apart; "
                "check the quotes, or name another format with --format"
            )
        aligned = partial(_aligned, lines=len(lines), bad=bad)
        return Records(
            block.file,
            lines,
            from_arrow(aligned(texts)),
            aligned(labels) if labels is not None else None,
            aligned(weights) if weights is not None else None,
            bad,
            block.rejected,
            **(_whole_rows(block, first) if fields.all_columns else {}),
        )

    def wording(self, names: tuple[str, str], labels: list[str]) -> Wording:
        """In quotation marks where the first field of the file is, or a label needs them."""
        comma = self._delimiter
        always = self._stream.head().removeprefix(BOM).startswith(b'"')
        label, probability = (_quoted(name, comma, always) for name in names)
        mark = '"' if always else ""
        return Wording(
            f"{comma}{label}{comma}{probability}".encode(),
            [f"{comma}{_quoted(value, comma, always)}{comma}{mark}".encode() for value in labels],
            mark.encode(),
            f"{comma}{mark * 2}{comma}{mark * 2}".encode(),
        )

    def _columns(self, data: Bytes) -> tuple[pa.Table, dict[int, str]]:
        """The columns as bytes, and the rows that have too few or too many of them."""
        bad: dict[int, str] = {}

        def note(row: pyarrow.csv.InvalidRow) -> str:
            bad[row.number - 1] = f"{row.actual_columns} columns, not {row.expected_columns}"
            return "skip"

        if not len(data):
            return pa.table({name: pa.array([], pa.binary()) for name in self._names}), bad
        table = pyarrow.csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            pyarrow.csv.ReadOptions(use_threads=False, column_names=self._names, block_size=len(data) + 1),
            pyarrow.csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                ignore_empty_lines=False,
                invalid_row_handler=note,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(self._names, pa.binary()), strings_can_be_null=False
            ),
        )
        return table, bad

    def _texts(self, table: pa.Table) -> pa.ChunkedArray:
        return table[self.fields.text]


class Yelp(Delimited):
    """Zhang's files: no header, the class first, then the text in one column or several.

    A line end in the text is written as a backslash and an n.
    """

    def _header(self, fields: FieldNames) -> tuple[list[str], bool]:
        count = len(_first_row(self._stream.head()))
        if count == 1:
            raise InputError(
                f"{self._stream.file.name} line 1: one column, where class and text were expected"
            )
        return ["label", "text", *(f"text {number}" for number in range(2, count))][:count], False

    @classmethod
    def knows(cls, head: bytes) -> bool:
        first = _first_row(head)
        return len(first) > 1 and first[0].isdigit() and not any(cell.isdigit() for cell in first[1:])

    def _texts(self, table: pa.Table) -> pa.ChunkedArray:
        columns = [table[name] for name in self._names[1:]]
        joined = pc.binary_join_element_wise(*columns, b" ") if len(columns) > 1 else columns[0]
        return pc.replace_substring(joined, b"\\n", b" ")


def _aligned(column: pa.ChunkedArray, lines: int, bad: dict[int, str]) -> pa.ChunkedArray:
    """Arrow leaves out the rows with a wrong number of columns: put a null in their place."""
    if not bad:
        return column
    good = np.setdiff1d(np.arange(lines), list(bad))
    place = np.full(lines, -1)
    place[good] = np.arange(len(good))
    return column.take(pa.array(place, mask=place < 0))


def _whole_rows(block: RecordBlock, first: int) -> dict[str, Any]:
    """Empty lines stay empty; the ``first`` rows, one or none, are the header."""
    whole = block.whole_rows()
    ends = np.where(whole["ends"] > block.starts, whole["ends"], -1)
    return {**whole, "ends": ends[first:], "header_end": int(ends[0]) if first else None}


def _quoted(value: str, delimiter: str, always: bool) -> str:
    """A field as it is written to a file.

    >>> print(_quoted('a "b"', ",", False), _quoted("a", ",", False), _quoted("a", ",", True))
    "a ""b\""" a "a"
    """
    if not always and not any(sign in value for sign in (delimiter, '"', "\n", "\r")):
        return value
    return '"' + value.replace('"', '""') + '"'


def _first_row(head: bytes) -> list[str]:
    text = io.TextIOWrapper(io.BytesIO(head), "utf-8-sig", "replace", newline="")
    try:
        return next(csv.reader(text, delimiter=_delimiter(head)), [])
    except csv.Error:  # a field of many kilobytes: this is some other format
        return []


def _delimiter(head: bytes) -> str:
    line = head.split(b"\n", 1)[0]
    return (
        "\t" if line.count(b"\t") and not line.startswith(b'"') and b"," not in line.split(b"\t")[0] else ","
    )
