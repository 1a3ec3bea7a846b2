"""Parquet and Arrow files: the columns are there already."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from manyhands.data.sources.blocks import BLOCK_BYTES, LONGEST_RECORD_BYTES
from manyhands.data.sources.source import SEPARATOR, FieldNames, Records, Source, SourcePiece
from manyhands.errors import InputError
from manyhands.storage.files import STDIN, InputStream, reading
from manyhands.text.ragged import from_arrow

MOST_ROWS = 65_536


class Columns(Source):
    """What both have in common; ``lines`` of the records are row numbers, from 1."""

    by_line = False
    magic: ClassVar[bytes]
    schema: pa.Schema
    _file: Any

    def __init__(self, stream: InputStream, fields: FieldNames) -> None:
        if stream.file.name == STDIN:
            raise InputError(
                "Parquet and Arrow files cannot be read from standard input; save it to a file first"
            )
        self._name = stream.file.name
        with reading(self._name):
            schema = self._open(stream.file.open_raw())
        if len(set(schema.names)) < len(schema.names):
            raise InputError(f"{self._name}: two columns have the same name")
        self.fields = fields.resolve(schema.names, self._name)
        self._wanted = [f for f in (self.fields.text, self.fields.label, self.fields.weight) if f]
        for name in self._wanted:
            if name not in schema.names:
                raise InputError(f"{self._name}: no column '{name}' among {', '.join(schema.names)}")
        if fields.all_columns:
            self._wanted = schema.names
        self.rates_stars = self.fields.rates_stars
        self.columns, self.schema = tuple(schema.names), schema

    @classmethod
    def knows(cls, head: bytes) -> bool:
        return head.startswith(cls.magic)

    @abstractmethod
    def _open(self, raw: Any) -> pa.Schema: ...

    @abstractmethod
    def _batches(self) -> Iterator[pa.RecordBatch]: ...

    def pieces(self) -> Iterator[SourcePiece]:
        row = 1
        with reading(self._name):
            for batch in self._batches():
                for piece in self._cut(batch):
                    yield partial(self._parse, piece, row)
                    row += len(piece)

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Pieces of so many bytes of text as a block of lines has."""
        before = np.cumsum(from_arrow(batch[self.fields.text]).lengths())
        cuts = np.unique(np.searchsorted(before, np.arange(0, before[-1:].sum() + 1, BLOCK_BYTES)))
        for start, end in pairwise([*cuts.tolist(), len(batch)]):
            yield batch.slice(start, end - start)

    def _parse(self, batch: pa.RecordBatch, row: int) -> Records:
        fields = self.fields
        with reading(self._name):
            texts = batch[fields.text]
            rows = from_arrow(texts)
            missing = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist()
            bad = dict.fromkeys(missing, f"no field '{fields.text}'")
            long = np.flatnonzero(rows.lengths() > LONGEST_RECORD_BYTES).tolist()
            if long:
                bad |= dict.fromkeys(long, "the text is longer than 8 MiB")
                rows = from_arrow(pc.if_else(rows.lengths() > LONGEST_RECORD_BYTES, None, texts))
            return Records(
                self._name,
                row + np.arange(len(batch)),
                rows,
                _keys(batch[fields.label]) if fields.label else None,
                batch[fields.weight] if fields.weight else None,
                bad,
                batch=batch if fields.all_columns else None,
            )


class Parquet(Columns):
    suffixes = (".parquet", ".pq")
    magic = b"PAR1"

    def _open(self, raw: Any) -> pa.Schema:
        self._file = pyarrow.parquet.ParquetFile(raw)
        return self._file.schema_arrow

    @property
    def compression(self) -> str:
        """How its columns are compressed: all like the first."""
        facts = self._file.metadata
        known = facts.num_row_groups and facts.num_columns
        name = str(facts.row_group(0).column(0).compression) if known else "SNAPPY"
        return "none" if name == "UNCOMPRESSED" else name.lower()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        facts = self._file.metadata
        size = sum(facts.row_group(k).total_byte_size for k in range(facts.num_row_groups))
        row_bytes = size // max(facts.num_rows, 1)
        rows = max(16, min(MOST_ROWS, BLOCK_BYTES // max(row_bytes, 1)))
        yield from self._file.iter_batches(rows, columns=self._wanted, use_threads=False)


class ArrowFile(Columns):
    suffixes = (".arrow", ".feather", ".ipc")
    magic = b"ARROW1"

    def _open(self, raw: Any) -> pa.Schema:
        self._file = pa.ipc.open_file(raw)
        return self._file.schema

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for number in range(self._file.num_record_batches):
            yield self._file.get_batch(number).select(self._wanted)


def _keys(labels: pa.Array) -> pa.Array:
    """Labels as strings; a list of them as one key."""
    if pa.types.is_list(labels.type) or pa.types.is_large_list(labels.type):
        return pc.binary_join(labels.cast(pa.list_(pa.string())), SEPARATOR)
    return labels.cast(pa.string())
