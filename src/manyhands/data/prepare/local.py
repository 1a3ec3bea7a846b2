"""``prepare`` on one machine: threads share the pieces of the input, then the partitions.

Words get provisional numbers, from a table that each thread fills for itself, so that every text is
taken apart once; the later passes deal in numbers alone.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from manyhands.data.prepare.fold import DatasetCounts, PartitionFolder
from manyhands.data.prepare.layout import Ids, Layout, RowEncoder
from manyhands.data.prepare.ledger import REJECTED_FILE, DatasetSummary, InputSummary, Rejections, file_facts
from manyhands.data.prepare.partitions import (
    PREFIXES,
    ROW_SCHEMA,
    SourceFile,
    Spool,
    sort_by_partition,
    word_columns,
)
from manyhands.data.reader import PieceTally, Reader
from manyhands.data.sources.source import SourcePiece
from manyhands.data.store import PartWriter
from manyhands.data.wordtables import WordTables
from manyhands.kernels.compile import Ints
from manyhands.parallel import map_unordered
from manyhands.records import Progress, Resources
from manyhands.settings import PrepareSettings
from manyhands.text.hashing import digests

PARTITION_BYTES = 64 << 20


def prepare_locally(
    folder: Path, files: list[SourceFile], settings: PrepareSettings, resources: Resources, progress: Progress
) -> None:
    """Make the dataset in ``folder``."""
    scratch = folder / ".scratch"
    scratch.mkdir()
    engine = _LocalEngine(scratch, files, settings, resources, progress)
    rejections = Rejections()
    summary = engine.read(rejections)
    summary.check(settings.max_rejected)
    counts = engine.fold(PartitionFolder(settings, summary.encoder, {file.origin for file in files}))
    vocabulary, final_ids = engine.tables.vocabulary(
        counts.words, settings.vocabulary_size, settings.min_count
    )
    classes = summary.encoder.classes(summary.rates_stars)
    layout = Layout(counts, classes, vocabulary.ids)
    engine.write(folder, layout, final_ids)
    rejections.save(folder)
    with ThreadPoolExecutor(resources.threads) as pool:  # one waits for the disk while another hashes
        parts = list(pool.map(lambda plan: file_facts(folder / plan.name), layout.plans))
    dataset = DatasetSummary(files, settings, summary, counts, classes, vocabulary, layout)
    dataset.save(folder, parts, file_facts(folder / REJECTED_FILE))


class _LocalEngine:
    """The three passes, and what lies between them: a spool of rows, and one of which rows are kept."""

    def __init__(
        self,
        scratch: Path,
        files: list[SourceFile],
        settings: PrepareSettings,
        resources: Resources,
        progress: Progress,
    ) -> None:
        self._files, self._settings = files, settings
        self._resources, self._progress = resources, progress
        self._partitions = _partition_count(files, resources)
        self._rows = Spool(scratch / "rows", resources.memory_bytes * 2 // 5)
        self._kept = Spool(scratch / "kept", resources.memory_bytes // 10)
        self._lock = threading.Lock()
        self.tables = WordTables(resources.memory_bytes // 8 // resources.threads)

    def read(self, rejections: Rejections) -> InputSummary:
        """Every record parsed, normalised, hashed and put into its partition."""
        reader = Reader(self._settings)
        rows = empty = 0
        pieces = reader.pieces([source.file for source in self._files], self._progress)
        for tally in map_unordered(partial(self._spool_piece, reader), pieces, self._resources.threads):
            rows, empty = rows + tally.rows, empty + tally.empty
            rejections.add(tally.file, tally.rejected)
            summary = InputSummary(reader.label_encoder, rejections, reader.rates_stars, rows, empty)
            if summary.hopeless and self._settings.max_rejected < 1:
                break
        return InputSummary(reader.label_encoder, rejections, reader.rates_stars, rows, empty)

    def _spool_piece(self, reader: Reader, work: tuple[int, SourcePiece]) -> PieceTally:
        file, piece = work
        parsed = reader.parse(piece)
        high, low = digests(parsed.texts)
        rows, bounds = sort_by_partition(parsed.usable, high, self._partitions)
        columns = [
            high[rows],
            low[rows],
            np.full(len(rows), self._files[file].origin, np.uint8),
            parsed.labels[rows],
            parsed.weights[rows],
            *word_columns(self.tables, parsed.texts, rows),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)
        self._rows.add({partition: batch.slice(start, count) for partition, start, count in bounds})
        return parsed.tally

    def fold(self, folder: PartitionFolder) -> DatasetCounts:
        """Duplicates folded, splits drawn, words counted, one partition after the other."""
        bases, total, local = self.tables.bases(), DatasetCounts(), threading.local()
        word_counts: list[Ints] = []  # one array a thread, added up at the end

        def fold_partition(partition: int) -> None:
            batch = self._rows.read(partition)
            if batch is None:
                return
            if not hasattr(local, "words"):
                local.words = np.zeros(bases[-1], np.int64)
                with self._lock:
                    word_counts.append(local.words)
            kept, counts = folder.fold(batch, bases, local.words)
            with self._lock:
                total.add(counts)
            self._kept.add({partition: kept})

        self._run_on_partitions("de-duplicating", fold_partition)
        total.words = word_counts.pop() if word_counts else total.words
        for counts in word_counts:
            total.words += counts
        return total

    def write(self, folder: Path, layout: Layout, final_ids: Ids) -> None:
        """Final ids looked up, and every row put at its place in its part."""
        bases = self.tables.bases()
        parts = [PartWriter(folder, plan) for plan in layout.plans]

        def write_partition(partition: int) -> None:
            kept, batch = self._kept.read(partition), self._rows.read(partition)
            if kept is None or batch is None:
                return
            self._rows.drop(partition)
            encoder = RowEncoder(layout, partition, self._partitions, final_ids, bases)
            for part, name, start, values in encoder.segments(kept, batch):
                parts[part].write(name, start, values)

        for part, name, start, values in layout.first_offsets():
            parts[part].write(name, start, values)
        self._run_on_partitions("writing", write_partition)
        for writer in parts:
            writer.close()

    def _run_on_partitions(self, stage: str, task: Callable[[int], None]) -> None:
        """Do ``task`` for every partition, on all threads."""
        self._progress.stage(stage, self._partitions, "partitions")
        for done, _ in enumerate(map_unordered(task, range(self._partitions), self._resources.threads)):
            self._progress.advance(done + 1)


def _partition_count(files: list[SourceFile], resources: Resources) -> int:
    """So many that one partition a thread fits well into memory; a power of two."""
    expected = sum(file.expected_bytes for file in files)
    each = min(PARTITION_BYTES, resources.memory_bytes // 16 // resources.threads)
    return min(PREFIXES, 1 << max(expected // each, 2 * resources.threads - 1).bit_length())
