"""The messages of a stream as rows: parsed, normalised, and each accounted for.

A message is a JSON object with a text and perhaps a label, a line like ``__label__x text``, or plain text.
The first block of messages decides which, and that is kept with the model: it must not change when a stream
is taken up again.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from manyhands.catalog import SOURCES, load
from manyhands.data.labels import resolve_scheme
from manyhands.data.reader import ParsedPiece, Reader
from manyhands.data.sources.blocks import RecordBlock
from manyhands.data.sources.source import SEPARATOR, FieldNames
from manyhands.data.streams.stream import Messages, Position
from manyhands.errors import InputError, UsageError
from manyhands.records import StreamLedger
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.files import InputFile, InputStream
from manyhands.text.corpus import corpus_once
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import from_strings

FORMATS = {"jsonl": b"{", "labelled": b"__label__", "text": b""}  # by what a message begins with
BLANKS = b" \t\r\n"
FIRST_LOOKED_AT = 100  # messages, to find the fields
CLASSES = {
    "stars": ["1", "2", "3", "4", "5"],
    "polarity": ["negative", "positive"],
    "polarity-strict": ["negative", "positive"],
}
LEAST_POSITIVE_STARS = 4


@dataclass(frozen=True)
class Layout:
    """How messages are read: settled by the first of them."""

    format: str
    text_field: str | None
    label_field: str | None
    scheme: LabelScheme


@dataclass(frozen=True)
class ParsedMessages:
    """Some messages of a stream, parsed; ``keys`` are the labels that the ids stand for."""

    piece: ParsedPiece
    keys: list[str]
    rejected: list[tuple[str, str]]  # place and reason
    position: Position

    @property
    def ledger(self) -> StreamLedger:
        read, learnt, rejected = len(self.piece.texts), len(self.piece.usable), len(self.rejected)
        return StreamLedger(read, learnt, read - learnt - rejected, rejected)

    def rows(self, classes: "Classes | None") -> LabelledRows:
        """Those that can be learnt; without ``classes``, their texts only."""
        usable, piece = self.piece.usable, self.piece
        texts = piece.texts if len(usable) == len(piece.texts) else piece.texts.take(usable)
        labels = Labels.none(len(usable)) if classes is None else classes.of(self.keys, piece.labels[usable])
        return LabelledRows(corpus_once(texts), labels, piece.weights[usable])


class MessageParser:
    """Parses messages, one block after the other. ``name`` is that of the stream, for people."""

    def __init__(
        self, name: str, settings: PrepareSettings, layout: Layout | None, *, labelled: bool
    ) -> None:
        if settings.format not in ("auto", *FORMATS):
            raise UsageError(f"messages of a stream are {', '.join(FORMATS)}, not {settings.format}")
        self._name, self._settings, self._labelled = name, settings, labelled
        self.layout = layout
        self._source: Any = None
        self._reader: Reader | None = None

    def parse(self, messages: Messages) -> ParsedMessages:
        texts = messages.texts
        if self._reader is None:
            self._open(texts)
        lines = np.arange(len(texts))
        block = RecordBlock(self._name, from_strings(texts), lines)
        source, reader = self._source, self._reader
        if source is None or reader is None:  # nothing but blanks so far, which decide nothing
            source, reader = load(SOURCES, "format", "text"), Reader(self._settings, scheme="none")
            source = source(_Head(self._name, b""), FieldNames(None, None, None, False))
        piece = reader.parse(partial(source.parse, block))
        # What the stream itself rejected has an empty text, and is in no other list.
        found = {**dict(piece.tally.rejected), **messages.rejected}
        rejected = [(messages.places[line], reason) for line, reason in sorted(found.items())]
        return ParsedMessages(piece, reader.label_encoder.keys(), rejected, messages.position)

    def _open(self, texts: list[bytes]) -> None:
        """Settle how messages are read, or take up what was settled."""
        filled = [text for text in texts if text.strip(BLANKS)]
        if not filled and self.layout is None:
            return
        known = self.layout
        if known is None:
            name = self._settings.format if self._settings.format != "auto" else _format(filled)
            head = b"\n".join(text.replace(b"\n", b" ") for text in filled[:FIRST_LOOKED_AT])
            fields = self._settings.text_field, self._settings.label_field
        else:
            name, fields = known.format, (known.text_field, known.label_field)
            head = json.dumps(dict.fromkeys(filter(None, fields), "")).encode()
        self._source = load(SOURCES, "format", name)(
            _Head(self._name, head), FieldNames(*fields, None, self._labelled)
        )
        if self._labelled and not self._source.labelled:
            raise InputError(f"the messages of {self._name} have no labels; send JSON or __label__x text")
        if known is None:
            asked: LabelScheme = self._settings.labels if self._labelled else "none"
            names = self._source.fields
            known = Layout(name, names.text, names.label, resolve_scheme(asked, self._source))
            self.layout = known
        self._reader = Reader(self._settings, scheme=known.scheme)


def _format(texts: list[bytes]) -> str:
    """What most messages look like."""
    kinds = Counter(
        next(name for name, head in FORMATS.items() if text.lstrip(BLANKS).startswith(head)) for text in texts
    )
    return kinds.most_common(1)[0][0]


class _Head(InputStream):
    """Messages that stand for the head of a file, from which a source finds its fields."""

    def __init__(self, name: str, head: bytes) -> None:
        self.file = InputFile(name, name, None, None)
        self._head = head


@dataclass
class Classes:
    """The classes met so far, in the order in which they came: a class keeps its number for ever."""

    scheme: LabelScheme
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = self.names or list(CLASSES.get(self.scheme, []))
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def of(self, keys: list[str], ids: Any) -> Labels:
        """The classes of rows whose labels are ``ids`` among ``keys``."""
        distinct, first, places = np.unique(ids, return_index=True, return_inverse=True)
        classes: dict[int, list[int]] = {}
        for number in distinct[np.argsort(first)].tolist():
            classes[number] = self._classes(keys[number])
        lists = [classes[number] for number in distinct.tolist()]
        flat = np.array([one for several in lists for one in several], np.int32)
        offsets = np.cumsum([0, *map(len, lists)])
        every = Labels(flat, offsets, list(self.names), any(len(several) > 1 for several in lists))
        return every.take(places)

    def _classes(self, key: str) -> list[int]:
        if self.scheme == "stars":
            return [int(key) - 1]
        if self.scheme != "as-is":
            return [int(int(key) >= LEAST_POSITIVE_STARS)]
        names = key.split(SEPARATOR)
        for name in names:
            if self._numbers.setdefault(name, len(self.names)) == len(self.names):
                self.names.append(name)
        return [self._numbers[name] for name in names]
