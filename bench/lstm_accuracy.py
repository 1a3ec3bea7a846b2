"""How good ``lstm`` becomes from scratch on real reviews, and how long that takes on this machine."""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from manyhands import train
from manyhands.evaluation.evaluate import evaluate
from measure import save

SETS: dict[str, dict[str, Any]] = {
    "imdb_polarity": {"bidirectional": True, "max_length": 400, "dropout": 0.5, "epochs": 3},
    "tripadvisor_polarity": {"epochs": 2},
}
SEEDS = {"imdb_polarity": (0, 1, 2), "tripadvisor_polarity": (0,)}
BARS = {"imdb_polarity": 0.87, "tripadvisor_polarity": 0.955}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the real review sets")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name, settings in SETS.items():
        folder = options.data / "reviews" / name
        runs = []
        for seed in SEEDS[name]:
            out = Path(tempfile.mkdtemp()) / "run"
            began = time.perf_counter()
            trained = train(folder / "train.csv.zst", out, model="lstm", seed=seed, **settings)
            seconds = time.perf_counter() - began
            report = evaluate(trained.bundle, folder / "test.csv.zst")
            runs.append({"seed": seed, "accuracy": report.accuracy, "seconds": round(seconds, 1)})
            shutil.rmtree(out.parent)
            print(name, settings, runs[-1], flush=True)
        results[name] = {"settings": settings, "bar": BARS[name], "runs": runs}
    print(json.dumps(results, indent=1))
    save("lstm_accuracy", results)


if __name__ == "__main__":
    main()
