"""Peer: preparation the seed's way, Hadoop streaming on one machine.

Python mappers write `text TAB rating` lines, the Unix `sort` brings equal texts together, Python reducers
fold them, and rows of 100 ids and a label go into HDF5 in chunks of one row. So many processes work at each
stage as the environment variable PROCESSES says, one by default. The seed's faults (lowest rating for the
mode, reducers overwriting each other) are not repeated.
"""

import json
import os
import subprocess
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from multiprocessing import Pool
from operator import itemgetter
from pathlib import Path

import h5py
import numpy as np
from rules import (
    LOWEST_GOOD_RATING,
    PAD_ID,
    RATINGS,
    SPLITS,
    UNKNOWN_ID,
    Stored,
    arguments,
    mode,
    normalise,
    report,
    split_of,
    timed,
    vocabulary,
)

PROCESSES = int(os.environ.get("PROCESSES", "1"))
LENGTH = 100
BATCH_ROWS = 4096


def cut(source: Path, parts: int) -> list[tuple[int, int]]:
    """Byte ranges of about equal size, each beginning at the start of a line."""
    size = source.stat().st_size
    edges = [0]
    with source.open("rb") as file:
        for part in range(1, parts):
            # One byte early, so that an edge which falls just after a line's end stays there.
            file.seek(max(size * part // parts - 1, 0))
            file.readline()
            edges.append(file.tell())
    return list(zip(edges, [*edges[1:], size], strict=True))


def lines_between(source: Path, start: int, end: int) -> Iterator[bytes]:
    """The lines which begin in a byte range."""
    with source.open("rb") as file:
        file.seek(start)
        for line in file:
            if start >= end:
                return
            start += len(line)
            yield line


def reviews(lines: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """Normalised text and rating of every usable line."""
    for line in lines:
        try:
            review = json.loads(line)
        except ValueError:
            continue
        if not isinstance(review, dict) or review.get("overall") not in RATINGS:
            continue
        text = review.get("reviewText")
        # Half a surrogate pair is legal in JSON but not in UTF-8.
        normal = normalise(text).encode(errors="replace") if isinstance(text, str) else b""
        if normal:
            yield normal, int(review["overall"])


def map_part(source: Path, spool: Path, part: int, span: tuple[int, int]) -> None:
    """Mapper: its range of the input, written to one file for every reducer."""
    with ExitStack() as stack:
        files = [
            stack.enter_context((spool / f"reducer{reducer}-mapper{part}").open("wb"))
            for reducer in range(PROCESSES)
        ]
        for text, rating in reviews(lines_between(source, *span)):
            # High bits choose the reducer: the low ones choose the split, and every reducer wants all splits.
            reducer = (zlib.crc32(text) >> 16) % PROCESSES
            files[reducer].write(b"%b\t%d\n" % (text, rating))


def sorted_pairs(spool: Path, part: int) -> Iterator[tuple[bytes, int]]:
    """Text and rating of the lines for one reducer, in the order of the Unix sort."""
    names = spool / f"reducer{part}-names"
    names.write_bytes(b"\0".join(bytes(file) for file in spool.glob(f"reducer{part}-mapper*")))
    # Under LC_ALL=C lines compare as bytes: faster than any locale, and enough to bring equal texts together.
    environment = {"LC_ALL": "C", "TMPDIR": str(spool)}
    with (
        names.open("rb") as stdin,
        subprocess.Popen(
            ["/usr/bin/sort", "--files0-from=-"], stdin=stdin, stdout=subprocess.PIPE, env=environment
        ) as sort,
    ):
        for line in sort.stdout or ():
            text, _, rating = line.rpartition(b"\t")
            yield text, int(rating)
    if sort.returncode:
        raise SystemExit(f"sort failed with code {sort.returncode}; is there room left beside the output?")


def reduce_part(spool: Path, part: int) -> Counter[bytes]:
    """Reducer: one line a distinct text, with the label of its mode; returns the word counts."""
    words: Counter[bytes] = Counter()
    with (spool / f"reduced{part}").open("wb") as reduced:
        for text, pairs in groupby(sorted_pairs(spool, part), key=itemgetter(0)):
            label = mode([rating for _, rating in pairs]) >= LOWEST_GOOD_RATING
            reduced.write(b"%d\t%b\n" % (label, text))
            words.update(text.split(b" "))
    return words


class RowWriter:
    """Rows of one split, collected and written to their dataset a batch at a time."""

    def __init__(self, file: h5py.File, split: str) -> None:
        width = LENGTH + 1
        self._dataset = file.create_dataset(
            split, shape=(0, width), maxshape=(None, width), chunks=(1, width), dtype=np.int32
        )
        self._batch: list[list[int]] = []

    def add(self, row: list[int]) -> None:
        """Take one row; write when a batch is full."""
        self._batch.append(row)
        if len(self._batch) == BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the rows collected so far."""
        if self._batch:
            before = len(self._dataset)
            self._dataset.resize(before + len(self._batch), axis=0)
            self._dataset[before:] = np.array(self._batch, dtype=np.int32)
            self._batch.clear()


def store_part(spool: Path, output: Path, ids: dict[bytes, int], part: int) -> tuple[int, int]:
    """Number, cut or pad one reducer's texts and store them in its own file; returns rows and tokens."""
    rows = tokens = 0
    with (spool / f"reduced{part}").open("rb") as reduced, h5py.File(output / f"part{part}.h5", "w") as file:
        writers = [RowWriter(file, split) for split in SPLITS]
        for line in reduced:
            label, _, text = line.rstrip(b"\n").partition(b"\t")
            row = [ids.get(word, UNKNOWN_ID) for word in text.split(b" ", LENGTH)[:LENGTH]]
            rows += 1
            tokens += len(row)
            row += [PAD_ID] * (LENGTH - len(row))
            row.append(int(label))
            writers[split_of(text)].add(row)
        for writer in writers:
            writer.flush()
    return rows, tokens


def prepare(source: Path, output: Path) -> Stored:
    """Map, sort, reduce, number and store."""
    parts = range(PROCESSES)
    with tempfile.TemporaryDirectory(dir=output) as folder, Pool(PROCESSES) as pool:
        spool = Path(folder)
        pool.starmap(partial(map_part, source, spool), enumerate(cut(source, PROCESSES)))
        words: Counter[bytes] = Counter()
        for counts in pool.imap_unordered(partial(reduce_part, spool), parts):
            words.update(counts)
        ids = vocabulary(words)
        (output / "vocabulary.txt").write_bytes(b"\n".join(ids) + b"\n")
        stored = pool.map(partial(store_part, spool, output, ids), parts)
    return Stored(sum(rows for rows, _ in stored), sum(tokens for _, tokens in stored), words.total())


if __name__ == "__main__":
    source, output = arguments(__doc__)
    report(timed(partial(prepare, source, output)))
