"""Peer: preparation with Spark DataFrames on all cores of one machine, stored as Parquet.

Everything runs inside the JVM except the lookup of ids, which gets whole Arrow columns: Spark's own map
lookup walks the 10,000 words one by one, and a join would shuffle every token.
"""

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from rules import (
    FIRST_WORD_ID,
    LOWEST_GOOD_RATING,
    RATINGS,
    SPLITS,
    UNKNOWN_ID,
    VOCABULARY_SIZE,
    Stored,
    arguments,
    report,
    timed,
)

# Java's \w holds accents and joiners which Python's does not, and lacks fractions which Python's has; its
# \s lacks four control characters. Spelt out, both languages cut every text alike.
WORD = r"\p{L}\p{N}_"
SPACE = r"\s\x1c-\x1f"
TOKEN = rf"(?U)[{WORD}]+(?:'[{WORD}]+)*|[^{WORD}{SPACE}]"
NOT_BLANK = rf"(?U)[^{SPACE}]"


def start_session() -> SparkSession:
    """A local session on all cores which listens on this machine only."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = os.cpu_count() or 1
    settings = {
        "spark.driver.memory": "8g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # The default of 200 suits a cluster; here most of its tasks would be empty.
        "spark.sql.shuffle.partitions": str(2 * cores),
    }
    builder = SparkSession.builder.master("local[*]").appName("prepare")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read_reviews(spark: SparkSession, source: Path) -> DataFrame:
    """Normalised text and rating of every usable line."""
    raw = spark.read.schema("reviewText STRING, overall DOUBLE").json(
        str(source), mode="DROPMALFORMED", allowSingleQuotes=False
    )
    # Blank texts are found in the raw column: a filter on the normalised one would be pushed down, and the
    # costly expression computed twice.
    usable = raw.where(sf.col("overall").isin(*RATINGS) & sf.col("reviewText").rlike(NOT_BLANK))
    lower = sf.replace(sf.lower("reviewText"), sf.lit("’"), sf.lit("'"))
    tokens = sf.regexp_extract_all(lower, sf.lit(TOKEN), sf.lit(0))
    return usable.select(sf.array_join(tokens, " ").alias("text"), sf.col("overall").alias("rating"))


def mode() -> Column:
    """The mode from the columns of votes `1`...`5`; ties go to the nearest to the mean, then to the lower."""
    votes = {rating: sf.col(str(rating)) for rating in RATINGS}
    count = sum(votes.values(), sf.lit(0))
    total = sum((votes[rating] * rating for rating in RATINGS), sf.lit(0))
    # Structures compare field by field, so the greatest is the wanted one.
    ranked = [
        sf.struct(
            votes[rating].alias("votes"),
            (-sf.abs(count * rating - total)).alias("nearness"),
            sf.lit(-rating).alias("lowness"),
        )
        for rating in RATINGS
    ]
    return -sf.greatest(*ranked)["lowness"]


def fold(reviews: DataFrame) -> DataFrame:
    """One row a distinct text, with its label and split."""
    # Five counters a text can be summed before the shuffle; a list of ratings could not.
    votes = [sf.count_if(sf.col("rating") == rating).alias(str(rating)) for rating in RATINGS]
    tenth = sf.crc32("text") % 10
    train, valid, test = SPLITS
    split = sf.when(tenth < 8, train).when(tenth == 8, valid).otherwise(test)
    label = (mode() >= LOWEST_GOOD_RATING).cast("tinyint")
    return reviews.groupBy("text").agg(*votes).select("text", label.alias("label"), split.alias("split"))


def frequent_words(folded: DataFrame) -> list[str]:
    """The vocabulary, the most frequent word first."""
    words = folded.select(sf.explode(sf.split("text", " ")).alias("word"))
    ranked = words.groupBy("word").count().orderBy(sf.desc("count"), "word")
    return [row["word"] for row in ranked.limit(VOCABULARY_SIZE).collect()]


def number(spark: SparkSession, folded: DataFrame, words: list[str]) -> DataFrame:
    """The rows with ids in place of their texts."""
    vocabulary = spark.sparkContext.broadcast(words)

    def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = pa.array(vocabulary.value)
        # Plain Python numbers would widen the ids to 64 bits, which Spark does not take for an INT.
        first, unknown = pa.scalar(FIRST_WORD_ID, pa.int32()), pa.scalar(UNKNOWN_ID, pa.int32())
        for batch in batches:
            words = pc.split_pattern(batch["text"], " ")
            places = pc.index_in(words.values, value_set=known)
            ids = pc.fill_null(pc.add(places, first), unknown)
            columns = [pa.ListArray.from_arrays(words.offsets, ids), batch["label"], batch["split"]]
            yield pa.RecordBatch.from_arrays(columns, names=["ids", "label", "split"])

    return folded.mapInArrow(numbered, "ids ARRAY<INT>, label TINYINT, split STRING")


def prepare(spark: SparkSession, source: Path, output: Path) -> Stored:
    """Read, fold, count, number and store."""
    # Kept because it is used twice: for the vocabulary and for the rows.
    folded = fold(read_reviews(spark, source)).persist(StorageLevel.MEMORY_AND_DISK)
    words = frequent_words(folded)
    (output / "vocabulary.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    seen = Observation()
    rows = number(spark, folded, words).observe(
        seen, sf.count("*").alias("rows"), sf.sum(sf.size("ids")).alias("tokens")
    )
    rows.write.mode("overwrite").partitionBy("split").parquet(str(output / "rows"))
    return Stored(seen.get["rows"], seen.get["tokens"], seen.get["tokens"])


if __name__ == "__main__":
    source, output = arguments(__doc__)
    session = start_session()
    result = timed(partial(prepare, session, source, output))
    session.stop()
    report(result)
