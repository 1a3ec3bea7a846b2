"""Parquet and Arrow files: the columns are there already."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from manyhands.data.files import STDIN, InputStream, reading
from manyhands.data.sources.source import SEPARATOR, STAR_NAMES, Fields, Piece, Records
from manyhands.errors import InputError
from manyhands.text.ragged import from_arrow

ROWS_A_PIECE = 16_384


class Columns:
    """What both have in common; ``lines`` of the records are row numbers, from 1."""

    def __init__(self, stream: InputStream, fields: Fields) -> None:
        if stream.file.name == STDIN:
            raise InputError(
                "Parquet and Arrow files cannot be read from standard input; save it to a file first"
            )
        self._name = stream.file.name
        with reading(self._name):
            self._file = self._open(stream.file.open_raw())
        schema = self._schema()
        self._fields = fields.found_in(schema.names, self._name)
        self._wanted = [f for f in (self._fields.text, self._fields.label, self._fields.weight) if f]
        for name in self._wanted:
            if name not in schema.names:
                raise InputError(f"{self._name}: no column '{name}' among {', '.join(schema.names)}")
        self.rates_stars = self._fields.label in STAR_NAMES

    def _open(self, raw: Any) -> Any:
        raise NotImplementedError

    def _schema(self) -> pa.Schema:
        raise NotImplementedError

    def _batches(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def pieces(self) -> Iterator[Piece]:
        row = 1
        with reading(self._name):
            for batch in self._batches():
                yield partial(self._parse, batch, row)
                row += len(batch)

    def _parse(self, batch: pa.RecordBatch, row: int) -> Records:
        fields = self._fields
        with reading(self._name):
            texts = batch[fields.text]
            missing = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist()
            return Records(
                self._name,
                row + np.arange(len(batch)),
                from_arrow(texts),
                _keys(batch[fields.label]) if fields.label else None,
                batch[fields.weight] if fields.weight else None,
                dict.fromkeys(missing, f"no field '{fields.text}'"),
            )


class Parquet(Columns):
    suffixes = (".parquet", ".pq")
    labelled = True

    @classmethod
    def knows(cls, head: bytes) -> bool:
        return head.startswith(b"PAR1")

    def _open(self, raw: Any) -> pyarrow.parquet.ParquetFile:
        return pyarrow.parquet.ParquetFile(raw)

    def _schema(self) -> pa.Schema:
        return self._file.schema_arrow

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._file.iter_batches(ROWS_A_PIECE, columns=self._wanted, use_threads=False)


class ArrowFile(Columns):
    suffixes = (".arrow", ".feather", ".ipc")
    labelled = True

    @classmethod
    def knows(cls, head: bytes) -> bool:
        return head.startswith(b"ARROW1")

    def _open(self, raw: Any) -> pa.RecordBatchFileReader:
        return pa.ipc.open_file(raw)

    def _schema(self) -> pa.Schema:
        return self._file.schema

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for number in range(self._file.num_record_batches):
            batch = self._file.get_batch(number).select(self._wanted)
            for start in range(0, len(batch), ROWS_A_PIECE):
                yield batch.slice(start, ROWS_A_PIECE)


def _keys(labels: pa.Array) -> pa.Array:
    """Labels as strings; a list of them as one key."""
    if pa.types.is_list(labels.type) or pa.types.is_large_list(labels.type):
        return pc.binary_join(labels.cast(pa.list_(pa.string())), SEPARATOR)
    return labels.cast(pa.string())
