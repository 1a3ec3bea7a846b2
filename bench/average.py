"""Averages on Spark: Iris by the recipe of the study that this project began from, and real reviews.

The study's LSTM came from its gate equations, with layers of 128 and 256. It averaged once, told no
accuracy, and took 1,705, 1,023 and 511 s on 3, 5 and 15 partitions with 12 cores.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from manyhands import train
from manyhands.engines.spark import spark
from manyhands.evaluation.evaluate import evaluate
from manyhands.spread.average import CONF
from measure import RECORDS, save

STUDY_SECONDS = {3: 1705, 5: 1023, 15: 511}
IRIS = {"model": "lstm", "cell": "equations", "hidden_size": "128,256", "epochs": 50}
IRIS_ROUNDS = (1, 10)
SEEDS = (0, 1, 2)
HELD_OUT = 10  # of each species
REVIEWS: dict[str, dict[str, Any]] = {  # what is not the default
    "ngrams": {},
    "fasttext": {},
    "lstm": {"max_length": 200, "epochs": 3},
}
PARTITIONS = (4, 8)
MASTER = "local[2]"


def iris(data: Path, folder: Path, seed: int) -> tuple[Path, Path]:
    """Two files: 120 rows to train on, and ten of each species to be judged by."""
    head, *lines = (data / "iris.csv").read_text().splitlines()
    species = np.array([line.rpartition(",")[2] for line in lines])
    order = np.random.default_rng(seed).permutation(len(lines))
    held_out = {
        row for kind in np.unique(species) for row in order[species[order] == kind][:HELD_OUT].tolist()
    }
    paths = folder / f"train-{seed}.csv", folder / f"test-{seed}.csv"
    for path, wanted in zip(paths, (False, True), strict=True):
        rows = [line for number, line in enumerate(lines) if (number in held_out) == wanted]
        path.write_text("\n".join([head, *rows]) + "\n")
    return paths


def learn(learnt: Path, test: Path, **settings: Any) -> dict[str, Any]:
    """Train and judge; the seconds are those of training."""
    out = Path(tempfile.mkdtemp()) / "run"
    began = time.perf_counter()
    trained = train(learnt, out, **settings)
    seconds = time.perf_counter() - began
    accuracy = evaluate(trained.bundle, test).accuracy
    shutil.rmtree(out.parent)
    bytes_moved = trained.record["traffic"]["bytes"]
    return {
        "accuracy": round(accuracy, 4),
        "seconds": round(seconds, 1),
        "turns": len(trained.record["scores"]["train"]),
        "megabytes": round(bytes_moved / 1e6),
    }


def on_iris(data: Path) -> list[dict[str, Any]]:
    folder = Path(tempfile.mkdtemp())
    ways: list[dict[str, Any]] = [{}]
    for rounds in IRIS_ROUNDS:
        ways += [{"spread": "average", "partitions": p, "rounds": rounds} for p in STUDY_SECONDS]
    results = []
    for way in ways:
        runs = [learn(*iris(data, folder, seed), **IRIS, **way, seed=seed) for seed in SEEDS]
        results.append(
            {
                **(way or {"spread": "single"}),
                "accuracy": round(float(np.mean([run["accuracy"] for run in runs])), 4),
                "seconds": sorted(run["seconds"] for run in runs)[len(runs) // 2],
                "study_seconds": STUDY_SECONDS.get(way.get("partitions", 0)),
                "runs": runs,
            }
        )
        print(json.dumps(results[-1]), flush=True)
    shutil.rmtree(folder)
    return results


def on_reviews(data: Path, models: list[str]) -> dict[str, Any]:
    """By the default number of rounds."""
    folder, results = data / "reviews" / "imdb_polarity", dict[str, Any]()
    files = folder / "train.csv.zst", folder / "test.csv.zst"
    for model in models:
        alone = learn(*files, model=model, **REVIEWS[model])
        results[model] = {"settings": REVIEWS[model], "single": alone, "partitions": {}}
        print(model, "single", alone, flush=True)
        for partitions in PARTITIONS:
            found = learn(*files, model=model, **REVIEWS[model], spread="average", partitions=partitions)
            found["points"] = round(100 * (found["accuracy"] - alone["accuracy"]), 2)
            results[model]["partitions"][str(partitions)] = found
            print(model, partitions, found, flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder with iris.csv and the review sets"
    )
    parser.add_argument("--models", nargs="*", default=list(REVIEWS), choices=list(REVIEWS))
    parser.add_argument("--no-iris", action="store_true", help="keep what was measured before")
    options = parser.parse_args()
    path = RECORDS / "average.json"
    before = json.loads(path.read_text()) if path.is_file() else {"imdb": {}}
    with spark(MASTER, CONF, "bench"):
        iris = before["iris"] if options.no_iris else on_iris(options.data)
        imdb = {**before["imdb"], **on_reviews(options.data, options.models)}
    save("average", {"master": MASTER, "iris": iris, "imdb": imdb})


if __name__ == "__main__":
    main()
