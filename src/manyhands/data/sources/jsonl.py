"""JSON lines: Amazon's reviews, Yelp's, or any object a line; also McAuley's loose Python dicts."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.data.sources.blocks import BOM, RecordBlock, blocks, cut_lines
from manyhands.data.sources.json_scanner import CLOSE_BRACE, OPEN_BRACE, field_values, find_fields
from manyhands.data.sources.loose import looks_loose, loose_to_json
from manyhands.data.sources.source import (
    SEPARATOR,
    FieldNames,
    Records,
    Source,
    SourcePiece,
    Wording,
    map_distinct,
)
from manyhands.errors import InputError
from manyhands.kernels.compile import Bytes, Flags, Ints, kernel, read_only
from manyhands.storage.files import InputStream
from manyhands.text.ragged import Ragged, from_arrow, from_strings
from manyhands.text.utf8 import blank, valid_utf8

LINES_LOOKED_AT = 100  # to find the fields
BLANK = 0x20


class JsonLines(Source):
    """One object a line; its wanted fields are found without parsing into objects."""

    suffixes = (".jsonl", ".json", ".ndjson")

    def __init__(self, stream: InputStream, fields: FieldNames) -> None:
        name = stream.file.name
        self.columns = tuple(_names(stream.head(), name))
        super().__init__(stream, fields.resolve(list(self.columns), name))
        self.rates_stars = self.fields.rates_stars

    @classmethod
    def knows(cls, head: bytes) -> bool:
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"")

    def pieces(self) -> Iterator[SourcePiece]:
        for block in blocks(self._stream, cut_lines, "the line is longer than 8 MiB"):
            yield partial(self.parse, block)

    def parse(self, block: RecordBlock) -> Records:
        """The records of a block of lines."""
        rows, fields = block.rows, self.fields
        whole = valid_utf8(rows)
        usable = whole & ~blank(rows)
        loose = usable & looks_loose(rows)
        if loose.any():
            rows = loose_to_json(rows, loose)
        names = [name for name in (fields.text, fields.label, fields.weight) if name]
        places = find_fields(rows, usable, names)
        columns = {
            name: field_values(rows, places, k).arrow_text(places.kinds[:, k] >= 0)
            for k, name in enumerate(names)
        }
        broken = usable & ~places.accepted
        if broken.any():
            columns, broken = _parse_slowly(rows, broken, columns)
        missing = usable & ~broken & ~columns[names[0]].is_valid().to_numpy(zero_copy_only=False)
        bad = dict.fromkeys(np.flatnonzero(~whole).tolist(), "not valid UTF-8")
        bad |= dict.fromkeys(np.flatnonzero(broken).tolist(), "not valid JSON")
        bad |= dict.fromkeys(np.flatnonzero(missing).tolist(), f"no field '{fields.text}'")
        return Records(
            block.file,
            block.lines,
            from_arrow(columns[names[0]]),
            map_distinct(columns[fields.label], _list_joined, pa.string()) if fields.label else None,
            columns[fields.weight] if fields.weight else None,
            bad,
            block.rejected,
            **(self._whole_rows(block, usable & ~broken) if fields.all_columns else {}),
        )

    def _whole_rows(self, block: RecordBlock, objects: Flags) -> dict[str, Any]:
        """More fields go before the brace that closes the object; of other lines, nowhere."""
        whole = block.whole_rows()
        _before_braces(read_only(block.raw), block.starts, objects, whole["ends"])
        return whole

    def wording(self, names: tuple[str, str], labels: list[str]) -> Wording:
        label, probability = (json.dumps(name, ensure_ascii=False) for name in names)
        values = [json.dumps(value, ensure_ascii=False) for value in labels]
        return Wording(
            b"",
            [f", {label}: {value}, {probability}: ".encode() for value in values],
            b"",
            f", {label}: null, {probability}: null".encode(),
        )


@kernel
def _before_braces(data: Bytes, starts: Ints, objects: Flags, ends: Ints) -> None:
    """Move each end to the closing brace of its object; -1 where there is no object, or an empty one."""
    for row in range(len(ends)):
        first, last = starts[row], ends[row] - 1
        while last > first and data[last] <= BLANK:
            last -= 1
        while first < last and data[first] <= BLANK:
            first += 1
        filled = last - 1
        while filled > first and data[filled] <= BLANK:
            filled -= 1
        found = data[first] == OPEN_BRACE and data[last] == CLOSE_BRACE and filled > first
        ends[row] = last if objects[row] and found else -1


def _parse_slowly(
    rows: Ragged, unsure: Flags, columns: dict[str, pa.Array]
) -> tuple[dict[str, pa.Array], Flags]:
    """What Python's parser makes of the lines that the scanner did not take; it takes very few."""
    numbers = np.flatnonzero(unsure)
    objects = [_object(line) for line in rows.take(numbers).strings()]
    broken = unsure.copy()
    broken[numbers] = [parsed is None for parsed in objects]
    if not broken[numbers].all():
        for name, column in columns.items():
            texts = [_as_text((parsed or {}).get(name)) for parsed in objects]
            columns[name] = pc.replace_with_mask(column, unsure, pa.array(texts, pa.large_string()))
    return columns, broken


def _as_text(value: Any) -> str | None:
    """A value as the scanner would give it; half of a surrogate pair becomes a question mark."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace").decode()


def _list_joined(name: str) -> str:
    """Labels given as a JSON list, ``["a", "b"]``, as one key."""
    if name.startswith("["):
        try:
            return SEPARATOR.join(_as_text(label) or "" for label in json.loads(name))
        except (ValueError, RecursionError):
            pass  # a label that happens to begin with a bracket
    return name


def _names(head: bytes, file: str) -> list[str]:
    """The field names of the first lines that can be read."""
    names: dict[str, None] = {}
    for line in head.removeprefix(BOM).split(b"\n", LINES_LOOKED_AT)[:LINES_LOOKED_AT]:
        rows = from_strings([line.decode("utf-8", "replace")])
        names |= dict.fromkeys(_object(loose_to_json(rows, looks_loose(rows)).strings()[0]) or {})
    if not names:
        raise InputError(f"{file} line 1: not JSON, one object a line; name its format with --format")
    return list(names)


def _object(line: str) -> dict[str, Any] | None:
    """The object on a line; None if it is no JSON. Any other value has no fields."""
    try:
        value = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else {}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
