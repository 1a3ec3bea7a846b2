"""Peer: preparation with polars alone; the tokens too are cut by its expressions, on all cores.

The same as the other polars peer but for the work on words: what remains in Python is the split of texts.
"""

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from polars_way import fold, usable_lines
from rules import (
    FIRST_WORD_ID,
    SPLITS,
    UNKNOWN_ID,
    VOCABULARY_SIZE,
    Stored,
    arguments,
    report,
    split_of,
    timed,
)

# The \w of polars holds accents and joiners which Python's does not, and lacks fractions which Python's
# has; its \s lacks four control characters. Spelt out, both cut every text alike.
WORD = r"\p{L}\p{N}_"
TOKEN = rf"[{WORD}]+(?:'[{WORD}]+)*|[^{WORD}\s\x1c-\x1f]"


def read_reviews(source: Path) -> pl.DataFrame:
    """Normalised text and rating of every usable line."""
    lower = pl.col("text").str.to_lowercase().str.replace_all("’", "'", literal=True)
    return (
        usable_lines(source)
        .with_columns(text=lower.str.extract_all(TOKEN).list.join(" "))
        .filter(pl.col("text") != "")
        .collect(engine="streaming")
    )


def frequent_words(words: pl.LazyFrame) -> pl.DataFrame:
    """The vocabulary with its ids, the most frequent word first."""
    end = FIRST_WORD_ID + pl.len()
    return (
        words.group_by("word")
        .agg(count=pl.len())
        .sort("count", "word", descending=[True, False])
        .head(VOCABULARY_SIZE)
        .select("word", id=pl.int_range(FIRST_WORD_ID, end, dtype=pl.Int32))
        .collect(engine="streaming")
    )


def store(output: Path, split: str, rows: pl.DataFrame, vocabulary: pl.DataFrame) -> int:
    """Number and write one split, ids end to end, row i from offset i to offset i + 1; returns the tokens."""
    words = rows.lazy().select(word=pl.col("text").str.split(" ")).explode("word")
    ids = (
        words.join(vocabulary.lazy(), on="word", how="left", maintain_order="left")
        .select(pl.col("id").fill_null(UNKNOWN_ID))
        .collect()
        .to_series()
    )
    lengths = rows["text"].str.count_matches(" ", literal=True).to_numpy().astype(np.int64) + 1
    np.save(output / f"{split}-ids.npy", ids.to_numpy())
    np.save(output / f"{split}-offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
    np.save(output / f"{split}-labels.npy", rows["label"].to_numpy())
    return len(ids)


def prepare(source: Path, output: Path) -> Stored:
    """Read, fold, count, number and store."""
    folded = fold(read_reviews(source))
    words = folded.lazy().select(word=pl.col("text").str.split(" ")).explode("word")
    vocabulary = frequent_words(words)
    vocabulary.select("word").write_csv(output / "vocabulary.txt", include_header=False, quote_style="never")
    # The hash of polars may change with its version, so the split is Python's.
    splits = pl.Series("split", [split_of(text.encode()) for text in folded["text"]], dtype=pl.UInt8)
    tokens = sum(
        store(output, name, folded.filter(splits == number), vocabulary) for number, name in enumerate(SPLITS)
    )
    return Stored(len(folded), tokens, tokens)


if __name__ == "__main__":
    source, output = arguments(__doc__)
    report(timed(partial(prepare, source, output)))
