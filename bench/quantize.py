"""What the classifiers lose when they are made small: accuracy in full and at 2 MB, on all sets."""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from classification_sets import LARGE_SETS, write_sets
from manyhands.bundle.quantize import quantize_bundle
from manyhands.evaluation.evaluate import evaluate
from manyhands.run.train import train
from measure import save

SMALL_BYTES, MOST_LOST = 2 << 20, 0.5
MODELS = ("ngrams", "fasttext")


def measured(files: dict[str, Path], model: str, folder: Path) -> dict[str, Any]:
    full, small = folder / "full", folder / "small"
    train(files["train"], full, model=model, overwrite=True, seed=1)
    quantize_bundle(full, small, SMALL_BYTES, overwrite=True)
    scores = [100 * evaluate(bundle, files["test"]).accuracy for bundle in (full, small)]
    size = sum(path.stat().st_size for path in full.iterdir()) / 1e6
    return {
        "accuracy": round(scores[0], 2),
        "full_mb": round(size, 1),
        "accuracy_at_2_mb": round(scores[1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the real review sets")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"the real review sets are not here (looked in {options.data})")
    results = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name in LARGE_SETS:
            files = write_sets(options.data, Path(folder), [name])[name]
            for model in MODELS:
                results.append({"set": name, "model": model, **measured(files, model, Path(folder))})
                lost = results[-1]["accuracy"] - results[-1]["accuracy_at_2_mb"]
                print("reached" if lost <= MOST_LOST else "MISSED ", json.dumps(results[-1]), flush=True)
    save("quantize", {"results": results})


if __name__ == "__main__":
    main()
