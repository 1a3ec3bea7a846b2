"""What unlabelled texts add to the default classifier: all of IMDB, and sets with few labelled rows."""

import argparse
import csv
import gzip
import io
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyhands.evaluation.evaluate import evaluate
from manyhands.run.train import train
from measure import save

LABELLED, DRAWS = 1000, 3
BLITZER, BLITZER_TESTED = "reviews/amazon/blitzer_books_dvd_4000.jsonl.gz", 1000
FEW = {
    "Yelp sentences": "reviews/yelp_sentences/{}.csv.zst",
    "20 Newsgroups": "multiclass/20newsgroups_{}.csv.zst",
}
IMDB = "reviews/imdb_polarity/{}.zst"

Rows = list[tuple[str, str]]  # label and text


@dataclass(frozen=True)
class Task:
    """A set as it is learnt: its rows, of which ``labelled`` keep their labels, None for all."""

    name: str
    train: Rows
    test: Rows
    unlabelled: list[str]
    labelled: int | None = None


def read_csv(path: Path) -> Rows:
    rows = csv.reader(io.StringIO(_read(path)))
    return [(row[0], " ".join(row[1:])) for row in rows]


def _read(path: Path) -> str:
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        return str(stream.read().decode())


def tasks(data: Path) -> list[Task]:
    found = []
    with gzip.open(data / BLITZER, "rt", encoding="utf-8") as lines:
        reviews = [json.loads(line) for line in lines]
    blitzer: Rows = [(str(review["polarity"]), review["reviewText"]) for review in reviews]
    order = np.random.default_rng(0).permutation(len(blitzer)).tolist()
    train_rows, test_rows = order[BLITZER_TESTED:], order[:BLITZER_TESTED]
    of = [[blitzer[row] for row in rows] for rows in (train_rows, test_rows)]
    found.append(Task("Blitzer books and DVDs", of[0], of[1], [], LABELLED))
    for name, path in FEW.items():
        train_set, test_set = (read_csv(data / path.format(split)) for split in ("train", "test"))
        found.append(Task(name, train_set, test_set, [], LABELLED))
    train_set, test_set = (read_csv(data / IMDB.format(split)) for split in ("train.csv", "test.csv"))
    unlabelled = (
        _read(data / IMDB.format("unsup.txt")).rstrip("\n").split("\n")
    )  # some hold other ends of lines
    found.append(Task("IMDB", train_set, test_set, unlabelled))
    return found


def measured(task: Task, draw: int, folder: Path) -> dict[str, Any]:
    """Learn without the unlabelled texts and with them."""
    order = np.random.default_rng(draw).permutation(len(task.train)).tolist()
    labelled = [task.train[row] for row in order[: task.labelled]]
    rest = [task.train[row][1] for row in order[len(labelled) :]] + task.unlabelled
    files = {name: folder / f"{name}.csv" for name in ("train", "test")}
    for path, rows in ((files["train"], labelled), (files["test"], task.test)):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("label", "text"), *rows])
    texts = folder / "unlabelled.txt"
    texts.write_text("".join(" ".join(text.split()) + "\n" for text in rest), "utf-8")
    result: dict[str, Any] = {"labelled": len(labelled), "unlabelled": len(rest)}
    for name, more in (("without", ()), ("with", (texts,))):
        began = time.monotonic()
        trained = train(files["train"], folder / name, overwrite=True, seed=draw, unlabelled=more)
        result[f"seconds_{name}"] = round(time.monotonic() - began, 1)
        result[f"accuracy_{name}"] = round(100 * evaluate(folder / name, files["test"]).accuracy, 2)
        if trained and more:
            result["used"] = trained.record["unlabelled"]["used"]
    return result


def summary(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of several draws."""
    kept = {key: runs[0][key] for key in ("labelled", "unlabelled")}
    means = {key: round(float(np.mean([run[key] for run in runs])), 2) for key in runs[0] if key not in kept}
    return {"set": name, "draws": len(runs), **kept, **means, "used": sum(run["used"] for run in runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the real review sets")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"the real review sets are not here (looked in {options.data})")
    results = []
    for task in tasks(options.data):
        draws = DRAWS if task.labelled else 1
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            runs = [measured(task, draw, Path(folder)) for draw in range(draws)]
        results.append(summary(task.name, runs))
        print(json.dumps(results[-1]), flush=True)
    save("unlabelled", {"results": results})


if __name__ == "__main__":
    main()
