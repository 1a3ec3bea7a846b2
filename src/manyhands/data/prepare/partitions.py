"""Rows on their way through ``prepare``: their columns, their partitions, and where they wait.

A partition is a run of digest prefixes, so equal texts meet in one whoever reads them. Rows wait in
a spool: in memory up to a limit, then on disk.
"""

import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from manyhands.data.wordtables import WordTables
from manyhands.kernels.compile import Hashes, Ints
from manyhands.storage.files import COMPRESSED_SUFFIXES, InputFile
from manyhands.text.ragged import Ragged
from manyhands.text.words import UNIT_BYTES

PREFIX_BITS = 10  # of a row's digest; partitions and parts are runs of these 1,024 prefixes
PREFIXES = 1 << PREFIX_BITS
PREFIX_SHIFT = np.uint64(64 - PREFIX_BITS)
UNKNOWN_BYTES = 16 << 30  # what standard input is taken to hold
COMPRESSION = 4  # how many times larger compressed input is taken to be

# A row from reading to writing. ``origin`` is the split that the row's file was given for (1 valid,
# 2 test), or 0 where the text decides; ``table`` is the word table that numbered its words, ``length``
# of them, whose numbers are the bytes of ``units``.
ROW_SCHEMA = pa.schema(
    {
        "high": pa.uint64(),
        "low": pa.uint64(),
        "origin": pa.uint8(),
        "label": pa.int32(),
        "weight": pa.float32(),
        "table": pa.uint16(),
        "length": pa.uint32(),
        "units": pa.large_binary(),
    }
)
# What becomes of a row that is kept: ``row`` is its place in its partition.
KEPT_SCHEMA = pa.schema(
    {"row": pa.int64(), "high": pa.uint64(), "split": pa.uint8(), "label": pa.int32(), "weight": pa.float32()}
)


@dataclass(frozen=True)
class SourceFile:
    """An input file and the split it was given for: 0 where the text decides, 1 valid, 2 test."""

    file: InputFile
    origin: int

    @property
    def expected_bytes(self) -> int:
        """How much text it may hold."""
        size = self.file.size if self.file.size is not None else UNKNOWN_BYTES
        compressed = self.file.name.lower().endswith((*COMPRESSED_SUFFIXES, ".parquet"))
        return size * (COMPRESSION if compressed else 1)


def first_prefix(partition: int, partitions: int) -> int:
    """The first digest prefix that falls to a partition."""
    return -(-partition * PREFIXES // partitions)


def prefixes_of(high: Hashes) -> Ints:
    """The leading bits of each digest."""
    return (high >> PREFIX_SHIFT).astype(np.int64)


def sort_by_partition(rows: Ints, high: Hashes, partitions: int) -> tuple[Ints, list[tuple[int, int, int]]]:
    """The rows sorted by partition, and for each partition where it begins and how many it has."""
    partition = prefixes_of(high[rows]) * partitions // PREFIXES
    order = np.argsort(partition, kind="stable")
    present, starts, counts = np.unique(partition[order], return_index=True, return_counts=True)
    return rows[order], list(zip(present.tolist(), starts.tolist(), counts.tolist(), strict=True))


def word_columns(tables: WordTables, texts: Ragged, rows: Ints) -> list[pa.Array]:
    """The last columns of ``ROW_SCHEMA``: the words of some rows by number, and whose numbers they are."""
    table_number, table = tables.for_this_thread()
    all_rows = table.number(texts)
    units = Ragged(all_rows.units.view(np.uint8), all_rows.offsets * UNIT_BYTES)
    return [
        pa.array(np.full(len(rows), table_number, np.uint16)),
        pa.array(all_rows.lengths[rows].astype(np.uint32)),
        units.take(rows).arrow(),
    ]


class Spool:
    """Takes batches for numbered partitions from any thread, and gives each partition back whole.

    When the batches in memory pass the limit, all of them go to one file, partition by
    partition; reading a partition back is then one read for every time that happened.
    """

    def __init__(self, path: Path, memory_bytes: int) -> None:
        self._path = path
        self._memory_limit = memory_bytes
        self._lock = threading.Lock()
        self._batches: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._extents: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # start and length
        self._memory_bytes = 0
        self._end = 0

    def add(self, batches: dict[int, pa.RecordBatch]) -> None:
        with self._lock:
            for partition, batch in batches.items():
                self._batches[partition].append(batch)
                self._memory_bytes += batch.nbytes
            if self._memory_bytes > self._memory_limit:
                self._spill()

    def read(self, partition: int) -> pa.RecordBatch | None:
        """All rows of the partition; None if it has none."""
        with self._lock:
            batches = list(self._batches.get(partition, ()))
            extents = list(self._extents.get(partition, ()))
        for start, length in extents:
            with pa.OSFile(str(self._path)) as file:
                file.seek(start)
                stored = file.read_buffer(length)
            batches.extend(pa.ipc.open_stream(stored))
        return pa.concat_batches(batches) if batches else None

    def drop(self, partition: int) -> None:
        """Forget the partition, so that its memory can be used again."""
        with self._lock:
            self._memory_bytes -= sum(batch.nbytes for batch in self._batches.pop(partition, []))
            self._extents.pop(partition, None)

    def _spill(self) -> None:
        with self._path.open("ab") as file:
            for partition, batches in sorted(self._batches.items()):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batches[0].schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                stored = sink.getvalue()
                file.write(stored)
                self._extents[partition].append((self._end, stored.size))
                self._end += stored.size
        self._batches.clear()
        self._memory_bytes = 0
