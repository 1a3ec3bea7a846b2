"""The review and topic sets of the classification benchmark, as fastText's text files.

Both sides read the same file: tokens in small letters with a blank between them, as fastText's
own recipe prepares them.
"""

import csv
import io
from pathlib import Path

import pyarrow as pa

from manyhands.settings import TextSettings
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import from_strings

SETS = {
    "TripAdvisor": "reviews/tripadvisor_polarity/{}.csv.zst",
    "IMDB": "reviews/imdb_polarity/{}.csv.zst",
    "AG News": "multiclass/ag_news_{}.csv.gz",
    "20 Newsgroups": "multiclass/20newsgroups_{}.csv.zst",
    "Yelp sentences": "reviews/yelp_sentences/{}.csv.zst",
}
SPLITS = ("train", "test")
CODECS = {".zst": "zstd", ".gz": "gzip"}


def write_sets(data: Path, folder: Path, names: list[str]) -> dict[str, dict[str, Path]]:
    """A text file for each split of each set."""
    return {name: {split: _write(data, folder, name, split) for split in SPLITS} for name in names}


def _write(data: Path, folder: Path, name: str, split: str) -> Path:
    source = data / SETS[name].format("train10k" if (name, split) == ("AG News", "train") else split)
    with pa.CompressedInputStream(pa.OSFile(str(source)), CODECS[source.suffix]) as stream:
        rows = list(csv.reader(io.StringIO(stream.read().decode())))
    texts = from_strings([" ".join(row[1:]).replace("\\n", " ") for row in rows])
    normal = Normaliser(TextSettings()).ragged(texts).strings()
    out = folder / f"{name.replace(' ', '_')}.{split}.txt"
    lines = (f"__label__{row[0].replace(' ', '_')} {text}\n" for row, text in zip(rows, normal, strict=True))
    out.write_text("".join(lines), "utf-8")
    return out
