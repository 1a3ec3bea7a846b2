"""Peer: Spark DataFrames, with a Python function a row wherever SQL has no word for it; stored as Parquet."""

from functools import partial
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import Observation, SparkSession
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
    mode,
    normalise,
    report,
    split_of,
    timed,
)
from spark_way import start_session


def prepare(spark: SparkSession, source: Path, output: Path) -> Stored:
    normal = sf.udf(lambda text: normalise(text) if text else "", "string")
    label = sf.udf(lambda ratings: int(mode([int(r) for r in ratings]) >= LOWEST_GOOD_RATING), "int")
    split = sf.udf(lambda text: SPLITS[split_of(text.encode())], "string")
    raw = spark.read.schema("reviewText STRING, overall DOUBLE").json(
        str(source), mode="DROPMALFORMED", allowSingleQuotes=False
    )
    usable = raw.where(sf.col("overall").isin(*RATINGS))
    texts = usable.select(normal("reviewText").alias("text"), "overall").where("text != ''")
    grouped = texts.groupBy("text").agg(sf.collect_list("overall").alias("ratings"))
    folded = grouped.select("text", label("ratings").alias("label"), split("text").alias("split"))
    folded = folded.persist(StorageLevel.MEMORY_AND_DISK)
    words = folded.select(sf.explode(sf.split("text", " ")).alias("word")).groupBy("word").count()
    top = words.orderBy(sf.desc("count"), "word").limit(VOCABULARY_SIZE).collect()
    ids = spark.sparkContext.broadcast({row["word"]: number for number, row in enumerate(top, FIRST_WORD_ID)})
    number = sf.udf(lambda text: [ids.value.get(word, UNKNOWN_ID) for word in text.split(" ")], "array<int>")
    (output / "vocabulary.txt").write_text("\n".join(row["word"] for row in top) + "\n", encoding="utf-8")
    seen = Observation()
    rows = folded.select(number("text").alias("ids"), "label", "split").observe(
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
