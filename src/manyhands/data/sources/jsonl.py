"""JSON lines: Amazon's reviews, Yelp's, or any object a line; also McAuley's loose Python dicts."""

import ast
import json
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.data.blocks import Block, blocks, cut_lines
from manyhands.data.files import InputStream
from manyhands.data.sources.loose import looks_loose, loose_to_json
from manyhands.data.sources.source import SEPARATOR, STAR_NAMES, Fields, Piece, Records
from manyhands.errors import InputError
from manyhands.kernel import Flags
from manyhands.text.ragged import Ragged, from_arrow
from manyhands.text.utf8 import blank, valid_utf8

LINES_LOOKED_AT = 100  # to find the fields
_engine = threading.local()


class JsonLines:
    """One object a line, read by DuckDB's JSON parser straight from the block's memory."""

    suffixes = (".jsonl", ".json", ".ndjson")
    labelled = True

    def __init__(self, stream: InputStream, fields: Fields) -> None:
        self._stream = stream
        self._fields = fields = fields.found_in(_names(stream.head(), stream.file.name), stream.file.name)
        self.rates_stars = fields.label in STAR_NAMES

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
        table = self._extract(rows, usable)
        broken = usable & ~_flags(table["valid"])
        loose = broken & looks_loose(rows)
        if loose.any():
            mended = self._extract(loose_to_json(rows, loose), loose).filter(loose)
            columns = [pc.replace_with_mask(table[name], loose, mended[name]) for name in table.column_names]
            table = pa.RecordBatch.from_arrays(columns, table.column_names)
            broken = usable & ~_flags(table["valid"])
        missing = usable & ~broken & _flags(table["text"].is_null())
        bad = dict.fromkeys(np.flatnonzero(~whole).tolist(), "not valid UTF-8")
        bad |= dict.fromkeys(np.flatnonzero(broken).tolist(), "not valid JSON")
        bad |= dict.fromkeys(np.flatnonzero(missing).tolist(), f"no field '{fields.text}'")
        return Records(
            block.file,
            block.lines,
            from_arrow(table["text"]),
            _lists_joined(table["label"]) if fields.label else None,
            table["weight"] if fields.weight else None,
            bad,
            block.rejected,
        )

    def _extract(self, rows: Ragged, usable: Flags) -> pa.RecordBatch:
        """Columns ``valid``, ``text``, ``label`` and ``weight``, a row for each line."""
        if not hasattr(_engine, "connection"):
            _engine.connection = duckdb.connect(config={"threads": 1})
        wanted = (self._fields.text, self._fields.label, self._fields.weight)
        pointers = ", ".join(_pointer(name) for name in wanted)
        lines = pa.table({"line": rows.arrow_text(usable)})
        table = (
            _engine.connection.from_arrow(lines)
            .query(
                "lines",
                f"""
            SELECT found IS NOT NULL AS valid, found[1] AS text, found[2] AS label, found[3] AS weight
            FROM (SELECT CASE WHEN json_valid(line) THEN json_extract_string(line, [{pointers}]) END
                  AS found FROM lines)
            """,
            )
            .to_arrow_table()
        )
        columns = [column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, table.column_names)


def _pointer(name: str | None) -> str:
    """The field as a JSON pointer in SQL, so that dots and quotes in names mean nothing."""
    escaped = (name or "").replace("~", "~0").replace("/", "~1").replace("'", "''")
    return f"'/{escaped}'"


def _flags(column: pa.Array) -> Flags:
    flags: Flags = column.to_numpy(zero_copy_only=False)
    return flags


def _lists_joined(labels: pa.Array) -> pa.Array:
    """Labels given as a JSON list, ``["a", "b"]``, as one key; each distinct one is read once."""
    encoded = labels.dictionary_encode()
    names = [_list_joined(name) for name in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(names, pa.string()))


def _list_joined(name: str) -> str:
    if name.startswith("["):
        try:
            return SEPARATOR.join(str(label) for label in json.loads(name))
        except ValueError:
            pass  # a label that happens to begin with a bracket
    return name


def _names(head: bytes, file: str) -> list[str]:
    """The field names of the first lines that can be read."""
    names: dict[str, None] = {}
    for line in head.decode("utf-8-sig", "replace").splitlines()[:LINES_LOOKED_AT]:
        names |= dict.fromkeys(_object(line))
    if not names:
        raise InputError(f"{file} line 1: not JSON, one object a line; name its format with --format")
    return list(names)


def _object(line: str) -> dict[str, Any]:
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(line)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}
