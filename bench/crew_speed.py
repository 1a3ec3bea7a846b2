"""Crews on one machine beside one process: two workers of one thread, one of one thread, one of two threads.

Whole processes on prepared data, in turn; the best of several. ``seconds`` is all of it, start and end
included; ``learning`` is the training loop alone. Kernels are compiled before.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from classification_sets import write_sets
from embed import write_text
from manyhands.data.prepare.prepare import prepare
from measure import RECORDS, save

WAYS = {
    "one worker, one thread": ["--threads", "1"],
    "one process, two threads": ["--threads", "2"],
    "two workers, one thread each": ["--spread", "allreduce", "--workers", "2", "--threads", "1"],
}
ALONE, THREADS, CREW = WAYS
MODELS = {  # and the text that each learns
    "ngrams": ("reviews", []),
    "fasttext": ("reviews", []),
    "lstm": ("reviews", ["--epochs", "1", "--max-length", "100"]),
    "skipgram": ("words", ["--epochs", "2"]),
    "charlstm": ("few words", ["--epochs", "1"]),
}
FEW_WORDS = 150_000
BARS = {ALONE: 1.6, THREADS: 0.8}  # how many times as fast as these two workers are to be


def datasets(data: Path, folder: Path, wanted: set[str]) -> dict[str, Path]:
    """What is learnt, prepared, without rows to validate or test by."""
    out = {}
    for name in wanted:
        out[name], text, settings = folder / name.replace(" ", "-"), folder / f"{name}.txt", {}
        if name == "reviews":
            text = write_sets(data, folder, ["TripAdvisor"])["TripAdvisor"]["train"]
        else:
            write_text(data, text, FEW_WORDS if name == "few words" else None)
            settings = {"labels": "none", "deduplicate": False}
        prepare(str(text), out[name], valid=0, test=0, **settings)
    return out


def run(data: Path, out: Path, arguments: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "manyhands", "train", str(data), "--out", str(out), "--overwrite"]
    began = time.monotonic()
    done = subprocess.run([*command, "--json", *arguments], capture_output=True, check=True)
    seconds, record = time.monotonic() - began, json.loads(done.stdout)
    loss = record["scores"]["train"][-1]["loss"]
    return {"seconds": round(seconds, 2), "learning": record["learning_seconds"], "loss": round(loss, 5)}


def best(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: min(run[name] for run in runs) for name in ("seconds", "learning", "loss")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = datasets(given.data, folder, {MODELS[model][0] for model in given.models})
        for model in given.models:
            of, settings = MODELS[model]
            runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
            run(data[of], folder / "run", ["--model", model, *settings, "--epochs", "1"])  # compiles
            for _ in range(given.repeats):
                for way, options in WAYS.items():
                    runs[way].append(run(data[of], folder / "run", ["--model", model, *settings, *options]))
            ways: dict[str, Any] = {way: best(every) for way, every in runs.items()}
            for other, bar in BARS.items():
                ratios = {k: round(ways[other][k] / ways[CREW][k], 2) for k in ("seconds", "learning")}
                ways[f"beside {other}"] = {**ratios, "bar": bar}
            ways["start_seconds"] = round(
                (ways[CREW]["seconds"] - ways[CREW]["learning"])
                - (ways[ALONE]["seconds"] - ways[ALONE]["learning"]),
                2,
            )
            found[model] = {"text": of, "settings": settings, "repeats": given.repeats, **ways}
            print(model, json.dumps(found[model], indent=1), flush=True)
    path = RECORDS / "crew_speed.json"  # models that were not asked for keep what was measured before
    before = json.loads(path.read_text())["models"] if path.is_file() else {}
    save("crew_speed", {"models": {**before, **found}})


if __name__ == "__main__":
    main()
