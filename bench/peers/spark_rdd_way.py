"""Peer: the seed's mapper and reducer as Spark jobs, an RDD of Python objects from end to end.

Lines are parsed and normalised one by one, equal texts meet by key, words are counted by key, and every
partition writes rows of 100 ids and a label into an HDF5 file of its own. The seed's faults (lowest rating
for the mode, reducers that overwrite each other) are not repeated.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import h5py
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from rules import (
    LOWEST_GOOD_RATING,
    PAD_ID,
    SPLITS,
    UNKNOWN_ID,
    VOCABULARY_SIZE,
    Stored,
    arguments,
    mode,
    report,
    split_of,
    timed,
    vocabulary,
)
from seed_way import LENGTH, RowWriter, reviews
from spark_way import start_session


def store(
    output: str, ids: dict[bytes, int], part: int, rows: Iterable[tuple[bytes, int]]
) -> Iterator[tuple]:
    count = tokens = before_cut = 0
    with h5py.File(f"{output}/part{part}.h5", "w") as file:
        writers = [RowWriter(file, split) for split in SPLITS]
        for text, label in rows:
            words = text.split(b" ")
            row = [ids.get(word, UNKNOWN_ID) for word in words[:LENGTH]]
            count, tokens, before_cut = count + 1, tokens + len(row), before_cut + len(words)
            writers[split_of(text)].add([*row, *[PAD_ID] * (LENGTH - len(row)), label])
        for writer in writers:
            writer.flush()
    yield count, tokens, before_cut


def prepare(spark: SparkSession, source: Path, output: Path) -> Stored:
    context = spark.sparkContext
    lines = context.textFile(str(source), 2 * context.defaultParallelism).map(str.encode)
    pairs = lines.mapPartitions(reviews)
    folded = pairs.groupByKey().mapValues(lambda ratings: int(mode(list(ratings)) >= LOWEST_GOOD_RATING))
    folded = folded.persist(StorageLevel.MEMORY_AND_DISK)
    words = folded.flatMap(lambda pair: pair[0].split(b" ")).map(lambda word: (word, 1))
    counts = words.reduceByKey(lambda one, two: one + two)
    frequent = counts.takeOrdered(VOCABULARY_SIZE, key=lambda pair: (-pair[1], pair[0]))
    ids = vocabulary(dict(frequent))  # type: ignore[arg-type]
    (output / "vocabulary.txt").write_bytes(b"\n".join(ids) + b"\n")
    stored = folded.mapPartitionsWithIndex(partial(store, str(output), ids)).collect()
    return Stored(*(sum(column) for column in zip(*stored, strict=True)))


if __name__ == "__main__":
    source, output = arguments(__doc__)
    session = start_session()
    result = timed(partial(prepare, session, source, output))
    session.stop()
    report(result)
