"""Whether the probabilities of a default training can be believed, and whether intervals hold what they say.

Each set is trained on twice by default settings: prepared, with a tenth of the training rows for validation,
and as the raw file that it is. Both are judged by the test rows: the expected calibration error (15 bins of
equal width) of the model's own probabilities and of the calibrated ones. Then rows are drawn 2,000 times from
predictions with a known truth, to count how often each interval holds it.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from classification_sets import SETS, write_sets
from manyhands.bundle.bundle import load_bundle
from manyhands.data.prepare.prepare import prepare
from manyhands.evaluation.classification import table
from manyhands.evaluation.evaluate import evaluate
from manyhands.evaluation.intervals import compare_pairs, intervals, marks_of
from manyhands.run.train import train

RECORD = Path(__file__).parent / "records" / "calibration.json"
DRAWS = 2000
# Shares of true labels, how often each is right, rows.
SIMULATED = {
    "two labels": ([0.5, 0.5], 0.9, 1000),
    "two labels, nearly always right": ([0.5, 0.5], 0.97, 1000),
    "one label rare": ([0.9, 0.1], 0.9, 500),
    "four labels": ([0.4, 0.3, 0.2, 0.1], 0.85, 500),
    "twenty labels": ([0.05] * 20, 0.8, 1000),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--model", default="ngrams")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = write_sets(arguments.data, Path(folder), arguments.sets)
        sets = {name: errors(arguments.model, found, Path(folder)) for name, found in files.items()}
    covered = {name: coverage(*of) for name, of in SIMULATED.items()}
    for name, shares in covered.items():
        print(f"{name}: {shares}", flush=True)
    RECORD.write_text(
        json.dumps({"model": arguments.model, "sets": sets, "coverage": covered}, indent=1) + "\n"
    )


def errors(model: str, files: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Of one set: the calibration error on the test rows, before and after, prepared and raw."""
    data = folder / f"{files['train'].stem}.data"
    prepare([str(files["train"])], data, labels="as-is", test=0)
    ways = {"prepared": {"data": str(data)}, "raw": {"data": str(files["train"]), "labels": "as-is"}}
    return {way: _errors(model, files, folder, way, given) for way, given in ways.items()}


def _errors(
    model: str, files: dict[str, Path], folder: Path, way: str, given: dict[str, str]
) -> dict[str, Any]:
    out = folder / f"{files['train'].stem}.{way}"
    train(**given, out=out, model=model)
    bundle = load_bundle(out)
    plain = replace(bundle, config=bundle.config.model_copy(update={"calibration": None}))
    before, after = (evaluate(one, str(files["test"])) for one in (plain, bundle))
    record = json.loads((out / "record.json").read_text())["calibration"]
    found = {
        "test_rows": after.rows,
        "chosen": record["method"],
        "held_out_rows": record["rows"],
        "accuracy": round(after.accuracy, 4),
        "ece_before": before.ece,
        "ece_after": after.ece,
        "log_loss_before": round(before.log_loss or 0.0, 4),
        "log_loss_after": round(after.log_loss or 0.0, 4),
    }
    print(files["train"].stem, way, found, flush=True)
    return found


def coverage(shares: list[float], right: float, rows: int) -> dict[str, float]:
    """How often the 95 % intervals hold the truth, and how often two equal models are told apart (at 5 %)."""
    labels, random = len(shares), np.random.default_rng(0)
    says = np.full((labels, labels), (1 - right) / (labels - 1))
    np.fill_diagonal(says, right)
    cells = np.array(shares)[:, None] * says
    f1 = 2 * np.diag(cells) / (cells.sum(axis=0) + cells.sum(axis=1))
    truth = {"accuracy": np.trace(cells), "macro_f1": f1.mean(), "micro_f1": np.trace(cells)}
    held = dict.fromkeys([*truth, "f1 of the first label", "equal models told apart"], 0)
    offsets, names = np.arange(rows + 1), [str(k) for k in range(labels)]
    for _ in range(DRAWS):
        true = random.choice(labels, rows, p=shares)
        first, second = (_said(random, true, right, labels) for _ in range(2))
        marks = [
            marks_of(*(table(ids, offsets, labels) for ids in (true, said)), None) for said in (first, second)
        ]
        found = intervals(marks[0], names)
        for name, value in truth.items():
            held[name] += found[name][0] <= value <= found[name][1]
        low, high = found["labels"]["0"]
        held["f1 of the first label"] += low <= f1[0] <= high
        held["equal models told apart"] += compare_pairs(*marks)["macro_f1"]["p"] < 0.05
    return {name: round(100 * float(count) / DRAWS, 2) for name, count in held.items()}


def _said(random: np.random.Generator, true: Any, right: float, labels: int) -> Any:
    """What a model says: as often right, and otherwise any other label."""
    wrong = (true + random.integers(1, labels, len(true))) % labels
    return np.where(random.random(len(true)) < right, true, wrong)


if __name__ == "__main__":
    main()
