"""Tables of numbers with a label, as CSV: each line is a row of features, and no text."""

import csv
import io
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from manyhands.errors import InputError, UsageError
from manyhands.kernel import Ints
from manyhands.settings import PrepareSettings
from manyhands.storage.files import InputStream, expand
from manyhands.text.corpus import Corpus, hash_rows
from manyhands.text.lesson import Labels, Lesson
from manyhands.text.ragged import Ragged

FORMAT = "numbers"
LINES_LOOKED_AT, LONGEST_LABEL = 20, 40
LEAST_COLUMNS = 2  # a table of one number and one word may as well be stars and reviews
MOST_BYTES = 1 << 30


def is_table(sources: Sequence[str], settings: PrepareSettings) -> bool:
    """Asked for, or plain to see: several numbers on each line, and beside them one word at most."""
    if settings.format == FORMAT:
        return True
    if settings.format != "auto" or settings.text_field is not None or sources[0] == "-":
        return False
    with closing(InputStream(expand(sources)[0])) as stream:
        head = stream.head().decode("utf-8", "replace")
    try:
        rows = list(csv.reader(head.splitlines()[1:LINES_LOOKED_AT], delimiter=_delimiter(head)))
    except csv.Error:
        return False
    if not rows or any(len(row) != len(rows[0]) for row in rows[:-1]):
        return False
    others = [k for k, field in enumerate(rows[0]) if not _is_number(field)]
    if len(rows[0]) - len(others) < LEAST_COLUMNS or len(others) > 1:
        return False
    labels = [row[k] for row in rows[:-1] for k in others]
    return all(" " not in label and len(label) <= LONGEST_LABEL for label in labels)


def read_table(sources: Sequence[str], settings: PrepareSettings, *, labelled: bool = True) -> Lesson:
    """All rows of the files; those that lack a number or a label are left out and counted."""
    table = _together([_read(source) for source in sources])
    name = _label_column(table, settings.label_field, sources[0], labelled)
    columns = [column for column in table.column_names if column != name]
    if not columns or len(set(columns)) < len(columns):
        raise InputError(f"{sources[0]} needs columns of numbers, each with a name of its own")
    values = np.column_stack([_numbers(table, column, sources[0]) for column in columns])
    usable = np.isfinite(values).all(axis=1)
    labels, names = np.zeros(len(values), np.int32), [""]
    if name is not None and labelled:
        texts = table[name].cast(pa.string())
        names = sorted(text for text in set(texts.to_pylist()) if text)
        place = {text: number for number, text in enumerate(names)}
        labels = np.array([place.get(text, -1) for text in texts.to_pylist()], np.int32)
        usable &= labels >= 0
    rows = np.flatnonzero(usable)
    if not len(rows):
        raise InputError(f"{sources[0]} holds no rows that can be used")
    corpus = corpus_of_numbers(np.ascontiguousarray(values[rows], np.float32))
    ones = np.ones(len(rows), np.float32)
    return Lesson(corpus, Labels.single(labels[rows], names), ones, len(values) - len(rows))


def corpus_of_numbers(values: npt.NDArray[np.float32]) -> Corpus:
    """Every row is one step, known by its numbers."""

    def take(rows: Ints) -> tuple[npt.NDArray[np.integer], Ints]:
        return rows.astype(np.uint32), np.arange(len(rows) + 1)

    nothing = Ragged(np.empty(0, np.uint8), np.zeros(len(values) + 1, np.int64))
    return Corpus(take, len(values), len(values), nothing, hash_rows(values), values)


def _read(source: str) -> pa.Table:
    parts = []
    for file in expand([source]):
        with closing(InputStream(file)) as stream:
            data = stream.head()
            whole = stream.read_behind(np.empty(0, np.uint8), len(data))
            while len(more := stream.read_behind(whole, 1 << 24)) > len(whole):
                whole = more
                if len(whole) > MOST_BYTES:
                    raise InputError(f"{file.name} is too large for a table of numbers")
        head = data.decode("utf-8", "replace")
        first = next(csv.reader(io.StringIO(head), delimiter=_delimiter(head)), [])
        bare = sum(_is_number(field) for field in first) >= LEAST_COLUMNS
        try:
            parts.append(
                pyarrow.csv.read_csv(
                    pa.BufferReader(whole.tobytes()),
                    pyarrow.csv.ReadOptions(autogenerate_column_names=bare),
                    pyarrow.csv.ParseOptions(delimiter=_delimiter(head)),
                )
            )
        except pa.ArrowInvalid as error:
            raise InputError(f"{file.name} is no table: {str(error).splitlines()[0][:200]}") from None
    return _together(parts)


def _together(tables: list[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"the columns do not fit together: {reason}") from None


def _label_column(table: pa.Table, wanted: str | None, source: str, labelled: bool) -> str | None:
    if wanted is not None:
        if wanted not in table.column_names:
            raise UsageError(
                f"{source} has no column '{wanted}'; there are: {', '.join(table.column_names)[:200]}"
            )
        return wanted
    words = [field.name for field in table.schema if not _holds_numbers(field.type)]
    if len(words) > 1 or (labelled and not words):
        raise UsageError(f"which column of {source} is the label? Name it with --label-field")
    return words[0] if words else None


def _numbers(table: pa.Table, column: str, source: str) -> npt.NDArray[np.float64]:
    if not _holds_numbers(table[column].type):
        raise InputError(f"column '{column}' of {source} holds what is no number")
    return np.asarray(table[column].cast(pa.float64()).fill_null(float("nan")).to_numpy(), np.float64)


def _holds_numbers(kind: pa.DataType) -> bool:
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
