"""The last thing that executors do for ``prepare``: every part written whole, under a name of its own.

A task may be tried twice, or by two executors at once. Each attempt writes to a place of its own and
says where; the driver takes the files of those that Spark has counted, and nobody sees the others.
"""

import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.cluster import told
from manyhands.data.finishing import file_facts
from manyhands.data.layout import Layout
from manyhands.data.rejections import FILE as REJECTED_FILE
from manyhands.data.rejections import Rejections
from manyhands.data.spark_rows import BEGIN, ERROR, FACTS, Batches, row, rows_of, unpacked
from manyhands.data.store import PartWriter
from manyhands.errors import ManyhandsError
from manyhands.storage.files import cannot_write


@dataclass(frozen=True)
class PartStage:
    """Collects what belongs to a part, from whichever task; the place behind the parts lists the rejected.

    ``spans`` tells for each span of the input its file, and how many lines of that stand before it.
    """

    layout: Layout
    spans: list[tuple[str, int]]
    staging: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            with _attempt(self.staging) as (folder, where):
                yield from self._written(batches, folder, where)
        except ManyhandsError as error:
            yield row(0, ERROR, told(error).encode())
        except OSError as error:
            yield row(0, ERROR, told(cannot_write(self.staging, error)).encode())

    def _written(self, batches: Batches, folder: Path, where: "_Where") -> Iterator[pa.RecordBatch]:
        writers: dict[int, PartWriter] = {}
        rejections, plans = Rejections(), self.layout.plans
        places = set()
        for place, kind, start, payload in rows_of(batches):
            places.add(place)
            if place == len(plans):
                if kind != BEGIN:
                    self._reject(rejections, start, payload)
                continue
            if place not in writers:
                writers[place] = PartWriter(folder, plans[place])
            if kind != BEGIN:
                writers[place].write(kind, start, unpacked(payload)[kind].to_numpy())
        for part, name, start, first in self.layout.beginnings():
            if part in writers:
                writers[part].write(name, start, first)
        for writer in writers.values():
            writer.close()
        if len(plans) in places:
            rejections.save(folder)
        for place in sorted(places):
            name = plans[place].name if place < len(plans) else REJECTED_FILE
            facts = file_facts(folder / name).model_dump()
            yield row(place, FACTS, json.dumps(facts | {"name": name, "at": where(name)}).encode())

    def _reject(self, rejections: Rejections, span: int, payload: pa.Buffer) -> None:
        batch, (file, before) = unpacked(payload), self.spans[span]
        lines = (batch["line"].to_numpy() + before).tolist()
        rejections.add(file, list(zip(lines, batch["reason"].to_pylist(), strict=True)))


class _Where:
    """Moves a finished file to where the driver will find it."""

    def __init__(self, folder: Path, remote: str | None) -> None:
        self._folder, self._remote = folder, remote

    def __call__(self, name: str) -> str:
        if self._remote is None:
            return str(self._folder / name)
        filesystem, path = url_to_fs(f"{self._remote}/{name}")
        filesystem.put_file(str(self._folder / name), path)
        (self._folder / name).unlink()
        return str(path)


@contextmanager
def _attempt(staging: str) -> Iterator[tuple[Path, _Where]]:
    """A folder of this attempt alone: below ``staging`` itself, or where its files are sent from."""
    mine = f"{staging}/{uuid.uuid4().hex}"
    filesystem, path = url_to_fs(mine)
    if isinstance(filesystem, LocalFileSystem):
        Path(path).mkdir(parents=True)
        yield Path(path), _Where(Path(path), None)
    else:
        with tempfile.TemporaryDirectory(prefix="manyhands-") as folder:
            yield Path(folder), _Where(Path(folder), mine)
