"""Vowpal Wabbit's side: words and pairs of words, logistic loss; passes and rate chosen by validation.

The text files are written before the clock starts. It runs on one thread. Arguments come as one JSON object.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from validation import folds, read, scores, tokens
from vowpalwabbit import Workspace

CANDIDATES = tuple((passes, rate) for passes in (3, 10, 30) for rate in (0.5, 2.0))
WORDS = "--ngram 2 -b 24 --loss_function logistic --quiet"
MARKS = str.maketrans(":|", "  ")  # its file format gives them a meaning


def prepare(labels: list[str], texts: list[str], numbers: dict[str, int]) -> list[str]:
    rows = zip(labels, texts, strict=True)
    return [f"{numbers[label]} | {tokens(text.translate(MARKS))}\n" for label, text in rows]


def number_of(line: str) -> int:
    return int(line.partition(" ")[0])


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(lines), "utf-8")
    return path


def train(path: Path, out: Path, classes: int, candidate: tuple[int, float], seed: int) -> None:
    passes, rate = candidate
    many = f"--oaa {classes}" if classes > 2 else "--binary"
    more = f"-d {path} -c -k --cache_file {path}.cache --passes {passes} -l {rate} --holdout_off"
    Workspace(f"{WORDS} {many} {more} --random_seed {seed} -f {out}").finish()


def predict(model: Path, path: Path) -> list[int]:
    out = Path(f"{path}.predicted")
    Workspace(f"-i {model} -t -d {path} -p {out} --quiet").finish()
    return [int(float(line)) for line in out.read_text().split()]


job = json.loads(sys.argv[1])
labels, texts = read(job["train"])
names = sorted({*labels})
# Two labels are -1 and 1, more are counted from 1; labels of test rows that training does not have are 0.
numbers = {label: 2 * k - 1 if len(names) == 2 else k + 1 for k, label in enumerate(names)}
lines = prepare(labels, texts, numbers)
test_labels, test_texts = read(job["test"])
test = prepare(test_labels, test_texts, {**dict.fromkeys(test_labels, 0), **numbers})
with tempfile.TemporaryDirectory() as name:
    folder, parts = Path(name), []
    for k, (learn, choose) in enumerate(folds(labels, job["seed"])):
        train_file = write(folder / f"train.{k}", [lines[row] for row in sorted(learn)])
        held = [lines[row] for row in choose]
        parts.append((train_file, write(folder / f"valid.{k}", held), [number_of(line) for line in held]))
    whole, test_file, model = write(folder / "train", lines), write(folder / "test", test), folder / "model"
    began, used = time.perf_counter(), time.process_time()
    valid = []
    for candidate in CANDIDATES:
        found = []
        for train_file, valid_file, right in parts:
            train(train_file, model, len(names), candidate, job["seed"])
            found.append(scores(predict(model, valid_file), right)["accuracy"])
        valid.append(sum(found) / len(found))
    chosen = CANDIDATES[valid.index(max(valid))]
    train(whole, model, len(names), chosen, job["seed"])
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    given = predict(model, test_file)
result = {
    "peer": "Vowpal Wabbit",
    "chosen": dict(zip(("passes", "rate"), chosen, strict=True)),
    "valid": round(max(valid), 3),
    **scores(given, [number_of(line) for line in test]),
    "seconds": round(seconds, 2),
    "cpu_seconds": round(cpu, 2),
}
print(json.dumps(result), flush=True)
