"""Peer: preparation with polars for the table work and Python's `re` for the tokens, stored as .npy files.

Rows keep their full length: ids of all rows of a split end to end, with the offsets where rows begin.
"""

from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl
from rules import (
    LOWEST_GOOD_RATING,
    RATINGS,
    SPLITS,
    UNKNOWN_ID,
    Stored,
    arguments,
    normalise,
    report,
    split_of,
    timed,
    vocabulary,
)


def usable_lines(source: Path) -> pl.LazyFrame:
    """Raw text and rating of every line which has both."""
    # Not scan_ndjson: one broken line would end it, even with ignore_errors. A path which does not match,
    # or a line which is not JSON, is null here.
    line = pl.col("line")
    return (
        pl.scan_lines(source)
        .select(
            text=line.str.json_path_match("$.reviewText"),
            rating=line.str.json_path_match("$.overall").cast(pl.Float64, strict=False),
        )
        .filter(pl.col("rating").is_in([float(rating) for rating in RATINGS]), pl.col("text").is_not_null())
        .with_columns(pl.col("rating").cast(pl.Int64))
    )


def read_reviews(source: Path) -> pl.DataFrame:
    """Normalised text and rating of every usable line."""
    raw = usable_lines(source).collect(engine="streaming")
    texts = pl.Series("text", map(normalise, raw["text"]), dtype=pl.String)
    return raw.with_columns(texts).filter(pl.col("text") != "")


def fold(reviews: pl.DataFrame) -> pl.DataFrame:
    """One row a distinct text, with the label of its mode."""
    rating, votes = pl.col("rating"), pl.col("votes")
    # Distances are multiplied by the count, so they stay whole numbers and equal ones compare equal.
    distance = (rating * votes.sum().over("text") - (rating * votes).sum().over("text")).abs()
    return (
        reviews.lazy()
        .group_by("text", "rating")
        .agg(votes=pl.len().cast(pl.Int64))
        .with_columns(distance=distance)
        .sort("votes", "distance", "rating", descending=[True, False, False])
        .unique("text", keep="first", maintain_order=True)
        .select("text", label=(rating >= LOWEST_GOOD_RATING).cast(pl.UInt8))
        .collect()
    )


def store(output: Path, split: str, rows: list[list[int]], labels: list[int]) -> None:
    """Write one split: ids end to end, row i from offset i to offset i + 1."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(offsets[-1]))
    np.save(output / f"{split}-ids.npy", ids)
    np.save(output / f"{split}-offsets.npy", offsets)
    np.save(output / f"{split}-labels.npy", np.array(labels, dtype=np.uint8))


def prepare(source: Path, output: Path) -> Stored:
    """Read, fold, count, number and store."""
    folded = fold(read_reviews(source))
    counts: Counter[str] = Counter()
    for text in folded["text"]:
        counts.update(text.split(" "))
    ids = vocabulary(counts)
    (output / "vocabulary.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
    rows: list[list[list[int]]] = [[] for _ in SPLITS]
    labels: list[list[int]] = [[] for _ in SPLITS]
    for text, label in folded.iter_rows():
        split = split_of(text.encode())
        rows[split].append([ids.get(word, UNKNOWN_ID) for word in text.split(" ")])
        labels[split].append(label)
    for name, split_rows, split_labels in zip(SPLITS, rows, labels, strict=True):
        store(output, name, split_rows, split_labels)
    return Stored(len(folded), counts.total(), counts.total())


if __name__ == "__main__":
    source, output = arguments(__doc__)
    report(timed(partial(prepare, source, output)))
