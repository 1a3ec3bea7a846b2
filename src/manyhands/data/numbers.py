"""Tables of numbers with a label, as CSV: each line is a row of features, and no text.

They are no ``Source``: a source parses its file piece by piece into texts, and which columns are
numbers, and so which one is the label, is known when the whole table is read. ``read_rows`` is the
one place that asks whether files are such tables.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Bytes, Ints
from manyhands.settings import PrepareSettings
from manyhands.storage.files import STDIN, InputFile, InputStream, expand
from manyhands.text.corpus import Corpus, hash_rows
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import Ragged

FORMAT = "numbers"
LINES_LOOKED_AT, LONGEST_LABEL = 20, 40
LEAST_COLUMNS = 2  # a table of one number and one word may as well be stars and reviews
MOST_BYTES, READ_BYTES = 1 << 30, 1 << 24


def holds_numbers(sources: Sequence[str], settings: PrepareSettings) -> bool:
    """Asked for, or plain to see: several numbers on each line, and beside them one word at most."""
    if settings.format == FORMAT:
        return True
    if settings.format != "auto" or settings.text_field is not None or sources[0] == STDIN:
        return False
    with closing(InputStream(expand(sources)[0])) as stream:
        head = stream.head().decode("utf-8", "replace")
    rows = _csv_rows(head.splitlines()[1:LINES_LOOKED_AT], _delimiter(head))
    if not rows or any(len(row) != len(rows[0]) for row in rows[:-1]):
        return False
    others = [k for k, field in enumerate(rows[0]) if not _is_number(field)]
    if len(rows[0]) - len(others) < LEAST_COLUMNS or len(others) > 1:
        return False
    labels = [row[k] for row in rows[:-1] for k in others]
    return all(" " not in label and len(label) <= LONGEST_LABEL for label in labels)


def read_numbers(
    sources: Sequence[str], settings: PrepareSettings, *, labelled: bool = True, every_row: bool = False
) -> LabelledRows:
    """All rows of the files. Those that lack a number or a label are left out and counted.

    With ``every_row``, as ``predict`` needs it, they are an error instead.
    """
    tables = [_read_csv(file) for source in sources for file in expand([source])]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"the columns do not fit together: {reason}") from None
    label_column = _label_column(table, settings.label_field, sources[0], labelled)
    columns = [column for column in table.column_names if column != label_column]
    if not columns or len(set(columns)) < len(columns):
        raise InputError(f"{sources[0]} needs columns of numbers, each with a name of its own")
    values = np.column_stack([_numbers(table, column, sources[0]) for column in columns])
    usable = np.isfinite(values).all(axis=1)
    labels, names = np.zeros(len(values), np.int32), [""]
    if label_column is not None and labelled:
        labels, names = _encode_labels(table[label_column])
        usable &= labels >= 0
    rows = np.flatnonzero(usable)
    if not len(rows):
        raise InputError(f"{sources[0]} holds no rows that can be used")
    left_out = len(values) - len(rows)
    if every_row and left_out:
        raise InputError(f"{left_out} rows lack a number; every row must have a prediction")
    corpus = corpus_of_numbers(np.ascontiguousarray(values[rows], np.float32))
    return LabelledRows(corpus, Labels.single(labels[rows], names), np.ones(len(rows), np.float32), left_out)


def _encode_labels(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """The place of each label among the sorted names, -1 where there is none; and the names."""
    texts = column.cast(pa.string()).to_pylist()
    names = sorted(text for text in set(texts) if text)
    place = {text: number for number, text in enumerate(names)}
    return np.array([place.get(text, -1) for text in texts], np.int32), names


def corpus_of_numbers(values: npt.NDArray[np.float32]) -> Corpus:
    """Every row is one step, known by its numbers."""

    def take(rows: Ints) -> tuple[npt.NDArray[np.integer], Ints]:
        return rows.astype(np.uint32), np.arange(len(rows) + 1)

    nothing = Ragged(np.empty(0, np.uint8), np.zeros(len(values) + 1, np.int64))
    return Corpus(take, len(values), len(values), nothing, hash_rows(values), values)


def _read_csv(file: InputFile) -> pa.Table:
    with closing(InputStream(file)) as stream:
        head = stream.head().decode("utf-8", "replace")
        data = _read_all(stream)
    delimiter = _delimiter(head)
    first = next(iter(_csv_rows(io.StringIO(head), delimiter, most=1)), [])
    bare = sum(_is_number(field) for field in first) >= LEAST_COLUMNS  # there is no header
    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(data.tobytes()),
            pyarrow.csv.ReadOptions(autogenerate_column_names=bare),
            pyarrow.csv.ParseOptions(delimiter=delimiter),
        )
    except pa.ArrowInvalid as error:
        raise InputError(f"{file.name} is not a table: {str(error).splitlines()[0][:200]}") from None


def _read_all(stream: InputStream) -> Bytes:
    data = stream.read_behind(np.empty(0, np.uint8), READ_BYTES)
    while len(more := stream.read_behind(data, READ_BYTES)) > len(data):
        data = more
        if len(data) > MOST_BYTES:
            raise InputError(f"{stream.file.name} is too large for a table of numbers")
    return data


def _csv_rows(lines: Iterable[str], delimiter: str, most: int | None = None) -> list[list[str]]:
    """The first rows; none if this is no CSV at all."""
    try:
        return list(islice(csv.reader(lines, delimiter=delimiter), most))
    except csv.Error:
        return []


def _label_column(table: pa.Table, wanted: str | None, source: str, labelled: bool) -> str | None:
    if wanted is not None:
        if wanted not in table.column_names:
            raise UsageError(
                f"{source} has no column '{wanted}'; there are: {', '.join(table.column_names)[:200]}"
            )
        return wanted
    words = [field.name for field in table.schema if not _is_numeric(field.type)]
    if len(words) > 1 or (labelled and not words):
        raise UsageError(f"which column of {source} is the label? Name it with --label-field")
    return words[0] if words else None


def _numbers(table: pa.Table, column: str, source: str) -> npt.NDArray[np.float64]:
    if not _is_numeric(table[column].type):
        raise InputError(f"column '{column}' of {source} has values that are not numbers")
    return np.asarray(table[column].cast(pa.float64()).fill_null(float("nan")).to_numpy(), np.float64)


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _delimiter(head: str) -> str:
    first = head.partition("\n")[0]
    return "\t" if "\t" in first else ","
