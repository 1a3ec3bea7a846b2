"""The classification sets of the benchmarks: labelled texts, read where they lie, split once and for all.

Sets with a published split keep it. The others are split by a hash of the text, a fifth to the test rows;
texts that occur more than once are kept once, with their commonest label, so that none stands on both sides.
Such a set has several draws: other hashes, other test rows.

Training rows are put in the order of a hash: files that are sorted by label would be a handicap for learners
that read them in order, as fastText does.
"""

import csv
import gzip
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from manyhands.settings import TextSettings
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import from_strings

Row = tuple[str, str]  # label, text
Splits = dict[str, list[Row]]
SPLITS = ("train", "test")
SIGNS = {"0": "negative", "1": "negative", "2": "positive"}
TEST_SHARE = 5  # every fifth row, by hash
LEAST_OPINION = 0.5  # VADER's human scores, from -4 to 4: nearer to nought is no opinion
csv.field_size_limit(1 << 27)


@dataclass(frozen=True)
class LabelledSet:
    """Where a set comes from and how often it is drawn."""

    read: Callable[[Path], Splits | list[Row]]  # rows without splits are split here
    draws: int = 1


def read_set(data: Path, name: str, draw: int = 1) -> Splits:
    """The rows of a set, by split; ``draw``, from 1, gives other splits of sets without one of their own."""
    found = SETS[name].read(data)
    splits = found if isinstance(found, dict) else _split(found, draw)
    return {split: sorted(rows, key=lambda row: _hash("order", *row)) for split, rows in splits.items()}


def few_rows(rows: list[Row], count: int, draw: int) -> list[Row]:
    """``count`` of the rows, others for every draw."""
    return sorted(rows, key=lambda row: _hash(f"few {draw}", *row))[:count]


def write_csv(rows: Iterable[Row], path: Path) -> Path:
    """A CSV file with a header, as ``manyhands train`` reads it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(("label", "text"))
        writer.writerows(rows)
    return path


def write_sets(data: Path, folder: Path, names: list[str]) -> dict[str, dict[str, Path]]:
    """fastText's text file for each split of each set: tokens in small letters, a blank between them."""
    return {name: _write_fasttext(read_set(data, name), folder, name) for name in names}


def _write_fasttext(splits: Splits, folder: Path, name: str) -> dict[str, Path]:
    paths = {}
    for split in SPLITS:
        labels, texts = zip(*splits[split], strict=True)
        tokens = Normaliser(TextSettings()).ragged(from_strings(texts)).strings()
        paths[split] = folder / f"{name.replace(' ', '_')}.{split}.txt"
        lines = (f"__label__{label} {text}\n" for label, text in zip(labels, tokens, strict=True))
        paths[split].write_text("".join(lines), "utf-8")
    return paths


def _hash(*parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()


def _split(rows: list[Row], draw: int) -> Splits:
    labels: dict[str, list[str]] = {}
    for label, text in rows:
        labels.setdefault(" ".join(text.split()), []).append(label)
    splits: Splits = {split: [] for split in SPLITS}
    for text, votes in labels.items():
        test = int.from_bytes(_hash(f"draw {draw}", text.lower())) % TEST_SHARE == 0
        splits["test" if test else "train"].append((Counter(votes).most_common(1)[0][0], text))
    return splits


def _text(path: Path) -> str:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    if path.suffix == ".zst":
        with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
            return str(stream.read(), "utf-8")
    return path.read_text("utf-8")


def _zhang(path: Path, names: dict[str, str] | None = None, column: int = -1) -> list[Row]:
    """CSV without a header: the class, then the text in one column or several."""
    rows = csv.reader(io.StringIO(_text(path)))
    return [((names or {}).get(row[0], row[0]), row[column].replace("\\n", " ")) for row in rows]


def _polarity(folder: str) -> LabelledSet:
    def read(data: Path) -> Splits:
        return {split: _zhang(data / f"reviews/{folder}/{split}.csv.zst", SIGNS) for split in SPLITS}

    return LabelledSet(read)


def _ag_news(data: Path) -> Splits:
    """The training file has no titles, so those of the test file are left out: like texts on both sides."""
    names = {"1": "World", "2": "Sports", "3": "Business", "4": "Technology"}
    files = {"train": "ag_news_train10k", "test": "ag_news_test"}
    return {split: _zhang(data / f"multiclass/{file}.csv.gz", names) for split, file in files.items()}


def _newsgroups(data: Path) -> Splits:
    return {split: _zhang(data / f"multiclass/20newsgroups_{split}.csv.zst") for split in SPLITS}


def _json_rows(path: Path, label: Callable[[dict[str, object]], str]) -> list[Row]:
    found = (json.loads(line) for line in _text(path).splitlines())
    return [(label(row), str(row["reviewText"])) for row in found if row.get("reviewText")]


def _stars(*files: str) -> Callable[[Path], list[Row]]:
    def label(row: dict[str, object]) -> str:
        return f"{row['overall']:.0f} stars"

    return lambda data: [row for file in files for row in _json_rows(data / "reviews" / file, label)]


def _blitzer(field: str) -> Callable[[Path], list[Row]]:
    file = "reviews/amazon/blitzer_books_dvd_4000.jsonl.gz"
    return lambda data: _json_rows(data / file, lambda row: str(row[field]))


def _uci(data: Path) -> list[Row]:
    rows = csv.DictReader(io.StringIO(_text(data / "reviews/uci_sentences_3000.csv")))
    return [("positive" if row["label"] == "1" else "negative", row["text"]) for row in rows]


def _vader(source: str) -> Callable[[Path], list[Row]]:
    def read(data: Path) -> list[Row]:
        rows = csv.DictReader(io.StringIO(_text(data / "reviews/vader_snippets.csv.gz")))
        scored = [(float(row["mean_sentiment"]), row["text"]) for row in rows if row["source"] == source]
        return [("positive" if s > 0 else "negative", text) for s, text in scored if abs(s) >= LEAST_OPINION]

    return read


SMALL_AMAZON = tuple(f"amazon/{name}_5.json.gz" for name in ("AMAZON_FASHION", "Gift_Cards", "Appliances"))
SETS = {
    "20 Newsgroups": LabelledSet(_newsgroups),
    "AG News": LabelledSet(_ag_news),
    "SST-2": _polarity("sst2"),
    "Rotten Tomatoes": LabelledSet(lambda data: _zhang(data / "reviews/rt_polarity_10662.csv.gz", SIGNS), 3),
    "Musical Instruments, stars": LabelledSet(_stars("amazon/Musical_Instruments_5.json.gz"), 3),
    "Small Amazon sets, stars": LabelledSet(_stars(*SMALL_AMAZON), 3),
    "UCI sentences": LabelledSet(_uci, 3),
    "Blitzer, polarity": LabelledSet(_blitzer("polarity"), 3),
    "Blitzer, books or DVDs": LabelledSet(_blitzer("category"), 3),
    "VADER, Amazon": LabelledSet(_vader("amazon"), 3),
    "VADER, movies": LabelledSet(_vader("movie"), 3),
    "TripAdvisor, stars": LabelledSet(_stars("tripadvisor_60k.jsonl.zst")),
    "IMDB": _polarity("imdb_polarity"),
    "Yelp sentences": _polarity("yelp_sentences"),
    "TripAdvisor": _polarity("tripadvisor_polarity"),
}
# Those with rows enough to draw small parts from, time and again.
LARGE_SETS = ("20 Newsgroups", "AG News", "TripAdvisor, stars", "IMDB", "Yelp sentences", "TripAdvisor")
