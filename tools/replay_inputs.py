"""The files that replayed runs read: small, and the same every time."""

import csv
import gzip
import random
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

MOODS = "bad awful worst poor boring".split(), "good great best lovely superb".split()
ENDS = (".", "!", "?", ", &amp; so <br /> on.")
COLUMNS = ("title", "text", "stars", "weight", "topic")


@dataclass(frozen=True)
class Review:
    title: str
    text: str
    stars: int
    weight: float
    topics: list[str]

    @property
    def topic(self) -> str:
        return self.topics[0]


class Writer:
    """Draws words and sentences, and writes files into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rng = rng = random.Random(20)  # noqa: S311
        self.words = ["".join(rng.choices("aeioubdklmnrstéß", k=rng.randint(2, 9))) for _ in range(1200)]
        self._shares = [1 / (rank + 2) for rank in range(len(self.words))]  # Zipf's law

    def sentence(self, mood: float) -> str:
        """Every third word is an opinion, good as often as ``mood`` says, or a common word."""
        words = self.rng.choices(self.words, self._shares, k=self.rng.randint(4, 24))
        for place in range(0, len(words), 3):
            words[place] = self.rng.choice([*MOODS[self.rng.random() < mood], "the", "a", "was"])
        return " ".join(words).capitalize() + self.rng.choice(ENDS)

    def reviews(self, count: int) -> list[Review]:
        """Some texts stand twice; the topics have to do with the stars."""
        made: list[Review] = []
        for number in range(count):
            stars = self.rng.randint(1, 5)
            text = made[-7].text if number % 50 == 49 else self.sentence((stars - 0.5) / 5)
            topics = [f"topic{k}" for k in range(4) if self.rng.random() < (0.7 if k == stars - 1 else 0.2)]
            title, weight = " ".join(text.split()[:4]), round(self.rng.uniform(0.5, 2), 2)
            made.append(Review(title, text, stars, weight, topics or ["none"]))
        return made

    def lines(self, name: str, lines: Iterable[str]) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def table(self, name: str, rows: list[list[object]], delimiter: str) -> None:
        """The last row is broken."""
        with (self.folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([COLUMNS, *rows, ["too", "few"]])


def write_inputs(folder: Path) -> None:
    """All files that runs read and no run makes."""
    to = Writer(folder)
    reviews, rng = to.reviews(900), to.rng
    rows = [[getattr(review, column) for column in COLUMNS] for review in reviews]
    to.table("table.csv", rows, ",")
    to.table("table.tsv", rows, "\t")
    (folder / "table.csv.gz").write_bytes(gzip.compress((folder / "table.csv").read_bytes(), mtime=0))
    table = pa.Table.from_pylist([asdict(review) for review in reviews])
    pyarrow.parquet.write_table(table, folder / "table.parquet", row_group_size=250)
    with pa.ipc.new_file(folder / "table.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=200)
    to.lines("yelp.csv", (f'"{1 + (row.stars > 3)}","{row.text}\\n{row.title}"' for row in reviews))
    loose = ({"reviewText": f"{r.text} it's", "overall": float(r.stars), "vote": None} for r in reviews)
    to.lines("loose.json", map(repr, loose))
    to.lines("labelled.txt", (f"__label__{row.topic} {row.text}" for row in reviews))
    to.lines("several.txt", (f"__label__{' __label__'.join(r.topics)} , {r.text}" for r in reviews))
    to.lines("lines.txt", [*(row.text for row in reviews[:60]), "", "zzz", "good"])
    to.lines("corpus.txt", (to.sentence(rng.random()) for _ in range(1500)))
    to.lines("more.txt", (f"{to.sentence(rng.random())} anew{rng.randint(1, 9)}" for _ in range(400)))
    known = [*MOODS[0], *MOODS[1], *to.words[:150]]
    vectors = ([word, *(f"{rng.uniform(-1, 1):.4f}" for _ in range(12))] for word in known)
    to.lines("vectors.txt", map(" ".join, vectors))
    means = [(kind, (kind, 2 * kind, 5 - kind, 1)) for kind in [0, 1, 2] * 60]
    flowers = (f"{','.join(f'{rng.gauss(mean, 1):.2f}' for mean in of)},kind{kind}" for kind, of in means)
    to.lines("flowers.csv", ["a,b,c,d,label", *flowers])
    (folder / "wordsets").mkdir()
    pairs = (f"{rng.choice(known[:60])} {rng.choice(known[:60])} {rng.randint(0, 10)}" for _ in range(80))
    to.lines("wordsets/ws353.txt", pairs)
    to.lines("wordsets/google.txt", [": moods", *(" ".join(rng.sample(known[:14], 4)) for _ in range(40))])
    write_fasttext(folder / "model.bin", ["</s>", *known], quantised=False)
    write_fasttext(folder / "model.ftz", ["</s>", *known], quantised=True)


def write_fasttext(path: Path, words: list[str], *, quantised: bool) -> None:
    """A model in fastText's own layout; fastText itself does not train the same one twice."""
    rng, dim, step, buckets, labels = np.random.RandomState(3), 6, 2, 500, 4
    kept = range(0, buckets, 5) if quantised else range(0)  # n-grams of a pruned model

    def dense(height: int) -> bytes:
        return struct.pack("<2q", height, dim) + rng.uniform(-1, 1, height * dim).astype("<f4").tobytes()

    def coded(height: int) -> bytes:
        codes = rng.randint(0, 256, height * dim // step).astype(np.uint8).tobytes()
        head = struct.pack("<?2qi", False, height, dim, len(codes)) + codes
        head += struct.pack("<4i", dim, dim // step, step, step)
        return head + rng.uniform(-1, 1, 256 * dim).astype("<f4").tobytes()

    head = struct.pack("<2i", 793712314, 12)
    # dim, window, epochs, least count, negatives, longest n-gram, loss (softmax), model (supervised),
    # buckets, shortest and longest run of letters, updates of the rate, sampling threshold
    head += struct.pack("<12id", dim, 5, 5, 1, 5, 2, 3, 3, buckets, 2, 3, 100, 1e-4)
    head += struct.pack("<3i2q", len(words) + labels, len(words), labels, 999, len(kept) if kept else -1)
    head += b"".join(word.encode() + struct.pack("<xqb", 9, 0) for word in words)
    head += b"".join(f"__label__{n}".encode() + struct.pack("<xqb", 9 + n, 1) for n in range(labels))
    head += b"".join(struct.pack("<2i", bucket, row) for row, bucket in enumerate(kept))
    height = len(words) + (len(kept) or buckets)
    inputs = struct.pack("<?", quantised) + (coded(height) if quantised else dense(height))
    path.write_bytes(head + inputs + struct.pack("<?", False) + dense(labels))
