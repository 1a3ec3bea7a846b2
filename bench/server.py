"""The parameter server beside one process: speed, quality, bytes; slow and killed workers.

``speed``: two workers of one thread on one machine beside one process of two threads, on prepared data, in
turn; the best of several, by the training loop and by the whole command. Beside them stands what a dense
exchange would cost: each worker sends and gets whole tables through Ray, as often as machines would exchange.
``slow``: one of two workers is held up half of the time, with and without synchronous rounds.
``kills``: in each run a worker, a shard and the driver are killed at random moments, and the run is resumed.
``emulated``: so many machines of one worker each, in one process: what their scores come to.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from classification_sets import write_sets
from crew_speed import datasets
from crews import MEMORY, read
from embed import JOB, write_text
from manyhands.bundle.bundle import load_bundle
from manyhands.data.labelled_rows import read_rows
from manyhands.data.prepare.prepare import prepare
from manyhands.engines.ray import ray
from manyhands.evaluation.evaluate import judge
from manyhands.evaluation.words import evaluate_words
from manyhands.records import Resources, Silent
from manyhands.settings import PrepareSettings
from manyhands.spread.merge import exchanges
from manyhands.spread.server.emulated import emulate
from manyhands.spread.server.messages import exchanged_parts
from manyhands.spread.single import Single
from manyhands.training.exchange import Alone
from manyhands.training.job import job_for
from manyhands.training.objective import objective_of
from manyhands.training.splits import open_splits
from measure import RECORDS, save

ONE, SERVER = "one process, two threads", "server, two workers"
WAYS = {
    ONE: ["--threads", "2"],
    SERVER: ["--threads", "1", "--spread", "server", "--workers", "2", "--shards", "2"],
}
WORDS = ["--window", "5", "--negatives", "5", "--sample", "1e-4", "--min-count", "5"]
CASES = {  # what is learnt, by which model and how
    "skipgram, dim 200": ("words", "skipgram", ["--dim", "200", "--epochs", "2", *WORDS]),
    "skipgram, dim 50": ("words", "skipgram", ["--dim", "50", "--epochs", "2", *WORDS]),
    "fasttext": ("reviews", "fasttext", []),
}
LEAST_SPEED, MOST_BYTES, MOST_LOST, MOST_POINTS, LEAST_ASYNC = 0.85, 0.01, 0.015, 0.3, 1.25
LEAST_KILLS, KILLED_EPOCHS = 10, 40  # of each kind; so many that there is time to kill someone
PERIOD_SECONDS = 0.1  # in which a slow worker rests half of the time
DENSE_EXCHANGES = 5  # that are timed
MARK = "MANYHANDS_BENCH"  # a variable that all processes of our runs inherit, and no others
WORKER, SHARD, DRIVER = "WorkerActor", "ShardActor", "driver"


def run(data: Path, out: Path, model: str, options: list[str], watch: Any = None) -> dict[str, Any]:
    """A whole command; ``watch`` is called with its process while it runs. Nothing, if it was killed."""
    command = [sys.executable, "-m", "manyhands", "train", str(data), "--out", str(out)]
    began = time.monotonic()
    process = subprocess.Popen(
        [
            *command,
            "--json",
            "--model",
            model,
            *(["--overwrite"] if "--resume" not in options else []),
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, MARK: str(os.getpid())},
    )
    if watch:
        threading.Thread(target=watch, args=(process,), daemon=True).start()
    printed, said = process.communicate()
    if process.returncode == -signal.SIGKILL:
        return {}
    if process.returncode:
        raise SystemExit(f"{command} {options} failed: {said.decode()[-2000:]}")
    record = json.loads(printed)
    return {
        "seconds": round(time.monotonic() - began, 2),
        "learning": record["learning_seconds"],
        "seen": record["examples_seen"],
        "bytes": record["traffic"]["bytes"],
        "staleness": record["traffic"]["staleness"],
        "shares": [lap["shares"][0]["shares"] for lap in record["laps"] if lap.get("shares")][-1:],
    }


def scores_of(out: Path, model: str, data: Path, test: Any) -> dict[str, float]:
    bundle = load_bundle(out)
    if model == "skipgram":
        found = evaluate_words(bundle.model.embedding(None), sets=data, threads=2).facts()["similarity"]
        return {name: round(found[name]["spearman"], 4) for name in ("WS-353", "MEN")}
    classifier = bundle.classifier
    return {
        "accuracy": round(100 * judge(classifier, test.with_names(classifier.labels), threads=2).accuracy, 2)
    }


def dense(data: Path, model: str, options: list[str]) -> dict[str, Any]:
    """What it would cost to exchange whole tables: the bytes of an epoch, and the time of an exchange."""
    settings = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(options[::2], options[1::2], strict=True)
    }
    job = job_for(model, settings, Resources(2, MEMORY))
    rows = objective_of(model).ready(job, open_splits((str(data),), job, Silent()).train)
    from manyhands.catalog import LEARNERS, load

    learner = load(LEARNERS, "model", model).begin(job.settings, rows, None, job.resources, Silent(), Alone())
    feed = learner.feed(rows, 0, Resources(2, 0), Silent(), Alone())
    total = sum(feed.rows(block) for block in range(len(feed)))
    count = sum(
        len(exchanges(epoch * total, total, *feed.between_exchanges)) for epoch in range(job.settings.epochs)
    )
    arrays = [
        np.ascontiguousarray(part.array[:, part.first : part.last])
        for part in exchanged_parts(learner).values()
    ]
    with ray(None, 2, 8 * sum(array.nbytes for array in arrays)) as library:

        class Table:
            def __init__(self, arrays: Any) -> None:
                self._arrays = [array.copy() for array in arrays]

            def exchange(self, moves: Any) -> Any:
                self._arrays = [array + move for array, move in zip(self._arrays, moves, strict=True)]
                return self._arrays

        table = library.remote(Table).remote(arrays)
        library.get(table.exchange.remote(arrays))
        began = time.monotonic()
        for _ in range(DENSE_EXCHANGES):
            library.get(table.exchange.remote(arrays))
        seconds = (time.monotonic() - began) / DENSE_EXCHANGES
    size = sum(array.nbytes for array in arrays)
    return {
        "table_bytes": size,
        "exchanges": count,
        "bytes": 2 * 2 * size * count,  # two workers, there and back
        "exchange_seconds": round(seconds, 4),
        "seconds_in_exchanges": round(seconds * count, 1),
    }


def speed(given: Any, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    data = datasets(given.data, folder, {CASES[name][0] for name in given.cases})
    test = None
    if any(CASES[name][1] == "fasttext" for name in given.cases):
        test = read(write_sets(given.data, folder, ["TripAdvisor"])["TripAdvisor"]["test"])
    for name in given.cases:
        of, model, options = CASES[name]
        run(data[of], folder / "run", model, [*options, "--epochs", "1"])  # compiles
        runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for repeat in range(given.repeats):
            for way, chosen in WAYS.items():
                one = run(data[of], folder / "run", model, [*options, *chosen, "--seed", str(repeat + 1)])
                one |= scores_of(folder / "run", model, given.data, test)
                runs[way].append(one)
                print(f"{name}, {way}: {one}", flush=True)
        best: dict[str, Any] = {
            way: {key: min(one[key] for one in every) for key in ("seconds", "learning")}
            for way, every in runs.items()
        }
        judged = [key for key in ("WS-353", "MEN", "accuracy") if key in runs[ONE][0]]
        for way, every in runs.items():
            best[way] |= {key: round(statistics.mean(one[key] for one in every), 4) for key in judged}
        best[SERVER]["bytes"] = runs[SERVER][0]["bytes"]
        best["dense"] = dense(data[of], model, options)
        best["speed"] = round(best[ONE]["learning"] / best[SERVER]["learning"], 3)
        best["speed_of_whole_command"] = round(best[ONE]["seconds"] / best[SERVER]["seconds"], 3)
        best["bytes_beside_dense"] = round(best[SERVER]["bytes"] / best["dense"]["bytes"], 5)
        best["scores_beside"] = {key: round(best[SERVER][key] - best[ONE][key], 4) for key in judged}
        best["bars_met"] = {
            "speed": best["speed"] >= LEAST_SPEED,
            "bytes": best["bytes_beside_dense"] <= MOST_BYTES,
            "scores": all(
                change >= -(MOST_POINTS if key == "accuracy" else MOST_LOST)
                for key, change in best["scores_beside"].items()
            ),
        }
        print(name, json.dumps(best, indent=1), flush=True)
        found[name] = {"repeats": given.repeats, "text": of, "settings": options, **best}
    return {"speed": found}


def actors(kind: str) -> list[int]:
    """Processes of Ray's actors of a kind, in runs of ours."""
    found, ours = [], f"{MARK}={os.getpid()}\0".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words, variables = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            except OSError:
                continue
            if words.startswith(f"ray::{kind}".encode()) and ours in variables:
                found.append(int(folder.name))
    return sorted(found)


def hold_up(process: subprocess.Popen[bytes]) -> None:
    """Let one worker rest half of the time."""
    while process.poll() is None and len(actors(WORKER)) < 2:
        time.sleep(0.2)
    time.sleep(1.0)
    slow = actors(WORKER)[:1]
    while process.poll() is None and slow:
        try:
            os.kill(slow[0], signal.SIGSTOP)
            time.sleep(PERIOD_SECONDS / 2)
            os.kill(slow[0], signal.SIGCONT)
            time.sleep(PERIOD_SECONDS / 2)
        except ProcessLookupError:
            return


def slow(given: Any, folder: Path) -> dict[str, Any]:
    data = datasets(given.data, folder, {"words"})["words"]
    _, model, options = CASES["skipgram, dim 50"]
    found: dict[str, Any] = {}
    for memory, apart in (("one memory", []), ("apart", ["--apart"])):
        ways = {}
        for way, chosen in (("async", []), ("sync", ["--sync"])):
            every = [
                run(data, folder / "run", model, [*options, *WAYS[SERVER], *apart, *chosen], hold_up)
                for _ in range(given.repeats)
            ]
            one = min(every, key=lambda each: each["learning"])
            ways[way] = {**one, "words_per_second": round(one["seen"] / one["learning"])}
            print(f"slow, {memory}, {way}: {ways[way]}", flush=True)
        ratio = ways["async"]["words_per_second"] / ways["sync"]["words_per_second"]
        found[memory] = {**ways, "async_beside_sync": round(ratio, 2), "bar_met": ratio >= LEAST_ASYNC}
    return {"slow": found}


def strike(plan: list[tuple[float, str]], struck: list[Any], process: subprocess.Popen[bytes]) -> None:
    """Kill one of each kind, so many seconds after all workers are there, up to and with the driver."""
    while process.poll() is None and len(actors(WORKER)) < 2:
        time.sleep(0.1)
    began = time.monotonic()
    while plan and process.poll() is None:
        moment, kind = plan[0]
        if time.monotonic() - began < moment:
            time.sleep(0.02)
            continue
        found = [process.pid] if kind == DRIVER else actors(kind)
        if found:
            os.kill(random.choice(found), signal.SIGKILL)
            struck.append({"kind": kind, "second": round(moment, 2)})
            plan.pop(0)
            if kind == DRIVER:
                return
        else:
            time.sleep(0.1)


def kills(given: Any, folder: Path) -> dict[str, Any]:
    files = write_sets(given.data, folder, ["IMDB"])["IMDB"]
    prepare(str(files["train"]), folder / "imdb", valid=0, test=0)
    test, draw, every = read(files["test"]), random.Random(3), []
    options = [*WAYS[SERVER], "--checkpoint-seconds", "1", "--epochs", str(KILLED_EPOCHS)]

    def accuracy() -> float:
        return scores_of(folder / "run", "fasttext", given.data, test)["accuracy"]

    run(folder / "imdb", folder / "run", "fasttext", options)  # compiles
    quiet = run(folder / "imdb", folder / "run", "fasttext", options)
    usual, span = accuracy(), 3.0 + quiet["learning"]  # until workers have read their rows, and after
    print(f"undisturbed: {quiet}, {usual}", flush=True)
    for _ in range(given.kills):
        shutil.rmtree(folder / "run")  # which could not be resumed
        kinds = draw.sample([WORKER, SHARD, DRIVER], 3)
        plan = sorted(draw.uniform(0, 0.8 * span) for _ in kinds)
        left, struck = list(zip(plan, kinds, strict=True)), list[Any]()
        one = run(folder / "imdb", folder / "run", "fasttext", options, partial(strike, left, struck))
        while not one:
            while actors(WORKER) or actors(SHARD):  # which end with the driver
                time.sleep(0.1)
            left = [(moment - struck[-1]["second"], kind) for moment, kind in left]
            again = [*options, "--resume"]
            one = run(folder / "imdb", folder / "run", "fasttext", again, partial(strike, left, struck))
        points = round(accuracy() - usual, 2)
        every.append(one | {"killed": struck, "exact": one["seen"] == quiet["seen"], "points": points})
        print(f"killed: {every[-1]}", flush=True)
        keep({"kills": of_kills(quiet | {"accuracy": usual}, every)})  # it takes long: nothing is lost
    return {}


def of_kills(quiet: dict[str, Any], every: list[dict[str, Any]]) -> dict[str, Any]:
    killed = Counter(hit["kind"] for one in every for hit in one["killed"])
    return {
        "text": "IMDB",
        "model": "fasttext",
        "epochs": KILLED_EPOCHS,
        "killed": {kind: killed[kind] for kind in (WORKER, SHARD, DRIVER)},
        "runs_exact": sum(one["exact"] for one in every),
        "worst_points": min(one["points"] for one in every),
        "bar_met": min(killed.values()) >= LEAST_KILLS
        and all(one["exact"] and one["points"] >= -MOST_POINTS for one in every),
        "undisturbed": quiet,
        "runs": every,
    }


def emulated(given: Any, folder: Path) -> dict[str, Any]:
    """Scores of so many machines, beside one process; the mean over the seeds for classifiers."""
    for label, files in write_sets(given.data, folder, given.sets).items():
        train, test = read(files["train"]), read(files["test"])

        def accuracy(model: Any, test: Any = test) -> float:
            return round(100 * judge(model, test.with_names(model.labels), threads=2).accuracy, 2)

        for model in given.models:
            runs: dict[str, Any] = {}
            for workers in (1, *given.workers):
                jobs = [job_for(model, {"seed": seed}, Resources(1, MEMORY)) for seed in given.seeds]
                outcomes = [play(job, train, workers) for job in jobs]
                points = [accuracy(outcome.model) for outcome in outcomes]
                runs[str(workers)] = facts_of(outcomes[0]) | {
                    "accuracy": round(statistics.mean(points), 2),
                    "of_seeds": points,
                }
                print(f"{label}, {model}, {workers}: {runs[str(workers)]}", flush=True)
                keep({"emulated": {f"{label}, {model}": runs}})
    return {"emulated": emulated_words(given, folder) if given.words else {}}


def emulated_words(given: Any, folder: Path) -> dict[str, Any]:
    write_text(given.data, folder / "words.txt")
    text = read_rows(
        [str(folder / "words.txt")], PrepareSettings(), Resources(2, MEMORY), Silent(), labelled=False
    )
    job = job_for("skipgram", {**JOB, "epochs": given.words, "seed": 1}, Resources(1, MEMORY))
    runs: dict[str, Any] = {}
    for workers in (1, *given.workers):
        outcome = play(job, text.examples, workers)
        found = evaluate_words(outcome.model.embedding(None), sets=given.data, threads=2).facts()
        scores = {name: round(found["similarity"][name]["spearman"], 4) for name in ("WS-353", "MEN")}
        runs[str(workers)] = facts_of(outcome) | scores
        print(f"skipgram, {workers}: {runs[str(workers)]}", flush=True)
    return {f"12.6 M words, skipgram, {given.words} epochs": runs}


def play(job: Any, rows: Any, machines: int) -> Any:
    return Single().run(job, rows, None, Silent()) if machines == 1 else emulate(job, rows, None, machines)


def facts_of(outcome: Any) -> dict[str, Any]:
    return {
        "machines_that_learn": outcome.workers,
        "bytes": outcome.traffic.bytes,
        "staleness": outcome.traffic.staleness,
    }


PARTS = {"speed": speed, "slow": slow, "kills": kills, "emulated": emulated}


def keep(found: dict[str, Any]) -> None:
    """Beside the runs of other parts, sets and models, which take their time."""
    path = RECORDS / "server.json"
    before = json.loads(path.read_text())["runs"] if path.is_file() else {}
    for key, runs in found.items():
        before[key] = {**before.get(key, {}), **runs}
    save("server", {"runs": before})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", nargs="+", type=int, default=[8, 16])
    parser.add_argument("--sets", nargs="*", default=["IMDB", "Yelp sentences", "TripAdvisor"])
    parser.add_argument("--models", nargs="+", default=["fasttext", "ngrams"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--words", type=int, metavar="EPOCHS", default=1)
    given = parser.parse_args()
    for part in given.parts:
        with tempfile.TemporaryDirectory() as name:
            found = PARTS[part](given, Path(name))
        keep(found)


if __name__ == "__main__":
    main()
