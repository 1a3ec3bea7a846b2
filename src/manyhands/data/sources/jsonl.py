"""JSON lines: Amazon's reviews, Yelp's, or any object a line; also McAuley's loose Python dicts."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.data.blocks import BOM, Block, blocks, cut_lines
from manyhands.data.sources.fields import find_fields, values
from manyhands.data.sources.loose import looks_loose, loose_to_json
from manyhands.data.sources.source import SEPARATOR, Fields, Piece, Records
from manyhands.errors import InputError
from manyhands.kernel import Flags
from manyhands.storage.files import InputStream
from manyhands.text.ragged import Ragged, from_arrow, from_strings
from manyhands.text.utf8 import blank, valid_utf8

LINES_LOOKED_AT = 100  # to find the fields


class JsonLines:
    """One object a line; its wanted fields are found without parsing into objects."""

    suffixes = (".jsonl", ".json", ".ndjson")
    by_line = True
    labelled = True

    def __init__(self, stream: InputStream, fields: Fields) -> None:
        self._stream = stream
        self._fields = fields = fields.found_in(_names(stream.head(), stream.file.name), stream.file.name)
        self.rates_stars = fields.rates_stars

    @classmethod
    def knows(cls, head: bytes) -> bool:
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"")

    def pieces(self) -> Iterator[Piece]:
        for block in blocks(self._stream, cut_lines, "the line is longer than 8 MiB"):
            yield partial(self._parse, block)

    def _parse(self, block: Block) -> Records:
        rows, fields = block.rows, self._fields
        whole = valid_utf8(rows)
        usable = whole & ~blank(rows)
        loose = usable & looks_loose(rows)
        if loose.any():
            rows = loose_to_json(rows, loose)
        names = [name for name in (fields.text, fields.label, fields.weight) if name]
        found = find_fields(rows, usable, names)
        columns = {
            name: values(rows, found, k).arrow_text(found.kinds[:, k] >= 0) for k, name in enumerate(names)
        }
        broken = usable & ~found.accepted
        if broken.any():
            columns, broken = _last_word(rows, broken, columns)
        missing = usable & ~broken & ~columns[names[0]].is_valid().to_numpy(zero_copy_only=False)
        bad = dict.fromkeys(np.flatnonzero(~whole).tolist(), "not valid UTF-8")
        bad |= dict.fromkeys(np.flatnonzero(broken).tolist(), "not valid JSON")
        bad |= dict.fromkeys(np.flatnonzero(missing).tolist(), f"no field '{fields.text}'")
        return Records(
            block.file,
            block.lines,
            from_arrow(columns[names[0]]),
            _lists_joined(columns[fields.label]) if fields.label else None,
            columns[fields.weight] if fields.weight else None,
            bad,
            block.rejected,
        )


def _last_word(
    rows: Ragged, unsure: Flags, columns: dict[str, pa.Array]
) -> tuple[dict[str, pa.Array], Flags]:
    """What Python's parser makes of the lines that the scanner did not take; it takes very few."""
    numbers = np.flatnonzero(unsure)
    objects = [_object(line) for line in rows.take(numbers).strings()]
    broken = unsure.copy()
    broken[numbers] = [found is None for found in objects]
    if not broken[numbers].all():
        for name, column in columns.items():
            read = pa.array([_as_text((found or {}).get(name)) for found in objects], pa.large_string())
            columns[name] = pc.replace_with_mask(column, unsure, read)
    return columns, broken


def _as_text(value: Any) -> str | None:
    """A value as the scanner would give it; half of a surrogate pair becomes a question mark."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace").decode()


def _lists_joined(labels: pa.Array) -> pa.Array:
    """Labels given as a JSON list, ``["a", "b"]``, as one key; each distinct one is read once."""
    encoded = labels.dictionary_encode()
    names = [_list_joined(name) for name in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(names, pa.string()))


def _list_joined(name: str) -> str:
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
        found = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else {}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
