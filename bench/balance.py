"""What the balancer makes of workers of unequal speed: their speed together beside the sum of each alone.

A slow worker is one that stalls for a fixed time on every row. Each runs alone first, then all
together, with the balancer and without it. What counts is the speed after three rebalances.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.models.recurrent import lstm
from manyhands.records import Resources, Silent
from manyhands.spread.allreduce import AllReduceExchange
from manyhands.spread.balance import Policy
from manyhands.spread.group import Group
from manyhands.text.corpus import corpus_of
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import from_strings
from manyhands.training.job import job_for
from manyhands.training.learn import learn
from manyhands.training.state import State
from measure import save

ROWS, LENGTH, WORDS, BATCH = 20_480, 100, 10_003, 2048
STEPS_BETWEEN, REBALANCES, EPOCHS = 10, 3, 6
STEPS_LEFT_OUT = 3  # of a worker alone: its kernels are loaded in the first
SETTINGS = {
    "hidden_size": "32",
    "layers": 2,
    "max_length": LENGTH,
    "batch_size": BATCH,
    "vocabulary_size": WORDS,
}
# Three workers at full speed want 1.75 cores, and two cores are not twice as fast as one: so three are also
# measured with a stall for everyone, as if each had a machine of its own.
CASES = {  # and how often each is measured
    "1 : 0.5": ([1.0, 0.5], 3),
    "1 : 0.5 : 0.25, all slowed": ([0.5, 0.25, 0.125], 2),
    "1 : 0.5 : 0.25, on two cores": ([1.0, 0.5, 0.25], 1),
}


def examples() -> LabelledRows:
    """Full-length rows; a few words tell the label."""
    draw = np.random.default_rng(0)
    chances = 1 / np.arange(1, WORDS + 1)
    words = draw.choice(WORDS, (ROWS, LENGTH), p=chances / chances.sum())
    labels = draw.integers(0, 2, ROWS).astype(np.int32)
    words[:, 5] = 100 + labels
    texts = [" ".join(f"w{word}" for word in row) for row in words]
    return LabelledRows(
        corpus_of(from_strings(texts)), Labels.single(labels, ["no", "yes"]), np.ones(ROWS, np.float32)
    )


def worker(stalls: list[float], balance: str, epochs: int, out: Path) -> None:
    """One of the crew: ``stalls`` has the seconds that each of them loses on every row."""
    stall, gradients = stalls[int(os.environ["RANK"])], lstm.gradients

    def slowed(work: Any, batch: Any) -> Any:
        part = gradients(work, batch)
        time.sleep(stall * len(batch.rows))
        return part

    lstm.gradients = slowed  # type: ignore[assignment]
    times: list[tuple[float, int]] = []

    def watch(state: State) -> None:
        times.append((time.perf_counter(), state.seen))

    with Group(60) as group:
        exchange = AllReduceExchange(group, Policy.parse(balance))
        job = job_for("lstm", {**SETTINGS, "epochs": epochs}, Resources(1, 4 << 30))
        outcome = learn(job, examples(), None, exchange, Silent(), watch, keeps=False)
    if group.rank == 0:
        first = STEPS_BETWEEN * REBALANCES + 1 if len(stalls) > 1 else STEPS_LEFT_OUT
        (began, seen), (ended, total) = times[first], times[-1]
        shares = [entry["shares"] for lap in outcome.state.laps for entry in lap["shares"]]
        facts = {
            "rows_per_second": (total - seen) / (ended - began),
            "loss": outcome.state.history[-1]["loss"],
            "shares": shares[:: max(len(shares) // 6, 1)],
            "seconds": outcome.state.laps[-1]["seconds"],
        }
        out.write_text(json.dumps(facts))


def crew(stalls: list[float], balance: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "facts.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(len(stalls))]
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", __file__]
        command += ["--worker", json.dumps(stalls), "--balance", balance, "--out", str(out)]
        command += ["--epochs", str(EPOCHS if len(stalls) > 1 else 1)]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True)
        return dict(json.loads(out.read_text()))


def contest(speeds: list[float], rounds: int) -> dict[str, Any]:
    """Alone and together in turn; the round in which they came closest to their sum counts."""
    alone = crew([0.0], "off")["rows_per_second"]
    stalls = [(1 / speed - 1) / alone for speed in speeds]
    unbalanced, best, ratios = crew(stalls, "off"), {}, []
    for _ in range(rounds):
        singles = [crew([stall], "off")["rows_per_second"] for stall in stalls]
        balanced = crew(stalls, f"steps:{STEPS_BETWEEN}")
        ratios.append(round(balanced["rows_per_second"] / sum(singles), 3))
        if ratios[-1] == max(ratios):
            best = {
                "alone": [round(speed) for speed in singles],
                "sum": round(sum(singles)),
                "together": round(balanced["rows_per_second"]),
                "share_of_sum": ratios[-1],
                "unbalanced": round(unbalanced["rows_per_second"]),
                "unbalanced_share": round(unbalanced["rows_per_second"] / sum(singles), 3),
                "loss": round(balanced["loss"], 5),
                "unbalanced_loss": round(unbalanced["loss"], 5),
                "shares": balanced["shares"],
                "seconds": balanced["seconds"],
            }
    return {**best, "share_of_sum_in_each_round": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", type=json.loads)
    parser.add_argument("--balance")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.worker is not None:
        worker(options.worker, options.balance, options.epochs, options.out)
        return
    results = {}
    for name, (speeds, rounds) in CASES.items():
        results[name] = contest(speeds, rounds)
        print(name, json.dumps(results[name]), flush=True)
    save("balance", {"crews": results, "batch": BATCH, "rows": ROWS, "steps_between": STEPS_BETWEEN})


if __name__ == "__main__":
    main()
