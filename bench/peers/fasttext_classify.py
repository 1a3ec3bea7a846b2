"""fastText's side: the best of six settings by validation, then a run on all training rows.

The text files are written before the clock starts. Arguments come as one JSON object.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fasttext
from validation import folds, read, scores, tokens

CANDIDATES: tuple[dict[str, Any], ...] = (
    {"wordNgrams": 2, "lr": 0.1, "epoch": 5},
    {"wordNgrams": 2, "lr": 0.5, "epoch": 5},
    {"wordNgrams": 1, "lr": 0.5, "epoch": 25},
    {"wordNgrams": 2, "lr": 0.5, "epoch": 25},
    {"wordNgrams": 2, "lr": 1.0, "epoch": 25},
    {"wordNgrams": 3, "lr": 0.5, "epoch": 25},
)
# fastText fills its first vectors a tenth a thread, so that with fewer than ten threads the rest is whatever
# memory held. It gets twelve, on as many cores as the other side has.
ENOUGH_THREADS = 12


def train(path: Path, candidate: dict[str, Any], seed: int) -> Any:
    more = {"dim": 10, "minCount": 1, "bucket": 2_000_000, "verbose": 0}
    return fasttext.train_supervised(str(path), thread=ENOUGH_THREADS, seed=seed, **candidate, **more)


def prepare(path: str) -> list[str]:
    rows = zip(*read(path), strict=True)
    return [f"__label__{'_'.join(label.split())} {tokens(text)}\n" for label, text in rows]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(lines), "utf-8")
    return path


def label_of(line: str) -> str:
    return line.partition(" ")[0]


job = json.loads(sys.argv[1])
lines, test = prepare(job["train"]), prepare(job["test"])
with tempfile.TemporaryDirectory() as name:
    folder, parts = Path(name), []
    for k, (learn, choose) in enumerate(folds([label_of(line) for line in lines], job["seed"])):
        # In the order of the file, which is none of labels: fastText does not shuffle.
        files = {"train": sorted(learn), "valid": choose}
        parts.append(
            {s: write(folder / f"{s}.{k}", [lines[row] for row in rows]) for s, rows in files.items()}
        )
    whole = write(folder / "train", lines)
    began, used = time.perf_counter(), time.process_time()
    valid = []
    for candidate in CANDIDATES:
        found = [train(part["train"], candidate, job["seed"]).test(str(part["valid"]))[1] for part in parts]
        valid.append(sum(found) / len(found))
    chosen = CANDIDATES[valid.index(max(valid))]
    model = train(whole, chosen, job["seed"])
    model.save_model(str(folder / "model.bin"))
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
found = model.predict([line.partition(" ")[2][:-1] for line in test])[0]
result = {
    "peer": "fastText",
    "chosen": chosen,
    "valid": round(100 * max(valid), 3),
    **scores([labels[0] if labels else "" for labels in found], [label_of(line) for line in test]),
    "seconds": round(seconds, 2),
    "cpu_seconds": round(cpu, 2),
}
print(json.dumps(result), flush=True)
