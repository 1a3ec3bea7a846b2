"""The second pass of ``prepare``: duplicates folded, splits drawn, words counted."""

import threading
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.data.fold import Labels, fold
from manyhands.data.labels import LabelBook
from manyhands.data.reading import PREFIX_SHIFT, PREFIXES
from manyhands.data.spool import Spool
from manyhands.kernel import Hashes, Ints, kernel
from manyhands.parallel import side_by_side
from manyhands.records import SPLITS, Progress, Resources
from manyhands.settings import PrepareSettings
from manyhands.text.hashing import fractions
from manyhands.text.ragged import from_arrow
from manyhands.text.words import UNIT_BYTES, Units, next_number

Lengths = npt.NDArray[np.uint32]

TRAIN, VALID, TEST = range(len(SPLITS))

# What becomes of a row that is kept: ``row`` is its place in its partition.
KEPT = pa.schema(
    {
        "row": pa.int64(),
        "high": pa.uint64(),
        "split": pa.uint8(),
        "label": pa.int32(),
        "weight": pa.float32(),
    }
)


def _no_counts() -> Ints:
    return np.zeros((len(SPLITS), PREFIXES), np.int64)


@dataclass
class Counts:
    """How many rows, tokens and labels there are, by split and leading bits of the digest; and words."""

    rows: Ints = field(default_factory=_no_counts)
    tokens: Ints = field(default_factory=_no_counts)
    labels: Ints = field(default_factory=_no_counts)
    duplicates: int = 0
    words: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, other: "Counts") -> None:
        """All but the words, which are numbered differently everywhere."""
        self.rows += other.rows
        self.tokens += other.tokens
        self.labels += other.labels
        self.duplicates += other.duplicates


class Folding:
    """What is done with a partition: duplicates folded, splits drawn, words counted."""

    def __init__(
        self, settings: PrepareSettings, book: LabelBook, origins: set[int], numeric: bool = True
    ) -> None:
        self._deduplicate = settings.deduplicate
        self._seed = settings.seed
        self._test = 0.0 if TEST in origins else settings.test
        self._valid = 0.0 if VALID in origins else settings.valid
        self._rank, self._values = book.order(numeric)
        self._sizes = np.array(book.sizes(), np.int64)

    def take(self, batch: pa.RecordBatch, bases: Ints, words: Ints) -> tuple[pa.RecordBatch, Counts]:
        """Which rows are kept, and how many; words of training rows are counted in ``words``."""
        folded = fold(batch, self._rank, self._values, self._deduplicate)
        high, low, origin = (batch[name].to_numpy()[folded.rows] for name in ("high", "low", "origin"))
        splits = self._splits(low, origin)
        units = from_arrow(batch["units"])
        train = folded.rows[splits == TRAIN]
        of_table = bases[batch["table"].to_numpy()]
        _count_words(units.data.view(np.uint16), units.offsets, train, of_table, words)
        lengths = batch["length"].to_numpy()[folded.rows]
        counts = self._counts(high, splits, lengths, folded.labels)
        counts.duplicates = batch.num_rows - len(folded.rows)
        columns = [folded.rows, high, splits, folded.labels, folded.weights]
        return pa.RecordBatch.from_arrays(columns, schema=KEPT), counts

    def _splits(self, low: Hashes, origin: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The split of each row: its file's, or drawn by the digest of its text."""
        drawn = fractions(low, self._seed)
        by_text = np.where(drawn < self._test, TEST, np.where(drawn < self._test + self._valid, VALID, TRAIN))
        return np.where(origin > 0, origin, by_text).astype(np.uint8)

    def _counts(
        self, high: Hashes, splits: npt.NDArray[np.uint8], lengths: Lengths, labels: Labels
    ) -> Counts:
        cell = splits.astype(np.int64) * PREFIXES + (high >> PREFIX_SHIFT).astype(np.int64)
        rows, tokens, sizes = (
            np.bincount(cell, weights, len(SPLITS) * PREFIXES).astype(np.int64).reshape(len(SPLITS), PREFIXES)
            for weights in (None, lengths, self._sizes[labels])
        )
        return Counts(rows, tokens, sizes)


class Counter:
    """Goes through the partitions of one spool, and notes in another which rows are kept."""

    def __init__(self, folding: Folding, bases: Ints, spools: tuple[Spool, Spool]) -> None:
        self._folding, self._bases = folding, bases
        self._rows, self._kept = spools
        self._counts = Counts()
        self._words: list[Ints] = []  # one array a thread, added up at the end
        self._lock = threading.Lock()
        self._local = threading.local()

    def count(self, partitions: int, resources: Resources, progress: Progress) -> Counts:
        progress.stage("folding", partitions, "partitions")
        for done, _ in enumerate(side_by_side(self._take, range(partitions), resources.threads)):
            progress.advance(done + 1)
        self._counts.words = self._words.pop() if self._words else self._counts.words
        for more in self._words:
            self._counts.words += more
        return self._counts

    def _take(self, partition: int) -> None:
        batch = self._rows.read(partition)
        if batch is None:
            return
        kept, counts = self._folding.take(batch, self._bases, self._word_counts())
        with self._lock:
            self._counts.add(counts)
        self._kept.add({partition: kept})

    def _word_counts(self) -> Ints:
        """This thread's counts."""
        if not hasattr(self._local, "words"):
            self._local.words = np.zeros(self._bases[-1], np.int64)
            with self._lock:
                self._words.append(self._local.words)
        counts: Ints = self._local.words
        return counts


@kernel
def _count_words(units: Units, offsets: Ints, rows: Ints, bases: Ints, counts: Ints) -> None:
    """Offsets are in bytes."""
    for row in rows:
        base = np.uint64(bases[row])
        i, end = offsets[row] // UNIT_BYTES, offsets[row + 1] // UNIT_BYTES
        while i < end:
            number, i = next_number(units, i)
            counts[base + number] += 1
