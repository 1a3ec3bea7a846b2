"""What a source is, and how the right one is found for a file.

A source cuts its file into pieces, one after the other; each piece then parses itself, in
any thread, into records: texts, labels and weights, with the line each came from.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from manyhands.catalog import SOURCES, load
from manyhands.errors import InputError
from manyhands.kernels.compile import Bytes, Ints
from manyhands.records import Rejection
from manyhands.settings import PrepareSettings
from manyhands.storage.files import InputFile, InputStream
from manyhands.text.ragged import Ragged

SEPARATOR = "\x1f"  # between the labels of a row that has several
TEXT_NAMES = ("reviewText", "text", "review", "body", "content", "comment", "sentence")
STAR_NAMES = ("overall", "rating", "stars")
LABEL_NAMES = (*STAR_NAMES, "label", "labels", "score", "sentiment", "class", "category")


@dataclass(frozen=True)
class FieldNames:
    """The fields that hold text, label and weight; None where there is none."""

    text: str | None
    label: str | None
    weight: str | None
    labelled: bool = True
    whole_lines: bool = False  # plain text is never cut inside a line, however long it is
    all_columns: bool = False  # the records bring their rows with them, as they stand in the file

    @property
    def rates_stars(self) -> bool:
        """Whether the label's name says that it is a rating from 1 to 5."""
        return (self.label or "").lower() in STAR_NAMES

    def resolve(self, names: list[str], file: str) -> "FieldNames":
        """Fill in by the names of the file what the user left open."""
        text = self.text or _first(TEXT_NAMES, names)
        label = self.label or _first(LABEL_NAMES, names)
        listed = ", ".join(names[:12]) or "none"
        if text is None:
            raise InputError(f"{file}: no field looks like the text ({listed}); name it with --text-field")
        if label is None and self.labelled:
            raise InputError(
                f"{file}: no field looks like the label ({listed}); "
                "name it with --label-field, or pass --labels none"
            )
        return replace(self, text=text, label=label if self.labelled else None)


def _first(wanted: tuple[str, ...], names: list[str]) -> str | None:
    lower = {name.lower(): name for name in reversed(names)}
    return next((lower[name.lower()] for name in wanted if name.lower() in lower), None)


@dataclass(frozen=True)
class Records:
    """The rows of one piece. Those in ``bad`` (row: reason) are rejected, whatever else is said of them."""

    file: str
    lines: Ints
    texts: Ragged
    labels: pa.Array | None = None
    weights: pa.Array | None = None
    bad: dict[int, str] = field(default_factory=dict)
    lost: list[Rejection] = field(default_factory=list)  # rejected before they could become rows
    # Where whole rows are asked for: the columns; or the bytes of the piece as they stand in the file, and
    # where in these more can be written behind a row, -1 where nothing can.
    batch: pa.RecordBatch | None = None
    raw: Bytes | None = None
    ends: Ints | None = None
    header_end: int | None = None  # the same for the names of the columns, where they stand in this piece


@dataclass(frozen=True)
class Wording:
    """How a format writes a label and its probability behind a row."""

    header: bytes  # behind the names of the columns
    labels: list[bytes]  # all that stands before the probability, for each label
    close: bytes  # all that stands behind it
    none: bytes  # of a row without a label


def map_distinct(column: pa.Array, change: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """What ``change`` makes of every value; each distinct one is changed once."""
    encoded = column.dictionary_encode()
    changed = [change(value) for value in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(changed, kind))


SourcePiece = Callable[[], Records]


class Source(ABC):
    """One file of one format."""

    suffixes: ClassVar[tuple[str, ...]]
    by_line: ClassVar[bool] = True  # a record is a line, so that a file may be cut at any line end
    labelled = True  # False for text without labels
    rates_stars = False  # the labels are ratings from 1 to 5
    columns: tuple[str, ...] = ()  # the names of its fields, where they have names

    def __init__(self, stream: InputStream, fields: FieldNames) -> None:
        self._stream, self.fields = stream, fields

    @classmethod
    @abstractmethod
    def knows(cls, head: bytes) -> bool:
        """Whether a file that begins like this is of this format."""

    @abstractmethod
    def pieces(self) -> Iterator[SourcePiece]: ...

    def wording(self, names: tuple[str, str], labels: list[str]) -> Wording:
        """A label and its probability behind a row, under these names; here, behind a tab each."""
        plain = [" ".join(label.split()).encode() for label in labels]
        return Wording(b"", [b"\t" + label + b"\t" for label in plain], b"", b"\t\t")


def open_source(
    stream: InputStream, settings: PrepareSettings, *, whole_lines: bool = False, all_columns: bool = False
) -> Source:
    """The source that fits the file."""
    labelled = settings.labels != "none"
    names = settings.text_field, settings.label_field, settings.weight_field
    return source_class(stream, settings)(stream, FieldNames(*names, labelled, whole_lines, all_columns))


def source_class(stream: InputStream, settings: PrepareSettings) -> type[Source]:
    """The one asked for, or the first that knows the file."""
    name = settings.format if settings.format != "auto" else _recognise(stream.file, stream.head())
    kind: type[Source] = load(SOURCES, "format", name)
    return kind


def _recognise(file: InputFile, head: bytes) -> str:
    """By suffix and content; a suffix whose sources all shrug goes to the last, most general of them."""
    sources: dict[str, type[Source]] = {name: load(SOURCES, "format", name) for name in SOURCES}
    suffixed = [name for name in sources if file.suffix in sources[name].suffixes]
    knowing = [name for name in suffixed or sources if sources[name].knows(head)]
    return (knowing or suffixed[-1:])[0]
