"""Our default classifier beside what people use: every set, whole and in small parts.

Beside ``manyhands train FILE.csv`` as it is stand scikit-learn's LinearSVC and logistic regression on TF-IDF,
fastText and Vowpal Wabbit, each with the best of six settings by validation (``peers/validation.py``), then
trained on all training rows. All get the same file and two threads. Accuracies are means over seeds, and over
draws where a set is ours to split.

Every run is kept in the record as it ends, and a run that the record has is not repeated: an interrupted
benchmark continues, and ``--ours-only`` runs ours again beside the peers' kept runs. Times are then not side
by side, and are neither judged nor shown.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from classification_sets import LARGE_SETS, SETS, few_rows, read_set, write_csv
from measure import RECORDS, save

PEERS = Path(__file__).parent / "peers"
OURS = "manyhands"
SCIKIT_LEARN = ("LinearSVC", "logistic regression")
JUDGES = (*SCIKIT_LEARN, "fastText")  # the peers that the bars speak of
CONTENDERS = (OURS, *JUDGES, "Vowpal Wabbit")
THREADS, SEEDS, DRAWS = 2, 3, 5
PARTS = (1_000, 200)  # rows
MOST_TEST_ROWS = 4_000  # for models of few rows, whose draws differ by far more than that many rows tell
MOST_BELOW, LEAST_ABOVE, MOST_BELOW_FEW = 0.2, 2 / 3, 0.5  # points, share of sets, points
ROWS_TO_TIME, SHARE_OF_FASTTEXT = 20_000, 1 / 3


@dataclass(frozen=True)
class Task:
    """A set, whole or a part of it, and the seed: for splits of ours and for parts also the draw."""

    set: str
    rows: int | None  # None: all
    seed: int

    def write(self, data: Path, folder: Path) -> tuple[dict[str, str], int]:
        """The files of the splits, and how many rows there are to train on."""
        splits = read_set(data, self.set, 1 + (self.seed - 1) % SETS[self.set].draws)
        if self.rows is not None:
            few = few_rows(splits["train"], self.rows, self.seed)
            splits = {"train": few, "test": splits["test"][:MOST_TEST_ROWS]}
        paths = {split: str(write_csv(rows, folder / f"{split}.csv")) for split, rows in splits.items()}
        return paths, len(splits["train"])


def tasks(sets: list[str]) -> Iterator[Task]:
    for name in sets:
        yield from (Task(name, None, seed) for seed in range(1, SEEDS + 1))
        if name in LARGE_SETS:
            yield from (Task(name, rows, draw) for rows in PARTS for draw in range(1, DRAWS + 1))


class Bench:
    """The runs that there are, and how more are made."""

    def __init__(self, pythons: dict[str, str], data: Path, runs: list[dict[str, Any]]) -> None:
        self._pythons = pythons
        self._data = data
        self.runs = runs

    def run(self, task: Task, contenders: list[str]) -> None:
        """The contenders in turn, on one file."""
        done = {run["peer"] for run in self.runs if _task(run) == task}
        missing = [name for name in contenders if name not in done]
        if not missing:
            return
        together = OURS in missing and set(JUDGES) <= set(missing)
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            files, train_rows = task.write(self._data, Path(name))
            job = {**files, "out": f"{name}/out", "seed": task.seed, "threads": THREADS}
            for script, names in self._scripts(missing):
                command = [self._pythons[script], str(PEERS / script), json.dumps({**job, "models": names})]
                for found in _printed(command):
                    self.runs.append(
                        {**asdict(task), "train_rows": train_rows, **found, "side_by_side": together}
                    )
                    print(json.dumps(self.runs[-1]), flush=True)
        save_record(self.runs)

    def _scripts(self, contenders: list[str]) -> Iterator[tuple[str, list[str]]]:
        scikit = [name for name in contenders if name in SCIKIT_LEARN]
        scripts = {"manyhands": [OURS], "sklearn": scikit, "fasttext": ["fastText"], "vw": ["Vowpal Wabbit"]}
        for name, models in scripts.items():
            script = f"{name}_classify.py"
            if script in self._pythons and {*models} & {*contenders}:
                yield script, models


def _printed(command: list[str]) -> list[dict[str, Any]]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(THREADS),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{command[1]} failed:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _task(run: dict[str, Any]) -> Task:
    return Task(run["set"], run["rows"], run["seed"])


def summary(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every contender's mean and spread, by set; parts of a set are listed as sets of their own."""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for run in runs:
        name = run["set"] if run["rows"] is None else f"{run['set']}, {run['rows']:,} rows"
        groups.setdefault(name, {}).setdefault(run["peer"], []).append(run)
    return {name: {who: _mean(found) for who, found in group.items()} for name, group in groups.items()}


def _mean(runs: list[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [run["accuracy"] for run in runs]
    return {
        "accuracy": round(statistics.mean(accuracies), 2),
        "spread": round(max(accuracies) - min(accuracies), 2),
        "macro_f1": round(statistics.mean(run["macro_f1"] for run in runs), 2),
        "seconds": round(statistics.median(run["seconds"] for run in runs), 2),
        "cpu_seconds": round(statistics.median(run["cpu_seconds"] for run in runs), 2),
        "runs": len(runs),
        "side_by_side": all(run["side_by_side"] for run in runs),
    }


def best_peer(group: dict[str, dict[str, Any]]) -> float:
    return max(group[name]["accuracy"] for name in JUDGES)


def bars(found: dict[str, dict[str, Any]], train_rows: dict[str, int]) -> dict[str, bool]:
    """What the benchmark is to show, and whether it does; only of sets that everyone has run."""
    whole = {name: group for name, group in found.items() if {OURS, *JUDGES} <= {*group} and name in SETS}
    ahead = {name: group[OURS]["accuracy"] - best_peer(group) for name, group in whole.items()}
    reached = {
        f"{name}: at most {MOST_BELOW} points below the best peer": points >= -MOST_BELOW
        for name, points in ahead.items()
    }
    if ahead:
        share = sum(points > 0 for points in ahead.values()) / len(ahead)
        reached["above the best peer on at least two thirds of the sets"] = share >= LEAST_ABOVE
    for name, group in whole.items():
        # Times of other hours, or of a busier machine, would prove nothing.
        if train_rows[name] >= ROWS_TO_TIME and all(group[who]["side_by_side"] for who in (OURS, *JUDGES)):
            ours = group[OURS]["seconds"]
            reached[f"{name}: no slower than LinearSVC"] = ours <= group["LinearSVC"]["seconds"]
            limit = SHARE_OF_FASTTEXT * group["fastText"]["seconds"]
            reached[f"{name}: within a third of fastText's time"] = ours <= limit
    for rows in PARTS:
        groups = [found.get(f"{name}, {rows:,} rows", {}) for name in LARGE_SETS]
        gaps = [g[OURS]["accuracy"] - best_peer(g) for g in groups if {OURS, *JUDGES} <= {*g}]
        if gaps:
            bar = f"{rows:,} rows: on average at most {MOST_BELOW_FEW} points below the best peer"
            reached[bar] = statistics.mean(gaps) >= -MOST_BELOW_FEW
    return reached


def save_record(runs: list[dict[str, Any]]) -> None:
    rows = {run["set"]: run["train_rows"] for run in runs if run["rows"] is None}
    found = summary(runs)
    save(
        "classify",
        {
            "threads": THREADS,
            "train_rows": rows,
            "results": found,
            "bars": bars(found, rows),
            "runs": runs,
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fasttext", required=True, help="the Python that has fastText")
    parser.add_argument("--vw", help="the Python that has Vowpal Wabbit; without, it does not take part")
    parser.add_argument("--data", type=Path, required=True, help="the folder with the real sets")
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument(
        "--ours-only", action="store_true", help="run ours again, keep what the record has of peers"
    )
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"the real sets are not here (looked in {options.data})")
    pythons = {"manyhands_classify.py": sys.executable, "sklearn_classify.py": sys.executable}
    pythons["fasttext_classify.py"] = options.fasttext
    if options.vw:
        pythons["vw_classify.py"] = options.vw
    record = RECORDS / "classify.json"
    runs = json.loads(record.read_text())["runs"] if record.exists() else []
    contenders = [OURS] if options.ours_only else list(CONTENDERS)
    if options.ours_only:
        runs = [run for run in runs if run["peer"] != OURS or run["set"] not in options.sets]
    bench = Bench(pythons, options.data, runs)
    for task in tasks(options.sets):
        bench.run(task, contenders)
    for bar, met in json.loads(record.read_text())["bars"].items():
        print(f"{'reached' if met else 'MISSED '}  {bar}")


if __name__ == "__main__":
    main()
