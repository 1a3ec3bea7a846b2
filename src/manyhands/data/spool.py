"""Rows on their way, sorted into partitions: in memory up to a limit, then on disk."""

import threading
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa


class _Extent(NamedTuple):
    start: int
    length: int


class Spool:
    """Takes batches for numbered partitions from any thread, and gives each partition back whole.

    When the batches in memory pass the limit, all of them go to one file, partition by
    partition; reading a partition back is then one read for every time that happened.
    """

    def __init__(self, path: Path, memory_bytes: int) -> None:
        self._path = path
        self._limit = memory_bytes
        self._lock = threading.Lock()
        self._batches: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._extents: defaultdict[int, list[_Extent]] = defaultdict(list)
        self._held = 0
        self._end = 0

    def add(self, batches: dict[int, pa.RecordBatch]) -> None:
        with self._lock:
            for partition, batch in batches.items():
                self._batches[partition].append(batch)
                self._held += batch.nbytes
            if self._held > self._limit:
                self._spill()

    def read(self, partition: int) -> pa.RecordBatch | None:
        """All rows of the partition; None if it has none."""
        with self._lock:
            batches = list(self._batches.get(partition, ()))
            extents = list(self._extents.get(partition, ()))
        for extent in extents:
            with pa.OSFile(str(self._path)) as file:
                file.seek(extent.start)
                stored = file.read_buffer(extent.length)
            batches.extend(pa.ipc.open_stream(stored))
        return pa.concat_batches(batches) if batches else None

    def drop(self, partition: int) -> None:
        """Forget the partition, so that its memory can be used again."""
        with self._lock:
            self._held -= sum(batch.nbytes for batch in self._batches.pop(partition, []))
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
                self._extents[partition].append(_Extent(self._end, stored.size))
                self._end += stored.size
        self._batches.clear()
        self._held = 0
