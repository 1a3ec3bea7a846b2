"""Whole files through ``predict --out`` beside fastText's ``predict``: reviews a second, threads the same.

Both read the same text file, one normalised review a line; ours also writes it again with labels. fastText's
module predicts in one thread, so for two it gets two processes, each with its part of the lines. Our
``fasttext`` is the same recipe as fastText's model; ``ngrams`` is our default. From raw CSV, where quotes and
case are still to be dealt with, only ours can start. All sides take turns, and the best run of each counts.
Where other work shares the machine, processor seconds tell more than those of the clock: both are kept.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from classification_sets import SETS, read_set, write_csv, write_sets
from measure import save

PEERS = Path(__file__).parent / "peers"
RATE = 0.25
MODELS: dict[str, dict[str, Any]] = {
    "fasttext": {"ngrams": 2, "dim": 10, "epochs": 5, "learning_rate": RATE},
    "ngrams": {},
}
LEAST_RATIO = 3.0


class Contender:
    """A process that has its models, and runs when it is asked."""

    def __init__(self, python: str, script: str, job: dict[str, Any]) -> None:
        command = [python, str(PEERS / script), json.dumps(job)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts = self._answer()

    def _answer(self) -> dict[str, Any]:
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise SystemExit("a contender failed; its error stands above")
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, *asked: Any) -> dict[str, Any]:
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate()


def contest(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    files = write_sets(options.data, folder, [name])[name]
    texts, raw = folder / "texts.txt", folder / "raw.csv"
    texts.write_text("".join(row.partition(" ")[2] for row in files["test"].open(encoding="utf-8")), "utf-8")
    write_csv(read_set(options.data, name)["test"], raw)
    paths = {split: str(path) for split, path in files.items()}
    job = {**paths, "out": str(folder / "theirs"), "rate": RATE}
    theirs = Contender(options.peers, "fasttext_predict.py", job)
    ours = Contender(
        sys.executable, "manyhands_predict.py", {**paths, "out": str(folder / "ours"), "models": MODELS}
    )
    found: dict[str, Any] = {"fastText": theirs.facts, "accuracy": ours.facts["accuracy"], "threads": {}}
    for threads in (1, 2):
        speeds: dict[str, list[tuple[float, float]]] = {}
        for _ in range(options.repeats):
            runs = {"fastText": theirs.run(str(texts), threads)}
            for model in MODELS:
                runs[model] = ours.run(model, str(texts), threads, {"format": "text"})
                runs[f"{model}, raw CSV"] = ours.run(model, str(raw), threads, {"format": "csv"})
            for who, run in runs.items():
                pair = run["rows"] / run["seconds"], run["rows"] / run["cpu_seconds"]
                speeds.setdefault(who, []).append(pair)
        found["threads"][threads] = {}
        for k, measure in enumerate(("reviews_per_second", "reviews_per_cpu_second")):
            best = {who: max(pair[k] for pair in pairs) for who, pairs in speeds.items()}
            found["threads"][threads][measure] = {who: round(value) for who, value in best.items()}
            ratios = {who: round(value / best["fastText"], 2) for who, value in best.items()}
            found["threads"][threads][f"{measure}, times fastText"] = ratios
    theirs.close()
    ours.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=sys.executable, help="the Python that has fastText")
    parser.add_argument("--data", type=Path, required=True, help="the folder with the real review sets")
    parser.add_argument("--sets", nargs="*", default=["IMDB", "TripAdvisor"], choices=list(SETS))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    results, bars = {}, {}
    before = os.getloadavg()[0]
    for name in options.sets:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            results[name] = contest(name, options, Path(folder))
        print(name, json.dumps(results[name], indent=1), flush=True)
        for threads, run in results[name]["threads"].items():
            for model in MODELS:
                bar = f"{name}: {model} at least 3 x fastText, {threads} on both sides"
                bars[bar] = run["reviews_per_second, times fastText"][model] >= LEAST_RATIO
                better = results[name]["accuracy"][model] >= results[name]["fastText"]["accuracy"] - 0.1
                bars[f"{name}: {model} no less accurate"] = better
        facts = {"repeats": options.repeats, "load_before": round(before, 1)}
        save("predict_files", {**facts, "results": results, "bars": bars})
    for bar, met in bars.items():
        print(f"{'reached' if met else 'MISSED '}  {bar}")


if __name__ == "__main__":
    main()
